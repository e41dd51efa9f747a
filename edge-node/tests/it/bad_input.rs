//! Requests that no model can answer: each gets its error, and the node goes on.

use bytes::Bytes;
use http::{Method, Request};
use midspan_net::{Body, body::full};
use midspan_protocol::InferRequest;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::fixture::{INFER, Node, PATIENCE, Setup, request, tensor, with};

fn post(body: impl Into<Bytes>) -> Request<Body> {
    request(Method::POST, INFER, full(body))
}

/// One input as JSON.
fn input(name: &str, shape: &str, datatype: &str, data: &str) -> String {
    format!(
        "{{\"inputs\":[{{\"name\":\"{name}\",\"shape\":{shape},\"datatype\":\"{datatype}\",\
         \"data\":{data}}}]}}"
    )
}

fn zeros(count: usize) -> String {
    format!("[{}]", vec!["0"; count].join(","))
}

#[tokio::test]
async fn bodies_that_say_nothing_sensible() {
    let node = Setup::default().start().await;
    let good = input("image", "[1,1,28,28]", "FP32", &zeros(784));
    assert_eq!(node.send(with(post(good.clone()), "midspan-exit", "force")).await.status, 200);
    let deep = format!("{{\"inputs\":{}", "[".repeat(100_000));
    for (body, words) in [
        (String::new(), ""),
        ("null".into(), ""),
        ("[]".into(), ""),
        ("{}".into(), "inputs"),
        ("{\"inputs\":[]}".into(), "'image' is missing"),
        ("{\"inputs\":7}".into(), ""),
        (good[..good.len() / 2].into(), ""),
        (good[..good.len() - 1].into(), ""),
        (format!("{good}}}"), ""),
        (deep, ""),
        (input("image", "[1,1,28,28]", "FP32", &zeros(783)), "image"),
        (input("image", "[1,1,28,28]", "FP32", "\"text\""), "inputs[0].data: expected an array"),
        (input("image", "[1,1,28,28]", "FP99", &zeros(784)), "unknown datatype 'FP99'"),
        (input("image", "[1,1,28,28]", "INT32", &zeros(784)), "expected FP32, got INT32"),
        (input("image", "[1,28,28]", "FP32", &zeros(784)), "expected shape"),
        (input("image", "[1,1,28,27]", "FP32", &zeros(756)), "expected shape"),
        (input("image", "[784]", "FP32", &zeros(784)), "expected shape"),
        (input("image", "[]", "FP32", "[0]"), "expected shape"),
        (input("image", "[-1,1,28,28]", "FP32", &zeros(784)), ""),
        (input("image", "[9223372036854775807,1,28,28]", "FP32", "[]"), "elements"),
        (input("picture", "[1,1,28,28]", "FP32", &zeros(784)), "no input 'picture'"),
        (input("image", "[1]", "BYTES", "[\"no picture\"]"), "picture 0 cannot be used"),
        (input("image", "[0]", "BYTES", "[]"), "no picture"),
        (input("image", "[4294967296,0,28,28]", "FP32", "[]"), "has no elements, but"),
        (
            input("image", "[0,1,28,28]", "FP32", "[]")
                .replace("\"data\"", "\"parameters\":{\"shared_memory_region\":\"r\"},\"data\""),
            "shared memory",
        ),
    ] {
        let text = node.send(post(body.clone())).await.error(400);
        let shown = &body[..body.len().min(80)];
        assert!(text.contains(words), "{shown}: {text}");
        assert!(text.len() < 2_000, "{shown}: a bounded message");
        node.assert_well(shown).await;
    }
    node.send(post(vec![0xff, 0xfe, 0x00])).await.error(400);
    let twice = good.replace(
        "[{",
        "[{\"name\":\"image\",\"shape\":[1],\"datatype\":\"FP32\",\
                             \"data\":[0]},{",
    );
    assert!(node.send(post(twice)).await.error(400).contains("sent twice"));
    let outputs = good.replacen('{', "{\"outputs\":[{\"name\":\"ghost\"}],", 1);
    assert!(node.send(post(outputs)).await.error(400).contains("no output 'ghost'"));
    let flag = good.replacen('{', "{\"parameters\":{\"binary_data_output\":3},", 1);
    assert!(node.send(post(flag)).await.error(400).contains("not a boolean"));
    node.assert_well("all of them").await;
}

#[tokio::test]
async fn lengths_that_lie() {
    let node = Setup::default().start().await;
    let message = InferRequest { inputs: vec![tensor(&[0])], ..InferRequest::default() };
    let encoded = message.encode(true).unwrap();
    let right = encoded.json_length.unwrap();
    for stated in [
        (right + 1).to_string(),
        (right - 1).to_string(),
        "0".into(),
        encoded.body.len().to_string(),
        (encoded.body.len() + 1).to_string(),
        usize::MAX.to_string(),
        "99999999999999999999999".into(),
        "-1".into(),
        "abc".into(),
        String::new(),
    ] {
        let lie = with(post(encoded.body.clone()), "inference-header-content-length", &stated);
        node.send(lie).await.error(400);
        node.assert_well(&stated).await;
    }
    // Binary tensors that are shorter or longer than they say.
    for body in
        [encoded.body.slice(..encoded.body.len() - 4), [&encoded.body[..], &[0]].concat().into()]
    {
        let right = right.to_string();
        node.send(with(post(body), "inference-header-content-length", &right)).await.error(400);
        node.assert_well("a wrong tail").await;
    }
}

#[tokio::test]
async fn pictures_that_are_none() {
    let node = Setup::default().start().await;
    let mut png = std::io::Cursor::new(Vec::new());
    image::GrayImage::new(28, 28).write_to(&mut png, image::ImageFormat::Png).unwrap();
    let png = png.into_inner();
    let mut turned = png.clone();
    for byte in &mut turned[30..] {
        *byte ^= 0x5a;
    }
    for (what, picture) in [
        ("nothing", vec![]),
        ("garbage", vec![0xaa; 1000]),
        ("a signature alone", png[..8].to_vec()),
        ("a truncated file", png[..png.len() / 2].to_vec()),
        ("a damaged file", turned),
    ] {
        let mut data = (picture.len() as u32).to_le_bytes().to_vec();
        data.extend_from_slice(&picture);
        let datatype = midspan_protocol::Datatype::Bytes;
        let tensor = midspan_protocol::Tensor::new("image", datatype, vec![1], data.into());
        let message = InferRequest { inputs: vec![tensor.unwrap()], ..InferRequest::default() };
        let text = node.send(crate::fixture::encoded(&message, true)).await.error(400);
        assert!(text.contains("picture 0 cannot be used"), "{what}: {text}");
        node.assert_well(what).await;
    }
}

/// A good request of exactly `length` bytes.
fn padded(length: usize) -> Vec<u8> {
    let mut body = input("image", "[1,1,28,28]", "FP32", &zeros(784)).into_bytes();
    body.resize(length, b' ');
    body
}

#[tokio::test]
async fn the_limit_is_exact() {
    const LIMIT: usize = 16 << 10;
    let node = Setup { limits: "body = \"16KiB\"", ..Setup::default() }.start().await;
    let chunked = |length: usize| {
        let body = Bytes::from(padded(length));
        let frames = [body.slice(..length / 2), body.slice(length / 2..)]
            .map(|part| Ok::<_, std::convert::Infallible>(http_body::Frame::data(part)));
        let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
        request(Method::POST, INFER, midspan_net::body::boxed(body))
    };
    for (at, over) in
        [(post(padded(LIMIT)), post(padded(LIMIT + 1))), (chunked(LIMIT), chunked(LIMIT + 1))]
    {
        assert_eq!(node.send(with(at, "midspan-exit", "force")).await.status, 200);
        let text = node.send(over).await.error(413);
        assert!(text.contains("16384 bytes"), "{text}");
        node.assert_well("a body over the limit").await;
    }
}

async fn raw(node: &Node, head: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(node.addr).await.unwrap();
    let head = format!("POST {INFER} HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    stream
}

async fn answer(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("no hang").unwrap();
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn bodies_that_stop_half_way() {
    let node = Setup::default().start().await;
    for head in ["content-length: 4000", "transfer-encoding: chunked"] {
        drop(raw(&node, head, b"5\r\nabc").await);
        node.assert_well(head).await;
    }
    // What was given up counts no more.
    crate::fixture::eventually("nothing is in flight", async || {
        let live = node.get("/v2/health/live").await;
        let report = live.header(midspan_protocol::headers::LOAD);
        midspan_protocol::LoadReport::decode(report).unwrap().rif == 0
    })
    .await;
    // Held open instead: the deadline ends it.
    let head = "content-length: 4000\r\nmidspan-deadline-ms: 100\r\nconnection: close";
    let text = answer(raw(&node, head, b"{").await).await;
    assert!(text.starts_with("HTTP/1.1 504 ") && text.contains("{\"error\":"), "{text}");
    let text = answer(raw(&node, "transfer-encoding: chunked", b"zz\r\n").await).await;
    assert!(text.starts_with("HTTP/1.1 400 ") && text.contains("{\"error\":"), "{text}");
    node.assert_well("a slow body").await;
}
