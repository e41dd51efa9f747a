//! Failures by programs that stand in for python3; the real tools run in the tests of the command
//! line.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;

/// An executable script of this name in a folder.
fn program(folder: &Path, name: &str, script: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn fails(python: &Path) -> String {
    let cache = tempfile::tempdir().unwrap();
    let made = Environment::ensure_in(cache.path(), python.to_str().unwrap(), &mut |_| {});
    let left: Vec<_> = fs::read_dir(cache.path()).unwrap().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    made.unwrap_err().to_string()
}

#[test]
fn what_is_missing_to_quantise_is_named() {
    let text = fails(Path::new("/nowhere/python3"));
    assert!(text.contains("needs /nowhere/python3, which was not found"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let old = program(folder.path(), "old", "echo 3.9");
    let text = fails(&old);
    assert!(text.contains("needs Python 3.11 to 3.14") && text.ends_with("is 3.9"), "{text}");
    let venv = "case \"$*\" in *version*) echo 3.12;; \
                *) echo ensurepip is not available; exit 1;; esac";
    let text = fails(&program(folder.path(), "bare", venv));
    assert!(text.contains("apt install python3-venv): ensurepip is not available"), "{text}");
    // A venv that is made, and a pip in it that fails.
    let pip = "case \"$*\" in *version*) echo 3.12;; *venv*) mkdir -p \"$4/bin\"; \
               printf '#!/bin/sh\\necho no such wheel; exit 7\\n' > \"$4/bin/python\"; \
               chmod +x \"$4/bin/python\";; esac";
    let text = fails(&program(folder.path(), "offline", pip));
    assert!(text.contains("(exit status: 7): no such wheel"), "{text}");
}

#[test]
fn an_environment_is_made_once_and_anew_when_its_interpreter_is_gone() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let log = folder.path().join("made");
    let script = format!(
        "case \"$*\" in *version*) echo 3.13;; *venv*) echo x >> {}; mkdir -p \"$4/bin\"; \
         printf '#!/bin/sh\\nexit 0\\n' > \"$4/bin/python\"; chmod +x \"$4/bin/python\";; esac",
        log.display()
    );
    let python = program(folder.path(), "python3", &script);
    let ensure = || {
        Environment::ensure_in(cache.path(), python.to_str().unwrap(), &mut |_| {}).unwrap();
        fs::read_to_string(&log).unwrap().lines().count()
    };
    assert_eq!((ensure(), ensure()), (1, 1));
    let entries = fs::read_dir(cache.path()).unwrap();
    let [home]: [PathBuf; 1] =
        entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>().try_into().unwrap();
    let link = home.join("bin/python");
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("/nowhere/python3", &link).unwrap();
    assert_eq!((ensure(), ensure()), (2, 2));
}

#[test]
fn wheels_are_pinned_by_hash() {
    let text = include_str!("requirements.txt");
    for name in ["onnxruntime==1.32.0", "onnx==1.23.2", "numpy==2.4.6"] {
        assert!(text.contains(&format!("{name} \\\n    --hash=sha256:")), "{name}");
    }
}

/// A Python that does what the script says in its own words; `$3` is the folder of files.
fn tools(folder: &Path, script: &str) -> Environment {
    let cache = folder.join("cache");
    fs::create_dir(&cache).unwrap();
    let body = format!(
        "case \"$*\" in *version*) echo 3.13;; *venv*) mkdir -p \"$4/bin\"; \
         cat > \"$4/bin/python\" <<'END'\n#!/bin/sh\ncase \"$*\" in *pip*) exit 0;; esac\n\
         {script}\nEND\nchmod +x \"$4/bin/python\";; esac"
    );
    let python = program(folder, "python3", &body);
    Environment::ensure_in(&cache, python.to_str().unwrap(), &mut |_| {}).unwrap()
}

fn options(name: &str) -> Options {
    Options {
        name: name.into(),
        calibration: Calibration::MinMax,
        reduce_range: false,
        date: "2026-01-02".into(),
    }
}

fn with(script: &str, name: &str) -> (Result<Quantised, String>, Option<Bundle>) {
    midspan_runtime::test_support::library();
    let folder = tempfile::tempdir().unwrap();
    let environment = tools(folder.path(), script);
    let bundle = Bundle::embedded().unwrap();
    let all = samples::of_labelled(&bundle.labelled().unwrap().unwrap(), "image");
    let out = folder.path().join("out");
    let sets = (&all[..3], &all[3..23]);
    let made = quantise(&bundle, sets, &options(name), &environment, &out, &mut |_| {});
    let made = made.map_err(|error| error.to_string());
    let written = made.is_ok().then(|| Bundle::open(&out).unwrap());
    assert_eq!(written.is_some(), out.exists());
    // Every blob is there before the folder is gone.
    if let Some(written) = &written {
        assert!(written.report(&mut |_, _| {}).sound(false));
    }
    (made, written)
}

const RESULT: &str =
    "echo '{\"per_channel\": true, \"quantised\": 5}' > \"$3/result.json\"; echo sample 3";

#[test]
fn what_the_tools_write_is_recorded_with_what_was_measured() {
    // The model as it is: it must agree in everything.
    let same = format!("cp \"$3/model.onnx\" \"$3/quantised.onnx\"; {RESULT}");
    let (made, written) = with(&same, "int8");
    let (made, written) = (made.unwrap(), written.unwrap());
    assert_eq!((made.stages, made.tensors, made.per_channel), (1, 5, true));
    let expected = Counts { samples: 20, agreeing: Some(20), exits: vec![Some(20)], error: 0.0 };
    assert_eq!(made.counts, expected);
    let manifest = written.manifest();
    let variant = &manifest.stages[0].variants[0];
    let measured = variant.measured.as_ref().unwrap();
    assert_eq!(variant.name, "int8");
    assert_eq!((measured.calibration, measured.samples, measured.error_milli), (3, 20, 0));
    assert_eq!((measured.agreeing, measured.exit_agreeing), (Some(20), Some(20)));
    assert_eq!(measured.method, "static QDQ, per channel, minmax");
    assert_eq!(written.split_id(), Bundle::embedded().unwrap().split_id());
    assert!(manifest.stages[1].variants.is_empty());
}

#[test]
fn what_the_tools_fail_at_is_told() {
    let (made, _) = with("echo out of memory >&2; exit 1", "int8");
    assert_eq!(made.unwrap_err(), "stages[0]: the quantisation tools failed: out of memory");
    let (made, _) = with("exit 0", "int8");
    assert!(made.unwrap_err().contains("result.json: No such file"));
    let (made, _) = with(&format!("printf '\\377\\377' > \"$3/quantised.onnx\"; {RESULT}"), "int8");
    assert!(made.unwrap_err().contains("stages[0]: no model"));
    let none = RESULT.replace('5', "0");
    let (made, _) = with(&format!("cp \"$3/model.onnx\" \"$3/quantised.onnx\"; {none}"), "int8");
    assert!(made.unwrap_err().contains("nothing to quantise"));
    let whole = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fashion.onnx");
    let (made, _) = with(&format!("cp {whole} \"$3/quantised.onnx\"; {RESULT}"), "int8");
    let text = made.unwrap_err();
    assert!(text.contains("differs from what was cut"), "{text}");
    let (made, _) = with("exit 0", PLAIN);
    assert!(made.unwrap_err().contains("variant = \"plain\""));
    let (made, _) = with(&format!("cp \"$3/model.onnx\" \"$3/quantised.onnx\"; {RESULT}"), "a/b");
    assert!(made.unwrap_err().contains("stages[0].variants[0].name: is no free name"));
}

#[test]
fn a_model_without_a_bundle_is_quantised_whole() {
    midspan_runtime::test_support::library();
    let folder = tempfile::tempdir().unwrap();
    let same = format!("cp \"$3/model.onnx\" \"$3/quantised.onnx\"; {RESULT}");
    let environment = tools(folder.path(), &same);
    let bundle = Bundle::embedded().unwrap();
    let all = samples::of_labelled(&bundle.labelled().unwrap().unwrap(), "image");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fashion.onnx");
    let model = fs::read(model).unwrap();
    let sets = (&all[..3], &all[3..13]);
    let mut steps = Vec::new();
    let made = quantise_model(&model, sets, &options("int8"), &environment, &mut |step| {
        steps.push(step);
    });
    let (bytes, made) = made.unwrap();
    assert!(onnx::decode(bytes.into()).is_ok());
    assert_eq!((made.counts.samples, made.counts.agreeing), (10, Some(10)));
    assert_eq!(steps.first(), Some(&Step::Calibrating { stage: 0, done: 3, total: 3 }));
    assert_eq!(steps.last(), Some(&Step::Measuring { done: 10, total: 10 }));
}
