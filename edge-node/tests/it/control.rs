//! Loading and unloading models while the node runs.

use std::{path::Path, process::Command, sync::Arc};

use http::Method;
use midspan_net::{body::full, transport::HttpVersion};
use midspan_split::Bundle;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use crate::{
    fixture::{Answer, Node, Setup, eventually, exchange, infer, pool, request, with},
    onnx::{self, ask},
    stub::{self, Stub},
};

const ON: &str = "model_control = true";
const LOAD: &str = "/v2/repository/models/a/load";
const UNLOAD: &str = "/v2/repository/models/a/unload";

/// `y = op(x)` over FP32 `[-1,2]`.
fn model(op: &str) -> Vec<u8> {
    onnx::unary(op, onnx::FP32, &[-1, 2])
}

/// A node with the models `a` and `b` from files in `folder`.
async fn start(folder: &Path) -> Node {
    let models = [
        onnx::write(folder, "a", &model("Identity")),
        onnx::write(folder, "b", &model("Identity")),
    ];
    Setup { top: ON, model: &onnx::headless(&models), ..Setup::default() }.start().await
}

async fn run(node: &Node, name: &str) -> Answer {
    let body = ask("FP32", &[1, 2], "[1,2]");
    node.post(&format!("/v2/models/{name}/infer"), body).await
}

#[track_caller]
fn assert_answers(answer: &Answer, values: &[f32]) {
    assert_eq!(answer.response().output("y").unwrap().to_f32().unwrap(), values);
}

async fn index(node: &Node, body: &'static str) -> Value {
    node.post("/v2/repository/index", body).await.json()
}

fn entry(name: &str, state: &str, reason: &str) -> Value {
    json!({ "name": name, "version": "1", "state": state, "reason": reason })
}

#[tokio::test]
async fn a_model_is_unloaded_and_loaded_again() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let both = json!([entry("a", "READY", ""), entry("b", "READY", "")]);
    assert_eq!(index(&node, "").await, both);
    assert_eq!(index(&node, "{\"ready\":false}").await, both);
    assert_answers(&run(&node, "a").await, &[1.0, 2.0]);
    for body in ["{\"parameters\":{\"unload_dependents\":false}}", ""] {
        let unloaded = node.post(UNLOAD, body).await;
        assert_eq!((unloaded.status.as_u16(), unloaded.json()), (200, json!({})), "{unloaded:?}");
    }
    let b = entry("b", "READY", "");
    assert_eq!(index(&node, "{}").await, json!([entry("a", "UNAVAILABLE", "unloaded"), b]));
    assert_eq!(index(&node, "{\"ready\":true}").await, json!([b]));
    assert_eq!(node.get("/v2/models").await.json(), json!({ "models": ["b"] }));
    let info = node.get("/v2/midspan/node").await.json();
    assert_eq!(info["models"][0]["state"], "UNAVAILABLE", "routers are told");
    for path in ["/ready", "", "/config", "/stats", "/versions/1/ready", "/versions/1"] {
        let text = node.get(&format!("/v2/models/a{path}")).await.error(503);
        assert!(text.contains("'a") && text.contains("not loaded: unloaded"), "{path}: {text}");
    }
    assert!(run(&node, "a").await.error(503).contains("not loaded"));
    node.get("/v2/models/a/versions/2").await.error(404);
    assert_answers(&run(&node, "b").await, &[1.0, 2.0]);
    assert_eq!(node.get("/v2/health/ready").await.status, 200, "the others serve");
    let all = node.get("/v2/models/stats").await.json();
    assert_eq!(all["model_stats"].as_array().unwrap().len(), 1, "{all}");

    assert_eq!(node.post(LOAD, "{}").await.status, 200);
    assert_eq!(index(&node, "").await, both);
    assert_answers(&run(&node, "a").await, &[1.0, 2.0]);
    let stats = node.get("/v2/models/a/stats").await.json();
    assert_eq!(stats["model_stats"][0]["execution_count"], 1, "counted since it was loaded");
}

#[tokio::test]
async fn what_cannot_be_obeyed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    for (path, body, status, words) in [
        ("/v2/repository/models/ghost/load", "", 404, "Request for unknown model: 'ghost'"),
        ("/v2/repository/models/ghost/unload", "", 404, "Request for unknown model: 'ghost'"),
        (LOAD, "[]", 400, "JSON: expected an object"),
        (LOAD, "{\"parameters\":{\"config\":\"{}\"}}", 400, "'config' is not supported"),
        (LOAD, "{\"parameters\":{\"file:1/model.onnx\":\"AA==\"}}", 400, "is not supported"),
        (UNLOAD, "{\"parameters\":{\"unload_dependents\":\"no\"}}", 400, "not a boolean"),
        ("/v2/repository/index", "{\"ready\":1}", 400, "JSON: "),
        ("/v2/repository/index", "[true]", 400, "expected an object"),
        ("/v2/repository/index", "{", 400, "JSON: "),
    ] {
        let text = node.post(path, body).await.error(status);
        assert!(text.contains(words), "{path} {body}: {text}");
    }
    let long = format!("{{\"ready\":true{}}}", " ".repeat(70_000));
    assert!(node.post("/v2/repository/index", long).await.error(413).contains("65536"));
    let zipped = with(request(Method::POST, LOAD, full("{}")), "content-encoding", "x-unknown");
    node.send(zipped).await.error(415);
    assert_eq!(index(&node, "{\"ready\":true,\"other\":0}").await.as_array().unwrap().len(), 2);

    let node = Setup::default().start().await;
    for path in ["fashion/load", "fashion/unload", "ghost/load"] {
        let text = node.post(&format!("/v2/repository/models/{path}"), "").await.error(403);
        assert!(text.contains("model_control = true"), "{text}");
    }
    node.assert_well("refused changes").await;
}

#[tokio::test]
async fn a_load_that_fails_keeps_what_there_was() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let file = folder.path().join("a.onnx");
    std::fs::write(&file, "no model").unwrap();
    assert!(node.post(LOAD, "").await.error(500).contains("a.onnx"));
    assert_answers(&run(&node, "a").await, &[1.0, 2.0]);
    assert_eq!(index(&node, "").await[0], entry("a", "READY", ""));

    assert_eq!(node.post(UNLOAD, "").await.status, 200);
    let text = node.post(LOAD, "").await.error(500);
    let state = index(&node, "").await;
    assert_eq!(state[0]["state"], "UNAVAILABLE");
    let reason = state[0]["reason"].as_str().unwrap();
    assert!(text.contains(reason) && reason.contains("a.onnx"), "{reason}");
    assert!(run(&node, "a").await.error(503).contains(reason), "the cause is told on");
    assert_eq!(node.get("/v2/health/ready").await.status, 200, "the others serve");

    std::fs::write(&file, model("Neg")).unwrap();
    assert_eq!(node.post(LOAD, "").await.status, 200);
    assert_answers(&run(&node, "a").await, &[-1.0, -2.0]);
}

/// A model's file that is read only when a test writes it, by way of a named pipe.
struct Pipe(std::path::PathBuf);

impl Pipe {
    fn instead_of(file: &Path) -> Self {
        std::fs::remove_file(file).unwrap();
        assert!(Command::new("mkfifo").arg(file).status().unwrap().success());
        Self(file.to_owned())
    }

    /// Waits for the reader, then writes all.
    async fn write(&self, model: Vec<u8>) {
        tokio::fs::write(&self.0, model).await.unwrap();
    }
}

impl Drop for Pipe {
    /// A test that failed leaves no reader waiting. Opened for both ways, a pipe never blocks.
    fn drop(&mut self) {
        let _opened = std::fs::OpenOptions::new().read(true).write(true).open(&self.0);
    }
}

#[tokio::test]
async fn a_model_on_its_way_is_told_and_arrives_without_its_asker() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let app = Arc::new(pool(node.addr, HttpVersion::H1));
    let load = || {
        let app = Arc::clone(&app);
        let load = request(Method::POST, LOAD, full(""));
        tokio::spawn(async move { exchange(&app, load).await })
    };
    let pipe = Pipe::instead_of(&folder.path().join("a.onnx"));

    // In service: the old one serves until the new one is there.
    let loading = load();
    assert_answers(&run(&node, "a").await, &[1.0, 2.0]);
    assert_eq!(index(&node, "").await[0], entry("a", "READY", ""));
    assert_eq!(node.get("/v2/health/ready").await.status, 200);
    assert!(!loading.is_finished());
    pipe.write(model("Neg")).await;
    assert_eq!(loading.await.unwrap().status, 200);
    assert_answers(&run(&node, "a").await, &[-1.0, -2.0]);

    // Out of service: it is on its way, and the server is not ready meanwhile.
    assert_eq!(node.post(UNLOAD, "").await.status, 200);
    let left = load();
    eventually("it is being loaded", async || {
        index(&node, "").await[0] == entry("a", "LOADING", "loading")
    })
    .await;
    let ready = node.get("/v2/health/ready").await;
    assert!(ready.error(503).contains("being loaded"), "{ready:?}");
    assert_eq!((&ready.json()["live"], &ready.json()["ready"]), (&true.into(), &false.into()));
    assert_eq!(node.get("/v2/health/live").await.status, 200);
    assert!(run(&node, "a").await.error(503).contains("not loaded: loading"));
    assert_answers(&run(&node, "b").await, &[1.0, 2.0]);

    // The asker goes away, another one waits for its turn.
    left.abort();
    let second = load();
    pipe.write(model("Identity")).await;
    eventually("it is there", async || run(&node, "a").await.status == 200).await;
    assert_answers(&run(&node, "a").await, &[1.0, 2.0]);
    assert!(!second.is_finished(), "one change at a time");
    pipe.write(model("Neg")).await;
    assert_eq!(second.await.unwrap().status, 200);
    assert_answers(&run(&node, "a").await, &[-1.0, -2.0]);
}

#[tokio::test]
async fn a_request_under_way_keeps_its_model() {
    let cloud = Stub::start();
    let clouds = vec![(cloud.addr, "home")];
    let edge = Setup { top: ON, clouds, ..Setup::default() }.start().await;
    let (entered, mut has_entered) = mpsc::unbounded_channel();
    let release = Arc::new(Notify::new());
    let released = Arc::clone(&release);
    cloud.script(move |_| {
        let (entered, released) = (entered.clone(), Arc::clone(&released));
        async move {
            entered.send(()).unwrap();
            released.notified().await;
            Ok(stub::logits(1, 10))
        }
    });
    let app = pool(edge.addr, HttpVersion::H1);
    let asked = with(infer(&[0]), "midspan-exit", "never");
    let asked = with(asked, "midspan-deadline-ms", "50000");
    let waiting = tokio::spawn(async move { exchange(&app, asked).await });
    has_entered.recv().await.unwrap();
    assert_eq!(edge.post("/v2/repository/models/fashion/unload", "").await.status, 200);
    edge.infer(&[0], "force").await.error(503);
    release.notify_one();
    let answer = waiting.await.unwrap();
    assert_eq!(answer.header("midspan-answered-by"), "cloud", "{answer:?}");
    assert_eq!(edge.post("/v2/repository/models/fashion/load", "").await.status, 200);
    edge.assert_well("a reload").await;
}

#[tokio::test]
async fn a_cloud_that_loads_one_model_is_used_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let a = onnx::write(folder.path(), "a", &model("Identity"));
    let models = format!("bundle = \"embedded\"\n{a}");
    let cloud = Setup { top: ON, model: &models, ..Setup::cloud() }.start().await;
    assert_eq!(cloud.post(UNLOAD, "").await.status, 200);
    let pipe = Pipe::instead_of(&folder.path().join("a.onnx"));
    let app = pool(cloud.addr, HttpVersion::H1);
    let load = request(Method::POST, LOAD, full(""));
    let load = tokio::spawn(async move { exchange(&app, load).await });
    eventually("the cloud is not ready", async || {
        cloud.get("/v2/health/ready").await.status == 503
    })
    .await;
    let edge = Setup { clouds: vec![(cloud.addr, "home")], ..Setup::default() }.start().await;
    eventually("probes find it healthy", async || {
        let info = edge.get("/v2/midspan/node").await.json();
        info["clouds"][0]["health"] == "healthy"
    })
    .await;
    assert_eq!(edge.infer(&[0], "never").await.header("midspan-answered-by"), "cloud");
    assert_eq!(cloud.get("/v2/health/ready").await.status, 503, "all the while");
    pipe.write(model("Identity")).await;
    assert_eq!(load.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_bundle_may_change_its_version_and_not_its_name() {
    let folder = tempfile::tempdir().unwrap();
    Bundle::embedded().unwrap().extract_to(folder.path()).unwrap();
    let bundle = format!("bundle = \"{}\"", folder.path().display());
    let node = Setup { top: ON, model: &bundle, ..Setup::default() }.start().await;
    let edit = |key: &str, value: &str| {
        let file = folder.path().join("manifest.json");
        let mut manifest: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        manifest[key] = value.into();
        std::fs::write(&file, manifest.to_string()).unwrap();
    };
    let load = "/v2/repository/models/fashion/load";
    edit("version", "2");
    assert_eq!(node.post(load, "").await.status, 200);
    assert_eq!(node.get("/v2/models/fashion").await.json()["versions"], json!(["2"]));
    node.get("/v2/models/fashion/versions/1").await.error(404);
    edit("name", "other");
    let text = node.post(load, "").await.error(500);
    assert!(text.contains("'fashion'") && text.contains("'other'"), "{text}");
    node.get("/v2/models/other").await.error(404);
    node.assert_well("a load that failed").await;
}

#[tokio::test]
async fn versions_live_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let named = |file: &str, op: &str, version: &str| {
        let table = onnx::write(folder.path(), file, &model(op));
        format!("{table}name = \"a\"\nversion = \"{version}\"\n")
    };
    let models = [named("one", "Neg", "v1"), named("two", "Identity", "2")];
    let setup = Setup { top: ON, model: &onnx::headless(&models), ..Setup::default() };
    let node = setup.start().await;
    assert_eq!(node.get("/v2/models/a").await.json()["versions"], json!(["v1", "2"]));
    assert_answers(&run(&node, "a/versions/v1").await, &[-1.0, -2.0]);
    assert_answers(&run(&node, "a").await, &[1.0, 2.0]);
    let last = run(&node, "a").await;
    assert_eq!(last.response().model_version.as_deref(), Some("2"), "the one listed last");
    let stats = node.get("/v2/models/a/stats").await.json();
    let count = |at: usize| stats["model_stats"][at]["execution_count"].clone();
    assert_eq!((count(0), count(1)), (json!(2), json!(1)), "in order of the version: {stats}");
    let one = node.get("/v2/models/a/versions/v1/stats").await.json();
    assert_eq!(one["model_stats"].as_array().unwrap().len(), 1);

    // What is wrong with one version does not keep the other away.
    assert_eq!(node.post(UNLOAD, "").await.status, 200);
    std::fs::write(folder.path().join("two.onnx"), "no model").unwrap();
    assert!(node.post(LOAD, "").await.error(500).contains("two.onnx"));
    assert_answers(&run(&node, "a").await, &[-1.0, -2.0]);
    run(&node, "a/versions/2").await.error(503);
    assert_eq!(node.get("/v2/models/a").await.json()["versions"], json!(["v1"]));
}
