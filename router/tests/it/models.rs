//! What concerns a model on every node: statistics, loading and unloading, models that are known
//! but not in service.

use std::sync::Arc;

use http::{Method, Response, StatusCode};
use midspan_net::{
    body::{collect, empty, full},
    reply,
};
use midspan_protocol::{
    grpc::peek::frame,
    statistics::{ModelStatistics, Statistics},
};

use crate::{
    fixture::{Answer, Router, Setup, eventually, request, with},
    grpc::{self, call, client, text},
    stub::Stub,
};

async fn get(router: &Router, path: &str) -> Answer {
    router.send(request(Method::GET, path, empty())).await
}

async fn post(router: &Router, path: &str, body: &'static str) -> Answer {
    router.send(request(Method::POST, path, full(body))).await
}

/// The node has counted so many inferences of `m`.
fn counted(node: &Stub, count: u64) {
    let entry = ModelStatistics {
        name: "m".into(),
        version: "1".into(),
        inference_count: count,
        ..ModelStatistics::default()
    };
    let statistics = Statistics { model_stats: vec![entry] };
    node.script(move |_| {
        let response = reply::value(StatusCode::OK, &statistics);
        async move { Ok(response) }
    });
}

#[tokio::test]
async fn statistics_are_the_sum_over_the_nodes() {
    let (a, b, mut c) = (Stub::start("a"), Stub::start("b"), Stub::start("c"));
    c.restart_with(&["m", "n"]);
    let router = Setup::default().start(&[&a, &b, &c]).await;
    let count = async |path: &str| {
        let asked = request(Method::GET, path, empty());
        let answer = router.send(with(asked, "accept-encoding", "gzip")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let stats = &answer.json()["model_stats"];
        (stats.as_array().unwrap().len(), stats[0]["inference_count"].as_u64().unwrap())
    };
    counted(&a, 1);
    counted(&b, 20);
    counted(&c, 300);
    for path in ["/v2/models/m/stats", "/v2/models/m/versions/1/stats", "/v2/models/stats"] {
        assert_eq!(count(path).await, (1, 321), "{path}");
        assert!(!a.last_head().contains_key("accept-encoding"), "sums need plain answers");
    }
    // gRPC sums likewise: field 4 is the count.
    for name in ["m", ""] {
        let asked = call("ModelStatistics", full(frame(&text(1, name.as_bytes()))));
        let reply = grpc::exchange(&client(&router), asked).await;
        assert_eq!(reply.status(), 0, "{reply:?}");
        assert!(reply.body.windows(3).any(|field| field == [0x20, 0xc1, 2]), "{reply:?}");
    }
    let ghost = call("ModelStatistics", full(frame(&text(1, b"ghost"))));
    grpc::exchange(&client(&router), ghost).await.refused(5);
    // A node that fails leaves its part out; when all fail one of them is heard.
    b.script(|_| async { Ok(reply::error(StatusCode::INTERNAL_SERVER_ERROR, "broken")) });
    assert_eq!(count("/v2/models/m/stats").await, (1, 301));
    a.script(|_| async { Ok(Response::new(full("no json"))) });
    c.stop().await;
    let failed = get(&router, "/v2/models/m/stats").await;
    assert!(matches!(failed.status.as_u16(), 500 | 503), "{failed:?}");
    assert!(failed.json()["error"].is_string());
    assert!(get(&router, "/v2/models/ghost/stats").await.error(404).contains("unknown model"));
}

#[tokio::test]
async fn one_nodes_statistics_pass_unchanged() {
    let a = Stub::start("a");
    let router = Setup::default().start(&[&a]).await;
    a.script(|request| async move {
        let line = format!("{} {}", request.method(), request.uri());
        let mut response = Response::new(full(line));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        Ok(response)
    });
    let asked = request(Method::GET, "/v2/models/m/stats?x=1", empty());
    let answer = router.send(with(asked, "accept-encoding", "gzip")).await;
    assert_eq!((answer.status.as_u16(), answer.body), (418, "GET /v2/models/m/stats?x=1".into()));
    assert_eq!(a.last_head()["accept-encoding"], "gzip");
}

#[tokio::test]
async fn loading_is_off_unless_it_is_on() {
    let a = Stub::start("a");
    let router = Setup::default().start(&[&a]).await;
    for verb in ["load", "unload"] {
        let answer = post(&router, &format!("/v2/repository/models/m/{verb}"), "{}").await;
        assert!(answer.error(403).contains("model_control = true in the router's"), "{answer:?}");
    }
    assert_eq!(a.asked(), 0);
}

#[tokio::test]
async fn loading_and_unloading_reach_every_node_and_are_known_at_once() {
    let (a, b, other) = (Stub::start("a"), Stub::start("b"), Stub::start("other"));
    other.restart_with(&["n"]);
    // Probes are too rare to bring the change.
    let setup = Setup { model_control: true, ..Setup::default() };
    let router = setup.start(&[&a, &b, &other]).await;
    for node in [&a, &b] {
        let lists = Arc::new(node.lister());
        node.script(move |request| {
            let lists = Arc::clone(&lists);
            async move {
                let path = request.uri().path().to_owned();
                let body = collect(request.into_body(), 1 << 20).await.unwrap();
                match path.rsplit('/').next() {
                    Some("load") => lists(&[("m", "READY")]),
                    Some("unload") => lists(&[("m", "UNAVAILABLE")]),
                    Some("RepositoryModelLoad") => {
                        lists(&[("m", "READY")]);
                        return Ok(grpc::answer(frame(b""), 0));
                    }
                    _ => return Ok(reply::error(StatusCode::SERVICE_UNAVAILABLE, "not loaded")),
                }
                Ok(Response::new(full(body)))
            }
        });
    }
    let unload = "/v2/repository/models/m/unload";
    let body = "{\"parameters\":{\"unload_dependents\":false}}";
    let answer = post(&router, unload, body).await;
    assert_eq!((answer.status.as_u16(), answer.body), (200, body.into()));
    assert_eq!((a.asked(), b.asked(), other.asked()), (1, 1, 0));
    // Known, not loaded: a node's own word, and it is a refusal to come back to.
    for (method, path) in [
        (Method::POST, "/v2/models/m/infer"),
        (Method::GET, "/v2/models/m/ready"),
        (Method::GET, "/v2/models/m"),
        (Method::POST, "/v2/models/m/versions/1/infer"),
    ] {
        let answer = router.send(request(method, path, full("{}"))).await;
        assert_eq!(answer.error(503), "not loaded", "{path}");
    }
    assert!(get(&router, "/v2/models/m/versions/2/ready").await.error(404).contains("unknown"));
    assert_eq!(get(&router, "/v2/models").await.json()["models"], serde_json::json!(["n"]));
    let index = post(&router, "/v2/repository/index", "").await.json();
    assert_eq!(
        (&index[0]["state"], &index[0]["reason"]),
        (&"UNAVAILABLE".into(), &"unloaded".into())
    );
    // gRPC loads as REST does.
    let load = call("RepositoryModelLoad", full(frame(&text(2, b"m"))));
    let reply = grpc::exchange(&client(&router), load).await;
    assert_eq!((reply.status(), reply.body), (0, frame(b"")));
    assert_eq!(get(&router, "/v2/models").await.json()["models"], serde_json::json!(["m", "n"]));
    // The first failure is the answer, though all were asked.
    a.asked();
    b.script(|_| async { Ok(reply::error(StatusCode::BAD_REQUEST, "file is damaged")) });
    b.asked();
    let failed = post(&router, "/v2/repository/models/m/load", "{}").await;
    assert_eq!(failed.error(400), "file is damaged");
    assert_eq!((a.asked(), b.asked()), (1, 1));
    assert!(
        post(&router, "/v2/repository/models/ghost/load", "").await.error(404).contains("ghost")
    );
}

#[tokio::test]
async fn a_node_that_cannot_be_reached_fails_the_load() {
    let (a, mut b) = (Stub::start("a"), Stub::start("b"));
    let setup = Setup { model_control: true, ..Setup::default() };
    let router = setup.start(&[&a, &b]).await;
    b.stop().await;
    let failed = post(&router, "/v2/repository/models/m/load", "{}").await;
    assert!(failed.error(503).contains("node 'b' was lost"), "{failed:?}");
    assert_eq!(a.asked(), 1);
}

#[tokio::test]
async fn a_change_that_another_made_is_noticed_by_probes() {
    let a = Stub::start("a");
    let router = Setup::probing().start(&[&a]).await;
    a.lists(&[("m", "UNAVAILABLE"), ("n", "READY")]);
    eventually("n is served", async || {
        post(&router, "/v2/models/n/infer", "{}").await.status == 200
    })
    .await;
    assert_eq!(get(&router, "/v2/models").await.json()["models"], serde_json::json!(["n"]));
}

#[tokio::test]
async fn the_index_takes_what_the_protocol_says() {
    let (a, b) = (Stub::start("a"), Stub::start("b"));
    a.lists(&[("m", "UNAVAILABLE"), ("n", "UNAVAILABLE")]);
    let router = Setup::default().start(&[&a, &b]).await;
    let index = async |body: &'static str| {
        let index = post(&router, "/v2/repository/index", body).await;
        assert_eq!(index.status, 200, "{body}: {index:?}");
        let entries = index.json().as_array().unwrap().clone();
        let line = |e: &serde_json::Value| format!("{}/{} {}", e["name"], e["version"], e["state"]);
        entries.iter().map(line).collect::<Vec<_>>().join(", ").replace('"', "")
    };
    for all in ["", " ", "{}", "{\"ready\":false}"] {
        assert_eq!(index(all).await, "m/1 READY, n/1 UNAVAILABLE", "{all}");
    }
    assert_eq!(index("{\"ready\":true}").await, "m/1 READY");
    for bad in ["{\"ready\":1}", "{\"ready\":\"true\"}", "[", "{", "[true]"] {
        let answer = post(&router, "/v2/repository/index", bad).await;
        assert!(answer.error(400).starts_with("JSON: "), "{bad}");
    }
    let zipped = midspan_net::encoding::encode_whole(
        b"{\"ready\":true}",
        midspan_net::encoding::Coding::Gzip,
    );
    let coded = |name: &str, body: bytes::Bytes| {
        with(request(Method::POST, "/v2/repository/index", full(body)), "content-encoding", name)
    };
    let answer = router.send(coded("gzip", zipped.clone())).await;
    assert_eq!(answer.json().as_array().unwrap().len(), 1, "{answer:?}");
    router.send(coded("gzip", zipped.slice(..zipped.len() - 1))).await.error(400);
    let answer = router.send(coded("br", zipped)).await;
    answer.error(415);
    assert_eq!(answer.header("accept-encoding"), "gzip, deflate");
    let huge = request(Method::POST, "/v2/repository/index", full(vec![b' '; 70_000]));
    router.send(huge).await.error(413);
    assert_eq!(get(&router, "/v2/models").await.body, "{\"models\":[\"m\"]}");
    for kind in ["system", "cuda"] {
        let answer = get(&router, &format!("/v2/{kind}sharedmemory/status")).await;
        assert_eq!((answer.status.as_u16(), answer.body), (200, "[]".into()));
    }
    assert_eq!(a.asked() + b.asked(), 0);
}
