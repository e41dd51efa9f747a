//! ONNX files as protobuf: the generated types, reading and writing. What is read and written
//! again unchanged has the same bytes. It must not interpret graphs: see [`crate::cut`].
//!
//! `onnx-ml.proto` is the ONNX project's, under the Apache-2.0 licence in `LICENSE.onnx`.

use bytes::Bytes;
use prost::Message;

pub mod external;
mod file;

pub use file::{FileError, Opened, Written, fits_one_file, open, write};

/// The generated types, named as in `onnx-ml.proto`.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/onnx.rs"));
}

pub use pb::ModelProto;

/// Why bytes are no model.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// Not the protobuf of an ONNX model.
    #[error("not an ONNX model: {0}")]
    Decode(#[from] prost::DecodeError),
    /// A protobuf, but without a graph.
    #[error("not an ONNX model: it has no graph")]
    NoGraph,
}

/// Reads a model. Weights share the memory of `bytes`.
///
/// # Errors
/// When the bytes are no model, or one without a graph.
pub fn decode(bytes: Bytes) -> Result<ModelProto, OnnxError> {
    let model = ModelProto::decode(bytes)?;
    if model.graph.is_none() {
        return Err(OnnxError::NoGraph);
    }
    Ok(model)
}

/// The bytes of a model's file.
pub fn encode(model: &ModelProto) -> Vec<u8> {
    model.encode_to_vec()
}
