//! An edge and a real cloud: each row is answered where it would be alone, in request order.

use std::collections::BTreeSet;

use midspan_protocol::headers;

use crate::fixture::{Setup, assert_near, classes};

const MOST: f32 = 1e-5;

#[tokio::test]
async fn a_batch_is_its_rows() {
    let cloud = Setup::cloud().start().await;
    let edge = Setup { clouds: vec![(cloud.addr, "home")], ..Setup::default() }.start().await;
    let indices: Vec<usize> = (100..132).collect();
    let batch = edge.infer(&indices, "auto").await;
    let (places, confidence) = (batch.list("midspan_places"), batch.list("midspan_confidence"));
    assert_eq!((places.len(), confidence.len()), (32, 32));
    let kinds: BTreeSet<&str> = places.iter().map(String::as_str).collect();
    assert_eq!(kinds, BTreeSet::from(["cloud", "exit:1"]), "the samples are hard and easy");
    assert!(!batch.headers.contains_key(headers::ANSWERED_BY), "rows differ: {batch:?}");
    assert!(!batch.headers.contains_key(headers::DEGRADED), "{batch:?}");
    let logits = batch.logits();
    for (row, index) in indices.iter().enumerate() {
        let alone = edge.infer(&[*index], "auto").await;
        let what = format!("picture {index}");
        assert_eq!(alone.header(headers::ANSWERED_BY), places[row], "{what}");
        assert_eq!(alone.list("midspan_places"), [places[row].as_str()], "{what}");
        let same = &logits[row * 10..][..10];
        assert_near(&alone.logits(), same, MOST, &what);
        assert_eq!(classes(&alone.logits()), classes(same), "{what}");
        let near = |text: &str| text.parse::<f32>().unwrap();
        let apart = (near(&alone.list("midspan_confidence")[0]) - near(&confidence[row])).abs();
        assert!(apart <= MOST, "{what}: {apart}");
    }
}

#[tokio::test]
async fn the_app_chooses_how_exits_are_used() {
    let cloud = Setup::cloud().start().await;
    let edge = Setup { clouds: vec![(cloud.addr, "home")], ..Setup::default() }.start().await;
    let indices: Vec<usize> = (100..132).collect();
    let never = edge.infer(&indices, "never").await;
    assert_eq!(never.header(headers::ANSWERED_BY), "cloud");
    assert!(!never.headers.contains_key(headers::CERTIFIED), "no exit answered");
    assert!(never.list("midspan_places").iter().all(|place| place == "cloud"));
    let spent = never.header(headers::SERVER_TIMING);
    assert!(midspan_protocol::timing::find(spent, "offload").is_some(), "{spent}");
    let force = edge.infer(&indices, "force").await;
    assert_eq!(force.header(headers::ANSWERED_BY), "exit:1");
    assert!(force.list("midspan_places").iter().all(|place| place == "exit:1"));
    // What auto gives is, row by row, one of the two.
    let auto = edge.infer(&indices, "auto").await;
    let (auto_logits, never_logits, force_logits) = (auto.logits(), never.logits(), force.logits());
    for (row, place) in auto.list("midspan_places").iter().enumerate() {
        let from = if place == "cloud" { &never_logits } else { &force_logits };
        let range = row * 10..(row + 1) * 10;
        assert_near(&auto_logits[range.clone()], &from[range], MOST, place);
    }
    for (bad, status) in [("", 400), ("AUTO", 400), ("1", 400)] {
        edge.infer(&[0], bad).await.error(status);
    }
}

#[tokio::test]
async fn a_cloud_asked_directly_answers_itself() {
    let cloud = Setup::cloud().start().await;
    let edge = Setup { clouds: vec![(cloud.addr, "home")], ..Setup::default() }.start().await;
    let whole = Setup { model: "bundle = \"embedded\"\nlocal_stages = 2", ..Setup::default() };
    let whole = whole.start().await;
    let indices: Vec<usize> = (0..16).collect();
    let direct = cloud.infer(&indices, "auto").await;
    assert_eq!(direct.header(headers::ANSWERED_BY), "local");
    assert_eq!(direct.header(headers::NODE), "c1");
    let never = whole.infer(&indices, "never").await;
    assert_eq!(never.header(headers::ANSWERED_BY), "local", "an edge that holds all stages");
    assert_near(&direct.logits(), &never.logits(), MOST, "the whole model in both roles");
    // Four bits on the wire cost little: nearly all classes stay.
    let offloaded = classes(&edge.infer(&indices, "never").await.logits());
    let same = classes(&direct.logits()).iter().zip(&offloaded).filter(|(a, b)| a == b).count();
    assert!(same >= 15, "{same} of 16");
}

#[tokio::test]
async fn an_edge_that_holds_all_stages_answers_hard_rows_itself() {
    let whole = Setup { model: "bundle = \"embedded\"\nlocal_stages = 2", ..Setup::default() };
    let whole = whole.start().await;
    let indices: Vec<usize> = (100..132).collect();
    let auto = whole.infer(&indices, "auto").await;
    let places = auto.list("midspan_places");
    let kinds: BTreeSet<&str> = places.iter().map(String::as_str).collect();
    assert_eq!(kinds, BTreeSet::from(["exit:1", "local"]));
    let logits = auto.logits();
    let (never, force) =
        (whole.infer(&indices, "never").await, whole.infer(&indices, "force").await);
    assert_eq!(never.header(headers::ANSWERED_BY), "local");
    let (never, force) = (never.logits(), force.logits());
    for (row, place) in places.iter().enumerate() {
        let from = if place == "local" { &never } else { &force };
        let range = row * 10..(row + 1) * 10;
        assert_near(&logits[range.clone()], &from[range], MOST, place);
    }
    assert_eq!(auto.header(headers::DEGRADED), "", "it needs no cloud");
}
