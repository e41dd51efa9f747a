//! Stopping and not starting.

use std::sync::Arc;

use tokio::{
    net::TcpStream,
    sync::{Notify, mpsc},
};

use crate::{
    fixture::{Setup, eventually, exchange, infer, pool, with},
    stub::{self, Stub},
};

#[tokio::test]
async fn a_request_under_way_is_finished() {
    for version in
        [midspan_net::transport::HttpVersion::H1, midspan_net::transport::HttpVersion::H2]
    {
        let cloud = Stub::start();
        let clouds = vec![(cloud.addr, "home")];
        let mut edge = Setup { clouds, drain: "30s", ..Setup::default() }.start().await;
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
        let app = pool(edge.addr, version);
        let asked = with(infer(&[0]), "midspan-exit", "never");
        let asked = with(asked, "midspan-deadline-ms", "50000");
        let waiting = tokio::spawn(async move { exchange(&app, asked).await });
        has_entered.recv().await.unwrap();
        let addr = edge.addr;
        edge.stop();
        eventually("nothing new is taken", async || TcpStream::connect(addr).await.is_err()).await;
        assert!(!waiting.is_finished());
        release.notify_one();
        let answer = waiting.await.unwrap();
        assert_eq!(answer.header("midspan-answered-by"), "cloud", "{answer:?}");
        let report = midspan_protocol::LoadReport::decode(answer.header("midspan-load")).unwrap();
        assert!(report.draining, "routers are told with the last answers");
        edge.stopped().await.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_never_ends_does_not_hold_the_process() {
    let cloud = Stub::start();
    let clouds = vec![(cloud.addr, "home")];
    let mut edge = Setup { clouds, drain: "100ms", ..Setup::default() }.start().await;
    let (entered, mut has_entered) = mpsc::unbounded_channel();
    cloud.script(move |_| {
        entered.send(()).unwrap();
        std::future::pending()
    });
    let app = pool(edge.addr, midspan_net::transport::HttpVersion::H1);
    let asked = with(infer(&[0]), "midspan-exit", "never");
    let waiting = tokio::spawn(async move { crate::fixture::head(&app, asked).await.is_err() });
    has_entered.recv().await.unwrap();
    edge.stop();
    edge.stopped().await.unwrap();
    assert!(waiting.await.unwrap());
}

#[tokio::test]
async fn a_node_that_cannot_start_says_why() {
    midspan_runtime::test_support::library();
    let taken = stub::bind();
    let addr = taken.local_addr().unwrap().to_string();
    let run = |setup: Setup<'_>| {
        let config = setup.config();
        let run = || midspan_node::run(config, std::future::ready(()), |_| panic!("it listens"));
        std::thread::spawn(run).join().unwrap().unwrap_err().to_string()
    };
    let text = run(Setup { listen: &addr, ..Setup::default() });
    assert!(text.contains(&format!("cannot listen on {addr}")), "{text}");
    let stages = "bundle = \"embedded\"\nlocal_stages = 3";
    let text = run(Setup { model: stages, ..Setup::default() });
    assert!(text.contains("local_stages is 3 but the bundle has 2 stages"), "{text}");
    let text = run(Setup { model: "onnx = \"fashion.toml\"", ..Setup::default() });
    assert!(text.contains("fashion.toml"), "{text}");
    let text = run(Setup { model: "bundle = \"training\"", ..Setup::default() });
    assert!(text.contains("training"), "{text}");
}
