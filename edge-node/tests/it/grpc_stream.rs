//! ModelStreamInfer: order, errors in the stream and of the stream, what is under way at once, and
//! every way in which a stream ends.

use std::{collections::HashMap, sync::Arc};

use futures_util::{StreamExt, stream};
use midspan_protocol::{
    InferResponse,
    grpc::inference::{ModelInferRequest, ModelStreamInferResponse},
};
use tokio::{
    sync::{Semaphore, mpsc},
    time::timeout,
};
use tonic::{Code, Status, Streaming};

use crate::{
    fixture::{Node, PATIENCE, Setup, eventually},
    grpc::{asked, client, logits, message},
    grpc_limits::in_flight,
    stub::{self, Stub},
};

/// A stream that is open in both directions.
struct Open {
    requests: Option<mpsc::UnboundedSender<ModelInferRequest>>,
    answers: Streaming<ModelStreamInferResponse>,
}

impl Open {
    async fn on(node: &Node, metadata: &[(&'static str, &str)]) -> Self {
        let mut client = client(node).await;
        let (requests, taken) = mpsc::unbounded_channel();
        let taken = stream::unfold(taken, |mut taken| async {
            let request = taken.recv().await?;
            Some((request, taken))
        });
        let call = client.model_stream_infer(asked(taken, metadata));
        let answers = timeout(PATIENCE, call).await.expect("a head at once").unwrap().into_inner();
        Self { requests: Some(requests), answers }
    }

    fn send(&self, request: ModelInferRequest) {
        self.requests.as_ref().unwrap().send(request).unwrap();
    }

    async fn next(&mut self) -> Result<Option<ModelStreamInferResponse>, Status> {
        timeout(PATIENCE, self.answers.message()).await.expect("an answer in time")
    }

    async fn answer(&mut self) -> ModelStreamInferResponse {
        self.next().await.unwrap().expect("an answer")
    }
}

/// A request that no model can answer.
fn bad(id: &str) -> ModelInferRequest {
    let mut request = message(id, &[0]);
    request.inputs[0].shape = vec![-1];
    request
}

/// The parameters of an answer, reserved ones too.
fn parameters(answer: &ModelStreamInferResponse) -> HashMap<String, String> {
    let response = answer.infer_response.clone().unwrap();
    let response: InferResponse = response.into_response().unwrap();
    let text = |value| serde_json::to_string(&value).unwrap().trim_matches('"').to_owned();
    response.parameters.0.into_iter().map(|(name, value)| (name, text(value))).collect()
}

#[tokio::test]
async fn good_bad_good() {
    let node = Setup::default().start().await;
    let mut open = Open::on(&node, &[]).await;
    for (id, good) in [("a", true), ("b", false), ("c", true)] {
        // One after the other: nothing waits for the end of the requests.
        open.send(if good { message(id, &[3]) } else { bad(id) });
        let answer = open.answer().await;
        let parameters = parameters(&answer);
        assert_eq!(parameters["triton_final_response"], "true");
        let response = answer.infer_response.unwrap();
        assert_eq!((&*response.id, &*response.model_name), (id, "fashion"));
        if good {
            assert_eq!(answer.error_message, "");
            assert_eq!(response.model_version, "1");
            assert_eq!(parameters["midspan_answered_by"], "exit:1");
            assert_eq!(parameters["midspan_region"], "home");
            assert_eq!(logits(response), node.infer(&[3], "force").await.logits());
        } else {
            assert!(answer.error_message.contains("input 'image'"), "{}", answer.error_message);
            assert!(response.outputs.is_empty());
        }
    }
    let mut ghost = message("d", &[0]);
    ghost.model_name = "ghost".into();
    open.send(ghost);
    let answer = open.answer().await;
    assert!(answer.error_message.starts_with("Request for unknown model"), "{answer:?}");
    assert_eq!(answer.infer_response.unwrap().model_name, "ghost");
    open.requests = None;
    assert!(open.next().await.unwrap().is_none(), "the stream ends well");
}

#[tokio::test]
async fn an_error_ends_the_stream_where_that_is_asked_for() {
    let node = Setup::default().start().await;
    let mut open = Open::on(&node, &[("triton_grpc_error", "true")]).await;
    for request in [message("a", &[0]), bad("b"), message("c", &[0])] {
        open.send(request);
    }
    assert_eq!(open.answer().await.infer_response.unwrap().id, "a");
    let status = open.next().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(open.next().await.unwrap_or_default().is_none(), "nothing follows");
    eventually("nothing is in flight", async || in_flight(&node).await == 0).await;
    node.assert_well("a stream that ended").await;
}

#[tokio::test]
async fn several_are_under_way_and_the_order_is_kept() {
    const UNDER_WAY: u32 = 8;
    let cloud = Stub::start();
    let doors = Arc::new(Semaphore::new(0));
    let (entered, mut has_entered) = mpsc::unbounded_channel();
    let closed = Arc::clone(&doors);
    cloud.script(move |_| {
        entered.send(()).unwrap();
        let doors = Arc::clone(&closed);
        async move {
            doors.acquire().await.unwrap().forget();
            Ok(stub::logits(1, 10))
        }
    });
    let node = Setup { clouds: vec![(cloud.addr, "far")], ..Setup::default() }.start().await;
    let mut open = Open::on(&node, &[("midspan-exit", "never")]).await;
    let ids: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    ids.iter().for_each(|id| open.send(message(id, &[0])));
    for _ in 0..UNDER_WAY {
        timeout(PATIENCE, has_entered.recv()).await.unwrap().unwrap();
    }
    assert_eq!(in_flight(&node).await, UNDER_WAY, "no more are read than are worked on");
    assert!(has_entered.try_recv().is_err());
    doors.add_permits(ids.len());
    for id in &ids {
        let answer = open.answer().await;
        assert_eq!(parameters(&answer)["midspan_answered_by"], "cloud", "{answer:?}");
        assert_eq!(answer.infer_response.unwrap().id, *id);
    }
    open.requests = None;
    assert!(open.next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_stream_that_is_given_up_is_worked_on_no_longer() {
    let cloud = Stub::start();
    let (entered, mut has_entered) = mpsc::unbounded_channel();
    cloud.script(move |_| {
        entered.send(()).unwrap();
        std::future::pending()
    });
    let node = Setup { clouds: vec![(cloud.addr, "far")], ..Setup::default() }.start().await;
    let open = Open::on(&node, &[("midspan-exit", "never")]).await;
    for id in ["a", "b"] {
        open.send(message(id, &[0]));
        timeout(PATIENCE, has_entered.recv()).await.unwrap().unwrap();
    }
    assert_eq!(in_flight(&node).await, 2);
    drop(open);
    eventually("nothing is in flight", async || in_flight(&node).await == 0).await;
    cloud.recover();
    node.assert_well("a stream that was given up").await;
}

#[tokio::test]
async fn a_stream_ends_with_its_deadline_or_the_drain() {
    let mut node = Setup { drain: "30s", ..Setup::default() }.start().await;
    let mut open = Open::on(&node, &[("grpc-timeout", "700m")]).await;
    assert_eq!(open.next().await.unwrap_err().code(), Code::DeadlineExceeded);
    let mut open = Open::on(&node, &[]).await;
    open.send(message("a", &[0]));
    assert_eq!(open.answer().await.infer_response.unwrap().id, "a");
    node.stop();
    let status = open.next().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "this node is draining"));
    timeout(PATIENCE, node.stopped()).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_is_said_of_each_request_holds_for_each() {
    let node = Setup { limits: "body = \"16KiB\"", ..Setup::default() }.start().await;
    // Far less than a run takes: each fails by itself, and the stream goes on.
    let mut open = Open::on(&node, &[("midspan-deadline-ms", "1")]).await;
    let context = midspan_protocol::Context { model: "other".into(), ..Default::default() };
    let encoded = context.encode();
    let mut routed = Open::on(&node, &[("midspan-context", &*encoded)]).await;
    for id in ["a", "b"] {
        routed.send(message(id, &[0]));
        let answer = routed.answer().await;
        assert!(answer.error_message.contains("routed as model 'other'"), "{answer:?}");
    }
    for id in ["a", "b", "c"] {
        open.send(message(id, &[0]));
        let answer = open.answer().await;
        let in_time = answer.error_message.is_empty();
        assert!(in_time || answer.error_message.contains("deadline"), "{answer:?}");
        assert_eq!(answer.infer_response.unwrap().id, id);
    }
    // A message over the limit cannot be read past: it ends the stream, after what came before.
    let mut open = Open::on(&node, &[]).await;
    open.send(message("a", &[0]));
    open.send(message("b", &[0; 8]));
    assert_eq!(open.answer().await.infer_response.unwrap().id, "a");
    assert_eq!(open.next().await.unwrap_err().code(), Code::OutOfRange);
}

#[tokio::test]
async fn many_streams_are_answered_each_in_order() {
    let node = Setup::default().start().await;
    let streams = (0..6).map(|_| async {
        let requests: Vec<_> = (0..30).map(|id| message(&id.to_string(), &[id])).collect();
        let mut client = client(&node).await;
        let call = client.model_stream_infer(asked(stream::iter(requests), &[]));
        let answers = call.await.unwrap().into_inner();
        let ids = answers.map(|answer| answer.unwrap().infer_response.unwrap().id);
        ids.collect::<Vec<_>>().await
    });
    let expected: Vec<String> = (0..30).map(|id| id.to_string()).collect();
    for ids in timeout(PATIENCE, futures_util::future::join_all(streams)).await.unwrap() {
        assert_eq!(ids, expected);
    }
}
