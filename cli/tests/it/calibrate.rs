//! `midspan split calibrate` from the command line: a bundle with certificates, or exit code 1.

use std::{fs, path::Path, process::Output};

use midspan_split::{Bundle, manifest::PLAIN};
use serde_json::Value;

use crate::fleet::{midspan, root};

fn calibrate(out: &Path, more: &[&str]) -> Output {
    let mut command = midspan();
    command.current_dir(root()).args(["split", "calibrate", "--out"]).arg(out);
    command.args(["--date", "2026-01-31"]).args(more).output().expect("it runs")
}

fn refused(more: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let output = calibrate(&out, more);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!out.exists(), "no bundle without a certificate");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_bundle_is_certified_and_its_split_stays() {
    midspan_runtime::test_support::library();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("certified");
    let more = ["--model", "models/fashion.onnx", "--budget", "0.02", "--loss", "both", "--json"];
    let output = calibrate(&out, &more);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let (old, new) = (Bundle::embedded().expect("embedded"), Bundle::open(&out).expect("a bundle"));
    assert_eq!(new.split_id(), old.split_id());
    let manifest = new.manifest();
    assert_eq!(report["split_id"], new.split_id().expect("a cut").to_string());
    let [threshold] = manifest.thresholds_milli(0)[..] else { panic!("one exit") };
    assert_eq!(report["threshold"], f64::from(threshold) / 1000.0);
    // Two losses, at both numbers of bits.
    assert_eq!(manifest.certificates.len(), 4);
    assert_eq!(manifest.certified(0, PLAIN, 4).count(), 2);
    for certificate in &manifest.certificates {
        assert_eq!((certificate.samples, certificate.date.as_str()), (1000, "2026-01-31"));
        assert_eq!(Some(certificate.answered), report["answered"].as_u64());
        // 0.02 of 1,000 at 95 %: 12 losses have a tail of 0.038, 13 one of 0.065.
        assert!(certificate.losses <= 12 && certificate.answered > 600, "{certificate:?}");
    }
    assert!(new.labelled().expect("whole").is_some(), "all blobs are there");
    // Again, in its own place: the same.
    let before = fs::read(out.join("manifest.json")).expect("a manifest");
    let bundle = out.to_str().expect("UTF-8");
    let again = ["--bundle", bundle, "--budget", "0.02"];
    let file = ["--model", "models/fashion.onnx"];
    let output = calibrate(&out, &[&again[..], &file].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("certified: at most 2.00 % with 95.00 % confidence"), "{text}");
    assert_eq!(fs::read(out.join("manifest.json")).expect("a manifest"), before);
    // By the bundle's own stages instead of the file, with another temperature.
    let refit = [&again[..], &["--refit-temperature", "--seed", "3"]].concat();
    let output = calibrate(&out, &refit);
    assert!(output.status.success(), "{output:?}");
    let refitted = Bundle::open(&out).expect("a bundle");
    assert_eq!(refitted.split_id(), old.split_id());
    assert_ne!(refitted.manifest().heads(0), old.manifest().heads(0));
    assert_eq!(refitted.manifest().certificates.len(), 4, "those of the old temperature are gone");
    assert!((700..900).contains(&refitted.manifest().certificates[0].samples));
}

#[test]
fn what_cannot_be_promised_is_exit_1() {
    midspan_runtime::test_support::library();
    let few = refused(&["--limit", "298"]);
    assert!(
        few.contains("298 samples are too few") && few.contains("from 299 samples on"),
        "{few}"
    );
    assert!(refused(&["--budget", "1"]).contains("budget = 1: must be above 0 and below 1"));
    assert!(refused(&["--confidence", "1e-300"]).contains("must be 0.5 to 0.999999999"));
    let variant = refused(&["--variant", "int8"]);
    assert!(variant.contains("has a variant \"int8\"; known are [\"plain\"]"), "{variant}");
    assert!(refused(&["--local-stages", "0"]).contains("--local-stages must be at least 1"));
    let whole = refused(&["--model", "models/fashion.toml"]);
    assert!(whole.contains("the whole model: ONNX Runtime refused the model"), "{whole}");
}
