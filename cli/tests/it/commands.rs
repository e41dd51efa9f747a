//! Commands that end by themselves: exit codes and messages.

use std::{fs, process::Output};

use crate::fleet::{midspan, root};

fn run(args: &[&str]) -> Output {
    midspan().current_dir(root()).args(args).output().expect("it runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_configuration_reference_is_current() {
    let printed = run(&["config", "docs"]);
    let committed = fs::read_to_string(root().join("docs/CONFIG.md")).expect("docs/CONFIG.md");
    assert_eq!(
        String::from_utf8_lossy(&printed.stdout),
        committed,
        "docs/CONFIG.md: run `cargo run -- config docs > docs/CONFIG.md`"
    );
}

#[test]
fn a_bad_file_is_exit_64_with_file_line_key_and_value() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("router.toml");
    fs::write(&path, "[limits]\nbody = \"large\"\n[[node]]\nname = \"a\"\naddress = \"h:1\"\n")
        .expect("a file");
    for command in ["router", "node"] {
        let file = path.to_str().expect("UTF-8");
        let output = run(&[command, "-c", file]);
        assert_eq!(output.status.code(), Some(64), "{output:?}");
    }
    let output = run(&["config", "check", path.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    let message = stderr(&output);
    assert!(message.contains("router.toml:2: limits.body = \"large\": not a size"), "{message}");
    let output = run(&["router", "-c", "nowhere.toml"]);
    assert!(stderr(&output).contains("nowhere.toml"), "{output:?}");
}

#[test]
fn nobody_at_home_is_one_clear_line() {
    for args in [
        vec!["status", "--admin", "http://127.0.0.1:1"],
        vec!["infer", "--sample", "7", "--endpoint", "http://127.0.0.1:1"],
        vec!["explain", "last", "--admin", "http://127.0.0.1:1"],
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let message = stderr(&output);
        assert!(message.contains("midspan up") && message.lines().count() == 1, "{message}");
    }
    let output = run(&["infer", "--sample", "5000"]);
    assert!(stderr(&output).contains("samples 0 to 999"), "{output:?}");
}

#[test]
fn a_split_equals_the_whole() {
    midspan_runtime::test_support::library();
    let model = "models/fashion.onnx";
    let output = run(&["split", "verify", model, "--embedded", "--limit", "50", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["samples"], 50);
    assert!(report["difference"]["scaled"].as_f64().expect("a number") < 1e-4, "{report}");
    assert_eq!(report["agreement_raw"], 1.0);
    assert_eq!(report["cuts"][0]["default"], true, "{report}");

    let cut = "/seg0/bott/Clip_output_0";
    let output = run(&["split", "verify", model, "--cut", cut, "--random", "4", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["cuts"][0]["cut"], cut, "{report}");
    // 392 elements of FP32, many of them zero.
    let bytes = report["cuts"][0]["report"]["bytes"].as_f64().expect("a number");
    assert!((64.0..1632.0).contains(&bytes), "{report}");
    let output = run(&["split", "verify", model, "--cut", "nothing", "--random", "1"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("nothing: "), "{output:?}");
    let output = run(&["split", "verify", model]);
    assert!(stderr(&output).contains("--samples PATH or --random N"), "{output:?}");
}

#[test]
fn a_tail_of_another_model_is_exit_1_and_its_layer_is_named() {
    use midspan_split::{cut::Types, onnx, verify::halves::Halves};

    midspan_runtime::test_support::library();
    let model = root().join("models/fashion.onnx");
    let whole = onnx::decode(fs::read(&model).expect("the model").into()).expect("a model");
    let types = Types::infer(&whole).expect("types");
    let mut halves = Halves::at(&whole, &types, &["/seg0/bott/Clip_output_0".to_owned()])
        .expect("the default cut");
    let folder = tempfile::tempdir().expect("a folder");
    let (front, tail) = (folder.path().join("front.onnx"), folder.path().join("tail.onnx"));
    let verify = |halves: &Halves| {
        fs::write(&front, onnx::encode(&halves.front)).expect("a file");
        fs::write(&tail, onnx::encode(&halves.tail)).expect("a file");
        let files =
            [model.to_str(), front.to_str(), tail.to_str()].map(|file| file.expect("UTF-8"));
        let [model, front, tail] = files;
        run(&["split", "verify", model, "--front", front, "--tail", tail, "--random", "2"])
    };
    let output = verify(&halves);
    assert!(output.status.success(), "{output:?}");

    // Ten f32 are the bias of a last layer.
    let graph = halves.tail.graph.as_mut().expect("a graph");
    for weight in &mut graph.initializer {
        if weight.raw_data.as_ref().is_some_and(|data| data.len() == 40) {
            weight.raw_data = Some(vec![0x41; 40].into());
        }
    }
    let output = verify(&halves);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("first differs at Gemm"), "{table}");
    assert!(stderr(&output).contains("1 of 1 cuts differ"), "{output:?}");
}

#[test]
fn a_bundle_is_remade_byte_for_byte() {
    midspan_runtime::test_support::library();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("made");
    let spec = ["--spec", "models/fashion.toml", "--out", out.to_str().expect("UTF-8")];
    let output = run(&[&["split", "bundle", "make", "models/fashion.onnx"][..], &spec].concat());
    assert!(output.status.success(), "{output:?}");
    let manifest =
        |folder: &std::path::Path| fs::read(folder.join("manifest.json")).expect("a manifest");
    assert_eq!(manifest(&out), manifest(&root().join("models/fashion")));
}

#[test]
fn onnx_runtime_reports_nothing_to_its_makers() {
    let library = midspan_runtime::test_support::library();
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("node.toml");
    let text =
        "name = \"n\"\n[listen]\naddress = \"127.0.0.1:0\"\n[[model]]\nbundle = \"embedded\"\n";
    fs::write(&config, text).expect("a file");
    let output = midspan()
        .args(["node", "--until-stdin-closes", "-c"])
        .arg(&config)
        .env("ORT_DYLIB_PATH", library)
        .env("XDG_CACHE_HOME", folder.path())
        .env("HOME", folder.path())
        .env_remove("ORT_DISABLE_TELEMETRY")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("listening on"), "{output:?}");
    let left: Vec<_> = fs::read_dir(folder.path()).expect("the folder").flatten().collect();
    assert_eq!(left.len(), 1, "it keeps a device id and events in the cache: {left:?}");
}

#[test]
fn a_router_whose_reader_is_gone_still_stops() {
    use std::io::{BufRead, BufReader};
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("router.toml");
    // A node that nobody is: the router has something to log about.
    let text = "[listen]\napps = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[probe]\ninterval = \"20ms\"\n\
                [[node]]\nname = \"gone\"\naddress = \"127.0.0.1:1\"\n";
    fs::write(&config, text).expect("a file");
    let mut child = midspan()
        .env("MIDSPAN_LOG", "trace")
        .args(["router", "--until-stdin-closes", "-c"])
        .arg(&config)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    stdout.read_line(&mut line).expect("a line");
    // Both readers go; what is logged from now on goes nowhere.
    drop((stdout, child.stderr.take()));
    drop(child.stdin.take());
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{status:?}");
}
