//! Server and model metadata, health and repository index bodies.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::ProtocolError;

/// `GET /v2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerMetadata {
    /// Program name.
    pub name: String,
    /// Program version.
    pub version: String,
    /// Extensions that work here.
    pub extensions: Vec<String>,
}

/// `GET /v2/health/live` and `/v2/health/ready`: one body that satisfies every client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// The process answers.
    pub live: bool,
    /// It can take inference requests.
    pub ready: bool,
    /// Why not, when not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `GET /v2/models/{m}/ready`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelReady {
    /// Model name.
    pub name: String,
    /// Whether it can be inferred now.
    pub ready: bool,
}

/// `GET /v2/models/{m}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelMetadata {
    /// Model name.
    pub name: String,
    /// Versions that can be asked for.
    pub versions: Vec<String>,
    /// `onnx_onnxv1` for an ONNX model.
    pub platform: String,
    /// Inputs as apps see them.
    pub inputs: Vec<TensorMetadata>,
    /// Outputs as apps see them.
    pub outputs: Vec<TensorMetadata>,
}

/// One input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TensorMetadata {
    /// Tensor name.
    pub name: String,
    /// Protocol datatype name.
    pub datatype: String,
    /// Dimensions; -1 where variable, the batch dimension included.
    pub shape: Vec<i64>,
}

/// One line of `POST /v2/repository/index`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepositoryEntry {
    /// Model name.
    pub name: String,
    /// Model version.
    pub version: String,
    /// `READY`, `LOADING` or `UNAVAILABLE`.
    pub state: String,
    /// Why it is not ready; empty when it is.
    pub reason: String,
}

/// `GET /v2/models` (of KServe; not in the protocol's text).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelList {
    /// Names of the models that can be asked for.
    pub models: Vec<String>,
}

/// Body of `POST /v2/repository/index`; an empty body means all models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IndexRequest {
    /// Only models that are ready.
    #[serde(default)]
    pub ready: bool,
}

impl IndexRequest {
    /// Reads a body, which may be empty.
    ///
    /// # Errors
    /// A body that is no object of this form.
    pub fn parse(body: &[u8]) -> Result<Self, ProtocolError> {
        object(body)
    }
}

/// A JSON object, or its default where a body is empty. Serde alone would take a list for one.
///
/// # Errors
/// A body that is no object of this form.
pub fn object<T: Default + DeserializeOwned>(body: &[u8]) -> Result<T, ProtocolError> {
    let text = body.trim_ascii();
    if text.is_empty() {
        return Ok(T::default());
    }
    if !text.starts_with(b"{") {
        return Err(ProtocolError::Json("expected an object".into()));
    }
    serde_json::from_slice(text).map_err(|error| ProtocolError::Json(error.to_string()))
}

/// `GET /v2/models/{m}/config`: the part of a model's configuration that clients read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelConfig {
    /// Model name.
    pub name: String,
    /// As in the metadata.
    pub platform: String,
    /// `onnxruntime`.
    pub backend: String,
    /// Largest batch of one request; 0 when the first dimension is no batch.
    pub max_batch_size: u32,
    /// Inputs, without the batch dimension when `max_batch_size` is above 0.
    pub input: Vec<TensorConfig>,
    /// Outputs likewise.
    pub output: Vec<TensorConfig>,
}

/// One input or output in a model's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TensorConfig {
    /// Tensor name.
    pub name: String,
    /// Datatype with the prefix `TYPE_`; strings are `TYPE_STRING`.
    pub data_type: String,
    /// Dimensions; -1 where variable.
    pub dims: Vec<i64>,
}

/// `GET /v2/midspan/node`: what a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeInfo {
    /// The node's name.
    pub name: String,
    /// `edge` or `cloud`.
    pub role: String,
    /// Its region.
    pub region: String,
    /// Program version.
    pub version: String,
    /// Requests that it executes at once.
    pub workers: u32,
    /// The models that it serves.
    pub models: Vec<RepositoryEntry>,
    /// Variants that it runs of its models, such as `int8`, by `name/version`; those that run as
    /// they were cut are not listed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variants: BTreeMap<String, String>,
    /// The clouds that it offloads to.
    #[serde(default)]
    pub clouds: Vec<CloudInfo>,
}

/// A cloud as one edge node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CloudInfo {
    /// Host and port.
    pub url: String,
    /// The cloud node's own name, once it has answered.
    pub name: String,
    /// Its region.
    pub region: String,
    /// Health as the edge sees it, for example `healthy` or `dead`.
    pub health: String,
    /// Round trip of the last probe, µs; 0 before the first.
    pub rtt_us: u64,
}
