//! From a request's tensors to a model's inputs: names, types and shapes are checked against what
//! apps see, and an encoded picture becomes a tensor.

use midspan_protocol::{Datatype, InferRequest, Tensor};

use crate::{
    batch::{Blob, Named},
    classify,
    error::NodeError,
    model::{Model, Port},
};

/// Largest batch whose rows are told apart: of a model with exits or several stages, of one that
/// takes one row at a time, or of an output that is classified. What is kept of each row is
/// many times what a row may have in bytes.
pub(crate) const MAX_ROWS: usize = 65_536;

/// A request's inputs under the model's own names, and the rows of the batch.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) inputs: Named,
    pub(crate) rows: usize,
}

/// Checks and converts the inputs. Decoding pictures takes milliseconds: call it where that is
/// allowed when [`has_pictures`] says so.
///
/// # Errors
/// What is wrong with which input, with expected and received.
pub(crate) fn accept(model: &Model, request: &InferRequest) -> Result<Accepted, NodeError> {
    if let Some(unknown) = request.inputs.iter().find(|tensor| port(model, &tensor.name).is_none())
    {
        return Err(NodeError::Input(format!(
            "model '{}' has no input '{}'; its inputs are {}",
            model.name,
            unknown.name,
            names(&model.inputs)
        )));
    }
    let outputs = request.outputs.iter().map(|output| &output.name);
    for name in outputs {
        if !model.outputs.iter().any(|port| port.spec.name == *name) {
            return Err(NodeError::Input(format!(
                "model '{}' has no output '{name}'; its outputs are {}",
                model.name,
                names(&model.outputs)
            )));
        }
    }
    classify::check(model, &request.outputs)?;
    let mut inputs = Named::with_capacity(model.inputs.len());
    for port in &model.inputs {
        let name = &port.spec.name;
        let tensor = request.inputs.iter().find(|tensor| tensor.name == *name);
        let missing = || NodeError::Input(format!("input '{name}' is missing"));
        inputs.push((port.inner.clone(), convert(model, port, tensor.ok_or_else(missing)?)?));
    }
    let rows = if model.batched() { common_rows(model, &inputs)? } else { 1 };
    let apart = model.keeps_rows() || classify::is_asked(&request.outputs)?;
    if apart && rows > MAX_ROWS {
        return Err(NodeError::Input(format!(
            "a batch of {rows} rows; at most {MAX_ROWS} are taken where each is looked at"
        )));
    }
    Ok(Accepted { inputs, rows })
}

/// Whether an input holds encoded pictures instead of a tensor.
pub(crate) fn has_pictures(model: &Model, request: &InferRequest) -> bool {
    model.preprocess.is_some()
        && request.inputs.iter().any(|tensor| {
            tensor.datatype == Datatype::Bytes
                && port(model, &tensor.name)
                    .is_some_and(|port| port.spec.element.oip_name() != "BYTES")
        })
}

fn port<'m>(model: &'m Model, name: &str) -> Option<&'m Port> {
    model.inputs.iter().find(|port| port.spec.name == name)
}

fn names(ports: &[Port]) -> String {
    let quoted: Vec<String> = ports.iter().map(|port| format!("'{}'", port.spec.name)).collect();
    quoted.join(", ")
}

fn convert(model: &Model, port: &Port, tensor: &Tensor) -> Result<Blob, NodeError> {
    let expected = port.spec.element.oip_name();
    let got = tensor.datatype.as_str();
    let name = &tensor.name;
    if got != expected {
        if let (Datatype::Bytes, Some(preprocess)) = (tensor.datatype, &model.preprocess) {
            return pictures(preprocess, port, tensor);
        }
        return Err(NodeError::Input(format!("input '{name}': expected {expected}, got {got}")));
    }
    let blob = Blob::from_protocol(tensor)
        .ok_or_else(|| NodeError::Input(format!("input '{name}': {got} is not supported")))?;
    if !port.spec.admits(&blob.shape) {
        return Err(NodeError::Input(format!(
            "input '{name}': expected shape {}, got {:?}",
            port.spec.dims_text(),
            blob.shape
        )));
    }
    Ok(blob)
}

/// Encoded pictures, one per BYTES element, as one batch.
fn pictures(
    preprocess: &midspan_split::preprocess::Preprocess,
    port: &Port,
    tensor: &Tensor,
) -> Result<Blob, NodeError> {
    let name = &tensor.name;
    let encoded = tensor.to_byte_strings().unwrap_or_default();
    let decode = |(index, bytes): (usize, &bytes::Bytes)| {
        let picture = preprocess.picture(bytes).map_err(|error| {
            NodeError::Input(format!("input '{name}': picture {index} cannot be used: {error}"))
        })?;
        Ok(Blob::from_tensor(picture))
    };
    let decoded = encoded.iter().enumerate().map(decode).collect::<Result<Vec<_>, NodeError>>()?;
    let batch = Blob::concat(&decoded)
        .ok_or_else(|| NodeError::Input(format!("input '{name}': no picture in it")))?;
    if port.spec.admits(&batch.shape) {
        return Ok(batch);
    }
    Err(NodeError::Input(format!(
        "input '{name}': pictures become {:?}, the model takes {}",
        batch.shape,
        port.spec.dims_text()
    )))
}

/// The rows of a batch. Inputs whose open dimensions have names of their own (two sequences, say)
/// may differ in length; then there is no batch.
fn common_rows(model: &Model, inputs: &Named) -> Result<usize, NodeError> {
    let rows = inputs.first().map_or(1, |input| input.1.rows());
    match inputs.iter().find(|input| input.1.rows() != rows) {
        None => Ok(rows),
        Some(_) if !model.one_batch() => Ok(1),
        Some((name, blob)) => Err(NodeError::Input(format!(
            "input '{name}' has {} rows where others have {rows}",
            blob.rows()
        ))),
    }
}
