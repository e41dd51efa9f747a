//! What is counted as what, and the pinned looks of a report.

use expect_test::{expect, expect_file};

use super::*;
use crate::outcome::{Answer, Failure};

fn outcome(index: usize, latency_us: u64, result: Result<Answer, Failure>) -> Outcome {
    Outcome { index, image: index, label: 1, latency_us, late_us: 0, result }
}

fn answer(place: Option<AnsweredBy>, degraded: Option<&str>, predicted: u32) -> Answer {
    Answer { predicted, place, degraded: degraded.map(str::to_owned), node: None }
}

fn settings() -> Settings {
    Settings {
        driver: "live".into(),
        endpoint: "http://127.0.0.1:8080".into(),
        model: "fashion".into(),
        requests: 2000,
        concurrency: 8,
        pace: "closed".into(),
        rate_per_s: None,
        timeout_ms: 10_000,
        max_duration_ms: 600_000,
        protocol: "h1".into(),
        body: "binary".into(),
        seed: 7,
    }
}

/// 1,500 answers at the exit, 1 in 10 wrong; 300 at the cloud; 10 degraded, all wrong; 5 failures.
fn mixed() -> Vec<Outcome> {
    let (exit, cloud) = (AnsweredBy::Exit(1), AnsweredBy::Cloud);
    let mut all = Vec::new();
    for n in 0..1500 {
        let predicted = if n % 10 == 0 { 2 } else { 1 };
        all.push(outcome(n, 1000 + n as u64, Ok(answer(Some(exit), None, predicted))));
    }
    for n in 1500..1800 {
        all.push(outcome(n, 50_000 + n as u64, Ok(answer(Some(cloud), None, 1))));
    }
    for n in 1800..1810 {
        all.push(outcome(n, 300_000, Ok(answer(Some(exit), Some("uplink"), 3))));
    }
    let busy = Failure::new(FailureKind::Status(503), "queue is full");
    let slow = Failure::new(FailureKind::Timeout, "no whole answer within 10s");
    all.push(outcome(1810, 10_000_000, Err(slow)));
    for n in 1811..1815 {
        all.push(outcome(n, 900, Err(busy.clone())));
    }
    all
}

#[test]
fn figures_follow_their_definitions() {
    let report = Report::new(&mixed(), Duration::from_secs(5), settings());
    assert_eq!((report.requests, report.answers, report.hard_cases()), (1815, 1810, 300));
    assert_eq!(report.accuracy, Some(1650.0 / 1810.0));
    assert_eq!(report.edge_share, Some(1500.0 / 1810.0), "degraded answers do not count");
    assert_eq!(report.answers_per_s, 362.0);
    let kinds: Vec<_> = report.kinds.iter().map(|kind| (&kind.kind[..], kind.count)).collect();
    assert_eq!(kinds, [("exit:1", 1500), ("cloud", 300), ("degraded", 10)]);
    let exit = report.kinds[0].latency;
    for (got, exact) in [(exit.p50_us, 1749), (exit.p90_us, 2349), (exit.p99_us, 2484)] {
        assert!(got.abs_diff(exact) <= exact / 500, "{got} for {exact}");
    }
    assert_eq!(exit.max_us, 2499);
    let errors: Vec<_> = report.errors.iter().map(|e| (&e.kind[..], e.count)).collect();
    assert_eq!(errors, [("status:503", 4), ("timeout", 1)]);
}

#[test]
fn the_table_looks_like_this() {
    let mut report = Report::new(&mixed(), Duration::from_secs(5), settings());
    report.stopped = Some(Stopped::Cancelled);
    report.uplink = Some(Uplink::new(93_456, 34_567, report.hard_cases()));
    report.notes.push("link 'edge-b' was down".into());
    expect![[r#"
        asked        fashion at http://127.0.0.1:8080, h1, binary tensors
        load         closed loop, at most 8 in flight, seed 7
        requests     1,815 of 2,000, 5 failed (stopped early: cancelled)
        throughput   362.0 answers/s over 5.00 s
        accuracy     91.2 %
        at the edge  82.9 %
        uplink       93,456 bytes up, 34,567 down; 311.5 up for each of 300 hard cases

        answered by  count    share  accuracy  p50 ms  p90 ms  p99 ms  max ms
        exit:1       1,500   82.9 %    90.0 %    1.75    2.35    2.48    2.50
        cloud          300   16.6 %   100.0 %   51.68   51.77   51.80   51.80
        degraded        10    0.6 %     0.0 %  300.00  300.00  300.00  300.00
        all          1,810  100.0 %    91.2 %    1.90   51.65   51.81  300.00

        errors      count  first cause
        status:503      4  queue is full
        timeout         1  no whole answer within 10s

        note: link 'edge-b' was down
    "#]]
    .assert_eq(&report.render());
}

#[test]
fn an_open_loop_shows_its_lateness_and_an_empty_run_no_shares() {
    let mut settings = settings();
    settings.pace = "poisson".into();
    settings.rate_per_s = Some(250.0);
    let failure = Failure::new(FailureKind::Connect, "connection refused");
    let mut failed = outcome(0, 100, Err(failure));
    failed.late_us = 2500;
    let mut punctual = failed.clone();
    punctual.late_us = 1000;
    let report = Report::new(&[failed, punctual], Duration::from_millis(20), settings);
    assert_eq!(report.late, Late { count: 1, max_us: 2500 });
    expect![[r#"
        asked       fashion at http://127.0.0.1:8080, h1, binary tensors
        load        open loop, poisson at 250/s, at most 8 in flight, seed 7
        requests    2 of 2,000, 2 failed
        throughput  0.0 answers/s over 0.02 s
        sent late   1 (longest wait 2.50 ms)

        errors   count  first cause
        connect      2  connection refused
    "#]]
    .assert_eq(&report.render());
}

#[test]
fn json_names_are_stable_and_read_back() {
    let mut report = Report::new(&mixed()[1400..], Duration::from_millis(1500), settings());
    report.uplink = Some(Uplink::new(120, 60, 0));
    report.stopped = Some(Stopped::Duration);
    let json = serde_json::to_string_pretty(&report).unwrap();
    expect_file!["report.json"].assert_eq(&format!("{json}\n"));
    let mut read: Report = serde_json::from_str(&json).unwrap();
    // The JSON reader may be off by the last bit of a float.
    assert!(read.accuracy.zip(report.accuracy).is_some_and(|(a, b)| (a - b).abs() < 1e-12));
    read.accuracy = report.accuracy;
    assert_eq!(read, report);
}
