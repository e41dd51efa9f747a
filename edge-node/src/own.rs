//! What the node answers without a model's run: server metadata, health, what it says of its
//! models, the repository, itself.

use bytes::Bytes;
use http::{Response, StatusCode};
use midspan_net::{Body, reply};
use midspan_protocol::{
    Route, Verb,
    metadata::{IndexRequest, ModelList, ModelReady, NodeInfo, RepositoryEntry},
};

use crate::{Node, describe, error::NodeError, statistics};

/// The answer to a route that needs neither a body nor an inference; `None` for one that does.
pub(crate) fn answer(node: &Node, route: &Route) -> Result<Option<Response<Body>>, NodeError> {
    let repository = &node.repository;
    Ok(Some(match route {
        Route::Server => reply::server(env!("CARGO_PKG_VERSION")),
        Route::Live => reply::health(None),
        Route::Ready => reply::health(not_ready(node)),
        Route::Node => ok(&info(node)),
        Route::Models => ok(&models(node)),
        Route::Statistics => ok(&statistics::all(repository)),
        // No region is ever registered: memory is not shared between hosts.
        Route::SharedMemory => reply::json(StatusCode::OK, "[]"),
        Route::Model(name, Verb::Ready) => {
            let model = repository.get(name)?;
            ok(&ModelReady { name: model.name.clone(), ready: true })
        }
        Route::Model(name, Verb::Metadata) => ok(&repository.metadata(&*repository.get(name)?)),
        Route::Model(name, Verb::Config) => {
            let limit = node.config.limits.body.as_usize();
            ok(&describe::config(&*repository.get(name)?, limit))
        }
        Route::Model(name, Verb::Stats) => ok(&statistics::of(&repository.versions(name)?)),
        Route::Document => reply::document(),
        Route::Index | Route::Model(_, Verb::Infer | Verb::Offload | Verb::Load | Verb::Unload) => {
            return Ok(None);
        }
    }))
}

fn ok(body: &impl serde::Serialize) -> Response<Body> {
    reply::value(StatusCode::OK, body)
}

/// Why this node should get no requests now. A model that was unloaded, or failed to load, is no
/// reason: the others serve.
pub(crate) fn not_ready(node: &Node) -> Option<&'static str> {
    if node.tasks.is_draining() {
        return Some("draining");
    }
    node.repository.is_loading().then_some("a model is being loaded")
}

/// Names of the models in service, in order.
fn models(node: &Node) -> ModelList {
    let loaded = node.repository.loaded();
    let mut models: Vec<String> = loaded.iter().map(|model| model.name.clone()).collect();
    models.sort();
    models.dedup();
    ModelList { models }
}

/// The repository index, as its request's body asks for it.
///
/// # Errors
/// A body that is no index request.
pub(crate) fn index(node: &Node, body: &Bytes) -> Result<Vec<RepositoryEntry>, NodeError> {
    let asked = IndexRequest::parse(body)?;
    let mut entries = node.repository.index();
    entries.retain(|entry| !asked.ready || entry.state == "READY");
    Ok(entries)
}

fn info(node: &Node) -> NodeInfo {
    NodeInfo {
        name: node.config.name.clone(),
        role: node.config.role.as_str().to_owned(),
        region: node.config.region.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        workers: u32::try_from(node.config.workers).unwrap_or(u32::MAX),
        models: node.repository.index(),
        variants: node.repository.variants(),
        clouds: node.clouds.infos(),
    }
}
