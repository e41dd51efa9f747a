//! Header names of the wire, the standard ones that `http` lacks and Midspan's own.

use http::{HeaderMap, HeaderName};

/// Bytes of JSON before the binary tensors (binary tensor extension).
pub const INFERENCE_HEADER_CONTENT_LENGTH: HeaderName =
    HeaderName::from_static("inference-header-content-length");
/// ORCA load report of an endpoint, text form.
pub const ENDPOINT_LOAD_METRICS: HeaderName = HeaderName::from_static("endpoint-load-metrics");
/// W3C trace context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Where time went, readable by browsers.
pub const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The edge node that answered (the cloud node when it was asked directly).
pub const NODE: HeaderName = HeaderName::from_static("midspan-node");
/// The region where the answer was made.
pub const REGION: HeaderName = HeaderName::from_static("midspan-region");
/// `exit:<n>`, `local` or `cloud`; absent on a batch whose rows differ (see `midspan_places`).
pub const ANSWERED_BY: HeaderName = HeaderName::from_static("midspan-answered-by");
/// Why the answer is less than the full path's: the reason.
pub const DEGRADED: HeaderName = HeaderName::from_static("midspan-degraded");
/// Whether the exit's certified error bound covers this answer.
pub const CERTIFIED: HeaderName = HeaderName::from_static("midspan-certified");
/// Id of the routing decision, for `midspan explain`.
pub const DECISION: HeaderName = HeaderName::from_static("midspan-decision");
/// Request: `auto`, `never` or `force` for the early exit.
pub const EXIT: HeaderName = HeaderName::from_static("midspan-exit");
/// Request: affinity key chosen by the app; requests of one key prefer one node.
pub const SESSION: HeaderName = HeaderName::from_static("midspan-session");
/// Request: what is left of the caller's deadline, in milliseconds.
pub const DEADLINE_MS: HeaderName = HeaderName::from_static("midspan-deadline-ms");
/// Router to node, node to cloud: policy that goes with the request (see [`crate::Context`]).
pub const CONTEXT: HeaderName = HeaderName::from_static("midspan-context");
/// Router to node: who asks, so that the load report can state that router's share.
pub const ROUTER: HeaderName = HeaderName::from_static("midspan-router");
/// Node to router: load report, see [`crate::LoadReport`].
pub const LOAD: HeaderName = HeaderName::from_static("midspan-load");
/// Node to cloud: which split the frame belongs to, as hex.
pub const SPLIT_ID: HeaderName = HeaderName::from_static("midspan-split-id");

/// Media type of an activation frame.
pub const FRAME_MEDIA_TYPE: &str = "application/vnd.midspan.frame";

/// Request headers of ours that an app may set; every other `midspan-*` is stripped at the router.
pub const FROM_CLIENTS: [HeaderName; 3] = [EXIT, SESSION, DEADLINE_MS];

/// What is left of the caller's deadline, in milliseconds, if it states one.
///
/// # Errors
/// A value that is no positive number, as a message for the caller.
pub fn deadline_ms(map: &HeaderMap) -> Result<Option<u64>, String> {
    let Some(value) = map.get(DEADLINE_MS) else { return Ok(None) };
    let millis =
        value.to_str().ok().and_then(|text| text.parse().ok()).filter(|millis| *millis > 0);
    millis
        .map(Some)
        .ok_or_else(|| format!("{DEADLINE_MS} is {value:?}, not a positive number of milliseconds"))
}

/// How much of the body is JSON, if the binary tensor extension's header is there.
///
/// # Errors
/// A value that is no length, as a message for the caller.
pub fn json_length(map: &HeaderMap) -> Result<Option<usize>, String> {
    let Some(value) = map.get(INFERENCE_HEADER_CONTENT_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    length
        .map(Some)
        .ok_or_else(|| format!("{INFERENCE_HEADER_CONTENT_LENGTH} is {value:?}, not a length"))
}

/// Whether `name` is one of Midspan's own headers.
#[must_use]
pub fn is_ours(name: &HeaderName) -> bool {
    name.as_str().starts_with("midspan-")
}
