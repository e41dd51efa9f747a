//! The node's port: every request passes through [`handle`]; an inference then goes the steps of
//! [`crate::infer`], an activation those of [`crate::resume`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use midspan_net::{Body, BodyError, Peer, body::collect_aligned, telemetry::Metric};
use midspan_protocol::{
    Context, ExitMode, InferRequest, ModelName, Route, RouteFault, Verb, headers,
    response::OutputForm,
};
use tokio::time::timeout_at;

use crate::{
    Node,
    config::{Config, RawLimits},
    error::NodeError,
    infer::Terms,
    message, respond,
    resume::resume,
};

/// One request's way through the node.
pub(crate) async fn handle(
    node: Arc<Node>,
    request: Request<Incoming>,
    peer: Peer,
) -> Response<Body> {
    let started = Instant::now();
    let router = request.headers().get(headers::ROUTER).and_then(|value| value.to_str().ok());
    let router = router.map(str::to_owned);
    let response = route(&node, request, peer, router.as_deref(), started).await;
    let response = response.unwrap_or_else(|error| {
        Metric::NodeErrors.counter(&[error.reason()]).increment(1);
        tracing::debug!(%error, "refused");
        error.response()
    });
    respond::finish(&node, response, router.as_deref(), started)
}

async fn route(
    node: &Arc<Node>,
    request: Request<Incoming>,
    peer: Peer,
    router: Option<&str>,
    started: Instant,
) -> Result<Response<Body>, NodeError> {
    let route = Route::parse(request.method(), request.uri().path())?;
    if let Some(response) = crate::own::answer(node, &route)? {
        return Ok(response);
    }
    let Route::Model(name, verb) = route else {
        return Err(RouteFault::NotFound(request.uri().path().to_owned()).into());
    };
    let _in_flight = node.load.enter(router);
    let (head, body) = request.into_parts();
    let terms = terms(&head.headers, &name, &node.config, peer, started)?;
    let encoding = head.headers.get(http::header::CONTENT_ENCODING);
    if let Some(encoding) = encoding.filter(|value| *value != "identity") {
        return Err(NodeError::Encoding(format!("{encoding:?}").trim_matches('"').to_owned()));
    }
    let json_length = headers::json_length(&head.headers).map_err(NodeError::BadRequest)?;
    let body = read(body, &node.config.limits, json_length, terms.until).await?;
    let response = match verb {
        Verb::Offload => offloaded(node, &name, &head.headers, &body, &terms).await,
        _ => inferred(node, &name, &head.headers, &body, &terms).await,
    };
    let status = response.as_ref().map_or_else(NodeError::status, Response::status);
    respond::count(status);
    response
}

/// What the head asks for. The context is policy, so it is taken only from a peer that can be
/// trusted with it; from anyone else it is as if it were not there.
fn terms(
    map: &HeaderMap,
    name: &ModelName,
    config: &Config,
    peer: Peer,
    started: Instant,
) -> Result<Terms, NodeError> {
    let limits = &config.limits;
    let asked = headers::deadline_ms(map).map_err(NodeError::BadRequest)?;
    let deadline = asked.map_or(limits.deadline.0, Duration::from_millis);
    let until = started + deadline.min(limits.max_deadline.0);
    let mode = match map.get(headers::EXIT).map(|value| value.to_str().unwrap_or_default()) {
        None => ExitMode::Auto,
        Some(text) => ExitMode::parse(text).ok_or_else(|| {
            NodeError::BadRequest(format!(
                "{} is '{text}', not auto, never or force",
                headers::EXIT
            ))
        })?,
    };
    let context = map.get(headers::CONTEXT).filter(|_| peer.is_loopback());
    let context = context.map(|value| Context::decode(value.as_bytes())).transpose();
    let context = context.map_err(|error| NodeError::BadRequest(error.to_string()))?;
    if let Some(context) = context.as_ref().filter(|context| context.model != name.name) {
        return Err(NodeError::BadRequest(format!(
            "the request was routed as model '{}' but asks for '{}'",
            context.model, name.name
        )));
    }
    if context.as_ref().is_some_and(|context| !context.allows(&config.region)) {
        return Err(NodeError::Region(config.region.clone()));
    }
    Ok(Terms { mode, until, context })
}

async fn read(
    body: Incoming,
    limits: &RawLimits,
    json_length: Option<usize>,
    until: Instant,
) -> Result<Bytes, NodeError> {
    let reading = collect_aligned(body, limits.body.as_usize(), json_length);
    match timeout_at(until.into(), reading).await {
        Err(_elapsed) => Err(NodeError::Deadline),
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(BodyError::TooLarge { limit })) => Err(NodeError::TooLarge { limit }),
        Ok(Err(error)) => Err(NodeError::ClientBody(error.to_string())),
    }
}

async fn inferred(
    node: &Arc<Node>,
    name: &ModelName,
    map: &HeaderMap,
    body: &Bytes,
    terms: &Terms,
) -> Result<Response<Body>, NodeError> {
    let json_length = headers::json_length(map).map_err(NodeError::BadRequest)?;
    let request = InferRequest::parse(body, json_length)?;
    let form = OutputForm::of(&request.parameters, &request.outputs)?;
    let answered = message::answer(node, name, &request, terms).await?;
    respond::respond(node, &answered, &form)
}

async fn offloaded(
    node: &Arc<Node>,
    name: &ModelName,
    map: &HeaderMap,
    body: &Bytes,
    terms: &Terms,
) -> Result<Response<Body>, NodeError> {
    let model = Arc::clone(node.repository.get(name)?);
    let answer = resume(node, &model, map, body, terms).await?;
    node.load.served(answer.spent.ran);
    let answered = message::answered(model, &InferRequest::default(), answer)?;
    respond::respond(node, &answered, &OutputForm::binary())
}
