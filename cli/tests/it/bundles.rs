//! `midspan split bundle` and `quantise` as operators run them, and a node that loads the result.

use std::{fs, path::Path, process::Output};

use serde_json::Value;

use crate::fleet::midspan;

fn run(folder: &Path, args: &[&str]) -> Output {
    midspan().current_dir(folder).args(args).output().expect("it runs")
}

fn good(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The message of a command that must end with this exit code.
fn bad(folder: &Path, code: i32, args: &[&str]) -> String {
    let output = run(folder, args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(folder: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&good(folder, args)).expect("JSON")
}

/// A folder with the whole default bundle in `whole`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let bundle = midspan_split::Bundle::embedded().expect("a bundle");
    bundle.extract_to(&folder.path().join("whole")).expect("files");
    folder
}

/// What a node says that is started on this file and told to stop at once.
fn node(folder: &Path, more: &str, model: &str) -> Output {
    midspan_runtime::test_support::library();
    let file = folder.join("node.toml");
    let listen = "[listen]\naddress = \"127.0.0.1:0\"\n";
    let text = format!("name = \"n\"\n{more}{listen}[[model]]\n{model}");
    fs::write(&file, text).expect("a file");
    let mut command = midspan();
    command.args(["node", "--until-stdin-closes", "-c"]).arg(&file);
    command.stdin(std::process::Stdio::null()).output().expect("it runs")
}

#[test]
fn a_bundle_is_shown_compared_and_parted() {
    let folder = folder();
    let at = folder.path();
    let show = ["split", "bundle", "show"];
    let text = good(at, &[&show[..], &["whole"]].concat());
    for expected in ["fashion version 1", "6 of 6 sound", "answers from confidence 0.785 on"] {
        assert!(text.contains(expected), "{text}");
    }
    let taken = ["split", "bundle", "take", "whole", "--out", "part", "--json"];
    assert_eq!(json(at, &taken)["blobs"], 2);
    let message = bad(at, 1, &[&show[..], &["part"]].concat());
    assert!(message.contains("part lacks 4 blobs"), "{message}");
    let report = json(at, &[&show[..], &["part", "--partial", "--json"]].concat());
    assert_eq!(report["sound"], true);
    assert_eq!(report["signature"]["state"], "absent");
    let blob = report["stages"][0]["cut"]["split_id"].as_str().expect("an id").to_owned();
    assert_eq!(blob.len(), 64);

    let diff = ["split", "bundle", "diff", "whole"];
    good(at, &[&diff[..], &["part"]].concat());
    let manifest = fs::read_to_string(at.join("whole/manifest.json")).expect("a manifest");
    let changed = manifest.replace("\"threshold_milli\":785", "\"threshold_milli\":900");
    fs::create_dir(at.join("recalibrated")).expect("a folder");
    fs::write(at.join("recalibrated/manifest.json"), changed).expect("a file");
    let output = run(at, &[&diff[..], &["recalibrated"]].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains("only thresholds, no id changes"), "{said}");
    assert!(said.contains("stages[0].exit.threshold_milli: 785 -> 900"), "{said}");

    let blobs: Vec<_> = fs::read_dir(at.join("part/blobs")).expect("blobs").flatten().collect();
    fs::write(blobs[0].path(), "x").expect("a file");
    let message = bad(at, 1, &[&show[..], &["part", "--partial"]].concat());
    assert!(message.contains("part is damaged"), "{message}");
}

#[test]
fn a_node_with_trusted_keys_loads_what_they_signed_and_nothing_else() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let at = folder.path();
    for name in ["ours.pem", "theirs.pem"] {
        good(at, &["split", "bundle", "keygen", "--out", name]);
    }
    let mode = fs::metadata(at.join("ours.pem")).expect("a key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let message = bad(at, 1, &["split", "bundle", "keygen", "--out", "ours.pem"]);
    assert!(message.contains("cannot write ours.pem"), "never replaced: {message}");
    let keys = "trusted_keys = [\"ours.pub.pem\"]\n";
    let start = |bundle: &str| node(at, keys, &format!("bundle = \"{bundle}\"\n"));
    let refused = |output: &Output, words: &str| {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{words}: {output:?}");
        assert!(said.contains("manifest.sig"), "{said}");
    };
    refused(&start("whole"), "there is none, and only bundles signed by one of");
    good(at, &["split", "bundle", "sign", "whole", "--key", "theirs.pem"]);
    refused(&start("whole"), "another key signed it");
    good(at, &["split", "bundle", "sign", "whole", "--key", "ours.pem"]);
    let output = start("whole");
    assert!(output.status.success(), "{output:?}");
    // What an edge needs of it, and no more, is signed as the whole was.
    good(at, &["split", "bundle", "take", "whole", "--stages", "1", "--out", "part"]);
    let output = start("part");
    assert!(output.status.success(), "{output:?}");
    let over = bad(at, 1, &["split", "bundle", "take", "whole", "--stages", "1", "--out", "whole"]);
    assert!(over.contains("is what is read"), "{over}");
    let show = ["split", "bundle", "show", "whole", "--trusted-key"];
    assert!(good(at, &[&show[..], &["ours.pub.pem"]].concat()).contains("by ours.pub.pem"));
    bad(at, 1, &[&show[..], &["theirs.pub.pem"]].concat());

    let path = at.join("whole/manifest.json");
    let manifest = fs::read_to_string(&path).expect("a manifest");
    fs::write(&path, manifest.replace("\"threshold_milli\":785", "\"threshold_milli\":0"))
        .expect("a file");
    refused(&start("whole"), "the manifest was changed after that");
    assert!(start("embedded").status.success(), "as trusted as the program");
}

#[test]
fn an_int8_variant_is_made_measured_and_run() {
    let folder = folder();
    let at = folder.path();
    let args = ["split", "quantise", "--bundle", "whole", "--out", "int8", "--limit", "300"];
    let report = json(at, &[&args[..], &["--calibration", "100", "--json"]].concat());
    assert_eq!(report["samples"], 200);
    assert_eq!(report["per_channel"], true);
    let lower = report["answer"]["lower_bound"].as_f64().expect("a number");
    assert!((0.95..1.0).contains(&lower), "{report}");
    let sizes = |key: &str| report["bytes"][key].as_u64().expect("bytes");
    assert!(sizes("variant") < sizes("plain"), "{report}");
    let error = report["relative_error"].as_f64().expect("a number");
    assert!(error > 0.0 && error < 0.05, "{report}");

    let text = good(at, &["split", "bundle", "show", "int8"]);
    assert!(text.contains("variant int8") && text.contains("static QDQ, per channel"), "{text}");
    let output = run(at, &["split", "bundle", "diff", "whole", "int8"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("variants change, no id changes"), "{said}");
    assert!(!said.contains("split id"), "{said}");

    let model = |variant: &str| format!("bundle = \"int8\"\nvariant = \"{variant}\"\n");
    let output = node(at, "", &model("int8"));
    assert!(output.status.success(), "{output:?}");
    let output = node(at, "", &model("int4"));
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("there is none: the stages come as int8, plain"), "{said}");
}
