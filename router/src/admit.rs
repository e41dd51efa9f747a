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
    /// When the app stops waiting.
    pub(crate) until: Instant,
    /// The same as a span, for messages.
    pub(crate) deadline: Duration,
    /// The app's affinity key.
    pub(crate) session: Option<Vec<u8>>,
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
    let session = head.headers.get(headers::SESSION).map(|value| value.as_bytes().to_vec());
    Ok(Admitted { route, until: now + deadline, deadline, session })
}

fn deadline(map: &HeaderMap, limits: &RawLimits) -> Result<Duration, RouteError> {
    let asked = headers::deadline_ms(map).map_err(RouteError::BadRequest)?;
    Ok(asked.map_or(limits.deadline.0, |millis| {
        Duration::from_millis(millis).min(limits.max_deadline.0)
    }))
}

/// Headers for the next hop: hop-by-hop ones and ours removed, except those of ours that an app
/// may set.
pub(crate) fn forwarded(map: &HeaderMap) -> HeaderMap {
    let mut out = map.clone();
    for value in map.get_all(header::CONNECTION) {
        let names = value.to_str().unwrap_or_default().split(',');
        for name in names.filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok()) {
            // Content-Length and the like cannot be made hop-by-hop by a client's wish.
            if name != header::CONTENT_LENGTH && name != header::HOST {
                out.remove(name);
            }
        }
    }
    for name in HOP_BY_HOP {
        out.remove(name);
    }
    let ours: Vec<HeaderName> = map
        .keys()
        .filter(|name| headers::is_ours(name) && !headers::FROM_CLIENTS.contains(name))
        .cloned()
        .collect();
    for name in ours {
        out.remove(name);
    }
    out.remove(headers::DEADLINE_MS);
    out
}

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
