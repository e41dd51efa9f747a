//! The Open Inference Protocol's conformance table, line by line, at the node and through the
//! router: every line has cases, every case is sent to both, and what the router passes on is what
//! the node said. A line that is not met is listed in [`NOT_MET`] with its reason, or fails.

#![expect(clippy::expect_used, reason = "a test that cannot go on fails")]

mod a_meta;
mod answer;
mod b_errors;
mod b_infer_json;
mod c_binary;
mod case;
mod d_http;
mod d_load;
mod e_grpc;
mod e_tensors;
mod harness;
mod models;
mod run;
mod sweep;
mod wire;

use std::{collections::BTreeSet, fmt::Write as _};

use crate::{
    case::Case,
    harness::Hop,
    sweep::{Sweep, number},
};

/// Lines C1 to C141.
const LINES: u16 = 141;

/// Lines that are knowingly not met, and why; docs/OIP.md lists the same.
const NOT_MET: &[(&str, &str)] = &[];

/// The lines that an extension stands for: it is listed by a server when they are met, and only
/// then.
const EXTENSIONS: [(&str, &[u16]); 8] = [
    ("binary_tensor_data", &[82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97]),
    ("classification", &[79, 80]),
    ("model_configuration", &[29]),
    ("model_repository", &[26, 27]),
    ("model_repository(unload_dependents)", &[9, 26, 27]),
    ("parameters", &[73, 74, 75]),
    ("schedule_policy", &[76, 77, 78]),
    ("statistics", &[28]),
];

fn cases() -> Vec<Case> {
    let sections = [
        a_meta::cases(),
        b_infer_json::cases(),
        b_errors::cases(),
        c_binary::cases(),
        d_http::cases(),
        d_load::cases(),
    ];
    sections.into_iter().flatten().collect()
}

#[tokio::test]
async fn every_line_of_the_table() {
    midspan_runtime::test_support::library();
    let sweep = Sweep::default();
    let listed = run::run(cases(), &sweep).await;
    e_grpc::run(&sweep).await;
    for hop in Hop::BOTH {
        extensions(&sweep, hop, listed.get(&hop));
    }
    let (table, wrong) = judge(&sweep);
    let failures = sweep.failures();
    println!("{table}\n{}\n", failures.join("\n"));
    assert!(wrong.is_empty(), "lines not met:\n{}", wrong.join("\n"));
}

/// C2: what is listed works, and what works is listed.
fn extensions(sweep: &Sweep, hop: Hop, listed: Option<&BTreeSet<String>>) {
    let works = EXTENSIONS.iter().filter(|(_, lines)| lines.iter().all(|line| sweep.met(*line)));
    let works: BTreeSet<String> = works.map(|(name, _)| (*name).to_owned()).collect();
    let outcome = match listed {
        Some(listed) if *listed == works => Ok(()),
        listed => Err(format!("lists {listed:?}, what works is {works:?}")),
    };
    sweep.note("C2", hop, "the extensions that work", outcome);
}

/// The table, and what is wrong with it.
fn judge(sweep: &Sweep) -> (String, Vec<String>) {
    let (mut table, mut wrong) = (String::from("line   node  router\n"), Vec::new());
    for line in 1..=LINES {
        let cell = |hop| {
            let line = sweep.line(line, hop);
            match (line.passed, line.failed) {
                (0, 0) => "none".to_owned(),
                (passed, 0) => format!("{passed}"),
                (passed, failed) => format!("{passed}/{}", passed + failed),
            }
        };
        let (node, router) = (cell(Hop::Node), cell(Hop::Router));
        let reason = NOT_MET.iter().find(|(id, _)| number(id) == line).map(|(_, reason)| *reason);
        let met = sweep.met(line);
        let verdict = match (met, reason) {
            (true, None) => "ok",
            (false, Some(_)) => "not met, as known",
            (true, Some(_)) => "met, but listed as not met",
            (false, None) => "FAILED",
        };
        let _infallible = writeln!(table, "C{line:<5} {node:<5} {router:<7} {verdict}");
        if met != reason.is_none() {
            wrong.push(format!("C{line}: node {node}, router {router}: {verdict}"));
        }
    }
    (table, wrong)
}
