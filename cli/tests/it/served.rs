//! What the fleet answers, compared with an offline reference that shares no code with it.

use std::collections::BTreeMap;

use midspan_load::emulator::LinkSpec;

use crate::fleet::{Fleet, root};

/// `[place, label, confidence]` by image, written by tests/reference/reference.py.
type Reference = BTreeMap<usize, (String, u32, f64)>;

fn reference() -> Reference {
    let path = root().join("tests/reference/expected.json");
    let text = std::fs::read_to_string(path).expect("the reference");
    serde_json::from_str(&text).expect("the reference")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_and_place_is_the_references() {
    let reference = reference();
    let fleet = Fleet::start(LinkSpec::preset("4g").expect("a preset")).await;
    let before = fleet.link.counters();
    let run = fleet.drive(1000, &|_, _| {}).await;
    let after = fleet.link.counters();
    let report = &run.report;
    assert_eq!((report.answers, report.requests), (1000, 1000), "{}", report.render());
    let differs = |outcome: &midspan_load::outcome::Outcome| {
        let (place, label, _) = &reference[&outcome.image];
        let answer = outcome.result.as_ref().expect("an answer");
        let at_edge = answer.place.is_some_and(|place| place.at_edge());
        answer.degraded.is_some() || answer.predicted != *label || at_edge != (place == "edge")
    };
    let different = run.outcomes.iter().filter(|outcome| differs(outcome)).count();
    assert!(different <= 5, "{different} of 1,000 differ from the reference");
    assert!(report.accuracy.expect("labelled") >= 0.905, "{}", report.render());
    assert!(report.edge_share.expect("answers") >= 0.75, "{}", report.render());

    let up = after.up_bytes - before.up_bytes;
    let each = up as f64 / report.hard_cases() as f64;
    assert!(each <= 640.0, "{each} bytes up the link per hard case");
}
