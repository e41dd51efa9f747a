//! Cross-origin access for browser apps (the fetch standard's CORS protocol): answers preflights
//! and decorates answers. It decides only which headers a browser may send and read; it is no
//! access control, and it never allows credentials.
//!
//! Written here because the layers that exist wrap a service whose methods and answer they choose
//! themselves, while the hops answer as functions and know the methods of each path.

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use midspan_protocol::headers;

use crate::{Body, body, reply};

/// How long a browser may keep a preflight's answer. Browsers cap it themselves, two hours at most.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

/// Longest list of request headers that is allowed as asked.
const MAX_ASKED: usize = 1024;

/// Request headers that every app may set.
const SENT: [HeaderName; 10] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::AUTHORIZATION,
    HeaderName::from_static("x-request-id"),
    headers::INFERENCE_HEADER_CONTENT_LENGTH,
    headers::TRACEPARENT,
    HeaderName::from_static("tracestate"),
    headers::EXIT,
    headers::SESSION,
    headers::DEADLINE_MS,
];

/// Response headers that a script may read beside those that it always may.
const READ: [HeaderName; 14] = [
    header::CONTENT_ENCODING,
    header::RETRY_AFTER,
    header::ALLOW,
    header::ACCEPT_ENCODING,
    headers::INFERENCE_HEADER_CONTENT_LENGTH,
    headers::SERVER_TIMING,
    headers::TRACEPARENT,
    headers::ENDPOINT_LOAD_METRICS,
    headers::NODE,
    headers::REGION,
    headers::ANSWERED_BY,
    headers::DEGRADED,
    headers::CERTIFIED,
    headers::DECISION,
];

/// Which pages may use the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origins {
    /// Those of every site.
    #[default]
    Any,
    /// Those of these origins, each `scheme://host[:port]` as browsers send it.
    Only(Vec<HeaderValue>),
}

impl Origins {
    /// Reads a configured list: `*` is any, an empty list none.
    ///
    /// # Errors
    /// The first entry that is no origin.
    pub fn parse(list: &[String]) -> Result<Self, String> {
        if list.iter().any(|origin| origin == "*") {
            return Ok(Self::Any);
        }
        let parse = |origin: &String| {
            let uri = origin.parse::<http::Uri>().ok();
            let is_origin = uri.is_some_and(|uri| {
                uri.scheme().is_some() && uri.authority().is_some() && uri.path() == "/"
            });
            // Browsers send them in lower case, and a pattern would match none.
            let exact = !origin.contains(|c: char| c == '*' || c.is_ascii_uppercase());
            let value = HeaderValue::from_str(origin).ok();
            value
                .filter(|_| is_origin && exact && !origin.ends_with('/'))
                .ok_or_else(|| format!("'{origin}' is no origin, for example https://app.example"))
        };
        list.iter().map(parse).collect::<Result<_, _>>().map(Self::Only)
    }
}

/// Cross-origin headers of a server.
#[derive(Clone, Debug)]
pub struct Cors {
    origins: Origins,
    sent: String,
    read: HeaderValue,
}

impl Default for Cors {
    fn default() -> Self {
        Self::new(Origins::Any)
    }
}

impl Cors {
    /// The policy for pages of `origins`.
    #[must_use]
    pub fn new(origins: Origins) -> Self {
        let read = HeaderValue::from_str(&joined(&READ));
        // Header names hold no byte that a value may not.
        Self { origins, sent: joined(&SENT), read: read.unwrap_or(HeaderValue::from_static("")) }
    }

    /// The answer to a preflight, if `OPTIONS` with these headers is one: 204 whatever the path
    /// would answer. `allow` lists the path's methods, for example `GET, POST`.
    #[must_use]
    pub fn preflight(&self, head: &HeaderMap, allow: &'static str) -> Option<Response<Body>> {
        let origin = head.get(header::ORIGIN)?;
        head.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
        let mut response = Response::new(body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let map = response.headers_mut();
        reply::vary(map, "origin");
        reply::vary(map, "access-control-request-method");
        reply::vary(map, "access-control-request-headers");
        if let Some(origin) = self.allowed(origin) {
            map.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            let allow = HeaderValue::from_static(allow);
            map.insert(header::ACCESS_CONTROL_ALLOW_METHODS, allow);
            let sent = self.sent_as_asked(head);
            map.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, sent);
            map.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        }
        Some(response)
    }

    /// The answer to `OPTIONS` of a path that takes the methods `allow`: a preflight's, or 204 with
    /// `Allow`.
    #[must_use]
    pub fn options(&self, head: &HeaderMap, allow: &'static str) -> Response<Body> {
        if let Some(response) = self.preflight(head, allow) {
            return response;
        }
        let mut response = Response::new(body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
        response
    }

    /// Adds to an answer what lets the page at `origin`, the request's header, read it. Applied
    /// again, as by a router to a node's answer, it changes nothing.
    pub fn decorate(&self, origin: Option<&HeaderValue>, answer: &mut HeaderMap) {
        // Also without an origin: a cache must not give that answer to a page.
        reply::vary(answer, "origin");
        match origin.and_then(|origin| self.allowed(origin)) {
            Some(origin) => {
                answer.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
                answer.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, self.read.clone());
            }
            // What another hop allowed is not this one's policy.
            None => {
                answer.remove(header::ACCESS_CONTROL_ALLOW_ORIGIN);
                answer.remove(header::ACCESS_CONTROL_EXPOSE_HEADERS);
            }
        }
    }

    fn allowed(&self, origin: &HeaderValue) -> Option<HeaderValue> {
        match &self.origins {
            Origins::Any => Some(HeaderValue::from_static("*")),
            Origins::Only(list) => list.iter().find(|listed| *listed == origin).cloned(),
        }
    }

    /// The headers that are always allowed and those that the page asks for. Without credentials a
    /// page can set none that a plain client could not, so that all names are good; they are
    /// parsed, and their number is bounded, because they are sent back.
    fn sent_as_asked(&self, head: &HeaderMap) -> HeaderValue {
        let asked = head.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
        let asked = asked.filter(|list| list.len() <= MAX_ASKED);
        let names = asked.and_then(|list| list.to_str().ok()).unwrap_or_default().split(',');
        let mut sent = self.sent.clone();
        for name in names.filter_map(|name| name.trim().parse::<HeaderName>().ok()) {
            if !SENT.contains(&name) {
                sent.push_str(", ");
                sent.push_str(name.as_str());
            }
        }
        HeaderValue::from_str(&sent).unwrap_or(HeaderValue::from_static(""))
    }
}

fn joined(names: &[HeaderName]) -> String {
    names.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
