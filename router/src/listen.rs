//! The apps' port: every request of every connection passes through [`handle`], the hops in order.

use std::{sync::Arc, time::Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use midspan_net::{Body, Peer};
use midspan_protocol::{Route, RouteFault, Verb};

use crate::{
    admit,
    decide::{self, Decided},
    error::RouteError,
    forward::{self, Forwarded},
    locate, own, respond,
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
    let outcome = route(&shard, request, peer, started, &mut decided).await;
    respond::respond(&shard, outcome, decided.as_ref(), started)
}

async fn route(
    shard: &Arc<Shard>,
    request: Request<Incoming>,
    peer: Peer,
    started: Instant,
    decision: &mut Option<Decided>,
) -> Result<Forwarded, RouteError> {
    let (head, body) = request.into_parts();
    let admitted = admit::admit(&head, &shard.config.limits, started)?;
    if let Some(response) = own::answer(shard, &admitted.route) {
        return Ok(Forwarded { response, attempts: 0 });
    }
    let Route::Model(model, verb) = &admitted.route else {
        return Err(RouteFault::NotFound(head.uri.path().to_owned()).into());
    };
    let infer = *verb == Verb::Infer;
    let place = locate::locate(&head.headers, peer, &shard.config.trusted_proxies);
    let length = http_body::Body::size_hint(&body).lower();
    let decided = decide::decide(shard, &admitted, model, place, length)?;
    let decided = decision.insert(decided);
    if decided.choices.is_empty() {
        let (model, state) = (model.to_string(), decided.why_nowhere());
        return Err(RouteError::NoNode { model, state });
    }
    forward::forward(shard, &admitted, model, infer, decided, &head, body).await
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
