//! The ONNX project's own backend test suite, cut: every deterministic model that ONNX Runtime
//! runs whole is cut at every tensor through which everything passes, and front and tail must
//! answer what the whole answers. A handful of its cases lies beside this file; all of it is
//! written by `tests/suite/generate.sh`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod cases;
mod check;
mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use midspan_runtime::test_support;
use midspan_split::verify::model::Refusal;

use crate::check::Skip;
use crate::report::Report;

fn run(root: &Path) -> Report {
    test_support::library();
    let cases = cases::find(root);
    assert!(!cases.is_empty(), "{} holds no models: tests/suite/generate.sh", root.display());
    let mut report = Report::default();
    for (done, case) in cases.iter().enumerate() {
        if done % 100 == 0 {
            eprintln!("{done} of {} models", cases.len());
        }
        report.add(case, check::model(case));
    }
    report
}

#[test]
fn a_few_cases_hold_at_every_cut() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/cases");
    let report = run(&folder);
    println!("{report}");
    report.assert_sound();
    let counts = &report.counts;
    assert_eq!((counts.models, counts.cut, counts.as_expected, counts.cuts), (10, 8, 8, 13));
    assert_eq!(counts.exact + counts.tolerance, 11);
    // Sequences cross at two cuts of one model.
    assert_eq!(counts.refused, BTreeMap::from([(Refusal::NotATensor, 2)]));
    let skipped = [(Skip::NoInteriorCut, 1), (Skip::WholeRefused, 1)];
    assert_eq!(counts.skipped, BTreeMap::from(skipped));
}

/// Takes minutes: `cargo test -p midspan-split --features tools --test suite -- --ignored
/// --nocapture`. `MIDSPAN_SUITE` names another folder.
#[test]
#[ignore = "needs the suite that tests/suite/generate.sh writes"]
fn the_whole_suite_holds_at_every_cut() {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/onnx-suite");
    let report = run(&std::env::var_os("MIDSPAN_SUITE").map_or(default, PathBuf::from));
    println!("{report}");
    report.assert_sound();
    assert!(report.counts.models > 1_900, "only {} models are there", report.counts.models);
    let verified = report.verified_share();
    assert!(verified >= 0.95, "only {:.2} % of the cuts are verified", verified * 100.0);
}

#[test]
fn reasons_are_a_closed_list() {
    let mut texts: Vec<&str> = Refusal::ALL.iter().map(|refusal| refusal.text()).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), Refusal::ALL.len());
}
