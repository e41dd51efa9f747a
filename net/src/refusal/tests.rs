//! Which bytes are taken for hyper's own, over a pipe; the rest of the proof is with connections.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

const REFUSAL: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
    content-length: 0\r\ndate: Mon, 30 Nov 2026 12:00:00 GMT\r\n\r\n";

fn wire(size: usize) -> (Wire<DuplexStream>, DuplexStream, Exchange) {
    let (ours, theirs) = duplex(size);
    let exchange = Exchange::default();
    (Wire::http1(ours, Bytes::new(), exchange.clone()), theirs, exchange)
}

async fn sent(mut wire: Wire<DuplexStream>, mut theirs: DuplexStream) -> String {
    let ending = async {
        wire.shutdown().await.unwrap();
        drop(wire);
    };
    let mut text = String::new();
    let ((), read) = tokio::join!(ending, theirs.read_to_string(&mut text));
    read.unwrap();
    text
}

#[tokio::test]
async fn a_refusal_keeps_its_head_and_gets_a_body() {
    // Also through a pipe that takes a few bytes at a time.
    for size in [7, 4096] {
        let (mut wire, theirs, exchange) = wire(size);
        wire.write_all(REFUSAL).await.unwrap();
        assert!(exchange.lingers());
        let text = sent(wire, theirs).await;
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("connection: close") && head.contains("date: Mon"), "{text}");
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{text}");
        assert!(body.starts_with(r#"{"error":"#), "{text}");
    }
}

#[tokio::test]
async fn the_same_bytes_from_the_service_pass() {
    let (mut wire, theirs, exchange) = wire(4096);
    // Open, then closed but not yet flushed: hyper still has its last bytes.
    let open = exchange.enter();
    wire.write_all(REFUSAL).await.unwrap();
    drop(open);
    wire.write_all(REFUSAL).await.unwrap();
    assert_eq!(sent(wire, theirs).await.as_bytes(), REFUSAL.repeat(2));
}

#[tokio::test]
async fn after_a_flushed_answer_refusals_are_known_again() {
    let (mut wire, theirs, exchange) = wire(4096);
    let open = exchange.enter();
    wire.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    // Interim flushes, as of 100 Continue, settle nothing.
    wire.flush().await.unwrap();
    wire.write_all(REFUSAL).await.unwrap();
    drop(open);
    wire.flush().await.unwrap();
    wire.write_all(REFUSAL).await.unwrap();
    let text = sent(wire, theirs).await;
    assert_eq!(text.matches("content-length: 0\r\n").count(), 2, "{text}");
    assert_eq!(text.matches("application/json").count(), 1, "{text}");
}

#[test]
fn other_bytes_are_no_refusal() {
    for bytes in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 400 Bad Request\r\ncontent-length: 5\r\n\r\n",
        b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n",
        b"HTTP/1.1 40",
        b"\x00\x00\x00\x04\x01\x00\x00\x00\x00",
    ] {
        assert!(with_body(bytes).is_none(), "{bytes:?}");
    }
}

#[tokio::test]
async fn bytes_read_before_come_first() {
    let (ours, mut theirs) = duplex(64);
    let mut wire = Wire::plain(ours, Bytes::from_static(b"abcde"));
    theirs.write_all(b"fgh").await.unwrap();
    drop(theirs);
    let mut three = [0; 3];
    wire.read_exact(&mut three).await.unwrap();
    assert_eq!(&three, b"abc");
    let mut rest = String::new();
    wire.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "defgh");
}
