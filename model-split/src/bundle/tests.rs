//! The embedded bundle, written out, tampered with and opened again.

use super::*;
use crate::onnx;

fn extracted() -> (tempfile::TempDir, Bundle) {
    let folder = tempfile::tempdir().unwrap();
    Bundle::embedded().unwrap().extract_to(folder.path()).unwrap();
    let bundle = Bundle::open(folder.path()).unwrap();
    (folder, bundle)
}

fn blob_path(folder: &tempfile::TempDir, digest: Digest) -> PathBuf {
    folder.path().join(BLOBS).join(digest.to_string())
}

#[test]
fn what_is_written_out_is_what_was_embedded() {
    let embedded = Bundle::embedded().unwrap();
    let (_folder, bundle) = extracted();
    assert_eq!(bundle.manifest(), embedded.manifest());
    assert_eq!(bundle.split_id(), embedded.split_id());
    assert_eq!(bundle.labels().len(), 10);
    assert_eq!(bundle.labelled().unwrap(), embedded.labelled().unwrap());
    for stage in 0..bundle.stages() {
        assert!(bundle.stage_model(stage).unwrap() == embedded.stage_model(stage).unwrap());
    }
    let error = bundle.stage_model(2).unwrap_err().to_string();
    assert_eq!(error, "the bundle has 2 stages, there is no stage 2");
}

#[test]
fn a_stage_has_its_weights_back_inside() {
    let bundle = Bundle::embedded().unwrap();
    let model = onnx::decode(bundle.stage_model(0).unwrap().into()).unwrap();
    let graph = model.graph.unwrap();
    assert!(!graph.initializer.is_empty());
    for weight in &graph.initializer {
        assert!(weight.raw_data.is_some() && weight.external_data.is_empty(), "{}", weight.name());
    }
}

#[test]
fn damaged_and_missing_blobs_are_named_with_their_keys() {
    let (folder, bundle) = extracted();
    let weights = blob_path(&folder, bundle.manifest().stages[1].weights);
    let mut bytes = fs::read(&weights).unwrap();
    bytes[1000] ^= 1;
    fs::write(&weights, bytes).unwrap();
    let text = bundle.stage_model(1).unwrap_err().to_string();
    assert!(text.contains("(stages[1].weights) is damaged"), "{text}");
    assert!(text.contains(weights.to_str().unwrap()), "{text}");
    fs::remove_file(blob_path(&folder, bundle.manifest().stages[0].graph)).unwrap();
    let text = bundle.stage_model(0).unwrap_err().to_string();
    assert!(text.contains("(stages[0].graph)") && text.contains("No such file"), "{text}");
    fs::remove_file(blob_path(&folder, bundle.manifest().labelled.clone().unwrap().labels))
        .unwrap();
    assert!(bundle.labelled().unwrap_err().to_string().contains("(labelled.labels)"));
}

#[test]
fn broken_manifests_are_named() {
    let (folder, _) = extracted();
    let path = folder.path().join(MANIFEST);
    fs::write(&path, b"{\"format\":1,").unwrap();
    let text = Bundle::open(folder.path()).unwrap_err().to_string();
    assert!(text.contains("manifest.json: EOF while parsing"), "{text}");
    fs::remove_file(&path).unwrap();
    let text = Bundle::open(folder.path()).unwrap_err().to_string();
    assert!(text.contains("cannot read") && text.contains("manifest.json: No such file"), "{text}");
}

#[test]
fn weights_that_do_not_suit_the_graph_are_an_error() {
    let bundle = Bundle::embedded().unwrap();
    let graph = bundle.blob(bundle.manifest().stages[0].graph, "").unwrap();
    let mut model = onnx::decode(graph.into()).unwrap();
    let error = weights::attach(&mut model, &vec![0; 100].into()).unwrap_err();
    assert!(error.to_string().ends_with("are not in a blob of 100"), "{error}");
    let weight = &mut model.graph.as_mut().unwrap().initializer;
    weight.iter_mut().for_each(|weight| weight.external_data.clear());
    weight.iter_mut().for_each(|weight| weight.data_location = Some(1));
    let error = weights::attach(&mut model, &vec![0; 100].into()).unwrap_err();
    assert!(matches!(error, WeightsError::Entry(_)), "{error}");
}
