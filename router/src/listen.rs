//! The apps' port: every request of every connection passes through [`handle`], the hops in order.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use http::{Method, Request, Response, header, request::Parts};
use hyper::body::Incoming;
use midspan_net::{Body, Peer};
use midspan_protocol::{Route, RouteFault, Verb};

use crate::{
    admit::{self, Admitted},
    decide::{self, Decided},
    error::RouteError,
    fanout,
    forward::{self, Errand, Forwarded, Manner},
    grpc, locate, own, respond,
    shard::Shard,
};

/// One request's way through the router.
pub(crate) async fn handle(
    shard: Arc<Shard>,
    request: Request<Incoming>,
    peer: Peer,
) -> Response<Body> {
    let started = Instant::now();
    let _in_flight = InFlight::enter(&shard);
    let mut decided = None;
    let (head, body) = request.into_parts();
    if grpc::is_grpc(&head) {
        let outcome = grpc::route(&shard, head, body, peer, started, &mut decided).await;
        return respond::respond(&shard, outcome, decided.as_ref(), started, true);
    }
    let origin = head.headers.get(header::ORIGIN).cloned();
    let outcome = route(&shard, head, body, peer, started, &mut decided).await;
    let mut response = respond::respond(&shard, outcome, decided.as_ref(), started, false);
    shard.config.cors.decorate(origin.as_ref(), response.headers_mut());
    response
}

async fn route(
    shard: &Arc<Shard>,
    head: Parts,
    body: Incoming,
    peer: Peer,
    started: Instant,
    decision: &mut Option<Decided>,
) -> Result<Forwarded, RouteError> {
    if grpc::is_path(head.uri.path()) {
        return Err(RouteError::NotGrpc);
    }
    if head.method == Method::OPTIONS {
        let (_, allow) = Route::of_path(head.uri.path())?;
        return Ok(Forwarded::new(shard.config.cors.options(&head.headers, allow), 0));
    }
    let Admitted { route, terms } = admit::admit(&head, &shard.config.limits, started)?;
    if let Some(response) = own::answer(shard, &route) {
        return Ok(Forwarded::new(response, 0));
    }
    let errand = |model, infer| Errand { model, terms: &terms, manner: Manner::Rest, infer };
    match &route {
        Route::Index => own::index(shard, &head.headers, body, &terms).await,
        Route::Statistics => fanout::statistics(shard, None, &terms, head).await,
        Route::Model(model, Verb::Stats) => {
            fanout::statistics(shard, Some(model), &terms, head).await
        }
        Route::Model(model, Verb::Load | Verb::Unload) => {
            fanout::control(shard, errand(model, false), head, body).await
        }
        Route::Model(model, verb) => {
            let infer = *verb == Verb::Infer;
            let length = http_body::Body::size_hint(&body).lower();
            send(shard, errand(model, infer), head, body, length, peer, decision).await
        }
        _ => Err(RouteFault::NotFound(head.uri.path().to_owned()).into()),
    }
}

/// The hops that any request about one model goes: locate, decide, forward.
pub(crate) async fn send<B>(
    shard: &Arc<Shard>,
    errand: Errand<'_>,
    head: Parts,
    body: B,
    length: u64,
    peer: Peer,
    decision: &mut Option<Decided>,
) -> Result<Forwarded, RouteError>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let place = locate::locate(&head.headers, peer, &shard.config.trusted_proxies);
    let decided = decide::decide(shard, errand.terms, errand.model, place, length)?;
    let decided = decision.insert(decided);
    if decided.choices.is_empty() {
        let (model, state) = (errand.model.to_string(), decided.why_nowhere());
        return Err(RouteError::NoNode { model, state });
    }
    forward::forward(shard, errand, decided, head, body).await
}

/// Counts a request while its handler, or the rest of its answer, lives; also when the client goes
/// away.
pub(crate) struct InFlight(metrics::Gauge);

impl InFlight {
    pub(crate) fn enter(shard: &Shard) -> Self {
        shard.meters.in_flight.increment(1);
        Self(shard.meters.in_flight.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}
