//! `split profile` and `split plan` from the command line: files, exit codes and messages.

use std::{fs, process::Output};

use serde_json::Value;

use crate::fleet::{midspan, root};

fn run(args: &[&str]) -> Output {
    midspan().current_dir(root()).args(args).output().expect("it runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_profile_is_measured_shown_and_planned_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (edge, report, trace) = (file("edge.json"), file("plan.html"), file("trace.csv"));
    let model = "models/fashion.onnx";
    let profile =
        ["split", "profile", model, "--out", &edge, "--cuts", "2", "--runs", "3", "--batch", "1"];
    let output = run(&profile);
    assert!(output.status.success(), "{output:?}");
    let shown = run(&["split", "profile", "--show", &edge]);
    assert_eq!(shown.stdout, output.stdout, "what was measured is what is shown");
    assert!(String::from_utf8_lossy(&shown.stdout).contains("front to /"), "{shown:?}");

    let plan = |more: &[&str]| {
        run(&[&["split", "plan", "--edge", &edge, "--cloud", &edge][..], more].concat())
    };
    let output = plan(&["--link", "3g", "--link", "wifi,rtt=9ms", "--report", &report, "--json"]);
    assert!(output.status.success(), "{output:?}");
    let plans: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(plans["links"][0]["plan"]["verdict"]["kind"], "local", "{plans}");
    assert_eq!(plans["links"][1]["plan"]["link"]["rtt_us"], 9000.0);
    let page = fs::read_to_string(&report).expect("a report");
    assert!(page.contains("<svg") && page.contains("do not split: local"));

    let rows: String = (0..9).map(|at| format!("{at},5,10,50\n")).collect();
    fs::write(&trace, format!("seconds,up_mbps,down_mbps,rtt_ms\n{rows}")).expect("a trace");
    let output = plan(&["--link", &trace]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("do not split: local (plain)  100.0 %"), "{text}");

    let output = plan(&["--link", "4g", "--max-latency", "0.001"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("nothing keeps the bounds on: 4g"), "{output:?}");
    let output = plan(&["--link", "4g,up=fast"]);
    assert!(stderr(&output).contains("up=fast: a rate such as 5Mbps"), "{output:?}");
}

#[test]
fn profiles_of_nothing_are_refused() {
    let output = run(&["split", "profile", "--show", "models/fashion.toml"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("models/fashion.toml: expected value"), "{output:?}");
    let output =
        run(&["split", "profile", "models/fashion.onnx", "--out", "/x", "--slowdown", "0"]);
    assert!(stderr(&output).contains("--slowdown 0: must be 1 to 1000"), "{output:?}");
    let output =
        run(&["split", "profile", "models/fashion.onnx", "--out", "/x", "--cuts", "nothing"]);
    assert!(stderr(&output).contains("\"nothing\" is no tensor at which"), "{output:?}");
}
