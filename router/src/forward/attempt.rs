//! One try at one node: the request goes out, and what comes back is told apart: an answer, a
//! refusal before anything was done, or a loss. What it means for the node's health is noted here.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, response::Parts};
use midspan_net::{
    Body,
    body::{boxed, full},
    transport::TransportError,
};
use midspan_protocol::{LoadReport, headers, timing};
use midspan_router_core::{Choice, Event, FailureKind, Lease, Micros, Slot};
use tokio::time::timeout_at;

use super::{
    Errand, Forwarded, Manner,
    relay::{Relay, Watch, whole},
    report,
};
use crate::{
    answer::{Pacing, Rest},
    error::RouteError,
    grpc::status::{Code, equivalent, status_in},
    listen::InFlight,
    replay::{Download, Live, download},
    shard::Shard,
};

/// What one try came to.
pub(super) enum Tried {
    Answered(Forwarded),
    /// The node refused before doing anything; its answer is kept in case nobody else can.
    Refused(Forwarded),
    Lost(Loss),
}

/// No answer came.
pub(super) struct Loss {
    pub(super) error: RouteError,
    pub(super) kind: FailureKind,
    /// Whether it says something about the node.
    pub(super) counts: bool,
}

/// A try under way.
struct Try<'r> {
    shard: &'r Arc<Shard>,
    errand: Errand<'r>,
    slot: Slot,
    node: &'r str,
    sent: Instant,
    lease: Lease,
}

/// Sends the request and waits for as much of the answer as is read before its head goes on.
pub(super) async fn attempt(
    shard: &Arc<Shard>,
    errand: Errand<'_>,
    choice: &Choice,
    lease: Lease,
    request: Request<Body>,
    live: Option<Live>,
) -> Tried {
    let grpc = errand.manner != Manner::Rest;
    let index = shard.fleet.index_of(choice.node);
    let Some((index, link)) = index.and_then(|index| Some((index, shard.link(index, grpc)?)))
    else {
        let error = lost("?", "it has left the fleet");
        return Tried::Lost(Loss { error, kind: FailureKind::Connect, counts: true });
    };
    let node = shard.fleet.nodes.get(index).map_or("?", |node| node.name.as_str());
    let sent = Instant::now();
    let until = match errand.manner {
        // A stream without a deadline must not wait for its first sign for ever either.
        Manner::Stream => errand.terms.until.min(sent + shard.config.limits.max_deadline.0),
        _ => errand.terms.until,
    };
    let response = match timeout_at(until.into(), link.send(request)).await {
        Err(_elapsed) => {
            let (error, kind) = (errand.terms.late(), FailureKind::Timeout);
            return Tried::Lost(Loss { error, kind, counts: true });
        }
        Ok(Err(error)) => {
            let kind = match error {
                TransportError::Connect { .. } => FailureKind::Connect,
                TransportError::Broken { .. } => FailureKind::Reset,
            };
            let error = lost(node, &error.to_string());
            return Tried::Lost(Loss { error, kind, counts: !grpc || shard.speaks_grpc(index) });
        }
        Ok(Ok(response)) => response,
    };
    if grpc {
        shard.answered_grpc(index);
    }
    let (head, body) = response.into_parts();
    let attempt = Try { shard, errand, slot: choice.slot, node, sent, lease };
    match errand.manner {
        Manner::Stream => attempt.stream(head, body, live),
        Manner::Rest | Manner::Unary => attempt.read(head, body).await,
    }
}

impl Try<'_> {
    /// An answer that is read whole when it is small.
    async fn read(self, head: Parts, body: Body) -> Tried {
        let grpc = self.errand.manner == Manner::Unary;
        let keep = self.shard.config.limits.replay_body.as_usize();
        let until = self.errand.terms.until;
        let read = match timeout_at(until.into(), download(body, keep)).await {
            Err(_elapsed) => {
                let (error, kind) = (self.errand.terms.late(), FailureKind::Timeout);
                return Tried::Lost(Loss { error, kind, counts: true });
            }
            Ok(Err(error)) => {
                let (error, kind) = (lost(self.node, &error.to_string()), FailureKind::Reset);
                return Tried::Lost(Loss { error, kind, counts: true });
            }
            Ok(Ok(read)) => read,
        };
        let (shard, slot, latency) = (self.shard, self.slot, self.sent.elapsed());
        let of_grpc = || status_in(&head.headers);
        let (status, nothing_done, body) = match read {
            Download::Whole(bytes, trailers) => {
                let said = of_grpc().or_else(|| trailers.as_ref().and_then(status_in));
                let nothing_done = !grpc || bytes.is_empty();
                let body = if grpc { whole(bytes, trailers) } else { full(bytes) };
                (meaning(grpc, head.status, said, true), nothing_done, body)
            }
            Download::Partial(prefix, rest) => {
                let status = meaning(grpc, head.status, of_grpc(), false);
                let body = if grpc {
                    self.relay(&head, prefix, rest, None)
                } else {
                    let in_flight = InFlight::enter(shard);
                    boxed(Rest::new(prefix, rest, Pacing { until, lease: self.lease, in_flight }))
                };
                (status, true, body)
            }
        };
        shard.fleet.observe(event(slot, &head.headers, status, latency));
        let answer = Forwarded {
            response: Response::from_parts(head, body),
            attempts: 1,
            status,
            unread: false,
        };
        let refused = status == StatusCode::SERVICE_UNAVAILABLE && nothing_done;
        if refused { Tried::Refused(answer) } else { Tried::Answered(answer) }
    }

    /// An answer that is passed on as it comes. Its head says nothing of how long the node works.
    fn stream(self, head: Parts, body: Body, live: Option<Live>) -> Tried {
        let said = status_in(&head.headers);
        let status = meaning(true, head.status, said, false);
        let (fleet, slot) = (&self.shard.fleet, self.slot);
        if status != StatusCode::OK {
            fleet.observe(event(slot, &head.headers, status, self.sent.elapsed()));
        } else if let Some(service) = fleet.cells.view(slot, fleet.now()).and_then(|v| v.service) {
            let latency = Duration::from_micros(service.0).max(self.sent.elapsed());
            fleet.observe(match event(slot, &head.headers, status, latency) {
                Event::Answered { slot, latency, report, .. } => {
                    Event::Answered { slot, latency, server_time: Some(service), report }
                }
                other => other,
            });
        }
        let refused = Code::Unavailable.is_in(said);
        let body = if said.is_some() {
            midspan_net::body::empty()
        } else {
            self.relay(&head, Bytes::new(), body, live)
        };
        let answer = Forwarded {
            response: Response::from_parts(head, body),
            attempts: 1,
            status,
            unread: false,
        };
        if refused { Tried::Refused(answer) } else { Tried::Answered(answer) }
    }

    fn relay(self, head: &Parts, prefix: Bytes, rest: Body, live: Option<Live>) -> Body {
        let idle = self.shard.config.limits.max_deadline.0;
        let watch = Watch {
            shard: Arc::clone(self.shard),
            slot: self.slot,
            node: self.node.to_owned(),
            terms: self.errand.terms.clone(),
            idle: (self.errand.manner == Manner::Stream).then_some(idle),
            grpc: head.status == StatusCode::OK,
        };
        boxed(Relay::new(prefix, rest, watch, live, self.lease))
    }
}

/// The status of HTTP, or of an answer of gRPC the one that means the same. One that has `ended`
/// without a status is broken.
fn meaning(grpc: bool, http: StatusCode, said: Option<u16>, ended: bool) -> StatusCode {
    match said {
        _ if !grpc || http != StatusCode::OK => http,
        Some(said) => equivalent(said),
        None if ended => StatusCode::INTERNAL_SERVER_ERROR,
        None => StatusCode::OK,
    }
}

pub(super) fn lost(node: &str, cause: &str) -> RouteError {
    RouteError::NodeLost { node: node.to_owned(), cause: cause.to_owned() }
}

fn event(slot: Slot, map: &HeaderMap, status: StatusCode, latency: Duration) -> Event {
    let text = |name| map.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let report = text(headers::LOAD).and_then(LoadReport::decode).map(report);
    let server_time = text(headers::SERVER_TIMING).and_then(|value| timing::find(value, "run"));
    // 503 is a refusal with a reason, 501 a missing feature; neither is a broken node. Nor is one
    // that reports its load along with the failure: what failed is its model, perhaps on what this
    // one client sent, and that must not take the node from everybody else.
    let broken = status.is_server_error() && !matches!(status.as_u16(), 501 | 503 | 504);
    if broken && report.is_none() {
        return Event::Failed { slot, kind: FailureKind::ServerError };
    }
    Event::Answered {
        slot,
        latency: Micros::from(latency),
        server_time: server_time.map(Micros::from),
        report,
    }
}
