//! Answers that a hop makes itself: JSON, and the protocol's error body on every failure.

use http::{HeaderValue, Response, StatusCode, header};

use crate::body::{self, Body};

/// A JSON answer.
#[must_use]
pub fn json(status: StatusCode, body: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = Response::new(body::full(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A JSON answer from a value that cannot fail to serialise (plain structs and maps).
#[must_use]
pub fn value(status: StatusCode, value: &impl serde::Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(body) => json(status, body),
        Err(problem) => error(StatusCode::INTERNAL_SERVER_ERROR, &problem.to_string()),
    }
}

/// The protocol's error body. 429 and 503 carry `Retry-After: 1`: the state they report changes
/// within a probe interval.
#[must_use]
pub fn error(status: StatusCode, message: &str) -> Response<Body> {
    let mut response = json(status, midspan_protocol::error_body(message));
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
