//! Streams in both directions at once: messages pass as they come, and each way of ending ends
//! both sides.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use midspan_net::{Body, BodyError, body::boxed};
use midspan_protocol::grpc::peek::frame;
use tokio::{
    sync::{Notify, mpsc},
    time::timeout,
};

use crate::{
    fixture::{PATIENCE, Router, Setup, VERSIONS, head, with},
    grpc::{Pushing, call, client, naming, only, pushed, stream_answer, text, trailers},
    stub::Stub,
};

/// Says how the client's side ended: cleanly, or not.
struct Ending {
    clean: bool,
    ended: mpsc::UnboundedSender<bool>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let _nobody_listens = self.ended.send(self.clean);
    }
}

/// The node answers each piece with the same, as it comes, and ends well when the client does. It
/// says how the client's side ended.
fn echo(node: &Stub) -> mpsc::UnboundedReceiver<bool> {
    let (ended, has_ended) = mpsc::unbounded_channel();
    node.script(move |request| {
        let ending = Ending { clean: false, ended: ended.clone() };
        async move { Ok(echoing(request.into_body(), ending)) }
    });
    has_ended
}

fn echoing(body: Incoming, ending: Ending) -> Response<Body> {
    let frames = stream::unfold(Some((body, ending)), |state| async {
        let (mut body, mut ending) = state?;
        match body.frame().await {
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap();
                Some((Ok::<_, Infallible>(Frame::data(data)), Some((body, ending))))
            }
            other => {
                ending.clean = other.is_none();
                Some((Ok(Frame::trailers(trailers(0))), None))
            }
        }
    });
    stream_answer(boxed(StreamBody::new(frames)))
}

async fn next(body: &mut Body) -> Frame<Bytes> {
    let frame = timeout(PATIENCE, body.frame()).await.expect("no hang");
    frame.expect("no end yet").expect("no broken stream")
}

/// A stream whose first message has come back.
async fn opened(router: &Router, headers: &[(&'static str, &str)]) -> (Pushing, Body) {
    let (sender, body) = pushed();
    sender.send(Ok(naming("m"))).unwrap();
    let mut asked = call("ModelStreamInfer", body);
    for (name, value) in headers {
        asked = with(asked, name, value);
    }
    let mut answer = head(&client(router), asked).await.unwrap().into_body();
    assert_eq!(next(&mut answer).await.into_data().unwrap(), naming("m"));
    (sender, answer)
}

#[tokio::test]
async fn an_answer_comes_before_the_next_message_is_sent() {
    for nodes in VERSIONS {
        let a = Stub::start("a");
        let router = Setup { nodes, ..Setup::default() }.start(&[&a]).await;
        let mut ended = echo(&a);
        let (sender, mut answer) = opened(&router, &[]).await;
        let seen = a.last_head();
        assert!(!seen.contains_key("grpc-timeout") && !seen.contains_key("midspan-deadline-ms"));
        assert!(seen.contains_key("midspan-context"));
        for id in 0..20_u8 {
            let message = frame(&[text(3, &[b'a' + id]), text(1, b"m")].concat());
            sender.send(Ok(message.clone())).unwrap();
            assert_eq!(next(&mut answer).await.into_data().unwrap(), message, "{id}");
        }
        assert_eq!(router.node("a").await.own_requests, 1);
        drop(sender);
        let trailers = next(&mut answer).await.into_trailers().unwrap();
        assert_eq!(
            (&trailers["grpc-status"], &trailers["x-trailer"]),
            (&"0".parse().unwrap(), &"kept".parse().unwrap())
        );
        assert_eq!(ended.recv().await, Some(true));
        assert!(answer.frame().await.is_none());
        router.idle().await;
    }
}

#[tokio::test]
async fn a_stream_may_be_longer_than_the_limit_of_a_message() {
    let a = Stub::start("a");
    let limits = "body = \"64KiB\"";
    let router = Setup { limits, ..Setup::default() }.start(&[&a]).await;
    let _ended = echo(&a);
    let (sender, mut answer) = opened(&router, &[]).await;
    let message = frame(&text(7, &[3; 60_000]));
    for _ in 0..10 {
        sender.send(Ok(message.clone())).unwrap();
        let mut got = 0;
        while got < message.len() {
            got += next(&mut answer).await.into_data().unwrap().len();
        }
        assert_eq!(got, message.len());
    }
    drop(sender);
    assert!(next(&mut answer).await.is_trailers());
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_nodes_side() {
    for nodes in VERSIONS {
        let a = Stub::start("a");
        let router = Setup { nodes, ..Setup::default() }.start(&[&a]).await;
        let mut ended = echo(&a);
        let (sender, answer) = opened(&router, &[]).await;
        sender.send(Err(BodyError::Panicked)).unwrap();
        let clean = timeout(PATIENCE, ended.recv()).await.expect("the node is not left alone");
        assert_eq!(clean, Some(false), "it is a reset, not an end");
        router.idle().await;
        drop(answer);
    }
}

#[tokio::test]
async fn a_deadline_ends_both_sides() {
    let a = Stub::start("a");
    let router = Setup::default().start(&[&a]).await;
    let mut ended = echo(&a);
    let (sender, mut answer) = opened(&router, &[("grpc-timeout", "300m")]).await;
    assert!(a.last_head().contains_key("grpc-timeout"));
    let trailers = next(&mut answer).await.into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "4");
    assert_eq!(trailers["grpc-message"], "the deadline of 300 ms passed before an answer came");
    let clean = timeout(PATIENCE, ended.recv()).await.expect("the node is not left alone");
    assert_eq!(clean, Some(false));
    router.idle().await;
    drop(sender);
}

#[tokio::test]
async fn a_stream_on_which_nothing_moves_is_ended() {
    let a = Stub::start("a");
    let limits = "deadline = \"100ms\"\nmax_deadline = \"100ms\"";
    let router = Setup { limits, ..Setup::default() }.start(&[&a]).await;
    let _ended = echo(&a);
    let started = std::time::Instant::now();
    let (sender, mut answer) = opened(&router, &[]).await;
    let trailers = next(&mut answer).await.into_trailers().unwrap();
    assert!(started.elapsed().as_millis() >= 100);
    assert_eq!(trailers["grpc-status"], "4");
    assert_eq!(trailers["grpc-message"], "nothing moved for 100ms");
    router.idle().await;
    drop(sender);
}

#[tokio::test]
async fn a_node_that_breaks_off_leaves_a_status() {
    let a = Stub::start("a");
    let router = Setup::default().start(&[&a]).await;
    let go = Arc::new(Notify::new());
    let gone = Arc::clone(&go);
    a.script(move |request| {
        let gone = Arc::clone(&gone);
        async move {
            let body = request.into_body();
            let frames = stream::unfold((body, gone), |(mut body, gone)| async {
                if let Some(Ok(frame)) = body.frame().await {
                    let data = frame.into_data().unwrap();
                    return Some((Ok(Frame::data(data)), (body, gone)));
                }
                gone.notified().await;
                Some((Err(BodyError::Panicked), (body, gone)))
            });
            Ok(stream_answer(boxed(StreamBody::new(frames))))
        }
    });
    let (sender, mut answer) = opened(&router, &[]).await;
    drop(sender);
    go.notify_one();
    let trailers = next(&mut answer).await.into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "14");
    assert!(trailers["grpc-message"].to_str().unwrap().contains("node 'a' was lost"));
    router.idle().await;
}

#[tokio::test]
async fn a_stream_is_never_sent_twice() {
    let (a, b) = (Stub::start("a"), Stub::start("b"));
    let router = Setup::default().start(&[&a, &b]).await;
    for node in [&a, &b] {
        node.script(|_| async { Ok(only(14, "full")) });
    }
    let (sender, body) = pushed();
    sender.send(Ok(naming("m"))).unwrap();
    let reply = crate::grpc::exchange(&client(&router), call("ModelStreamInfer", body)).await;
    assert_eq!(reply.refused(14), "full");
    assert_eq!(a.asked() + b.asked(), 1);
    drop(sender);
    router.idle().await;
}
