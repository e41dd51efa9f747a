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

fn key(seed: u8) -> (sign::PrivateKey, TrustedKey) {
    let key = sign::PrivateKey::from_seed([seed; 32]);
    let trusted = TrustedKey { file: format!("{seed}.pub.pem"), key: key.public() };
    (key, trusted)
}

#[test]
fn only_what_a_trusted_key_signed_is_opened() {
    let (folder, bundle) = extracted();
    let ((ours, trusted), (_, other)) = (key(1), key(2));
    let open = |keys: &[TrustedKey]| {
        Bundle::open_signed(folder.path(), keys).map_err(|error| error.to_string())
    };
    let missing = open(std::slice::from_ref(&trusted)).unwrap_err();
    assert!(missing.contains("manifest.sig: there is none"), "{missing}");
    let signature = folder.path().join(SIGNATURE);
    fs::write(&signature, ours.sign(bundle.manifest_bytes())).unwrap();
    assert_eq!(open(&[other.clone(), trusted.clone()]).unwrap().manifest(), bundle.manifest());
    let wrong = open(std::slice::from_ref(&other)).unwrap_err();
    assert!(wrong.contains("manifest.sig: it is not for this manifest by any of 2.pub"), "{wrong}");
    // The same fields in other bytes are another manifest.
    let path = folder.path().join(MANIFEST);
    let mut json = fs::read(&path).unwrap();
    json.push(b'\n');
    fs::write(&path, &json).unwrap();
    assert!(Bundle::open(folder.path()).is_ok());
    assert!(open(std::slice::from_ref(&trusted)).unwrap_err().contains("was changed after that"));
    json.pop();
    fs::write(&path, &json).unwrap();
    // A blob that was changed: the signature covers its digest, and the digest its content.
    let weights = blob_path(&folder, bundle.manifest().stages[0].weights);
    let mut bytes = fs::read(&weights).unwrap();
    bytes[0] ^= 1;
    fs::write(&weights, bytes).unwrap();
    let text =
        open(std::slice::from_ref(&trusted)).unwrap().stage_model(0).unwrap_err().to_string();
    assert!(text.contains("is damaged"), "{text}");
    fs::write(&signature, [0; 1000]).unwrap();
    assert!(open(&[trusted]).unwrap_err().contains("larger than 65 bytes"));
}

#[test]
fn a_part_has_only_its_blobs_and_keeps_its_signature() {
    let (folder, bundle) = extracted();
    let (ours, trusted) = key(1);
    fs::write(folder.path().join(SIGNATURE), ours.sign(bundle.manifest_bytes())).unwrap();
    let into = tempfile::tempdir().unwrap();
    let out = into.path().join("edge");
    let taken = bundle.take(Part::First(1), None, false, &out).unwrap();
    assert_eq!((taken.blobs, taken.left), (2, 4));
    let files = fs::read_dir(out.join(BLOBS)).unwrap().count();
    assert_eq!(files, 2);
    let part = Bundle::open_signed(&out, &[trusted]).unwrap();
    assert!(part.stage_model(0).unwrap() == bundle.stage_model(0).unwrap());
    assert_eq!(part.split_id(), bundle.split_id());
    assert!(part.stage_model(1).unwrap_err().to_string().contains("(stages[1].graph)"));
    let report = part.report(&mut |_, _| {});
    assert!(report.sound(true) && !report.sound(false));
    assert_eq!(report.bytes(), taken.bytes);
    // Again, over itself; and the other part, which lacks nothing but the first stage.
    part.take(Part::First(1), Some(PLAIN), false, &out).unwrap();
    let tail = into.path().join("tail");
    assert_eq!(bundle.take(Part::After(1), None, true, &tail).unwrap().left, 2);
    assert!(Bundle::open(&tail).unwrap().stage_model(1).is_ok());
    let left: Vec<_> = fs::read_dir(into.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn parts_that_do_not_exist_are_named() {
    let (folder, bundle) = extracted();
    let out = folder.path().join("out");
    let text = |part, variant| bundle.take(part, variant, false, &out).unwrap_err().to_string();
    assert_eq!(text(Part::First(0), None), "stages = 0: the bundle has 2 stages");
    assert_eq!(text(Part::First(3), None), "stages = 3: the bundle has 2 stages");
    assert_eq!(text(Part::After(2), None), "tail = 2: the bundle has 2 stages");
    let unknown = text(Part::First(1), Some("int4"));
    assert_eq!(unknown, "variant = \"int4\": the stages come as plain");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("mine"), "x").unwrap();
    assert!(
        text(Part::First(1), None)
            .ends_with("exists and holds more than a bundle, or none: it is not replaced")
    );
    fs::remove_file(out.join("mine")).unwrap();
    let weights = blob_path(&folder, bundle.manifest().stages[0].weights);
    fs::write(&weights, "x").unwrap();
    assert!(text(Part::First(1), None).contains("(stages[0].weights) is damaged"));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0, "as it was");
}

#[test]
fn a_report_tells_sound_absent_and_damaged_blobs_apart() {
    let (folder, bundle) = extracted();
    let whole = bundle.report(&mut |_, _| {});
    assert!(whole.sound(false));
    assert_eq!((whole.stages.len(), whole.blobs.len(), whole.signed), (2, 6, false));
    let cut = whole.stages[0].cut.as_ref().unwrap();
    assert_eq!((cut.split_id, cut.bits, cut.elements), (bundle.split_id(), Some(4), Some(392)));
    assert_eq!(cut.scales, [[0.0, 6.0]]);
    assert_eq!(Bundle::embedded().unwrap().report(&mut |_, _| {}), whole);
    let manifest = bundle.manifest();
    fs::remove_file(blob_path(&folder, manifest.stages[0].graph)).unwrap();
    let weights = blob_path(&folder, manifest.stages[1].weights);
    fs::write(&weights, "changed").unwrap();
    let graph = blob_path(&folder, manifest.stages[1].graph);
    fs::remove_file(&graph).unwrap();
    fs::create_dir(&graph).unwrap();
    let report = bundle.report(&mut |_, _| {});
    assert!(!report.sound(true));
    let state = |digest: Digest| {
        report.blobs.iter().find(|blob| blob.digest == digest).unwrap().state.clone()
    };
    assert_eq!(state(manifest.stages[0].graph), BlobState::Absent);
    let got = Digest::of(b"changed");
    assert_eq!(state(manifest.stages[1].weights), BlobState::Damaged { bytes: 7, got });
    assert!(matches!(state(manifest.stages[1].graph), BlobState::Unreadable { .. }));
    assert_eq!((report.stages[0].bytes, report.stages[1].bytes), (None, None));
}

/// A certificate that holds for the default bundle.
fn certificate(manifest: &Manifest) -> crate::manifest::Certificate {
    crate::manifest::Certificate {
        split_id: manifest.split_id(0).unwrap(),
        variant: PLAIN.into(),
        heads: manifest.heads(0),
        thresholds_milli: manifest.thresholds_milli(0),
        bits: 4,
        loss: crate::manifest::Loss::Disagreement,
        method: "test".into(),
        samples: 10,
        answered: 5,
        losses: 0,
        budget: 0.1,
        confidence: 0.9,
        data: Digest::of(b""),
        date: "2026-01-01".into(),
    }
}

#[test]
fn certificates_say_why_they_do_not_hold() {
    let mut bundle = Bundle::embedded().unwrap();
    let good = certificate(&bundle.manifest);
    bundle.manifest.certificates = vec![good.clone()];
    let doubts = |bundle: &Bundle| {
        let report = bundle.report(&mut |_, _| {});
        let found = &report.certificates[0];
        assert_eq!(found.holds, found.doubts.is_empty());
        found.doubts.join("; ")
    };
    assert_eq!(doubts(&bundle), "");
    assert_eq!(bundle.manifest.certified(0, PLAIN, 4).count(), 1);
    let mut other = bundle.clone();
    other.manifest.stages[0].exit.as_mut().unwrap().threshold_milli = Some(900);
    assert_eq!(doubts(&other), "the thresholds are 0.900 now, it was measured at 0.785");
    let mut other = bundle.clone();
    other.manifest.stages[0].exit.as_mut().unwrap().temperature_milli = 1000;
    assert_eq!(doubts(&other), "the exits have other heads or temperatures now");
    let mut other = bundle.clone();
    other.manifest.stages[0].cut.as_mut().unwrap().codec.bits = 8;
    assert_eq!(doubts(&other), "what crosses has 8 bits by default, it was measured at 4 bits");
    let mut other = bundle.clone();
    other.manifest.certificates[0].variant = "int8".into();
    assert_eq!(doubts(&other), "no stage before cut 0 comes as int8");
    let mut other = bundle;
    other.manifest.stages[1].weights = Digest::of(b"");
    assert!(doubts(&other).starts_with("no cut has its split id"));
}

#[test]
fn differences_are_told_by_what_they_mean() {
    let before = Bundle::embedded().unwrap().manifest;
    let check = |change: &dyn Fn(&mut Manifest), expected: &[(Consequence, &str)], new_id: bool| {
        let mut after = before.clone();
        change(&mut after);
        let (changes, ids) = changes(&before, &after).unwrap();
        let got: Vec<_> = changes.iter().map(|c| (c.consequence, c.key.as_str())).collect();
        assert_eq!(got, expected);
        assert_eq!(ids[0].before != ids[0].after, new_id, "{expected:?}");
        assert_eq!(new_id, got.iter().any(|(consequence, _)| *consequence == Consequence::Split));
    };
    check(&|_| (), &[], false);
    check(
        &|m| m.stages[0].exit.as_mut().unwrap().threshold_milli = Some(1),
        &[(Consequence::Thresholds, "stages[0].exit.threshold_milli")],
        false,
    );
    check(
        &|m| {
            m.stages[1].weights = Digest::of(b"");
            m.labels[3] = "Frock".into();
        },
        &[(Consequence::Split, "stages[1].weights"), (Consequence::Apps, "labels[3]")],
        true,
    );
    check(
        &|m| m.stages[0].cut.as_mut().unwrap().codec.scales[0].hi = "3f800000".into(),
        &[(Consequence::Split, "stages[0].cut.codec.scales[0].hi")],
        true,
    );
    check(
        &|m| {
            m.stages[0].cut.as_mut().unwrap().codec.bits = 8;
            m.stages[0].weights = Digest::of(b"");
            m.golden.remove(0);
        },
        &[
            (Consequence::Front, "stages[0].weights"),
            (Consequence::Bits, "stages[0].cut.codec.bits"),
            (Consequence::Samples, "golden[0]"),
        ],
        false,
    );
    check(
        &|m| {
            m.stages[0].variants.push(crate::manifest::Variant {
                name: "int8".into(),
                graph: Digest::of(b""),
                weights: Digest::of(b""),
                measured: None,
            });
            m.certificates.push(certificate(m));
        },
        &[
            (Consequence::Variants, "stages[0].variants"),
            (Consequence::Certificates, "certificates[0]"),
        ],
        false,
    );
}
