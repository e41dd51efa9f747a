//! `midspan up` as a new user meets it.

use std::{
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    process::{Child, Stdio},
};

use crate::fleet::{midspan, root};

/// Three ports that were free a moment ago.
fn ports() -> [String; 3] {
    let held = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    held.map(|port| port.local_addr().expect("an address").port().to_string())
}

fn up(ports: &[String; 3], more: &[&str]) -> Child {
    let [port, admin, links] = ports;
    midspan()
        .env("MIDSPAN_LOG", "warn")
        .current_dir(root())
        .args(["up", "--port", port, "--admin-port", admin, "--links-port", links])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts")
}

fn ends(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn interrupt(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it lives");
}

#[test]
fn it_starts_serves_and_drains_on_ctrl_c() {
    midspan_runtime::test_support::library();
    let ports = ports();
    let mut child = up(&ports, &["--uplink", "wifi"]);
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut text = String::new();
    for line in lines.by_ref() {
        let line = line.expect("text");
        text += &line;
        text.push('\n');
        if line.contains("Ctrl-C") {
            break;
        }
    }
    for process in ["router", "edge-a", "edge-b", "cloud", "uplink"] {
        assert!(text.contains(process), "{text}");
    }
    let endpoint = format!("http://127.0.0.1:{}", ports[0]);
    let run = |args: &[&str]| {
        let output = midspan().current_dir(root()).args(args).output().expect("it runs");
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let answer = run(&["infer", "--sample", "7", "--endpoint", &endpoint]);
    assert!(answer.contains("answered by  cloud at edge-"), "{answer}");
    let links = format!("http://127.0.0.1:{}/links", ports[2]);
    let load = ["load", "live", "--labelled", "models/fashion", "--requests", "200", "--json", "-"];
    let report = run(&[&load[..], &["--endpoint", &endpoint, "--links", &links]].concat());
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!((&report["answers"], &report["requests"]), (&200.into(), &200.into()));
    assert!(
        report["uplink"]["bytes_per_hard_case"].as_f64().expect("a number") <= 640.0,
        "{report}"
    );
    let admin = format!("http://127.0.0.1:{}", ports[1]);
    let status = run(&["status", "--admin", &admin]);
    assert!(
        status.contains("edge-a") && status.contains("healthy") && status.contains("via edge-b"),
        "{status}"
    );
    let why = run(&["explain", "last", "--admin", &admin]);
    assert!(why.contains("choice 1"), "{why}");

    // A cut link must not hold the end up.
    let cut = format!("http://127.0.0.1:{}/links/uplink/cut", ports[2]).parse().expect("a URL");
    let patience = std::time::Duration::from_secs(10);
    let cutting =
        midspan_net::client::fetch(http::Method::POST, &cut, bytes::Bytes::new(), patience);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(cutting).expect("the link is cut");
    interrupt(&child);
    let mut rest = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut rest).expect("text");
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{rest}");
    assert!(!rest.contains("grace period"), "a process had to be waited out: {rest}");
}

#[test]
fn a_port_in_use_is_one_line() {
    midspan_runtime::test_support::library();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    for place in 0..3 {
        let mut ports = ports();
        ports[place].clone_from(&port);
        let (code, message) = ends(up(&ports, &[]));
        assert_eq!(code, Some(1), "{message}");
        assert!(message.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn a_bundle_that_is_not_there_is_one_line() {
    let (code, message) = ends(up(&ports(), &["--bundle", "no/such/bundle"]));
    assert_eq!(code, Some(1));
    assert!(message.contains("no/such/bundle") && message.lines().count() == 1, "{message}");
}
