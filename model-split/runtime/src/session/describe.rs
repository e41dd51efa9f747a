//! What a model reads and writes, without running it. Nothing is rewritten or laid out anew, so
//! that of a large model's weights only what its shapes need is looked at.

use std::path::Path;

use ort::session::Session as OrtSession;
use ort::value::Outlet;

use super::{LoadError, Optimisation, SessionOptions, Source, commit, spec};
use crate::library::shapes::{self, End};
use crate::tensor::TensorSpec;

/// The tensors that a model reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// Inputs in the model's order.
    pub inputs: Vec<TensorSpec>,
    /// Outputs in the model's order.
    pub outputs: Vec<TensorSpec>,
    /// Names of the inputs and outputs without dimensions that are scalars; the number of
    /// dimensions of the others is unknown.
    pub scalars: Vec<String>,
    /// Inputs and outputs that are no tensors of an [`crate::ElementType`], with what they are.
    pub others: Vec<(String, String)>,
}

/// Says what a model, given as the bytes of its ONNX file, reads and writes. Opens the library if
/// nobody did.
///
/// # Errors
/// When there is no library, or the model is refused.
pub fn describe(model: &[u8]) -> Result<Described, LoadError> {
    of(Source::Bytes(model))
}

/// As [`describe`], of a file; weights that the file keeps outside of itself are looked for beside
/// it.
///
/// # Errors
/// When there is no library, or the model is refused.
pub fn describe_path(model: &Path) -> Result<Described, LoadError> {
    of(Source::File(model))
}

fn of(source: Source<'_>) -> Result<Described, LoadError> {
    let options = SessionOptions { optimisation: Optimisation::Disabled, ..Default::default() };
    let session = commit(source, &options, None, false)?;
    let mut described = Described { scalars: scalars(&session)?, ..Described::default() };
    let mut sort = |outlets: &[Outlet]| -> Vec<TensorSpec> {
        let mut tensors = Vec::new();
        for outlet in outlets {
            match spec(outlet.name(), outlet.dtype()) {
                Ok(spec) => tensors.push(spec),
                Err(_) => {
                    described.others.push((outlet.name().to_owned(), outlet.dtype().to_string()));
                }
            }
        }
        tensors
    };
    (described.inputs, described.outputs) = (sort(session.inputs()), sort(session.outputs()));
    Ok(described)
}

fn scalars(session: &OrtSession) -> Result<Vec<String>, LoadError> {
    let inputs = session.inputs().iter().enumerate();
    let inputs = inputs.map(|(index, outlet)| (End::Input(index), outlet));
    let outputs = session.outputs().iter().enumerate();
    let outputs = outputs.map(|(index, outlet)| (End::Output(index), outlet));
    let mut scalars = Vec::new();
    for (end, outlet) in inputs.chain(outputs) {
        let bare = outlet.dtype().tensor_shape().is_some_and(|shape| shape.is_empty());
        let known = bare
            && shapes::has_shape(session, end)
                .map_err(|error| LoadError::Model(error.to_string()))?;
        if known {
            scalars.push(outlet.name().to_owned());
        }
    }
    Ok(scalars)
}
