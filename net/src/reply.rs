//! Answers that a hop makes itself: JSON, and the protocol's error body on every failure.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use midspan_protocol::metadata::{Health, ServerMetadata};

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

/// A refusal: the error body, `Allow` for a wrong method, and `Connection: close` when the rest of
/// a request body will not be read, so that the connection cannot be used again.
#[must_use]
pub fn refusal(
    status: StatusCode,
    message: &str,
    allow: Option<&'static str>,
    unread: bool,
) -> Response<Body> {
    let mut response = error(status, message);
    if let Some(allow) = allow {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    }
    if unread {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The OpenAPI document.
#[must_use]
pub fn document() -> Response<Body> {
    json(StatusCode::OK, midspan_protocol::openapi::document())
}

/// Says that the answer depends on the request header `name` (lowercase), once.
pub fn vary(headers: &mut HeaderMap, name: &'static str) {
    let named = headers.get_all(header::VARY).iter().any(|list| {
        let list = list.to_str().unwrap_or_default();
        list.split(',').map(str::trim).any(|one| one == "*" || one.eq_ignore_ascii_case(name))
    });
    if !named {
        headers.append(header::VARY, HeaderValue::from_static(name));
    }
}

/// Server metadata with the extensions that router and node carry; each is tested at both.
#[must_use]
pub fn metadata(version: &str) -> ServerMetadata {
    const EXTENSIONS: [&str; 8] = [
        "binary_tensor_data",
        "classification",
        "model_configuration",
        "model_repository",
        "model_repository(unload_dependents)",
        "parameters",
        "schedule_policy",
        "statistics",
    ];
    ServerMetadata {
        name: "midspan".into(),
        version: version.into(),
        extensions: EXTENSIONS.map(Into::into).to_vec(),
    }
}

/// Server metadata as an answer.
#[must_use]
pub fn server(version: &str) -> Response<Body> {
    value(StatusCode::OK, &metadata(version))
}

/// Health of a process that lives: ready, or why not (503 with `Retry-After`).
#[must_use]
pub fn health(problem: Option<&str>) -> Response<Body> {
    let ready = problem.is_none();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = Health { live: true, ready, error: problem.map(Into::into) };
    let mut response = value(status, &body);
    if !ready {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
