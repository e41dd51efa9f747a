//! A model in two parts: cut out of a whole one, or read from files that were cut elsewhere. It
//! must not run anything.

use std::collections::HashSet;

use midspan_runtime::TensorSpec;

use crate::cut::{self, CutError, Types};
use crate::onnx::{ModelProto, pb};

/// Front and tail of a model.
#[derive(Clone, Debug)]
pub struct Halves {
    /// Reads the model's inputs; answers what crosses, and the outputs that come before the cut.
    pub front: ModelProto,
    /// Reads what crosses, and answers the other outputs.
    pub tail: ModelProto,
    /// Names of the tensors that cross.
    pub crossing: Vec<String>,
}

/// The names of what a model reads: its inputs without those that are weights.
pub fn input_names(model: &ModelProto) -> Vec<String> {
    let Some(graph) = &model.graph else { return vec![] };
    let weights = weight_names(graph);
    let names = graph.input.iter().map(pb::ValueInfoProto::name);
    names.filter(|name| !weights.contains(name)).map(str::to_owned).collect()
}

/// The names of what a model answers.
pub fn output_names(model: &ModelProto) -> Vec<String> {
    let outputs = model.graph.iter().flat_map(|graph| &graph.output);
    outputs.map(|output| output.name().to_owned()).collect()
}

/// What a model reads, with types and shapes.
///
/// # Errors
/// When an input is no tensor of a supported type.
pub fn input_specs(model: &ModelProto, types: &Types) -> Result<Vec<TensorSpec>, CutError> {
    input_names(model).iter().map(|name| types.get(name).cloned()).collect()
}

fn weight_names(graph: &pb::GraphProto) -> HashSet<&str> {
    let sparse = graph.sparse_initializer.iter().filter_map(|weight| weight.values.as_ref());
    let tensors = graph.initializer.iter().chain(sparse);
    tensors.map(pb::TensorProto::name).collect()
}

impl Halves {
    /// Cuts a model at these tensors.
    ///
    /// # Errors
    /// When they do not divide the model, or a part cannot be written.
    pub fn at(model: &ModelProto, types: &Types, cut: &[String]) -> Result<Self, CutError> {
        let inputs = input_names(model);
        let (mut before, mut after, mut bypass) = (cut.to_vec(), Vec::new(), None);
        for output in output_names(model) {
            if cut.contains(&output) {
                continue;
            }
            match cut::extract(model, types, cut, std::slice::from_ref(&output)) {
                Ok(_) => after.push(output),
                // It comes before the cut, or it needs what does not cross it.
                Err(error @ CutError::Unreachable { .. }) => {
                    bypass = Some(error);
                    before.push(output);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = bypass
            && after.is_empty()
        {
            return Err(error);
        }
        let front = cut::extract(model, types, &inputs, &before)?;
        let tail = cut::extract(model, types, cut, &after)?;
        Ok(Self { front, tail, crossing: cut.to_vec() })
    }

    /// Two models that were cut elsewhere. What crosses is what the tail reads of the front's
    /// outputs.
    ///
    /// # Errors
    /// When the tail reads nothing that the front answers; as text.
    pub fn of_files(front: ModelProto, tail: ModelProto) -> Result<Self, String> {
        let (made, read) = (output_names(&front), input_names(&tail));
        let crossing: Vec<String> =
            read.iter().filter(|name| made.contains(name)).cloned().collect();
        if crossing.is_empty() {
            return Err(format!(
                "the tail reads {read:?}, of which the front answers nothing but {made:?}"
            ));
        }
        Ok(Self { front, tail, crossing })
    }
}
