//! What the router answers itself: server metadata, health, the fleet's repository and its models.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body as HttpBody;
use midspan_net::{Body, BodyError, body::collect, encoding::decode, reply};
use midspan_protocol::{
    Route,
    metadata::{IndexRequest, ModelList, RepositoryEntry},
};
use tokio::time::timeout_at;

use crate::{admit::Terms, error::RouteError, forward::Forwarded, shard::Shard};

/// Largest body that the router reads for itself.
pub(crate) const MAX_BODY: usize = 64 << 10;

/// The answer to a route that concerns no single model and needs no body; `None` for any other.
pub(crate) fn answer(shard: &Shard, route: &Route) -> Option<Response<Body>> {
    Some(match route {
        Route::Server => reply::server(env!("CARGO_PKG_VERSION")),
        Route::Live => reply::health(None),
        Route::Ready => reply::health(problem(shard)),
        Route::Models => reply::value(StatusCode::OK, &models(shard)),
        // No region is ever registered: memory is not shared between hosts.
        Route::SharedMemory => reply::json(StatusCode::OK, "[]"),
        Route::Document => reply::document(),
        Route::Index | Route::Statistics => return None,
        Route::Node | Route::Model(..) => return None,
    })
}

/// Why the router cannot take inferences now; `None` when it can.
pub(crate) fn problem(shard: &Shard) -> Option<&'static str> {
    if shard.tasks.is_draining() {
        return Some("draining");
    }
    let (fleet, now) = (&shard.fleet, shard.fleet.now());
    let usable = fleet.topology().nodes().any(|(slot, spec)| {
        !spec.models.is_empty()
            && fleet.cells.view(slot, now).is_some_and(|view| view.health.usable())
    });
    (!usable).then_some("no node is ready")
}

fn models(shard: &Shard) -> ModelList {
    let ready = entries(shard, true).into_iter();
    let mut models: Vec<String> = ready.map(|entry| entry.name).collect();
    models.dedup();
    ModelList { models }
}

/// The fleet's repository, or of it what is ready somewhere.
pub(crate) fn entries(shard: &Shard, only_ready: bool) -> Vec<RepositoryEntry> {
    let mut entries = shard.fleet.repository();
    entries.retain(|entry| !only_ready || entry.state == "READY");
    entries
}

/// The repository index, as its request's body asks for it.
pub(crate) async fn index<B>(
    shard: &Shard,
    map: &HeaderMap,
    body: B,
    terms: &Terms,
) -> Result<Forwarded, RouteError>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let reading = decode(body, map, MAX_BODY, None);
    let body = timeout_at(terms.until.into(), reading).await.map_err(|_| terms.late())??;
    let asked = IndexRequest::parse(&body);
    let asked = asked.map_err(|error| RouteError::BadRequest(error.to_string()))?;
    Ok(Forwarded::new(reply::value(StatusCode::OK, &entries(shard, asked.ready)), 0))
}

/// Reads a body whole, at most `limit` bytes, until the deadline.
pub(crate) async fn read<B>(body: B, limit: usize, terms: &Terms) -> Result<Bytes, RouteError>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match timeout_at(terms.until.into(), collect(body, limit)).await {
        Err(_elapsed) => Err(terms.late()),
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(BodyError::TooLarge { limit })) => Err(RouteError::TooLarge { limit }),
        Ok(Err(error)) => Err(RouteError::ClientBody(error.to_string())),
    }
}
