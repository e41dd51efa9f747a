//! The first hop: from a request's head to what is asked, by whom and until when. Refuses what no
//! node should see. Never touches the body.

use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, header, request::Parts};
use midspan_protocol::{Route, RouteFault, Verb, headers};

use crate::{config::RawLimits, error::RouteError};

/// A request that may go on.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    pub(crate) route: Route,
    pub(crate) terms: Terms,
}

/// Until when a request may take, and what it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// When the app stops waiting.
    pub(crate) until: Instant,
    /// The same as a span, for messages; none for a stream that may go on for ever.
    pub(crate) deadline: Option<Duration>,
    /// The app's affinity key.
    pub(crate) session: Option<Vec<u8>>,
}

impl Terms {
    /// The error of one who waited for too long.
    pub(crate) fn late(&self) -> RouteError {
        let waited = self.deadline.unwrap_or_default();
        RouteError::Deadline { millis: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX) }
    }
}

/// Admits a head, or says why not. `now` is the head's arrival.
pub(crate) fn admit(
    head: &Parts,
    limits: &RawLimits,
    now: Instant,
) -> Result<Admitted, RouteError> {
    let route = Route::parse(&head.method, head.uri.path())?;
    if matches!(route, Route::Node | Route::Model(_, Verb::Offload)) {
        // Between sites only; an app has no business there.
        return Err(RouteFault::NotFound(head.uri.path().to_owned()).into());
    }
    let length = head.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length = length.and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    if length > limits.body.0 {
        return Err(RouteError::TooLarge { limit: limits.body.as_usize() });
    }
    let deadline = deadline(&head.headers, limits)?;
    let terms =
        Terms { until: now + deadline, deadline: Some(deadline), session: session(&head.headers) };
    Ok(Admitted { route, terms })
}

/// The app's affinity key.
pub(crate) fn session(map: &HeaderMap) -> Option<Vec<u8>> {
    map.get(headers::SESSION).map(|value| value.as_bytes().to_vec())
}

fn deadline(map: &HeaderMap, limits: &RawLimits) -> Result<Duration, RouteError> {
    let asked = headers::deadline_ms(map).map_err(RouteError::BadRequest)?;
    Ok(asked.map_or(limits.deadline.0, |millis| {
        Duration::from_millis(millis).min(limits.max_deadline.0)
    }))
}

/// Headers for the next hop: hop-by-hop ones and ours removed, except those of ours that an app
/// may set.
pub(crate) fn forwarded(mut map: HeaderMap) -> HeaderMap {
    let listed = map.get_all(header::CONNECTION).iter();
    let listed = listed.flat_map(|value| value.to_str().unwrap_or_default().split(','));
    let listed = listed.filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok());
    let gone = listed.filter(|name| !WHAT_THE_BODY_IS.contains(name));
    let ours = map
        .keys()
        .filter(|name| headers::is_ours(name) && !headers::FROM_CLIENTS.contains(name))
        .cloned();
    let gone: Vec<HeaderName> = gone.chain(ours).collect();
    for name in gone {
        map.remove(name);
    }
    for name in HOP_BY_HOP {
        map.remove(name);
    }
    // Each hop states what is left.
    map.remove(headers::DEADLINE_MS);
    map
}

/// What a client cannot make hop-by-hop by listing it in `Connection`: without these the node would
/// read another body than the one that was sent.
const WHAT_THE_BODY_IS: [HeaderName; 4] = [
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::CONTENT_TYPE,
    headers::INFERENCE_HEADER_CONTENT_LENGTH,
];

/// RFC 9110 §7.6.1, and Host and Expect, which are each hop's own.
const HOP_BY_HOP: [HeaderName; 10] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::HOST,
    header::EXPECT,
];

#[cfg(test)]
mod tests;
