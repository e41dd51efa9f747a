//! The last hop: the answer's head as the app sees it, and the count of what happened.

use std::{fmt::Write as _, sync::Arc, time::Instant};

use http::{HeaderName, HeaderValue, Response, header};
use midspan_net::{Body, telemetry::Metric};
use midspan_protocol::{headers, timing};

use crate::{decide::Decided, error::RouteError, forward::Forwarded, shard::Shard};

/// Headers of a node's answer that end here: meant for this hop, or wrong beyond it.
const NOT_FOR_APPS: [HeaderName; 5] = [
    headers::LOAD,
    headers::ENDPOINT_LOAD_METRICS,
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    HeaderName::from_static("keep-alive"),
];

/// Turns the outcome into the answer.
pub(crate) fn respond(
    shard: &Arc<Shard>,
    outcome: Result<Forwarded, RouteError>,
    decided: Option<&Decided>,
    started: Instant,
    grpc: bool,
) -> Response<Body> {
    let (mut response, status) = match outcome {
        Ok(forwarded) => {
            let status = forwarded.status;
            (passed_on(forwarded, started, grpc), status)
        }
        Err(error) => {
            Metric::RouterErrors.counter(&[error.reason()]).increment(1);
            tracing::debug!(%error, blame = ?error.blame(), "refused");
            let response = if grpc { error.grpc_response() } else { error.response() };
            (response, error.status())
        }
    };
    if let Some(decided) = decided
        && let Ok(value) = HeaderValue::from_str(&decided.id.to_string())
    {
        response.headers_mut().insert(headers::DECISION, value);
    }
    shard.meters.count(status);
    shard.meters.seconds.record(started.elapsed().as_secs_f64());
    response
}

fn passed_on(forwarded: Forwarded, started: Instant, grpc: bool) -> Response<Body> {
    let mut response = forwarded.response;
    let map = response.headers_mut();
    for name in NOT_FOR_APPS {
        map.remove(name);
    }
    if forwarded.unread && !grpc {
        map.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let mut value = String::with_capacity(96);
    if let Some(text) = map.get(headers::SERVER_TIMING).and_then(|value| value.to_str().ok()) {
        value.push_str(text);
    }
    timing::push(&mut value, "router", started.elapsed());
    if forwarded.attempts > 1 {
        let written = write!(value, ", attempts;desc=\"{}\"", forwarded.attempts);
        debug_assert!(written.is_ok());
    }
    if let Ok(value) = HeaderValue::from_str(&value) {
        map.insert(headers::SERVER_TIMING, value);
    }
    response
}
