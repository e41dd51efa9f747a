//! What the node answers without a model: server metadata, health, the repository, itself.

use http::{Response, StatusCode};
use midspan_net::{Body, reply};
use midspan_protocol::{
    ModelName, Route, Verb,
    metadata::{Health, ModelReady, NodeInfo, ServerMetadata},
};

use crate::{Node, error::NodeError};

/// Extensions that work here; each is tested.
const EXTENSIONS: [&str; 2] = ["binary_tensor_data", "parameters"];

/// The answer to a route that needs no inference; `None` for one that does.
pub(crate) fn answer(node: &Node, route: &Route) -> Result<Option<Response<Body>>, NodeError> {
    Ok(Some(match route {
        Route::Server => reply::value(
            StatusCode::OK,
            &ServerMetadata {
                name: "midspan".into(),
                version: env!("CARGO_PKG_VERSION").into(),
                extensions: EXTENSIONS.map(Into::into).to_vec(),
            },
        ),
        Route::Live => health(true, None),
        Route::Ready if node.tasks.is_draining() => health(false, Some("draining")),
        Route::Ready => health(true, None),
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
        Route::Model(name, Verb::Stats | Verb::Config) => return Err(not_offered(node, name)),
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
