//! The embedded bundle, written anew with other thresholds, blobs and certificates.

use super::*;
use crate::manifest::{Loss, Variant};

fn certificate(manifest: &Manifest, variant: &str) -> Certificate {
    Certificate {
        split_id: manifest.split_id(0).unwrap(),
        variant: variant.into(),
        heads: manifest.heads(0),
        thresholds_milli: manifest.thresholds_milli(0),
        bits: 4,
        loss: Loss::Disagreement,
        method: "counted".into(),
        samples: 10,
        answered: 5,
        losses: 0,
        budget: 0.5,
        confidence: 0.9,
        data: Digest::of(b"data"),
        date: "2026-01-01".into(),
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_unchanged_bundle_is_written_byte_for_byte() {
    let bundle = Bundle::embedded().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let (out, copy) = (scratch.path().join("out"), scratch.path().join("copy"));
    let written = rewrite(&bundle, bundle.manifest().clone(), BTreeMap::new(), &out).unwrap();
    assert_eq!(written.split_id(), bundle.split_id());
    bundle.extract_to(&copy).unwrap();
    assert_eq!(fs::read(out.join(MANIFEST)).unwrap(), fs::read(copy.join(MANIFEST)).unwrap());
    assert_eq!(names(&out.join(BLOBS)), names(&copy.join(BLOBS)));
    assert!(
        (0..2)
            .all(|stage| written.stage_model(stage).unwrap() == bundle.stage_model(stage).unwrap())
    );
    assert_eq!(names(scratch.path()), ["copy", "out"], "nothing else is left behind");
}

#[test]
fn a_bundle_can_be_replaced_by_its_own_change_and_stale_blobs_go() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out");
    Bundle::embedded().unwrap().extract_to(&out).unwrap();
    let bundle = Bundle::open(&out).unwrap();
    let mut manifest = bundle.manifest().clone();
    let weights = b"other weights".to_vec();
    let old = std::mem::replace(&mut manifest.stages[1].weights, Digest::of(&weights));
    let unused = (Digest::of(b"unused"), b"unused".to_vec());
    let blobs = BTreeMap::from([(Digest::of(&weights), weights), unused]);
    let written = rewrite(&bundle, manifest, blobs, &out).unwrap();
    assert_ne!(written.split_id(), bundle.split_id());
    let names = names(&out.join(BLOBS));
    assert_eq!(names.len(), 6);
    assert!(!names.contains(&old.to_string()));
    assert!(!names.contains(&Digest::of(b"unused").to_string()));
}

#[test]
fn certificates_are_kept_only_while_they_hold() {
    let scratch = tempfile::tempdir().unwrap();
    let out = |name: &str| scratch.path().join(name);
    let embedded = Bundle::embedded().unwrap();
    let mut manifest = embedded.manifest().clone();
    let stage = manifest.stages[0].clone();
    let int8 =
        Variant { name: "int8".into(), graph: stage.graph, weights: stage.weights, measured: None };
    manifest.stages[0].variants.push(int8);
    manifest.certificates =
        ["plain", "int8", "absent"].map(|variant| certificate(&manifest, variant)).into();
    let bundle = rewrite(&embedded, manifest, BTreeMap::new(), &out("a")).unwrap();
    let kept = |bundle: &Bundle| -> Vec<String> {
        bundle.manifest().certificates.iter().map(|found| found.variant.clone()).collect()
    };
    assert_eq!(kept(&bundle), ["plain", "int8"]);

    // Another graph of the variant: what was measured of the old one is void, the plain one holds.
    let mut manifest = bundle.manifest().clone();
    manifest.stages[0].variants[0].weights = manifest.stages[1].weights;
    let changed = rewrite(&bundle, manifest, BTreeMap::new(), &out("b")).unwrap();
    assert_eq!(kept(&changed), ["plain"]);

    // Another threshold, then another temperature: nothing holds.
    let mut manifest = bundle.manifest().clone();
    manifest.stages[0].exit.as_mut().unwrap().threshold_milli = Some(786);
    let changed = rewrite(&bundle, manifest, BTreeMap::new(), &out("c")).unwrap();
    assert!(kept(&changed).is_empty());
    let mut manifest = bundle.manifest().clone();
    manifest.stages[0].exit.as_mut().unwrap().temperature_milli += 1;
    let changed = rewrite(&bundle, manifest, BTreeMap::new(), &out("d")).unwrap();
    assert!(kept(&changed).is_empty());
}

#[test]
fn what_cannot_be_written_leaves_the_folder_as_it_was() {
    let scratch = tempfile::tempdir().unwrap();
    let bundle = Bundle::embedded().unwrap();
    let manifest = bundle.manifest();
    fs::write(scratch.path().join("thesis.tex"), b"x").unwrap();
    let error = rewrite(&bundle, manifest.clone(), BTreeMap::new(), scratch.path()).unwrap_err();
    assert!(matches!(error, RewriteError::Occupied(_)), "{error}");

    // A manifest of something else, and a bundle with something of the operator's beside it.
    let app = scratch.path().join("app");
    fs::create_dir(&app).unwrap();
    fs::write(app.join("manifest.json"), br#"{"name":"my web app"}"#).unwrap();
    let noted = scratch.path().join("noted");
    bundle.extract_to(&noted).unwrap();
    fs::write(noted.join("notes.txt"), b"x").unwrap();
    for folder in [app, noted] {
        let error = rewrite(&bundle, manifest.clone(), BTreeMap::new(), &folder).unwrap_err();
        assert!(matches!(error, RewriteError::Occupied(_)), "{error}");
    }

    let out = scratch.path().join("out");
    bundle.extract_to(&out).unwrap();
    let mut absent = manifest.clone();
    absent.stages[0].graph = Digest::of(b"absent");
    let error = rewrite(&bundle, absent, BTreeMap::new(), &out).unwrap_err().to_string();
    assert!(error.contains("stages[0].graph"), "{error}");
    let wrong = BTreeMap::from([(manifest.stages[0].graph, b"wrong".to_vec())]);
    let error = rewrite(&bundle, manifest.clone(), wrong, &out).unwrap_err();
    assert!(matches!(error, RewriteError::Hash { .. }), "{error}");
    let mut senseless = manifest.clone();
    senseless.local_stages = 9;
    let error = rewrite(&bundle, senseless, BTreeMap::new(), &out).unwrap_err().to_string();
    assert!(error.starts_with("local_stages"), "{error}");
    assert_eq!(Bundle::open(&out).unwrap().manifest(), manifest);
    assert_eq!(names(scratch.path()), ["app", "noted", "out", "thesis.tex"]);
}
