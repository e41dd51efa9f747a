//! A stream of inference requests: answered in the order in which they came, several under way at
//! once. A request that fails is answered with its error, and the stream goes on.
//!
//! Working on one request at a time would leave all but one worker idle and pay every round trip
//! to a cloud in full, so up to [`UNDER_WAY`] are worked on. No more are read meanwhile: HTTP/2's
//! flow control holds the sender back, and memory stays bounded by that many requests. Dropping
//! the stream drops what is under way, and runs that nobody waits for are not started.

use std::{sync::Arc, time::Instant};

use futures_util::{StreamExt, stream};
use http::HeaderMap;
use midspan_protocol::{
    Parameter,
    grpc::{
        convert::FINAL_RESPONSE,
        inference::{
            InferParameter, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse,
        },
    },
};
use tokio::time::{sleep_until, timeout_at};
use tonic::{Status, Streaming};

use super::{
    Call,
    inference::infer,
    status::{status, text},
};
use crate::{Node, error::NodeError, infer::Terms, respond};

/// Requests of one stream that are worked on at once.
const UNDER_WAY: usize = 8;

/// Request metadata: `true` when the first error is to end the stream with its status.
pub(super) const ENDS_ON_ERROR: &str = "triton_grpc_error";

type Answers = stream::BoxStream<'static, Result<ModelStreamInferResponse, Status>>;

/// The answers to a stream of requests.
pub(super) fn answers(
    node: Arc<Node>,
    call: Call,
    requests: Streaming<ModelInferRequest>,
    ends_on_error: bool,
) -> Answers {
    let reading = Reading { node: Arc::clone(&node), end: call.end, requests };
    let requests = stream::unfold(Some(reading), |reading| async {
        let mut reading = reading?;
        match reading.next().await {
            Ok(request) => Some((Ok(request?), Some(reading))),
            Err(status) => Some((Err(status), None)),
        }
    });
    let answer = move |request: Result<ModelInferRequest, Status>| {
        let (node, call) = (Arc::clone(&node), call.clone());
        async move { one(&node, &call, request?, ends_on_error).await }
    };
    // The first error that is no answer ends the stream: the encoder reads no further.
    requests.map(answer).buffered(UNDER_WAY).boxed()
}

/// The requests of a stream, and what ends it besides its sender.
struct Reading {
    node: Arc<Node>,
    end: Option<Instant>,
    requests: Streaming<ModelInferRequest>,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<ModelInferRequest>, Status> {
        let end = self.end.unwrap_or_else(Instant::now).into();
        tokio::select! {
            biased;
            () = self.node.tasks.drain_started() => Err(status(&NodeError::Draining)),
            () = sleep_until(end), if self.end.is_some() => Err(status(&NodeError::Deadline)),
            request = self.requests.message() => request,
        }
    }
}

async fn one(
    node: &Arc<Node>,
    call: &Call,
    request: ModelInferRequest,
    ends_on_error: bool,
) -> Result<ModelStreamInferResponse, Status> {
    let _in_flight = node.load.enter(call.router.as_deref());
    let until = Instant::now() + call.span;
    let until = call.end.map_or(until, |end| end.min(until));
    let terms = Terms { until, ..call.terms.clone() };
    let known = ModelInferResponse {
        model_name: request.model_name.clone(),
        model_version: request.model_version.clone(),
        id: request.id.clone(),
        ..ModelInferResponse::default()
    };
    let answer = timeout_at(until.into(), infer(node, &terms, request)).await;
    let answer = answer.unwrap_or(Err(NodeError::Deadline));
    let (error_message, mut response) = match answer {
        Ok((mut response, headers)) => {
            respond::count(http::StatusCode::OK);
            describe(&mut response, &headers);
            (String::new(), response)
        }
        Err(error) => {
            respond::count(error.status());
            let status = status(&error);
            if ends_on_error {
                return Err(status);
            }
            (text(&error), known)
        }
    };
    let last = InferParameter::from(Parameter::Bool(true));
    response.parameters.insert(FINAL_RESPONSE.into(), last);
    Ok(ModelStreamInferResponse { error_message, infer_response: Some(response) })
}

/// A stream's answers have no metadata of their own: what would be a header is a parameter.
fn describe(response: &mut ModelInferResponse, headers: &HeaderMap) {
    for (name, value) in headers {
        let value = Parameter::Text(value.to_str().unwrap_or_default().to_owned());
        response.parameters.insert(name.as_str().replace('-', "_"), value.into());
    }
}
