//! What the router answers itself: server metadata, health, the fleet's repository index.

use http::{Response, StatusCode};
use midspan_net::{Body, reply};
use midspan_protocol::Route;

use crate::shard::Shard;

/// The answer to a route that concerns no single model; `None` for any other.
pub(crate) fn answer(shard: &Shard, route: &Route) -> Option<Response<Body>> {
    Some(match route {
        Route::Server => reply::server(env!("CARGO_PKG_VERSION")),
        Route::Live => reply::health(None),
        Route::Ready if shard.tasks.is_draining() => reply::health(Some("draining")),
        Route::Ready if !any_usable(shard) => reply::health(Some("no node is ready")),
        Route::Ready => reply::health(None),
        Route::Index => reply::value(StatusCode::OK, &shard.fleet.repository()),
        Route::Document => reply::document(),
        Route::Models | Route::Statistics | Route::SharedMemory => return None,
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
