//! What an edge holds of a bundle, and when its exits are certified.

use std::sync::Arc;

use midspan_runtime::{RunError, Scripted};

use super::*;

/// A stage without inputs or outputs, for tests of what stands before it.
pub(crate) fn echo_stage() -> Arc<Stage> {
    let pool = SessionPool::new(1, || {
        let fake = Scripted::new(vec![], vec![], |_| Ok(vec![]));
        Ok::<_, RunError>(Box::new(fake) as Box<dyn Executor>)
    });
    Arc::new(Stage::new(pool.unwrap(), "echo", 0))
}

#[test]
fn an_edge_holds_its_own_stages_only() {
    midspan_runtime::test_support::library();
    let bundle = Bundle::embedded().unwrap();
    let load = |bundle: &Bundle, role, local_stages| {
        Model::from_bundle(bundle, role, &Run { local_stages, variant: None }, 1)
    };
    let edge = load(&bundle, Role::Edge, None).unwrap();
    let cloud = load(&bundle, Role::Cloud, None).unwrap();
    assert_eq!((edge.stages.len(), edge.complete), (1, false));
    assert_eq!((cloud.stages.len(), cloud.complete), (2, true));
    assert!(edge.live_splits().is_empty());
    assert_eq!(cloud.live_splits(), [bundle.split_id().unwrap()]);
    let whole = load(&bundle, Role::Edge, Some(2)).unwrap();
    assert!(whole.complete && whole.exits);
    assert!(load(&bundle, Role::Edge, Some(3)).is_err());
    // It reads no others either: a folder with the blobs of its stages alone is enough.
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("part");
    bundle.take(midspan_split::bundle::Part::First(1), None, false, &out).unwrap();
    let part = Bundle::open(&out).unwrap();
    assert_eq!(load(&part, Role::Edge, None).unwrap().stages.len(), 1);
    let error = load(&part, Role::Cloud, None).err().unwrap();
    assert!(error.contains("cannot read") && error.contains("(stages[1].graph)"), "{error}");
    let run = Run { local_stages: None, variant: Some("int8".into()) };
    let error = Model::from_bundle(&bundle, Role::Edge, &run, 1).err().unwrap();
    assert_eq!(error, "variant = \"int8\": the stages come as plain");
}

/// The embedded manifest with a certificate for its exit.
fn with_certificate() -> Manifest {
    let mut manifest = Bundle::embedded().unwrap().manifest().clone();
    let certificate = serde_json::json!({
        "split_id": manifest.split_id(0), "variant": PLAIN, "heads": manifest.heads(0),
        "thresholds_milli": manifest.thresholds_milli(0), "bits": 4, "loss": "label",
        "method": "test", "samples": 5000, "answered": 4000, "losses": 30, "budget": 0.01,
        "confidence": 0.95, "data": manifest.heads(0), "date": "2026-01-31",
    });
    manifest.certificates = vec![serde_json::from_value(certificate).unwrap()];
    manifest
}

#[track_caller]
fn check(change: impl FnOnce(&mut Manifest), held: usize, is: bool) {
    let mut manifest = with_certificate();
    change(&mut manifest);
    assert_eq!(certified(&manifest, PLAIN, held), is);
}

#[test]
fn exits_are_certified_exactly_as_they_were_measured() {
    check(|_| {}, 1, true);
    check(|manifest| manifest.certificates.clear(), 1, false);
    assert!(!certified(&with_certificate(), "int8", 1), "another variant");
    for (temperature, threshold, is) in [(0, 0, true), (1, 0, false), (0, 1, false), (0, -1, false)]
    {
        let change = |manifest: &mut Manifest| {
            let exit = manifest.stages[0].exit.as_mut().unwrap();
            exit.temperature_milli += temperature;
            exit.threshold_milli = exit.threshold_milli.unwrap().checked_add_signed(threshold);
        };
        check(change, 1, is);
    }
    check(|manifest| manifest.stages[1].weights = manifest.stages[0].weights, 1, false);
    // Bits matter only where something crosses.
    let bits = |manifest: &mut Manifest| {
        manifest.stages[0].cut.as_mut().unwrap().codec.bits = 8;
    };
    check(bits, 1, false);
    check(bits, 2, true);
}

#[test]
fn a_certificate_of_the_first_exit_does_not_cover_the_second() {
    // The whole model, cut once more: a node that runs two stages has two exits.
    let three = |manifest: &mut Manifest| {
        let mut middle = manifest.stages[1].clone();
        middle.cut = manifest.stages[0].cut.clone();
        middle.exit.as_mut().unwrap().threshold_milli = Some(900);
        manifest.stages.insert(1, middle);
        manifest.certificates[0].split_id = manifest.split_id(0).unwrap();
    };
    check(three, 1, true);
    check(three, 2, false);
    check(three, 3, false);
    let both = |manifest: &mut Manifest| {
        three(manifest);
        let (id, heads) = (manifest.split_id(1).unwrap(), manifest.heads(1));
        let thresholds_milli = manifest.thresholds_milli(1);
        let first = &mut manifest.certificates[0];
        (first.split_id, first.heads, first.thresholds_milli) = (id, heads, thresholds_milli);
    };
    check(both, 1, false);
    check(both, 2, true);
    check(both, 3, true);
}
