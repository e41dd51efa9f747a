//! What the router answers itself: server metadata, health, the fleet's repository index.

use http::{Response, StatusCode};
use midspan_net::{Body, reply};
use midspan_protocol::{
    Route,
    metadata::{Health, ServerMetadata},
};

use crate::shard::Shard;

/// Extensions that work through the router; each is tested.
const EXTENSIONS: [&str; 2] = ["binary_tensor_data", "parameters"];

/// The answer to a route that concerns no single model; `None` for any other.
pub(crate) fn answer(shard: &Shard, route: &Route) -> Option<Response<Body>> {
    Some(match route {
        Route::Server => reply::value(
            StatusCode::OK,
            &ServerMetadata {
                name: "midspan".into(),
                version: env!("CARGO_PKG_VERSION").into(),
                extensions: EXTENSIONS.map(Into::into).to_vec(),
            },
        ),
        Route::Live => health(true, None),
        Route::Ready if shard.tasks.is_draining() => health(false, Some("draining")),
        Route::Ready if !any_usable(shard) => health(false, Some("no node is ready")),
        Route::Ready => health(true, None),
        Route::Index => reply::value(StatusCode::OK, &shard.fleet.repository()),
        Route::Node | Route::Model(..) => return None,
    })
}

fn any_usable(shard: &Shard) -> bool {
    let (fleet, now) = (&shard.fleet, shard.fleet.now());
    fleet.topology().nodes().any(|(slot, spec)| {
        !spec.models.is_empty()
            && fleet.cells.view(slot, now).is_some_and(|view| view.health.usable())
    })
}

fn health(ready: bool, problem: Option<&str>) -> Response<Body> {
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = Health { live: true, ready, error: problem.map(Into::into) };
    let mut response = reply::value(status, &body);
    if !ready {
        let retry = http::HeaderValue::from_static("1");
        response.headers_mut().insert(http::header::RETRY_AFTER, retry);
    }
    response
}
