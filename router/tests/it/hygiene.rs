//! What HTTP asks of a proxy: heads pass as they are but for what is each hop's own, and hostile
//! heads change nothing for the node.

use http::{Method, Response};
use midspan_net::body::{collect, full};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    fixture::{PATIENCE, Router, Setup, VERSIONS, exchange, pool, request, with},
    stub::{BreakOff, Stub},
};

/// Sends text as it is and reads until the router closes.
async fn raw(router: &Router, sent: &str) -> String {
    let mut stream = TcpStream::connect(router.apps).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("no hang");
    read.unwrap();
    String::from_utf8(text).unwrap()
}

/// The node says which body it got.
fn measure(node: &Stub) {
    node.script(|request| async move {
        let line = request.uri().to_string();
        let body = collect(request.into_body(), 1 << 20).await.map_err(|_| BreakOff)?;
        Ok(Response::new(full(format!("{line} {}", String::from_utf8_lossy(&body)))))
    });
}

#[tokio::test]
async fn queries_and_unknown_headers_go_on_and_none_are_added() {
    for nodes in VERSIONS {
        let a = Stub::start("a");
        let router = Setup { nodes, ..Setup::default() }.start(&[&a]).await;
        measure(&a);
        for app in VERSIONS {
            let path = "/v2/models/m/infer?q=1&x=%20a";
            let mut asked = request(Method::POST, path, full("body"));
            for (name, value) in [
                ("content-encoding", "gzip"),
                ("accept-encoding", "gzip;q=0.5, br"),
                ("x-request-id", "42"),
                ("x-many", "1"),
                ("x-many", "2"),
            ] {
                asked = with(asked, name, value);
            }
            let answer = exchange(&pool(router.apps, app), asked).await;
            assert!(answer.body.ends_with(format!("{path} body").as_bytes()), "{answer:?}");
            assert!(!answer.headers.contains_key("content-type"), "{answer:?}");
            let seen = a.last_head();
            assert_eq!(seen["content-encoding"], "gzip");
            assert_eq!(seen["accept-encoding"], "gzip;q=0.5, br");
            assert_eq!(seen["x-request-id"], "42");
            assert_eq!(seen.get_all("x-many").iter().collect::<Vec<_>>(), ["1", "2"]);
            assert!(!seen.contains_key("content-type"), "none was sent: {seen:?}");
        }
    }
}

#[tokio::test]
async fn a_hostile_connection_header_takes_away_only_the_clients_own() {
    let a = Stub::start("a");
    let router = Setup::default().start(&[&a]).await;
    measure(&a);
    let listed = "close, content-length, content-encoding, inference-header-content-length, \
                  midspan-context, midspan-router, midspan-deadline-ms, host, x-private, ,;, \u{7f}";
    let listed = listed.replace('\u{7f}', "@");
    let text = raw(
        &router,
        &format!(
            "POST /v2/models/m/infer HTTP/1.1\r\nhost: x\r\nconnection: {listed}\r\n\
             content-length: 4\r\ncontent-encoding: identity\r\nx-private: 1\r\nx-public: 1\r\n\
             inference-header-content-length: 2\r\n\r\nbody"
        ),
    )
    .await;
    assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("/infer body"), "{text}");
    let seen = a.last_head();
    for kept in ["content-encoding", "inference-header-content-length", "x-public"] {
        assert!(seen.contains_key(kept), "{kept}: {seen:?}");
    }
    for set in ["midspan-context", "midspan-router", "midspan-deadline-ms"] {
        assert_eq!(seen.get_all(set).iter().count(), 1, "{set}: {seen:?}");
    }
    assert_eq!(seen["host"], a.addr.to_string());
    assert!(!seen.contains_key("x-private"));
}

#[tokio::test]
async fn bodies_of_two_lengths_smuggle_nothing() {
    let a = Stub::start("a");
    let router = Setup::default().start(&[&a]).await;
    measure(&a);
    let smuggled = "GET /v2/models/m/ready HTTP/1.1\r\nhost: x\r\n\r\n";
    let length = smuggled.len();
    for head in [
        "content-length: 4\r\ncontent-length: 5".to_owned(),
        "content-length: 4, 5".to_owned(),
        "content-length: -1".to_owned(),
        "content-length: +4".to_owned(),
        "content-length: 0x4".to_owned(),
        format!("transfer-encoding: gzip\r\ncontent-length: {length}"),
    ] {
        let sent = format!(
            "POST /v2/models/m/infer HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{head}\r\n\r\n\
             {smuggled}"
        );
        let text = raw(&router, &sent).await;
        assert!(text.starts_with("HTTP/1.1 400 "), "{head}: {text}");
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{head}: {text}");
    }
    assert_eq!(a.asked(), 0);
    // Both: the chunks are the body, and one answer is all that comes.
    let sent = format!(
        "POST /v2/models/m/infer HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-length: {}\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n{smuggled}",
        length + 14
    );
    let text = raw(&router, &sent).await;
    assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{text}");
    if text.starts_with("HTTP/1.1 200 ") {
        assert!(text.ends_with("/infer body"), "{text}");
        assert_eq!(a.asked(), 1);
        assert_eq!(a.last_head()["content-length"], "4");
    }
}

#[tokio::test]
async fn an_early_refusal_does_not_ask_for_the_body() {
    let a = Stub::start("a");
    let limits = "body = \"8KiB\"";
    let router = Setup { limits, ..Setup::default() }.start(&[&a]).await;
    for (path, length, status) in [
        ("/v2/models/m/infer", 9000, 413),
        ("/v2/models/ghost/infer", 100, 404),
        ("/v2/nope", 100, 404),
        ("/v2/repository/models/m/load", 100, 403),
    ] {
        let text = raw(
            &router,
            &format!(
                "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\
                 expect: 100-continue\r\nconnection: close\r\n\r\n"
            ),
        )
        .await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {text}");
        assert!(!text.contains("100 Continue") && text.contains("{\"error\":"), "{path}: {text}");
    }
    assert_eq!(a.asked(), 0);
}
