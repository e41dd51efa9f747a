//! The committed bundle is what the committed model and spec give, byte for byte.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use midspan_split::make::{MakeError, make};
use midspan_split::rewrite::RewriteError;
use midspan_split::spec::Spec;

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models")
}

/// All files below a folder by their names from there.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_owned();
                found.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    found
}

#[test]
fn remaking_gives_the_same_bytes() {
    midspan_runtime::test_support::library();
    let spec = Spec::read(&models().join("fashion.toml")).unwrap();
    let model = std::fs::read(models().join("fashion.onnx")).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("fashion");
    // The second time replaces what the first has made.
    for _ in 0..2 {
        let made = make(&model, &spec, &models(), &out).unwrap();
        assert_eq!(made.blobs, 6);
        let (new, committed) = (files(&out), files(&models().join("fashion")));
        assert_eq!(new.keys().collect::<Vec<_>>(), committed.keys().collect::<Vec<_>>());
        assert!(new == committed, "same names, other bytes");
    }
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1, "nothing is left behind");
}

#[test]
fn a_folder_that_is_no_bundle_is_not_replaced() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("thesis.tex"), b"x").unwrap();
    let spec = Spec::read(&models().join("fashion.toml")).unwrap();
    let error = make(b"", &spec, &models(), scratch.path()).unwrap_err();
    assert!(matches!(error, MakeError::Write(RewriteError::Occupied(_))), "{error}");
    assert!(scratch.path().join("thesis.tex").exists());
}

/// What is said of the default spec with one part of its text replaced.
fn refused(old: &str, new: &str) -> String {
    midspan_runtime::test_support::library();
    let text = std::fs::read_to_string(models().join("fashion.toml")).unwrap();
    assert!(text.contains(old), "{old}");
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("spec.toml");
    std::fs::write(&path, text.replace(old, new)).unwrap();
    let spec = match Spec::read(&path) {
        Ok(spec) => spec,
        Err(error) => return error.to_string(),
    };
    let model = std::fs::read(models().join("fashion.onnx")).unwrap();
    let out = scratch.path().join("out");
    let error = make(&model, &spec, &models(), &out).unwrap_err().to_string();
    assert!(!out.exists());
    error
}

#[test]
fn mistakes_in_a_spec_are_named_by_their_keys() {
    let unknown = refused("local_stages", "lokal_stages");
    assert!(unknown.contains("spec.toml") && unknown.contains("unknown field `lokal_stages`"));
    assert_eq!(
        refused("/seg0/bott/Clip_output_0", "/seg0/nothing"),
        "stages[0]: the model has no tensor \"/seg0/nothing\" of a supported type"
    );
    // The second exit's logits do not follow from the tensor that crosses.
    assert_eq!(
        refused("/seg0/bott/Clip_output_0", "logits1"),
        "stages[1]: output needs tensor \"image\", which does not follow from the inputs \
         [\"logits1\"]"
    );
    assert_eq!(
        refused("output = \"logits1\"", "output = \"/seg0/bott/Clip_output_0\""),
        "stages[0].exit.output: exits are for classifiers: \"/seg0/bott/Clip_output_0\" must be \
         FP32 [rows, classes], it is FP32 [N,8,7,7]"
    );
    assert_eq!(
        refused("temperature = 1.05", "temperature = 1.05, threshold = 0.5"),
        "stages[1].exit.threshold: all exits but the last have a threshold; the last always answers"
    );
    assert_eq!(
        refused("bits = 4", "bits = 5"),
        "the spec gives no valid manifest: stages[0].cut.codec: bits must be one of allowed"
    );
    assert_eq!(
        refused("hi = 6.0", "hi = 0.0"),
        "the spec gives no valid manifest: stages[0].cut.codec: scale StaticScale { lo: \
         \"00000000\", hi: \"00000000\" } is no finite range, low to high"
    );
}
