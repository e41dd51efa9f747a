//! gRPC status codes: on the wire, as the HTTP status that means the same, and as an answer of
//! trailers only. Which error has which code is said in [`crate::error`].

use std::fmt::Write as _;

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use midspan_net::{Body, body::empty};

/// The status of a call, in trailers, or in the head of an answer without messages.
pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// Encodings that messages may come in.
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// Longest message sent, characters.
const MAX_MESSAGE: usize = 1024;

/// The codes that the router gives or acts upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Code {
    Ok = 0,
    Cancelled = 1,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

impl Code {
    /// Whether an answer's head or trailers say this.
    pub(crate) fn is_in(self, status: Option<u16>) -> bool {
        status == Some(self as u16)
    }
}

/// What head or trailers say; `None` when they say nothing. What is no number is UNKNOWN.
pub(crate) fn status_in(map: &HeaderMap) -> Option<u16> {
    const UNKNOWN: u16 = 2;
    let value = map.get(GRPC_STATUS)?;
    Some(value.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(UNKNOWN))
}

/// The HTTP status that means the same, for health and metrics.
pub(crate) fn equivalent(status: u16) -> StatusCode {
    match status {
        0 => StatusCode::OK,
        4 => StatusCode::GATEWAY_TIMEOUT,
        5 => StatusCode::NOT_FOUND,
        7 => StatusCode::FORBIDDEN,
        8 => StatusCode::TOO_MANY_REQUESTS,
        12 => StatusCode::NOT_IMPLEMENTED,
        13 | 15 => StatusCode::INTERNAL_SERVER_ERROR,
        14 => StatusCode::SERVICE_UNAVAILABLE,
        16 => StatusCode::UNAUTHORIZED,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// An answer's head with the media type of gRPC.
pub(crate) fn head(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}

/// An answer without messages: the status is in the head, the HTTP status is always 200.
pub(crate) fn trailers_only(code: Code, message: &str) -> Response<Body> {
    let mut response = head(empty());
    let map = response.headers_mut();
    map.extend(trailers(code, message));
    if code == Code::Unimplemented {
        map.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static("identity,deflate,gzip"));
    }
    response
}

/// A status as trailers.
pub(crate) fn trailers(code: Code, message: &str) -> HeaderMap {
    let mut map = HeaderMap::new();
    map.insert(GRPC_STATUS, HeaderValue::from(code as u16));
    if !message.is_empty()
        && let Ok(value) = HeaderValue::from_str(&encoded(message))
    {
        map.insert(GRPC_MESSAGE, value);
    }
    map
}

/// Percent-encodes all but printable ASCII, and the percent sign.
fn encoded(message: &str) -> String {
    let clipped = message.char_indices().nth(MAX_MESSAGE).map_or(message.len(), |(at, _)| at);
    let mut out = String::with_capacity(message.len());
    for byte in message.as_bytes().iter().take(clipped) {
        match byte {
            b' '..=b'~' if *byte != b'%' => out.push(char::from(*byte)),
            _ => {
                let written = write!(out, "%{byte:02X}");
                debug_assert!(written.is_ok());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(encoded("no such path: /a b~"), "no such path: /a b~");
        assert_eq!(encoded("100%\n\u{7f}é"), "100%25%0A%7F%C3%A9");
        assert_eq!(encoded(&"é".repeat(2_000)).len(), MAX_MESSAGE * 6);
    }

    #[test]
    fn trailers_only_answers_are_ok_for_http() {
        let response = trailers_only(Code::NotFound, "model 'm'\n");
        assert_eq!(response.status(), 200);
        let map = response.headers();
        assert_eq!(map["content-type"], "application/grpc");
        assert_eq!(status_in(map), Some(5));
        assert_eq!(map["grpc-message"], "model 'm'%0A");
        assert!(Code::NotFound.is_in(status_in(map)) && !Code::Ok.is_in(None));
        let mut odd = HeaderMap::new();
        assert_eq!(status_in(&odd), None);
        odd.insert(GRPC_STATUS, HeaderValue::from_static("x"));
        assert_eq!(status_in(&odd), Some(2));
    }
}
