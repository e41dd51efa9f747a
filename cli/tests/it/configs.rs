//! The files in configs/ run: the four processes start from them and serve. Their fixed ports are
//! replaced by free ones, everything else is as committed.

use std::{fs, net::TcpListener, path::PathBuf, time::Duration};

use http::Method;

use crate::fleet::{Process, fetch, midspan, root};

#[tokio::test(flavor = "multi_thread")]
async fn the_committed_files_make_a_fleet() {
    midspan_runtime::test_support::library();
    let folder = tempfile::tempdir().expect("a folder");
    let ports = ["8080", "9090", "8101", "9101", "8102", "9102", "8103", "9103"];
    let held: Vec<TcpListener> =
        ports.iter().map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let free: Vec<String> =
        held.iter().map(|port| port.local_addr().expect("an address").port().to_string()).collect();
    drop(held);
    let copy = |name: &str| -> PathBuf {
        let mut text = fs::read_to_string(root().join("configs").join(name)).expect("committed");
        for (old, new) in ports.iter().zip(&free) {
            text = text.replace(&format!("127.0.0.1:{old}"), &format!("127.0.0.1:{new}"));
        }
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    let _cloud = Process::start("node", copy("cloud.toml"));
    let edge = Process::start("node", copy("edge-a.toml"));
    let _other = Process::start("node", copy("edge-b.toml"));
    let router = Process::start("router", copy("router.toml"));
    let ready = async {
        loop {
            let uri = format!("http://{}/v2/health/ready", router.addr).parse().expect("a URL");
            let patience = Duration::from_secs(5);
            let asked =
                midspan_net::client::fetch(Method::GET, &uri, bytes::Bytes::new(), patience);
            if asked.await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ready).await.expect("the router is ready");
    let endpoint = format!("http://{}", router.addr);
    let answer =
        midspan().args(["infer", "--sample", "7", "--json", "--endpoint", &endpoint]).output();
    let answer = answer.expect("it runs");
    assert!(answer.status.success(), "{answer:?}");
    let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("JSON");
    assert_eq!(answer["truth"], "Coat");
    let metrics = fetch(
        Method::GET,
        format!("127.0.0.1:{}", free[1]).parse().expect("an address"),
        "/metrics",
    )
    .await;
    let metrics = String::from_utf8(metrics).expect("text");
    assert!(metrics.contains("midspan_router_requests_total{status=\"200\"}"), "{metrics}");
    let metadata = fetch(Method::GET, edge.addr, "/v2/models/fashion").await;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata).expect("JSON");
    assert_eq!(metadata["outputs"][0]["name"], "logits");
}
