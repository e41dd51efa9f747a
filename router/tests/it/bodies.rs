//! Request bodies: the limit, bodies that stop half-way, bodies that come too slowly. Sent by hand
//! where a well-behaved client would not.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use midspan_net::body::{collect, full};
use midspan_protocol::headers;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    time::timeout,
};

use crate::{
    fixture::{PATIENCE, Router, Setup, VERSIONS, exchange, infer, infer_body, pool, with},
    stub::{self, BreakOff, Stub},
};

const LIMITS: &str = "body = \"8KiB\"\nreplay_body = \"1KiB\"";

fn chunked(length: usize) -> midspan_net::Body {
    let half = Bytes::from(vec![b'c'; length / 2]);
    stub::parts(vec![half, Bytes::from(vec![b'c'; length - length / 2])])
}

#[tokio::test]
async fn the_limit_is_exact_with_and_without_a_length() {
    let a = Stub::start("a");
    let router = Setup { limits: LIMITS, ..Setup::default() }.start(&[&a]).await;
    a.script(|request| async move {
        let body = collect(request.into_body(), 1 << 20).await.map_err(|_| BreakOff)?;
        Ok(Response::new(full(body.len().to_string())))
    });
    for app in VERSIONS {
        let app = pool(router.apps, app);
        for body in [full(vec![b'c'; 8 << 10]), chunked(8 << 10)] {
            let answer = exchange(&app, infer_body("s", body)).await;
            assert_eq!((answer.status.as_u16(), answer.body), (200, "8192".into()));
        }
        a.asked();
        let text = exchange(&app, infer("s", vec![b'c'; (8 << 10) + 1])).await.error(413);
        assert!(text.contains("8192 bytes"), "{text}");
        assert_eq!(a.asked(), 0, "the length alone is enough to refuse");
        exchange(&app, infer_body("s", chunked((8 << 10) + 1))).await.error(413);
        assert_eq!(router.infer("s").await.status, 200);
    }
}

/// Speaks HTTP/1.1 by hand.
struct Raw(TcpStream);

impl Raw {
    async fn send(router: &Router, head: &str, body: &[u8]) -> Self {
        let mut stream = TcpStream::connect(router.apps).await.unwrap();
        let head = format!("POST /v2/models/m/infer HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        Self(stream)
    }

    /// What comes until the router closes.
    async fn read(mut self) -> String {
        let mut text = Vec::new();
        let read = timeout(PATIENCE, self.0.read_to_end(&mut text)).await.expect("no hang");
        read.unwrap();
        String::from_utf8(text).unwrap()
    }
}

#[tokio::test]
async fn too_large_is_said_before_the_body_is_sent() {
    let a = Stub::start("a");
    let router = Setup { limits: LIMITS, ..Setup::default() }.start(&[&a]).await;
    for length in ["8193", "999999999999"] {
        let text = Raw::send(&router, &format!("content-length: {length}"), b"").await.read().await;
        assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
        assert!(text.contains("{\"error\":"), "{text}");
    }
    assert_eq!(a.asked(), 0);
}

#[tokio::test]
async fn a_large_body_that_is_refused_does_not_hide_the_refusal() {
    let a = Stub::start("a");
    let router = Setup { limits: LIMITS, ..Setup::default() }.start(&[&a]).await;
    let length = 4 << 20;
    let stream = TcpStream::connect(router.apps).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let sending = tokio::spawn(async move {
        let head = format!(
            "POST /v2/models/m/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n"
        );
        let _closed = write.write_all(head.as_bytes()).await;
        let _closed = write.write_all(&vec![0; length]).await;
        write
    });
    let mut text = vec![0; 12];
    timeout(PATIENCE, read.read_exact(&mut text)).await.expect("no hang").unwrap();
    assert_eq!(text, b"HTTP/1.1 413");
    drop(read);
    let _write = sending.await.unwrap();
}

#[tokio::test]
async fn a_body_that_stops_half_way_leaves_no_node_waiting() {
    let a = Stub::start("a");
    let router = Setup { limits: LIMITS, ..Setup::default() }.start(&[&a]).await;
    let (read, mut outcomes) = mpsc::unbounded_channel();
    a.script(move |request| {
        let read = read.clone();
        async move {
            let body = collect(request.into_body(), 1 << 20).await;
            read.send(body.is_ok()).unwrap();
            Ok(Response::new(full("a")))
        }
    });
    // Small enough to be kept: no node hears of it.
    drop(Raw::send(&router, "content-length: 100", &[b'x'; 10]).await);
    drop(Raw::send(&router, "transfer-encoding: chunked", b"5\r\nabc").await);
    router.idle().await;
    assert_eq!(router.infer("s").await.status, 200);
    assert_eq!((outcomes.recv().await, a.asked()), (Some(true), 1));
    // Streamed: the node's read must fail.
    drop(Raw::send(&router, "content-length: 4000", &[b'x'; 2000]).await);
    let heard = timeout(PATIENCE, outcomes.recv()).await.expect("the node is not left hanging");
    assert_eq!(heard, Some(false), "a body cut short looked complete");
    router.idle().await;
    assert_eq!(router.infer("s").await.status, 200);
}

#[tokio::test]
async fn bytes_that_are_no_chunk_are_the_clients_fault() {
    let a = Stub::start("a");
    let router = Setup { limits: LIMITS, ..Setup::default() }.start(&[&a]).await;
    let text =
        Raw::send(&router, "transfer-encoding: chunked", b"zz\r\nabc\r\n").await.read().await;
    assert!(text.starts_with("HTTP/1.1 400 ") && text.contains("{\"error\":"), "{text}");
    assert_eq!(a.asked(), 0);
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_ends_at_the_deadline() {
    let a = Stub::start("a");
    let router = Setup { limits: LIMITS, ..Setup::default() }.start(&[&a]).await;
    for (head, sent) in [("content-length: 100", 10), ("content-length: 4000", 2000)] {
        let started = Instant::now();
        let head = format!("{head}\r\nmidspan-deadline-ms: 100\r\nconnection: close");
        let text = Raw::send(&router, &head, &vec![b'x'; sent]).await.read().await;
        assert!(text.starts_with("HTTP/1.1 504 ") && text.contains("{\"error\":"), "{text}");
        assert!(started.elapsed() >= Duration::from_millis(100));
    }
    assert!(a.asked() <= 1, "a kept body is read before a node is asked");
    router.idle().await;
}

#[tokio::test]
async fn a_client_that_stalls_costs_its_node_no_reputation() {
    let (a, b) = (Stub::start("a"), Stub::start("b"));
    let router = Setup { limits: LIMITS, ..Setup::default() }.start(&[&a, &b]).await;
    let session = router.session_of(&a).await;
    // What `explain` says of failures at `a`.
    let errors = async || {
        let id = router.infer(&session).await.header(headers::DECISION).to_owned();
        let record = router.admin(&format!("/decisions/{id}")).await.json();
        let candidates = record["candidates"].as_array().unwrap().clone();
        let a = candidates.into_iter().find(|candidate| candidate["node"] == "a").unwrap();
        a["cost_us"]["errors"].as_u64().unwrap()
    };
    assert_eq!(errors().await, 0);
    a.asked();
    let head = format!(
        "midspan-session: {session}\r\nmidspan-deadline-ms: 100\r\nconnection: close\r\n\
         content-length: 4000"
    );
    let text = Raw::send(&router, &head, &[b'x'; 2000]).await.read().await;
    assert!(text.starts_with("HTTP/1.1 504 "), "{text}");
    assert_eq!(a.asked(), 1, "the body was on its way to the node");
    assert_eq!(errors().await, 0, "the client's slowness is not the node's");
    a.script(|_| std::future::pending());
    let hurried = infer(&session, vec![b'x'; 4000]);
    router.send(with(hurried, "midspan-deadline-ms", "20")).await.error(504);
    a.recover();
    assert_eq!(errors().await, 0, "an app in a hurry is not the node's fault");
    a.script(|_| std::future::pending());
    let asked = infer(&session, vec![b'x'; 4000]);
    router.send(with(asked, "midspan-deadline-ms", "400")).await.error(504);
    a.recover();
    assert!(errors().await > 0, "a node that has all and does not answer is to blame");
}

#[tokio::test]
async fn a_client_that_asks_before_it_sends_is_told_to_go_on() {
    let a = Stub::start("a");
    let router = Setup { limits: LIMITS, ..Setup::default() }.start(&[&a]).await;
    for length in [100, 4000] {
        let head = format!("content-length: {length}\r\nexpect: 100-continue\r\nconnection: close");
        let mut raw = Raw::send(&router, &head, b"").await;
        let mut interim = [0; 25];
        timeout(PATIENCE, raw.0.read_exact(&mut interim)).await.expect("no hang").unwrap();
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        raw.0.write_all(&vec![b'x'; length]).await.unwrap();
        let text = raw.read().await;
        assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("\r\n\r\na"), "{text}");
        assert!(!a.last_head().contains_key("expect"), "the hop's own");
    }
}
