//! Sending a request to the chosen node and, when that node is lost, to the next one: leases,
//! deadlines, replay, the retry budget. The choice list comes from the decision; nothing is chosen
//! here. A node's status and body pass through unchanged.

mod attempt;
mod outgoing;
mod relay;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Response, StatusCode, request::Parts};
use http_body::Body as HttpBody;
use midspan_net::{Body, telemetry::Metric};
use midspan_protocol::{LoadReport, ModelName};
use midspan_router_core::{BootId, Event, Report, Rif, book, bookings};
use tokio::time::timeout_at;
use tower::retry::budget::Budget;

use self::attempt::{Tried, attempt};
pub(crate) use self::{outgoing::Outgoing, relay::whole};
use crate::{admit::Terms, decide::Decided, error::RouteError, replay::Upload, shard::Shard};

/// A node's answer, or one of the router's own, ready to go to the app.
pub(crate) struct Forwarded {
    pub(crate) response: Response<Body>,
    /// Requests sent for it.
    pub(crate) attempts: usize,
    /// What it is counted as; the status of HTTP, or the one that means the same.
    pub(crate) status: StatusCode,
    /// The answer came before the end of the app's body, whose rest may never be read.
    pub(crate) unread: bool,
}

impl Forwarded {
    /// An answer that took so many requests to nodes.
    pub(crate) fn new(response: Response<Body>, attempts: usize) -> Self {
        let status = response.status();
        Self { response, attempts, status, unread: false }
    }
}

/// How a request and its answer travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// As REST.
    Rest,
    /// gRPC, one message each way.
    Unary,
    /// gRPC, any number of messages both ways at once: sent once, as they come.
    Stream,
}

/// What is asked of a node.
#[derive(Clone, Copy)]
pub(crate) struct Errand<'r> {
    pub(crate) model: &'r ModelName,
    pub(crate) terms: &'r Terms,
    pub(crate) manner: Manner,
    /// Whether it is an inference, which policy goes with.
    pub(crate) infer: bool,
}

/// A node that had less time than this, or than four times its predicted time, is not to blame for
/// a deadline: an app that asks for one millisecond must not eject nodes for everybody.
const FAIR: Duration = Duration::from_millis(250);

/// Forwards a request along its choice list.
pub(crate) async fn forward<B>(
    shard: &Arc<Shard>,
    errand: Errand<'_>,
    decided: &Decided,
    head: Parts,
    body: B,
) -> Result<Forwarded, RouteError>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let limit = shard.config.limits.body.as_usize();
    let mut upload = upload(shard, errand, body, limit).await?;
    let mut outgoing = Outgoing::new(head, errand);
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
        let live = upload.live();
        let Some(body) = upload.next() else { break };
        if let Some(reason) = again {
            if !shard.retries.withdraw() {
                tracing::warn!("retry budget is used up");
                break;
            }
            Metric::RouterRetries.counter(&[reason]).increment(1);
        }
        tried.push(choice.slot);
        let last = upload.is_once() || tried.len() == decided.choices.len();
        let request = outgoing.request(&shard.config.name, body, last);
        let sent = Instant::now();
        match attempt(shard, errand, choice, lease, request, live).await {
            Tried::Answered(answer) => return Ok(answer.after(tried.len(), &upload)),
            Tried::Refused(answer) => {
                again = Some("refused");
                refused = Some(answer);
            }
            Tried::Lost(loss) => {
                if let Some(fault) = upload.fault(limit) {
                    return Err(fault);
                }
                let late = matches!(loss.error, RouteError::Deadline { .. });
                let fair = FAIR.max(Duration::from_micros(choice.predicted.times(4).0));
                // A client that sends too slowly must not bring a node into disrepute either.
                if loss.counts && (!late || (sent.elapsed() >= fair && !upload.stalls())) {
                    shard.fleet.observe(Event::Failed { slot: choice.slot, kind: loss.kind });
                }
                if late {
                    return Err(loss.error);
                }
                again = Some(loss.kind.as_str());
                lost = Some(loss.error);
            }
        }
    }
    match (refused, lost) {
        (Some(answer), _) => Ok(answer.after(tried.len(), &upload)),
        (None, Some(error)) => Err(error),
        (None, None) => {
            Err(RouteError::NoNode { model: errand.model.to_string(), state: "every node is full" })
        }
    }
}

impl Forwarded {
    fn after(mut self, attempts: usize, upload: &Upload) -> Self {
        self.attempts = attempts;
        self.unread = upload.is_open();
        self
    }
}

async fn upload<B>(
    shard: &Shard,
    errand: Errand<'_>,
    body: B,
    limit: usize,
) -> Result<Upload, RouteError>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    // Each message of gRPC may have the limit; the first one has been held to it.
    let limit = match errand.manner {
        Manner::Rest => limit,
        Manner::Unary => limit.saturating_add(crate::grpc::PREFIX),
        Manner::Stream => return Ok(Upload::endless(body)),
    };
    let keep = shard.config.limits.replay_body.as_usize();
    let reading = Upload::read(body, keep, limit, &shard.replay);
    let read = timeout_at(errand.terms.until.into(), reading).await;
    read.map_err(|_| errand.terms.late())?
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
