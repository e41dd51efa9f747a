//! Server and model metadata, health and repository index bodies.

use serde::{Deserialize, Serialize};

/// `GET /v2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMetadata {
    /// Program name.
    pub name: String,
    /// Program version.
    pub version: String,
    /// Extensions that work here.
    pub extensions: Vec<String>,
}

/// `GET /v2/health/live` and `/v2/health/ready`: one body that satisfies every client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelReady {
    /// Model name.
    pub name: String,
    /// Whether it can be inferred now.
    pub ready: bool,
}

/// `GET /v2/models/{m}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMetadata {
    /// Tensor name.
    pub name: String,
    /// Protocol datatype name.
    pub datatype: String,
    /// Dimensions; -1 where variable, the batch dimension included.
    pub shape: Vec<i64>,
}

/// One line of `POST /v2/repository/index`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryEntry {
    /// Model name.
    pub name: String,
    /// Model version.
    pub version: String,
    /// `READY` or `UNAVAILABLE`.
    pub state: String,
    /// Why it is unavailable; empty when ready.
    pub reason: String,
}
