//! The raw binary request of the binary tensor extension (`Inference-Header-Content-Length: 0`): all
//! of the body is the data of the model's only input. What shape it has is the protocol's to say.

use bytes::Bytes;
use midspan_protocol::{Datatype, InferRequest, request::RawInput};
use midspan_runtime::Dim;

use crate::{error::NodeError, model::Model};

/// The request that a raw body stands for.
///
/// # Errors
/// A model with more than one input, or a body that fits no shape of the input.
pub(crate) fn request(model: &Model, body: &Bytes) -> Result<InferRequest, NodeError> {
    let [port] = model.inputs.as_slice() else {
        return Err(NodeError::Input(format!(
            "a raw body is for models with one input; '{}' has {}",
            model.name,
            model.inputs.len()
        )));
    };
    let name = &port.spec.name;
    let datatype = Datatype::parse(port.spec.element.oip_name()).ok_or_else(|| {
        NodeError::Input(format!("input '{name}': its type has no protocol name"))
    })?;
    let shape: Vec<Option<u64>> = port.spec.dims.iter().map(size).collect();
    Ok(InferRequest::parse_raw(body, RawInput { name, datatype, shape: &shape })?)
}

fn size(dim: &Dim) -> Option<u64> {
    match dim {
        Dim::Fixed(size) => Some(*size as u64),
        Dim::Symbolic(_) => None,
    }
}
