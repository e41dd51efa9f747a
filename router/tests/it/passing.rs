//! What goes through unchanged, what is added, and what stays on this side.

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use midspan_net::body::{empty, full};
use midspan_protocol::{Context, headers, timing};

use crate::{
    fixture::{Setup, VERSIONS, exchange, infer, pool, request, with},
    stub::Stub,
};

#[tokio::test]
async fn a_nodes_answer_passes_unchanged() {
    let a = Stub::start("a");
    let router = Setup::default().start(&[&a]).await;
    for status in [200_u16, 400, 404, 409, 500, 501] {
        let body = Bytes::from(format!("\u{1}\0 {status} not json"));
        let sent = body.clone();
        a.script(move |_| {
            let sent = sent.clone();
            async move {
                let mut response = Response::new(full(sent));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                let map = response.headers_mut();
                map.insert(header::CONTENT_TYPE, "application/octet-stream".parse().unwrap());
                map.insert(headers::INFERENCE_HEADER_CONTENT_LENGTH, "7".parse().unwrap());
                map.insert(headers::NODE, "a".parse().unwrap());
                map.insert(headers::ANSWERED_BY, "exit:1".parse().unwrap());
                map.insert(headers::SERVER_TIMING, "run;dur=1.500".parse().unwrap());
                Ok(response)
            }
        });
        for version in VERSIONS {
            let answer = exchange(&pool(router.apps, version), infer("s", "{}")).await;
            assert_eq!(answer.status, status);
            assert_eq!(answer.body, body);
            assert_eq!(answer.header(header::CONTENT_TYPE), "application/octet-stream");
            assert_eq!(answer.header(headers::INFERENCE_HEADER_CONTENT_LENGTH), "7");
            assert_eq!(answer.header(headers::NODE), "a");
            assert_eq!(answer.header(headers::ANSWERED_BY), "exit:1");
            assert!(!answer.headers.contains_key(headers::LOAD), "{answer:?}");
            assert!(!answer.headers.contains_key(headers::ENDPOINT_LOAD_METRICS), "{answer:?}");
            let spent = answer.header(headers::SERVER_TIMING);
            assert_eq!(timing::find(spent, "run").unwrap().as_micros(), 1_500, "{spent}");
            assert!(timing::find(spent, "router").is_some(), "{spent}");
        }
        assert_eq!(a.asked(), 2, "{status} is not retried");
    }
}

#[tokio::test]
async fn a_decision_can_be_looked_up_and_replays() {
    let (a, b) = (Stub::start("a"), Stub::start("b"));
    let router = Setup::default().start(&[&a, &b]).await;
    for session in ["x", "y", "z"] {
        let answer = router.infer(session).await;
        let id = answer.header(headers::DECISION).to_owned();
        let record = router.admin(&format!("/decisions/{id}")).await.json();
        assert_eq!(record["id"], id.as_str());
        assert_eq!(record["replays"], true, "{record}");
        assert_eq!(record["choices"][0].as_str().unwrap().as_bytes(), answer.body, "{record}");
        assert_eq!(router.admin("/decisions/last").await.json()["id"], id.as_str());
    }
    router.admin("/decisions/999-999").await.error(404);
    router.admin("/decisions/nonsense").await.error(400);
}

#[tokio::test]
async fn a_node_sees_only_what_it_should() {
    let a = Stub::start("a");
    let router = Setup::default().start(&[&a]).await;
    let forged =
        Context { tenant: Some("root".into()), model: "other".into(), ..Default::default() };
    let mut asked = infer("s7", "{}");
    for (name, value) in [
        ("connection", "x-private, keep-alive"),
        ("x-private", "1"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("proxy-authorization", "Basic eDp5"),
        ("midspan-context", forged.encode().as_str()),
        ("midspan-router", "evil"),
        ("midspan-load", "boot=1"),
        ("midspan-split-id", "00"),
        ("midspan-place", "1,2"),
        ("midspan-exit", "never"),
        ("midspan-deadline-ms", "4000"),
        ("x-custom", "kept"),
        ("accept", "application/json"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ] {
        asked = with(asked, name, value);
    }
    let answer = router.send(asked).await;
    assert_eq!(answer.status, 200);
    let seen = a.last_head();
    for gone in [
        "x-private",
        "keep-alive",
        "te",
        "proxy-authorization",
        "midspan-load",
        "midspan-split-id",
        "midspan-place",
    ] {
        assert!(!seen.contains_key(gone), "{gone}: {seen:?}");
    }
    assert_eq!(seen["midspan-exit"], "never");
    assert_eq!(seen["midspan-session"], "s7");
    assert_eq!(seen["x-custom"], "kept");
    assert_eq!(seen["accept"], "application/json");
    assert!(seen.contains_key("traceparent"));
    assert_eq!(seen["host"], a.addr.to_string());
    assert_eq!(seen.get_all("midspan-router").iter().collect::<Vec<_>>(), ["r1"]);
    let left: u64 = seen["midspan-deadline-ms"].to_str().unwrap().parse().unwrap();
    assert!((1..=4_000).contains(&left), "{left}");
    assert_eq!(seen.get_all("midspan-context").iter().count(), 1);
    let context = Context::decode(seen["midspan-context"].as_bytes()).unwrap();
    assert_eq!(context.model, "m");
    assert_eq!((context.tenant, context.regions), (None, Vec::new()));
    assert!(context.deadline_ms.is_some_and(|left| left <= 4_000));
}

#[tokio::test]
async fn a_models_other_endpoints_pass_too() {
    let a = Stub::start("a");
    let router = Setup::default().start(&[&a]).await;
    a.script(|request| async move {
        let line = format!("{} {}", request.method(), request.uri());
        Ok(Response::new(full(line)))
    });
    for (method, path) in [
        (Method::GET, "/v2/models/m"),
        (Method::GET, "/v2/models/m/ready"),
        (Method::GET, "/v2/models/m/versions/1/ready?verbose=1"),
    ] {
        let answer = router.send(request(method.clone(), path, empty())).await;
        assert_eq!(answer.body, format!("{method} {path}"));
        let seen = a.last_head();
        assert!(!seen.contains_key("midspan-context"), "only inferences carry policy: {seen:?}");
        assert!(!seen.contains_key("content-length"), "a GET has no body: {seen:?}");
    }
    for version in VERSIONS {
        let head = request(Method::HEAD, "/v2/models/m/ready", empty());
        let answer = exchange(&pool(router.apps, version), head).await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0));
    }
    let versioned = request(Method::POST, "/v2/models/m/versions/1/infer", full("{}"));
    assert_eq!(router.send(versioned).await.body, "POST /v2/models/m/versions/1/infer");
}

#[tokio::test]
async fn the_router_speaks_for_the_fleet() {
    let (a, b) = (Stub::start("a"), Stub::start("b"));
    b.restart_with(&["m", "n"]);
    let router = Setup { threads: 2, ..Setup::default() }.start(&[&a, &b]).await;
    let get = async |path: &str| router.send(request(Method::GET, path, empty())).await;
    let metadata = get("/v2").await.json();
    assert_eq!(metadata["name"], "midspan");
    assert_eq!(get("/v2/health/live").await.json()["live"], true);
    let ready = get("/v2/health/ready").await;
    assert_eq!((ready.status.as_u16(), &ready.json()["ready"]), (200, &true.into()));
    let index = router.send(request(Method::POST, "/v2/repository/index", full("{}"))).await.json();
    let names: Vec<_> = index.as_array().unwrap().iter().map(|entry| &entry["name"]).collect();
    assert_eq!(names, ["m", "n"]);
    let only_b = request(Method::POST, "/v2/models/n/infer", full("{}"));
    assert_eq!(router.send(only_b).await.body, "b");
    assert_eq!(a.asked() + b.asked(), 1, "the router's own answers ask nobody");
}
