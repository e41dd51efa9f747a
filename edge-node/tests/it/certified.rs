//! `midspan-certified` is said exactly when a certificate of the bundle holds for what answered.

use midspan_protocol::headers;
use midspan_split::{Bundle, manifest::PLAIN};
use serde_json::json;

use crate::fixture::{Setup, infer, with};

/// The embedded bundle in a folder, its exit certified at the bits that it crosses at.
fn certified() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let bundle = Bundle::embedded().unwrap();
    bundle.extract_to(folder.path()).unwrap();
    let mut manifest = bundle.manifest().clone();
    let certificate = json!({
        "split_id": manifest.split_id(0), "variant": PLAIN, "heads": manifest.heads(0),
        "thresholds_milli": manifest.thresholds_milli(0), "bits": 4, "loss": "disagreement",
        "method": "test", "samples": 5000, "answered": 4000, "losses": 30, "budget": 0.01,
        "confidence": 0.95, "data": manifest.heads(0), "date": "2026-01-31",
    });
    manifest.certificates = vec![serde_json::from_value(certificate).unwrap()];
    std::fs::write(folder.path().join("manifest.json"), manifest.to_json().unwrap()).unwrap();
    folder
}

#[tokio::test]
async fn a_certificate_is_claimed_only_where_it_holds() {
    let folder = certified();
    let model = format!("bundle = \"{}\"", folder.path().display());
    let cloud = Setup::cloud().start().await;
    let clouds = vec![(cloud.addr, "home")];
    let edge = Setup { model: &model, clouds, ..Setup::default() }.start().await;
    // Of these the exit is sure of some, and the cloud answers the others.
    for picture in 100..110 {
        let auto = edge.infer(&[picture], "auto").await;
        let force = edge.infer(&[picture], "force").await;
        assert_eq!(force.header(headers::CERTIFIED), "false", "nobody measured that");
        match auto.header(headers::ANSWERED_BY) {
            "exit:1" => assert_eq!(auto.header(headers::CERTIFIED), "true", "{picture}"),
            place => assert_eq!((place, auto.header(headers::CERTIFIED)), ("cloud", "")),
        }
    }
    // Without a cloud the exit answers what it is not sure of, which no certificate speaks of.
    let alone = Setup { model: &model, ..Setup::default() }.start().await;
    let mut seen = [false; 2];
    for picture in 100..120 {
        let auto = alone.send(with(infer(&[picture]), "midspan-exit", "auto")).await;
        let degraded = !auto.header(headers::DEGRADED).is_empty();
        let claimed = auto.header(headers::CERTIFIED);
        assert_eq!(claimed, if degraded { "false" } else { "true" }, "{picture}: {auto:?}");
        seen[usize::from(degraded)] = true;
    }
    assert_eq!(seen, [true; 2], "both kinds were asked");
    // A node that runs all stages sends nothing away, so that no bits have to be those measured.
    let whole = format!("{model}\nlocal_stages = 2");
    let whole = Setup { model: &whole, ..Setup::default() }.start().await;
    assert_eq!(whole.infer(&[100], "force").await.header(headers::CERTIFIED), "false");
    for picture in 100..110 {
        let auto = whole.infer(&[picture], "auto").await;
        let here = auto.header(headers::ANSWERED_BY) == "exit:1";
        assert_eq!(auto.header(headers::CERTIFIED), if here { "true" } else { "" }, "{picture}");
    }
}
