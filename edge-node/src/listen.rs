//! The node's port: every request passes through [`handle`]; an inference then goes the steps of
//! [`crate::infer`], an activation those of [`crate::resume`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use midspan_net::{Body, Peer, encoding, reply, telemetry::Metric};
use midspan_protocol::{
    Context, ExitMode, InferRequest, ModelName, Route, Verb, headers, response::OutputForm,
};
use tokio::time::timeout_at;

use crate::{
    Node,
    config::Config,
    control::{self, Change},
    error::NodeError,
    infer::Terms,
    message, own, raw, respond,
    resume::resume,
    schedule::Priority,
};

/// Largest body of a request that is neither an inference nor a change of a model.
const SMALL: usize = 64 << 10;

/// One request's way through the node.
pub(crate) async fn handle(
    node: Arc<Node>,
    request: Request<Incoming>,
    peer: Peer,
) -> Response<Body> {
    let started = Instant::now();
    let router = request.headers().get(headers::ROUTER).and_then(|value| value.to_str().ok());
    let router = router.map(str::to_owned);
    let head_only = request.method() == Method::HEAD;
    let response = route(&node, request, peer, router.as_deref(), started).await;
    let response = response.unwrap_or_else(|error| {
        Metric::NodeErrors.counter(&[error.reason()]).increment(1);
        tracing::debug!(%error, "refused");
        error.response()
    });
    respond::finish(&node, response, router.as_deref(), head_only, started)
}

async fn route(
    node: &Arc<Node>,
    request: Request<Incoming>,
    peer: Peer,
    router: Option<&str>,
    started: Instant,
) -> Result<Response<Body>, NodeError> {
    let route = Route::parse(request.method(), request.uri().path())?;
    if let Some(response) = own::answer(node, &route)? {
        return Ok(response);
    }
    let (head, body) = request.into_parts();
    let limits = &node.config.limits;
    let Route::Model(name, verb) = route else {
        let until = started + limits.deadline.0;
        let body = read(&head.headers, body, SMALL.min(limits.body.as_usize()), until).await?;
        return Ok(reply::value(StatusCode::OK, &own::index(node, &body)?));
    };
    let change = match verb {
        Verb::Load => Some(Change::Load),
        Verb::Unload => Some(Change::Unload),
        _ => None,
    };
    if let Some(change) = change {
        control::allowed(node, &name)?;
        let until = started + limits.deadline.0;
        let body = read(&head.headers, body, limits.body.as_usize(), until).await?;
        control::change(node, &name, change, &control::parameters(&body)?).await?;
        return Ok(reply::json(StatusCode::OK, "{}"));
    }
    let _in_flight = node.load.enter(router);
    let terms = terms(&head.headers, &name, &node.config, peer, started)?;
    let body = read(&head.headers, body, limits.body.as_usize(), terms.until).await?;
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
    Ok(Terms { mode, until, context, priority: Priority::default() })
}

/// Reads a body whole and decodes it, placed so that its binary part is aligned.
async fn read(
    map: &HeaderMap,
    body: Incoming,
    limit: usize,
    until: Instant,
) -> Result<Bytes, NodeError> {
    let json_length = headers::json_length(map).map_err(NodeError::BadRequest)?;
    let reading = encoding::decode(body, map, limit, json_length);
    let read = timeout_at(until.into(), reading).await.map_err(|_elapsed| NodeError::Deadline)?;
    Ok(read?)
}

async fn inferred(
    node: &Arc<Node>,
    name: &ModelName,
    map: &HeaderMap,
    body: &Bytes,
    terms: &Terms,
) -> Result<Response<Body>, NodeError> {
    // A model that is not here is said before anything about the body.
    let model = node.repository.get(name)?;
    let (request, form) = match headers::json_length(map).map_err(NodeError::BadRequest)? {
        Some(0) => (raw::request(&model, body)?, OutputForm::binary()),
        json_length => {
            let request = InferRequest::parse(body, json_length)?;
            let form = OutputForm::of(&request.parameters, &request.outputs)?;
            (request, form)
        }
    };
    let answered = message::answer(node, name, &request, terms).await?;
    respond::respond(node, answered, &form)
}

async fn offloaded(
    node: &Arc<Node>,
    name: &ModelName,
    map: &HeaderMap,
    body: &Bytes,
    terms: &Terms,
) -> Result<Response<Body>, NodeError> {
    let model = node.repository.get(name)?;
    let mut measure = model.counters.begin();
    let answer = resume(node, &model, map, body, terms).await?;
    node.load.served(answer.spent.ran);
    measure.answered(answer.outputs.first().map_or(1, |output| output.1.rows()), answer.spent);
    let answered = message::answered(model, &InferRequest::default(), answer, measure)?;
    respond::respond(node, answered, &OutputForm::binary())
}
