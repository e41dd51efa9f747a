//! Sending a request to the chosen node and, when that node is lost, to the next one: leases,
//! deadlines, replay, the retry budget. The choice list comes from the decision; nothing is chosen
//! here. A node's status and body pass through unchanged.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header, request::Parts};
use http_body::Body as HttpBody;
use midspan_net::{Body, body::full, telemetry::Metric, transport::TransportError};
use midspan_protocol::{Context, LoadReport, ModelName, headers, timing};
use midspan_router_core::{
    BootId, Choice, Event, FailureKind, Lease, Micros, Report, Rif, Slot, book, bookings,
};
use tokio::time::timeout_at;
use tower::retry::budget::Budget;

use crate::{
    admit::{self, Admitted},
    answer::{Pacing, Rest},
    decide::Decided,
    error::RouteError,
    listen::InFlight,
    replay::{Download, Upload, download},
    shard::Shard,
};

/// A node's answer, ready to go to the app.
pub(crate) struct Forwarded {
    pub(crate) response: Response<Body>,
    /// Requests sent for it.
    pub(crate) attempts: usize,
}

/// One way to send a request: everything but the body.
struct Outgoing<'r> {
    head: &'r Parts,
    headers: HeaderMap,
    model: &'r ModelName,
    infer: bool,
    until: Instant,
    deadline: Duration,
}

/// A node that had less time than this, or than four times its predicted time, is not to blame for
/// a deadline: an app that asks for one millisecond must not eject nodes for everybody.
const FAIR: Duration = Duration::from_millis(250);

/// What one try came to.
enum Tried {
    Answered(Response<Body>),
    /// The node refused before doing anything; its answer is kept in case nobody else can.
    Refused(Response<Body>),
    Lost(RouteError, FailureKind),
}

/// Forwards a request along its choice list.
pub(crate) async fn forward<B>(
    shard: &Arc<Shard>,
    admitted: &Admitted,
    model: &ModelName,
    infer: bool,
    decided: &Decided,
    head: &Parts,
    body: B,
) -> Result<Forwarded, RouteError>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let limits = &shard.config.limits;
    let (keep, limit) = (limits.replay_body.as_usize(), limits.body.as_usize());
    let late = || RouteError::Deadline { millis: millis(admitted.deadline) };
    let reading = Upload::read(body, keep, limit, &shard.replay);
    let mut upload = timeout_at(admitted.until.into(), reading).await.map_err(|_| late())??;
    let outgoing = Outgoing {
        head,
        headers: admit::forwarded(&head.headers),
        model,
        infer,
        until: admitted.until,
        deadline: admitted.deadline,
    };
    shard.retries.deposit();
    let mut refused = None;
    let mut lost = None;
    let mut tried = Vec::new();
    let mut again: Option<&'static str> = None;
    for (choice, cap) in bookings(&decided.choices) {
        // Never the same node twice, in whichever of the two rounds.
        if tried.contains(&choice.slot) {
            continue;
        }
        let Ok(lease) = book(&shard.fleet.cells, choice.slot, cap) else { continue };
        let Some(body) = upload.next() else { break };
        if let Some(reason) = again {
            if !shard.retries.withdraw() {
                tracing::warn!("retry budget is used up");
                break;
            }
            Metric::RouterRetries.counter(&[reason]).increment(1);
        }
        tried.push(choice.slot);
        let sent = Instant::now();
        match attempt(shard, &outgoing, choice, lease, body).await {
            Tried::Answered(response) => return Ok(Forwarded { response, attempts: tried.len() }),
            Tried::Refused(response) => {
                again = Some("refused");
                refused = Some(response);
            }
            Tried::Lost(error, kind) => {
                if let Some(fault) = upload.fault(limit) {
                    return Err(fault);
                }
                let late = matches!(error, RouteError::Deadline { .. });
                let fair = FAIR.max(Duration::from_micros(choice.predicted.times(4).0));
                // A client that sends too slowly must not bring a node into disrepute either.
                if !late || (sent.elapsed() >= fair && !upload.stalls()) {
                    shard.fleet.observe(Event::Failed { slot: choice.slot, kind });
                }
                if late {
                    return Err(error);
                }
                again = Some(kind.as_str());
                lost = Some(error);
            }
        }
    }
    match (refused, lost) {
        (Some(response), _) => Ok(Forwarded { response, attempts: tried.len() }),
        (None, Some(error)) => Err(error),
        (None, None) => {
            Err(RouteError::NoNode { model: model.to_string(), state: "every node is full" })
        }
    }
}

async fn attempt(
    shard: &Arc<Shard>,
    outgoing: &Outgoing<'_>,
    choice: &Choice,
    lease: Lease,
    body: Body,
) -> Tried {
    let index = shard.fleet.index_of(choice.node);
    let Some((index, link)) = index.and_then(|index| Some((index, shard.link(index)?))) else {
        return Tried::Lost(lost("?", "it has left the fleet"), FailureKind::Connect);
    };
    let name = shard.fleet.nodes.get(index).map_or("?", |node| node.name.as_str());
    let late = || {
        let error = RouteError::Deadline { millis: millis(outgoing.deadline) };
        Tried::Lost(error, FailureKind::Timeout)
    };
    let sent = Instant::now();
    let until = outgoing.until.into();
    let request = outgoing.request(shard, body);
    let response = match timeout_at(until, link.send(request)).await {
        Err(_elapsed) => return late(),
        Ok(Err(error @ TransportError::Connect { .. })) => {
            return Tried::Lost(lost(name, &error.to_string()), FailureKind::Connect);
        }
        Ok(Err(error @ TransportError::Broken { .. })) => {
            return Tried::Lost(lost(name, &error.to_string()), FailureKind::Reset);
        }
        Ok(Ok(response)) => response,
    };
    let (head, body) = response.into_parts();
    let keep = shard.config.limits.replay_body.as_usize();
    let read = match timeout_at(until, download(body, keep)).await {
        Err(_elapsed) => return late(),
        Ok(Err(error)) => return Tried::Lost(lost(name, &error.to_string()), FailureKind::Reset),
        Ok(Ok(read)) => read,
    };
    shard.fleet.observe(event(choice.slot, &head.headers, head.status, sent.elapsed()));
    let refused = head.status == StatusCode::SERVICE_UNAVAILABLE;
    let body = match read {
        Download::Whole(bytes) => full(bytes),
        Download::Partial(prefix, rest) => {
            let in_flight = InFlight::enter(shard);
            let pacing = Pacing { until: outgoing.until, lease, in_flight };
            midspan_net::body::boxed(Rest::new(prefix, rest, pacing))
        }
    };
    let response = Response::from_parts(head, body);
    if refused { Tried::Refused(response) } else { Tried::Answered(response) }
}

impl Outgoing<'_> {
    fn request(&self, shard: &Shard, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = self.head.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let map = request.headers_mut();
        let left = millis(self.until.saturating_duration_since(Instant::now())).max(1);
        map.insert(headers::DEADLINE_MS, HeaderValue::from(left));
        if let Ok(name) = HeaderValue::from_str(&shard.config.name) {
            map.insert(headers::ROUTER, name);
        }
        if self.infer {
            let context = Context {
                model: self.model.name.clone(),
                deadline_ms: Some(left),
                ..Context::default()
            };
            if let Ok(value) = HeaderValue::from_str(&context.encode()) {
                map.insert(headers::CONTEXT, value);
            }
        }
        if body_is_absent(&self.head.headers) {
            map.remove(header::CONTENT_LENGTH);
        }
        request
    }
}

/// A GET with neither length nor encoding must not grow a `content-length: 0` on the way.
fn body_is_absent(map: &HeaderMap) -> bool {
    !map.contains_key(header::CONTENT_LENGTH) && !map.contains_key(header::TRANSFER_ENCODING)
}

fn lost(node: &str, cause: &str) -> RouteError {
    RouteError::NodeLost { node: node.to_owned(), cause: cause.to_owned() }
}

fn event(slot: Slot, map: &HeaderMap, status: StatusCode, latency: Duration) -> Event {
    let text = |name| map.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let report = text(headers::LOAD).and_then(LoadReport::decode).map(report);
    let server_time = text(headers::SERVER_TIMING).and_then(|value| timing::find(value, "run"));
    // 503 is a refusal with a reason, 501 a missing feature; neither is a broken node.
    if status.is_server_error() && !matches!(status.as_u16(), 501 | 503 | 504) {
        return Event::Failed { slot, kind: FailureKind::ServerError };
    }
    Event::Answered {
        slot,
        latency: Micros::from(latency),
        server_time: server_time.map(Micros::from),
        report,
    }
}

/// The wire's report as the core counts it.
pub(crate) fn report(report: LoadReport) -> Report {
    Report {
        boot: BootId::fold(report.boot),
        total: Rif(report.rif),
        share: Rif(report.share),
        draining: report.draining,
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
