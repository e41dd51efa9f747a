//! What the router answers itself: server metadata, health, the fleet's repository index.

use http::{Response, StatusCode};
use midspan_net::{Body, reply};
use midspan_protocol::metadata::{Health, ServerMetadata};

use crate::{admit::Own, error::RouteError, shard::Shard};

/// Extensions that work through the router; each is tested.
const EXTENSIONS: [&str; 2] = ["binary_tensor_data", "parameters"];

pub(crate) fn answer(shard: &Shard, own: Own) -> Result<Response<Body>, RouteError> {
    Ok(match own {
        Own::Server => reply::value(
            StatusCode::OK,
            &ServerMetadata {
                name: "midspan".into(),
                version: env!("CARGO_PKG_VERSION").into(),
                extensions: EXTENSIONS.map(Into::into).to_vec(),
            },
        ),
        Own::Live => health(true, None),
        Own::Ready if shard.tasks.is_draining() => health(false, Some("draining")),
        Own::Ready if !any_usable(shard) => health(false, Some("no node is ready")),
        Own::Ready => health(true, None),
        Own::Index => reply::value(StatusCode::OK, &shard.fleet.repository()),
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
