//! Bounds of gRPC calls: size, time, compression, calls that are given up; and health.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header;
use midspan_net::{
    Body,
    body::{boxed, full},
    transport::HttpVersion,
};
use midspan_protocol::{
    LoadReport,
    grpc::{
        health::{
            HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
            health_client::HealthClient,
        },
        inference::{ModelInferRequest, ServerReadyRequest},
    },
    headers,
};
use prost::Message;
use tokio::{sync::mpsc, time::timeout};
use tonic::{Code, codec::CompressionEncoding};

use crate::{
    fixture::{Node, PATIENCE, Setup, eventually, exchange, pictures, pool, with},
    grpc::{asked, call, channel, client, code, logits, message, send},
    stub::Stub,
};

/// Requests that the node works on.
pub(crate) async fn in_flight(node: &Node) -> u32 {
    let live = node.get("/v2/health/live").await;
    LoadReport::decode(live.header(headers::LOAD)).unwrap().rif
}

#[tokio::test]
async fn a_large_message_is_taken() {
    let node = Setup::default().start().await;
    let mut client = client(&node).await;
    let many: Vec<usize> = (0..5_600).map(|index| index % pictures().len()).collect();
    let request = message("", &many);
    assert!(request.encoded_len() > 16 << 20);
    let patient = [("midspan-deadline-ms", "60000")];
    let answer = client.model_infer(asked(request, &patient)).await.unwrap();
    assert_eq!(logits(answer.into_inner()).len(), many.len() * 10);
}

/// A good request that is encoded to exactly `length` bytes.
fn padded(length: usize) -> ModelInferRequest {
    let mut request = message("", &[0]);
    // The field's tag and length take some bytes more than none.
    request.id = "x".repeat(length - request.encoded_len() - 6);
    while request.encoded_len() < length {
        request.id.push('x');
    }
    assert_eq!(request.encoded_len(), length);
    request
}

#[tokio::test]
async fn the_limit_is_exact() {
    const LIMIT: usize = 16 << 10;
    let node = Setup { limits: "body = \"16KiB\"", ..Setup::default() }.start().await;
    let mut plain = client(&node).await;
    let mut gzip = client(&node).await.send_compressed(CompressionEncoding::Gzip);
    plain.model_infer(asked(padded(LIMIT), &[])).await.unwrap();
    gzip.model_infer(asked(padded(LIMIT), &[])).await.unwrap();
    let status = plain.model_infer(asked(padded(LIMIT + 1), &[])).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    assert!(status.message().contains("16384"), "{status:?}");
    node.assert_well("a message over the limit").await;
    let status = gzip.model_infer(asked(padded(8 << 20), &[])).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    node.assert_well("a message that swells").await;
    // A length that lies: nothing that long is waited for.
    let mut lie = call("ModelInfer", &ServerReadyRequest {});
    *lie.body_mut() = full(Bytes::from_static(b"\0\xff\xff\xff\xff"));
    assert_eq!(code(&send(&node, lie).await), Code::OutOfRange);
}

#[tokio::test]
async fn answers_are_compressed_for_those_who_compress() {
    let node = Setup::default().start().await;
    let rows: Vec<usize> = (0..64).collect();
    let expected = node.infer(&rows, "force").await.logits();
    for (encoding, name) in
        [(CompressionEncoding::Gzip, "gzip"), (CompressionEncoding::Deflate, "deflate")]
    {
        let accepts = client(&node).await.accept_compressed(encoding);
        let both = accepts.clone().send_compressed(encoding);
        let sends = client(&node).await.send_compressed(encoding);
        for (mut client, coded) in [(accepts, false), (both, true), (sends, false)] {
            let answer = client.model_infer(asked(message("", &rows), &[])).await.unwrap();
            let encoding = answer.metadata().get("grpc-encoding").cloned();
            assert_eq!(encoding.is_some_and(|value| value == name), coded, "{name}");
            assert_eq!(logits(answer.into_inner()), expected, "{name}");
        }
    }
    let unknown = with(call("ModelInfer", &message("", &[0])), "grpc-encoding", "br");
    let answer = send(&node, unknown).await;
    assert_eq!(code(&answer), Code::Unimplemented);
    assert!(answer.header("grpc-accept-encoding").contains("gzip"), "{answer:?}");
    let mut corrupt = with(call("ModelInfer", &message("", &[0])), "grpc-encoding", "gzip");
    *corrupt.body_mut() = full(Bytes::from_static(b"\x01\0\0\0\x04junk"));
    assert_eq!(code(&send(&node, corrupt).await), Code::Internal);
    node.assert_well("a corrupt message").await;
}

#[tokio::test]
async fn a_stated_deadline_is_kept() {
    let node = Setup::default().start().await;
    let timed = |value: &str| with(call("ModelInfer", &message("", &[0])), "grpc-timeout", value);
    for late in ["0n", "1n", "1u"] {
        assert_eq!(code(&send(&node, timed(late)).await), Code::DeadlineExceeded, "{late}");
    }
    for enough in ["30S", "30000m", "30000000u", "5M", "99999999H"] {
        let answer = send(&node, timed(enough)).await;
        assert!(answer.header("grpc-status").is_empty() && !answer.body.is_empty(), "{answer:?}");
    }
    // The nearer of two deadlines counts.
    let nearer = with(timed("30S"), "midspan-deadline-ms", "1");
    let nearer = never_ends(nearer);
    assert_eq!(code(&send(&node, nearer).await), Code::DeadlineExceeded);
    for bad in ["", "5", "soon", "-1S", "100000000m"] {
        assert_eq!(code(&send(&node, timed(bad)).await), Code::InvalidArgument, "{bad}");
    }
    // A message that does not come is not waited for either.
    let slow = never_ends(timed("50m"));
    assert_eq!(code(&send(&node, slow).await), Code::DeadlineExceeded);
    eventually("nothing is in flight", async || in_flight(&node).await == 0).await;
}

/// The same call with a body that starts and then says nothing more.
fn never_ends(call: http::Request<Body>) -> http::Request<Body> {
    let start = http_body::Frame::data(Bytes::from_static(b"\0\0\0\x0f"));
    let frames = stream::iter([Ok::<_, std::convert::Infallible>(start)]);
    let body = http_body_util::StreamBody::new(frames.chain(stream::pending()));
    call.map(|_| boxed(body))
}

#[tokio::test]
async fn a_call_that_is_given_up_is_worked_on_no_longer() {
    let cloud = Stub::start();
    let (entered, mut has_entered) = mpsc::unbounded_channel();
    cloud.script(move |_| {
        entered.send(()).unwrap();
        std::future::pending()
    });
    let node = Setup { clouds: vec![(cloud.addr, "far")], ..Setup::default() }.start().await;
    let mut client = client(&node).await;
    let mut call =
        Box::pin(client.model_infer(asked(message("", &[0]), &[("midspan-exit", "never")])));
    let waiting = async {
        tokio::select! {
            biased;
            answer = &mut call => panic!("{answer:?}"),
            entered = has_entered.recv() => entered.unwrap(),
        }
    };
    timeout(PATIENCE, waiting).await.unwrap();
    assert_eq!(in_flight(&node).await, 1);
    drop(call);
    eventually("nothing is in flight", async || in_flight(&node).await == 0).await;
}

#[tokio::test]
async fn health_follows_the_drain() {
    let mut node = Setup::default().start().await;
    let mut health = HealthClient::new(channel(&node).await);
    let ask = |service: &str| HealthCheckRequest { service: service.into() };
    for service in ["", "inference.GRPCInferenceService", "grpc.health.v1.Health"] {
        let state = health.check(ask(service)).await.unwrap().into_inner();
        assert_eq!(state.status(), ServingStatus::Serving, "{service}");
    }
    let status = health.check(ask("fashion")).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "models are not services: {status:?}");
    let mut known = health.watch(ask("")).await.unwrap().into_inner();
    let mut unknown = health.watch(ask("ghost")).await.unwrap().into_inner();
    let state = |answer: Option<HealthCheckResponse>| answer.unwrap().status();
    assert_eq!(state(known.message().await.unwrap()), ServingStatus::Serving);
    assert_eq!(state(unknown.message().await.unwrap()), ServingStatus::ServiceUnknown);
    node.stop();
    assert_eq!(state(known.message().await.unwrap()), ServingStatus::NotServing);
    assert!(known.message().await.unwrap().is_none(), "a watch does not hold up the drain");
    assert_eq!(unknown.message().await.unwrap_err().code(), Code::Unavailable);
    timeout(PATIENCE, node.stopped()).await.unwrap().unwrap();
}

#[tokio::test]
async fn calls_and_rest_share_a_connection() {
    let node = Setup::default().start().await;
    let pool = pool(node.addr, HttpVersion::H2);
    for _ in 0..3 {
        let answer = exchange(&pool, call("ModelInfer", &message("", &[0]))).await;
        assert_eq!(answer.header(header::CONTENT_TYPE), "application/grpc");
        let rest =
            exchange(&pool, with(crate::fixture::infer(&[0]), "midspan-exit", "force")).await;
        assert_eq!(rest.logits().len(), 10);
    }
}
