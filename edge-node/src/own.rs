//! What the node answers without a model: server metadata, health, the repository, itself.

use http::{Response, StatusCode};
use midspan_net::{Body, reply};
use midspan_protocol::{
    ModelName, Route, Verb,
    metadata::{ModelReady, NodeInfo},
};

use crate::{Node, error::NodeError};

/// The answer to a route that needs no inference; `None` for one that does.
pub(crate) fn answer(node: &Node, route: &Route) -> Result<Option<Response<Body>>, NodeError> {
    Ok(Some(match route {
        Route::Server => reply::server(env!("CARGO_PKG_VERSION")),
        Route::Live => reply::health(None),
        Route::Ready if node.tasks.is_draining() => reply::health(Some("draining")),
        Route::Ready => reply::health(None),
        Route::Index => reply::value(StatusCode::OK, &node.repository.index()),
        Route::Node => reply::value(StatusCode::OK, &info(node)),
        Route::Model(name, Verb::Ready) => {
            let model = node.repository.get(name)?;
            reply::value(StatusCode::OK, &ModelReady { name: model.name.clone(), ready: true })
        }
        Route::Model(name, Verb::Metadata) => {
            let model = node.repository.get(name)?;
            reply::value(StatusCode::OK, &node.repository.metadata(model))
        }
        Route::Model(name, Verb::Stats | Verb::Config | Verb::Load | Verb::Unload) => {
            return Err(not_offered(node, name));
        }
        Route::Document => reply::document(),
        Route::Models | Route::Statistics | Route::SharedMemory => {
            return Err(NodeError::Route(midspan_protocol::RouteFault::NotFound(
                "not offered here".into(),
            )));
        }
        Route::Model(_, Verb::Infer | Verb::Offload) => return Ok(None),
    }))
}

fn not_offered(node: &Node, name: &ModelName) -> NodeError {
    match node.repository.get(name) {
        Ok(_) => {
            NodeError::Route(midspan_protocol::RouteFault::NotFound("not offered here".into()))
        }
        Err(unknown) => unknown,
    }
}

fn info(node: &Node) -> NodeInfo {
    NodeInfo {
        name: node.config.name.clone(),
        role: node.config.role.as_str().to_owned(),
        region: node.config.region.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        workers: u32::try_from(node.config.workers).unwrap_or(u32::MAX),
        models: node.repository.index(),
        clouds: node.clouds.infos(),
    }
}
