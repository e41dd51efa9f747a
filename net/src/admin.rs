//! The admin port: an axum router behind the same listener as everything else, with the
//! protocol's error body on every path it does not know.

use axum::{
    Router,
    extract::Request,
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::get,
};
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::{
    Body, Limits, Tasks,
    body::BodyError,
    listen::{self, Options},
    reply, telemetry,
};

/// Routes that every process has: `/metrics` and `/healthz`.
pub fn base() -> Router {
    Router::new()
        .route("/metrics", get(async || telemetry::render()))
        .route("/healthz", get(async || "ok\n"))
        .fallback(async |uri: Uri| not_found(&uri))
        .method_not_allowed_fallback(async |request: Request| {
            let message = format!("{} does not take {}", request.uri().path(), request.method());
            to_axum(reply::error(StatusCode::METHOD_NOT_ALLOWED, &message))
        })
}

fn not_found(uri: &Uri) -> Response {
    to_axum(reply::error(StatusCode::NOT_FOUND, &format!("no such path: {}", uri.path())))
}

/// Our response as axum's.
#[must_use]
pub fn to_axum(response: http::Response<Body>) -> Response {
    response.map(axum::body::Body::new).into_response()
}

/// Serves `router` on `listener` until the drain.
///
/// # Errors
/// When the listener cannot be registered.
pub fn serve(
    listener: std::net::TcpListener,
    tasks: &Tasks,
    router: Router,
) -> std::io::Result<()> {
    let limits = Limits { connections: 64, ..Limits::default() };
    let options = Options { port: "admin", limits, tls: None };
    listen::serve(listener, options, tasks, move |request, _peer| {
        let router = router.clone();
        async move {
            match router.oneshot(request.map(axum::body::Body::new)).await {
                Ok(response) => response.map(|body| body.map_err(BodyError::broken).boxed_unsync()),
                Err(never) => match never {},
            }
        }
    })
}
