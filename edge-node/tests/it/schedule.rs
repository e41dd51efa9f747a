//! Priority and timeout of a request, while a long run holds the only worker.

use std::time::{Duration, Instant};

use http::{Method, Request};
use midspan_net::{Body, body::full, transport::HttpVersion};
use midspan_protocol::{InferRequest, LoadReport, Parameter, headers};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    fixture::{Answer, Node, Setup, encoded, eventually, exchange, pool, request, tensor, with},
    onnx::{self, ask},
};

fn asking(rows: usize, name: &str, value: Parameter) -> Request<Body> {
    let rows: Vec<usize> = (0..rows).collect();
    let mut message = InferRequest { inputs: vec![tensor(&rows)], ..InferRequest::default() };
    message.parameters.set(name, value);
    message.parameters.set("binary_data_output", Parameter::Bool(true));
    with(encoded(&message, true), "midspan-exit", "force")
}

async fn report(node: &Node) -> LoadReport {
    LoadReport::decode(node.get("/v2/health/live").await.header(headers::LOAD)).unwrap()
}

/// Products of the slow model that holds the worker: a second or more.
const PRODUCTS: usize = 1_500;

/// A node whose worker is held by a long run, behind which one more waits.
async fn busy() -> (Node, [JoinHandle<Answer>; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let slow = onnx::write(folder.path(), "slow", &onnx::slow());
    let model = format!("bundle = \"embedded\"\n{slow}");
    let node = Setup { model: &model, ..Setup::default() }.start().await;
    // Something was served: from then on the load report tells how many wait.
    node.assert_well("the start").await;
    let send = |path: &str, body: String| {
        let (app, asked) =
            (pool(node.addr, HttpVersion::H1), request(Method::POST, path, full(body)));
        let asked = with(asked, "midspan-deadline-ms", "60000");
        tokio::spawn(async move { exchange(&app, asked).await })
    };
    let infer = "/v2/models/slow/infer";
    let long = send(infer, ask("INT64", &[1], &format!("[{PRODUCTS}]")));
    eventually("the long run is in", async || report(&node).await.rif == 1).await;
    let next = send(infer, ask("INT64", &[1], "[1]"));
    waiting(&node, 1).await;
    (node, [long, next])
}

/// Waits until this many runs are in the queue.
async fn waiting(node: &Node, runs: u64) {
    eventually("runs wait", async || {
        let report = report(node).await;
        report.service_us > 0 && report.wait_us / report.service_us == runs
    })
    .await;
}

#[tokio::test]
async fn a_lower_number_goes_first_and_the_default_is_two() {
    let (node, holding) = busy().await;
    let (done, mut order) = mpsc::unbounded_channel();
    for (queued, level) in (2..).zip([9, 3, 0, 2, 1]) {
        let (app, done) = (pool(node.addr, HttpVersion::H1), done.clone());
        // Later deadlines for those that should go first: only the priority can be the reason.
        let deadline = 60_000 - 5_000 * level;
        let asked = asking(256, "priority", Parameter::Int(level));
        let asked = with(asked, "midspan-deadline-ms", &deadline.to_string());
        tokio::spawn(async move {
            assert_eq!(exchange(&app, asked).await.status, 200);
            done.send(level).unwrap();
        });
        waiting(&node, queued).await;
        assert!(!holding[0].is_finished(), "the worker was held long enough");
    }
    drop(done);
    let mut levels = Vec::new();
    while let Some(level) = order.recv().await {
        levels.push(level);
    }
    // Of equal levels the earlier deadline goes first: that of level 2 here.
    assert_eq!(levels, [1, 2, 0, 3, 9]);
    for run in holding {
        assert_eq!(run.await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_timeout_ends_the_wait() {
    let (node, holding) = busy().await;
    for micros in [1, 2_000] {
        let sent = Instant::now();
        let answer = node.send(asking(1, "timeout", Parameter::Int(micros))).await;
        assert!(answer.error(504).contains("deadline"), "{answer:?}");
        assert!(sent.elapsed() < Duration::from_secs(5));
        assert!(!holding[0].is_finished(), "nobody else's run was waited for");
    }
    for run in holding {
        assert_eq!(run.await.unwrap().status, 200);
    }
    for micros in [0, i64::MAX] {
        let answer = node.send(asking(1, "timeout", Parameter::Int(micros))).await;
        assert_eq!(answer.status, 200, "{micros}: no shorter than the deadline");
    }
}

#[tokio::test]
async fn other_types_are_refused_and_sequences_ignored() {
    let node = Setup::default().start().await;
    for name in ["priority", "timeout"] {
        for bad in [
            Parameter::Int(-1),
            Parameter::Text("5".into()),
            Parameter::Float(1.5),
            Parameter::Bool(true),
        ] {
            let text = node.send(asking(1, name, bad)).await.error(400);
            assert!(text.contains(name), "{text}");
        }
    }
    for (name, value) in [
        ("sequence_id", Parameter::Int(7)),
        ("sequence_id", Parameter::Text("s".into())),
        ("sequence_start", Parameter::Bool(true)),
        ("sequence_end", Parameter::Bool(false)),
    ] {
        assert_eq!(node.send(asking(1, name, value)).await.status, 200, "{name}");
    }
}
