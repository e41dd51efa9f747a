//! `split inspect` and `split cut` as commands: what they print and what they refuse.

use std::{fs, path::Path, process::Output};

use serde_json::Value;

use crate::fleet::{midspan, root};

const MODEL: &str = "models/fashion.onnx";
const CUT: &str = "/seg0/bott/Clip_output_0";

fn run(args: &[&str]) -> Output {
    let all = ["split"].iter().chain(args);
    midspan().current_dir(root()).args(all).output().expect("it runs")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn inspect_lists_cuts_with_what_lies_in_front() {
    let output = run(&["inspect", MODEL, "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cuts = report["cuts"].as_array().expect("cuts");
    let cut = cuts.iter().find(|cut| cut["tensors"][0]["name"] == CUT).expect("the first cut");
    assert_eq!(cut["row_bytes"], 8 * 7 * 7 * 4);
    assert_eq!(cut["tensors"][0]["shape"].as_array().map(Vec::len), Some(4));
    let share = cut["front_macs_share"].as_f64().expect("a share");
    assert!(share > 0.0 && share < 0.5, "{share}");
    let table = run(&["inspect", MODEL]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    for part in ["OPERATOR", "MACs a row", "BYTES A ROW", CUT, "front answers logits1"] {
        assert!(table.contains(part), "{part} in {table}");
    }
    let unknown = run(&["inspect", MODEL, "--dim", "height=2"]);
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
}

#[test]
fn cut_writes_halves_and_overwrites_only_by_force() {
    let folder = tempfile::tempdir().expect("a folder");
    let [front, tail] = ["f.onnx", "t.onnx"].map(|name| folder.path().join(name));
    let args = ["cut", MODEL, "--at", CUT, "--front", text(&front), "--tail", text(&tail)];
    let output = run(&args);
    assert!(output.status.success(), "{output:?}");
    let first = fs::read(&front).expect("the front");
    assert!(tail.exists());
    fs::remove_file(&front).expect("it was there");
    let refused = run(&args);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("t.onnx exists") && message.contains("--force"), "{message}");
    assert!(!front.exists(), "nothing is written where some of it is refused");
    let forced = run(&[&args[..], &["--force"]].concat());
    assert!(forced.status.success(), "{forced:?}");
    assert_eq!(fs::read(&front).expect("the front"), first);
    let wrong = run(&["cut", MODEL, "--at", "nothing", "--front", text(&front), "--force"]);
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("no tensor \"nothing\""), "{wrong:?}");
    let all = folder.path().join("all");
    let output = run(&["cut", MODEL, "--all", text(&all), "--json"]);
    let written: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cuts = written.as_array().expect("a list").len();
    assert!(cuts > 2 && fs::read_dir(&all).expect("it was made").count() == 2 * cuts);
}
