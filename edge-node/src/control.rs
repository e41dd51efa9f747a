//! Loading and unloading models at a client's word (the `model_repository` extension): whether that
//! is allowed, what the request may ask, and that a change which began is ended even when the asker
//! goes away. What a change does is [`crate::repository`]'s business.

use bytes::Bytes;
use midspan_protocol::{ModelName, Parameters, metadata};
use serde::Deserialize;
use tokio::sync::oneshot;

use crate::{Node, error::NodeError};

/// What is to become of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Load it from its source, anew when it is in service.
    Load,
    /// Take it out of service.
    Unload,
}

#[derive(Default, Deserialize)]
#[serde(expecting = "an object")]
struct Wire {
    #[serde(default)]
    parameters: Option<Parameters>,
}

/// Refuses where model control is off; asked before a body is read.
///
/// # Errors
/// [`NodeError::ModelControl`], [`NodeError::UnknownModel`], [`NodeError::Draining`].
pub(crate) fn allowed(node: &Node, name: &ModelName) -> Result<(), NodeError> {
    if !node.config.model_control {
        return Err(NodeError::ModelControl);
    }
    node.repository.places(&name.name)?;
    if node.tasks.is_draining() { Err(NodeError::Draining) } else { Ok(()) }
}

/// The parameters of a change's JSON body, which may be empty.
///
/// # Errors
/// A body that is no object with parameters.
pub(crate) fn parameters(body: &Bytes) -> Result<Parameters, NodeError> {
    Ok(metadata::object::<Wire>(body)?.parameters.unwrap_or_default())
}

/// Changes every version of a model, one after the other, and returns when that is done.
///
/// # Errors
/// What [`allowed`] refuses, a parameter that cannot be obeyed, or why a version was not loaded;
/// the others are loaded all the same.
pub(crate) async fn change(
    node: &Node,
    name: &ModelName,
    change: Change,
    parameters: &Parameters,
) -> Result<(), NodeError> {
    allowed(node, name)?;
    check(change, parameters)?;
    let places = node.repository.places(&name.name)?;
    let (done, outcome) = oneshot::channel();
    // A task of the node, not of the connection: a model must not stay half loaded.
    node.tasks.spawn(async move {
        let mut outcome = Ok(());
        for place in &places {
            match change {
                Change::Load => outcome = outcome.and(place.load(&places).await),
                Change::Unload => place.unload().await,
            }
        }
        let _asker_gone = done.send(outcome);
    });
    outcome.await.unwrap_or(Err(NodeError::Draining))
}

fn check(change: Change, parameters: &Parameters) -> Result<(), NodeError> {
    for (name, value) in &parameters.0 {
        if change == Change::Load && (name == "config" || name.starts_with("file:")) {
            return Err(NodeError::BadRequest(format!(
                "parameter '{name}' is not supported: models are loaded as the node's own \
                 configuration says"
            )));
        }
        if name == "unload_dependents" && value.as_bool().is_none() {
            return Err(NodeError::BadRequest(format!("parameter '{name}' is not a boolean")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_and_parameters() {
        for good in ["", " \n", "{}", "{\"parameters\":{}}", "{\"parameters\":null}"] {
            let parameters = parameters(&good.into()).unwrap();
            assert!(parameters.is_empty() && check(Change::Load, &parameters).is_ok(), "{good}");
        }
        for bad in ["[]", "{", "null", "7", "{\"parameters\":[]}", "{\"parameters\":{\"a\":{}}}"] {
            assert!(parameters(&bad.into()).is_err(), "{bad}");
        }
        let check = |change, text: &'static str| {
            let body = format!("{{\"parameters\":{{{text}}}}}");
            check(change, &parameters(&body.into()).unwrap()).map_err(|error| error.to_string())
        };
        assert_eq!(check(Change::Unload, "\"unload_dependents\":true"), Ok(()));
        assert_eq!(check(Change::Load, "\"other\":1"), Ok(()));
        for (change, text, name) in [
            (Change::Load, "\"config\":\"{}\"", "'config'"),
            (Change::Load, "\"file:1/model.onnx\":\"AA==\"", "'file:1/model.onnx'"),
            (Change::Unload, "\"unload_dependents\":\"yes\"", "'unload_dependents'"),
        ] {
            let refused = check(change, text).unwrap_err();
            assert!(refused.contains(name), "{refused}");
        }
    }
}
