//! The node's port: every request passes through [`handle`]; an inference then goes the steps of
//! [`crate::infer`], an activation those of [`crate::resume`], a gRPC call those of
//! [`crate::grpc`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header, request::Parts};
use hyper::body::Incoming;
use midspan_net::{
    Body, Peer,
    encoding::{self, Coding},
    reply,
    telemetry::Metric,
};
use midspan_protocol::{
    Context, ExitMode, InferRequest, ModelName, Route, Verb, headers, response::OutputForm,
};
use tokio::time::timeout_at;

use crate::{
    Node,
    config::Config,
    control::{self, Change},
    error::NodeError,
    grpc::{self, Services},
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
    calls: Services,
    request: Request<Incoming>,
    peer: Peer,
) -> Response<Body> {
    let started = Instant::now();
    let router = request.headers().get(headers::ROUTER).and_then(|value| value.to_str().ok());
    let router = router.map(str::to_owned);
    let router = router.as_deref();
    let response = if grpc::is_call(&request) {
        let answer = calls.answer(&node, request, peer, router, started).await;
        answer.unwrap_or_else(refused)
    } else {
        rest(&node, request, peer, router, started).await
    };
    respond::finish(&node, response, router, started)
}

fn refused(error: NodeError) -> Response<Body> {
    Metric::NodeErrors.counter(&[error.reason()]).increment(1);
    tracing::debug!(%error, "refused");
    error.response()
}

/// A REST request: its answer, with the cross-origin headers that it asks for.
async fn rest(
    node: &Arc<Node>,
    request: Request<Incoming>,
    peer: Peer,
    router: Option<&str>,
    started: Instant,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let answer = route(node, &head, body, peer, router, started).await;
    let mut response = answer.unwrap_or_else(refused);
    node.config.cors.decorate(head.headers.get(header::ORIGIN), response.headers_mut());
    response
}

async fn route(
    node: &Arc<Node>,
    head: &Parts,
    body: Incoming,
    peer: Peer,
    router: Option<&str>,
    started: Instant,
) -> Result<Response<Body>, NodeError> {
    if head.method == Method::OPTIONS {
        let (_, allow) = Route::of_path(head.uri.path())?;
        return Ok(node.config.cors.options(&head.headers, allow));
    }
    let route = Route::parse(&head.method, head.uri.path())?;
    if let Some(response) = own::answer(node, &route)? {
        return Ok(response);
    }
    let limits = &node.config.limits;
    let until = started + limits.deadline.0;
    let map = &head.headers;
    let Route::Model(name, verb) = route else {
        let body = read(map, body, SMALL.min(limits.body.as_usize()), until).await?;
        return Ok(reply::value(StatusCode::OK, &own::index(node, &body)?));
    };
    let change = match verb {
        Verb::Load => Some(Change::Load),
        Verb::Unload => Some(Change::Unload),
        _ => None,
    };
    if let Some(change) = change {
        control::allowed(node, &name)?;
        let body = read(map, body, SMALL.min(limits.body.as_usize()), until).await?;
        control::change(node, &name, change, &control::parameters(&body)?).await?;
        return Ok(reply::json(StatusCode::OK, "{}"));
    }
    let _in_flight = node.load.enter(router);
    let terms = terms(map, None, &node.config, peer, started)?;
    obey(&terms, &name, &node.config)?;
    let body = read(map, body, limits.body.as_usize(), terms.until).await?;
    let response = match verb {
        Verb::Offload => offloaded(node, &name, map, &body, &terms).await,
        // Outputs alone are worth a coding, and real clients decode no other answer.
        _ => match inferred(node, &name, map, &body, &terms).await {
            Ok(answer) => Ok(encoding::answer(answer, Coding::negotiate(map)).await),
            refused => refused,
        },
    };
    let status = response.as_ref().map_or_else(NodeError::status, Response::status);
    respond::count(status);
    response
}

/// What the head asks for; `stated` is a deadline that the form of the request states besides
/// ours, and the nearer counts. The context is policy, so it is taken only from a peer that can be
/// trusted with it. From anyone else its model alone counts, which can do no more than refuse a
/// request that was routed as another model.
pub(crate) fn terms(
    map: &HeaderMap,
    stated: Option<Duration>,
    config: &Config,
    peer: Peer,
    started: Instant,
) -> Result<Terms, NodeError> {
    let limits = &config.limits;
    let asked = headers::deadline_ms(map).map_err(NodeError::BadRequest)?;
    let asked = asked.map(Duration::from_millis).into_iter().chain(stated).min();
    let deadline = asked.unwrap_or(limits.deadline.0);
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
    let context = map.get(headers::CONTEXT).map(|value| Context::decode(value.as_bytes()));
    let context = match context.transpose() {
        Ok(context) if peer.is_loopback() => context,
        Err(error) if peer.is_loopback() => return Err(NodeError::BadRequest(error.to_string())),
        stated => stated.ok().flatten().map(named_only),
    };
    Ok(Terms { mode, until, context, priority: Priority::default() })
}

fn named_only(stated: Context) -> Context {
    Context { model: stated.model, ..Context::default() }
}

/// Whether the policy that came with a request allows it here, for this model.
pub(crate) fn obey(terms: &Terms, name: &ModelName, config: &Config) -> Result<(), NodeError> {
    let context = terms.context.as_ref();
    if let Some(context) = context.filter(|context| context.model != name.name) {
        return Err(NodeError::BadRequest(format!(
            "the request was routed as model '{}' but asks for '{}'",
            context.model, name.name
        )));
    }
    if context.is_some_and(|context| !context.allows(&config.region)) {
        return Err(NodeError::Region(config.region.clone()));
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(peer: [u8; 4], value: &str) -> Result<Option<Context>, NodeError> {
        let text = "name = \"n\"\n[[model]]\nbundle = \"embedded\"\n";
        let config = midspan_net::config::parse::<crate::RawConfig>("n", text, ".".as_ref());
        let map = HeaderMap::from_iter([(headers::CONTEXT, HeaderValue::from_str(value).unwrap())]);
        let peer = Peer { addr: (peer, 1).into(), tls: false };
        terms(&map, None, &config.unwrap(), peer, Instant::now()).map(|terms| terms.context)
    }

    #[test]
    fn a_stranger_s_context_says_no_more_than_the_model() {
        let model = "m".to_owned();
        let told = Context { model, regions: vec!["eu".into()], ..Context::default() };
        let value = told.encode();
        assert_eq!(of([127, 0, 0, 1], &value).unwrap(), Some(told.clone()));
        let named = Context { regions: Vec::new(), ..told };
        assert_eq!(of([192, 0, 2, 1], &value).unwrap(), Some(named));
        assert!(of([127, 0, 0, 1], "?").is_err());
        assert_eq!(of([192, 0, 2, 1], "?").unwrap(), None);
    }
}
