//! Graph surgery: finds the tensors at which a model can be divided and writes the part between
//! given inputs and outputs. Shapes and types of inner tensors come from ONNX Runtime itself. It
//! must not choose a cut, and it changes nothing of what it keeps but `value_info`, which is
//! cleared: wrong leftovers there make ONNX Runtime refuse a model.
//!
//! What depends on constants only is not live: it is recomputed in every part that reads it.
//! Tensors that the bodies of If, Loop and Scan capture count as read by the node that holds them.

use std::collections::{BTreeSet, HashMap, HashSet};

use midspan_runtime::session::{self, LoadError};
use midspan_runtime::{Dim, TensorSpec};

use crate::onnx::{self, ModelProto, pb};

/// Why a part of a model could not be written.
#[derive(Debug, thiserror::Error)]
pub enum CutError {
    /// The model has no graph.
    #[error("the model has no graph")]
    NoGraph,
    /// Weights live in files of their own.
    #[error(
        "weight \"{tensor}\" is kept outside the model's file; models with external data cannot \
         be cut: save the model with its weights inside first"
    )]
    ExternalData {
        /// Name of the weight.
        tensor: String,
    },
    /// An output needs something that the given inputs do not lead to.
    #[error("output needs tensor \"{tensor}\", which does not follow from the inputs {inputs:?}")]
    Unreachable {
        /// The tensor that is missing.
        tensor: String,
        /// The inputs given.
        inputs: Vec<String>,
    },
    /// A name that is no tensor of the model, or one without a tensor type.
    #[error("the model has no tensor \"{tensor}\" of a supported type")]
    NoSuchTensor {
        /// The name.
        tensor: String,
    },
    /// ONNX Runtime refused the model.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Types and shapes of all tensors of a model by name.
#[derive(Clone, Debug, Default)]
pub struct Types(HashMap<String, TensorSpec>);

impl Types {
    /// Asks ONNX Runtime for the types of all tensors of a model. Opens the library if nobody did.
    ///
    /// # Errors
    /// When there is no library, or it refuses the model.
    pub fn infer(model: &ModelProto) -> Result<Self, CutError> {
        let mut exposed = model.clone();
        let graph = exposed.graph.as_mut().ok_or(CutError::NoGraph)?;
        refuse_external(graph)?;
        graph.value_info.clear();
        let mut known: HashSet<String> =
            graph.output.iter().map(|output| output.name().to_owned()).collect();
        let inner = graph.node.iter().flat_map(|node| &node.output).filter(|name| !name.is_empty());
        for name in inner {
            if known.insert(name.clone()) {
                let info = pb::ValueInfoProto { name: Some(name.clone()), ..Default::default() };
                graph.output.push(info);
            }
        }
        let described = session::describe(&onnx::encode(&exposed))?;
        let specs = described.inputs.into_iter().chain(described.outputs);
        Ok(Self(specs.map(|spec| (spec.name.clone(), spec)).collect()))
    }

    /// Type and shape of one tensor.
    ///
    /// # Errors
    /// When the model has no such tensor.
    pub fn get(&self, tensor: &str) -> Result<&TensorSpec, CutError> {
        self.0.get(tensor).ok_or_else(|| CutError::NoSuchTensor { tensor: tensor.to_owned() })
    }
}

/// All names that a node reads, with what the bodies inside it capture.
fn reads(node: &pb::NodeProto) -> Vec<&str> {
    let mut names: Vec<&str> =
        node.input.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    for attribute in &node.attribute {
        for body in attribute.g.iter().chain(&attribute.graphs) {
            let local: HashSet<&str> = body
                .node
                .iter()
                .flat_map(|node| node.output.iter().map(String::as_str))
                .chain(body.input.iter().map(|input| input.name()))
                .chain(body.initializer.iter().map(|weight| weight.name()))
                .chain(body.sparse_initializer.iter().map(sparse_name))
                .collect();
            let inner = body.node.iter().flat_map(reads);
            let passed = body.output.iter().map(|output| output.name());
            names.extend(inner.chain(passed).filter(|name| !local.contains(name)));
        }
    }
    names
}

fn sparse_name(weight: &pb::SparseTensorProto) -> &str {
    weight.values.as_ref().map_or("", |values| values.name())
}

fn weight_names(graph: &pb::GraphProto) -> HashSet<&str> {
    let dense = graph.initializer.iter().map(|weight| weight.name());
    dense.chain(graph.sparse_initializer.iter().map(sparse_name)).collect()
}

fn refuse_external(graph: &pb::GraphProto) -> Result<(), CutError> {
    let external = pb::tensor_proto::DataLocation::External as i32;
    let attributes = || graph.node.iter().flat_map(|node| &node.attribute);
    let inline = attributes().flat_map(|attribute| attribute.t.iter().chain(&attribute.tensors));
    for tensor in graph.initializer.iter().chain(inline) {
        if tensor.data_location == Some(external) {
            return Err(CutError::ExternalData { tensor: tensor.name().to_owned() });
        }
    }
    attributes().flat_map(|a| a.g.iter().chain(&a.graphs)).try_for_each(refuse_external)
}

/// The tensors through which everything passes, in the order of the graph: at each of them the
/// model can be divided with one tensor crossing, if the front answers the outputs before it. The
/// model's own inputs and outputs are not among them.
///
/// # Errors
/// When the model has no graph.
pub fn single_tensor_cuts(model: &ModelProto) -> Result<Vec<String>, CutError> {
    let graph = model.graph.as_ref().ok_or(CutError::NoGraph)?;
    let weights = weight_names(graph);
    let node_reads: Vec<Vec<&str>> = graph.node.iter().map(reads).collect();
    let mut last_read: HashMap<&str, usize> = HashMap::new();
    for (index, names) in node_reads.iter().enumerate() {
        last_read.extend(names.iter().map(|name| (*name, index)));
    }
    let outputs: HashSet<&str> = graph.output.iter().map(|output| output.name()).collect();
    let inputs = graph.input.iter().map(|input| input.name());
    let inputs: HashSet<&str> = inputs.filter(|name| !weights.contains(name)).collect();
    let (mut live, mut from_input) = (inputs.clone(), inputs.clone());
    let mut cuts: Vec<String> = Vec::new();
    for (index, node) in graph.node.iter().enumerate() {
        if node_reads[index].iter().any(|name| from_input.contains(name)) {
            let made = || node.output.iter().map(String::as_str).filter(|name| !name.is_empty());
            from_input.extend(made());
            live.extend(made());
        }
        live.retain(|name| last_read.get(name).is_some_and(|last| *last > index));
        let mut names = live.iter();
        if let (Some(name), None) = (names.next(), names.next())
            && !outputs.contains(name)
            && !inputs.contains(name)
            && cuts.last().is_none_or(|last| last != name)
        {
            cuts.push((*name).to_owned());
        }
    }
    Ok(cuts)
}

/// Writes the part of `model` that computes `outputs` from `inputs`. Functions, opsets and
/// metadata are kept.
///
/// # Errors
/// When an output does not follow from the inputs, a name is unknown, or weights are external.
pub fn extract(
    model: &ModelProto,
    types: &Types,
    inputs: &[String],
    outputs: &[String],
) -> Result<ModelProto, CutError> {
    let graph = model.graph.as_ref().ok_or(CutError::NoGraph)?;
    refuse_external(graph)?;
    let declare = |names: &[String]| -> Result<Vec<pb::ValueInfoProto>, CutError> {
        names.iter().map(|name| types.get(name).map(value_info)).collect()
    };
    let (input, output) = (declare(inputs)?, declare(outputs)?);
    let (nodes, used) = needed(graph, inputs, outputs)?;
    let part = pb::GraphProto {
        node: nodes.iter().map(|index| graph.node[*index].clone()).collect(),
        initializer: kept(&graph.initializer, |weight| used.contains(weight.name())),
        sparse_initializer: kept(&graph.sparse_initializer, |weight| {
            used.contains(sparse_name(weight))
        }),
        quantization_annotation: kept(&graph.quantization_annotation, |annotation| {
            used.contains(annotation.tensor_name())
        }),
        value_info: vec![],
        input,
        output,
        name: graph.name.clone(),
        doc_string: graph.doc_string.clone(),
        metadata_props: graph.metadata_props.clone(),
    };
    Ok(ModelProto { graph: Some(part), ..without_graph(model) })
}

fn kept<T: Clone>(items: &[T], keep: impl Fn(&T) -> bool) -> Vec<T> {
    items.iter().filter(|item| keep(item)).cloned().collect()
}

fn without_graph(model: &ModelProto) -> ModelProto {
    ModelProto {
        graph: None,
        ir_version: model.ir_version,
        opset_import: model.opset_import.clone(),
        producer_name: model.producer_name.clone(),
        producer_version: model.producer_version.clone(),
        domain: model.domain.clone(),
        model_version: model.model_version,
        doc_string: model.doc_string.clone(),
        metadata_props: model.metadata_props.clone(),
        training_info: vec![],
        functions: model.functions.clone(),
        configuration: model.configuration.clone(),
    }
}

/// Walks back from the outputs to the inputs: the nodes on the way, in the order of the graph, and
/// every name met.
fn needed<'g>(
    graph: &'g pb::GraphProto,
    inputs: &[String],
    outputs: &'g [String],
) -> Result<(BTreeSet<usize>, HashSet<&'g str>), CutError> {
    let mut producers: HashMap<&str, usize> = HashMap::new();
    for (index, node) in graph.node.iter().enumerate() {
        producers.extend(node.output.iter().map(|name| (name.as_str(), index)));
    }
    let weights = weight_names(graph);
    let given: HashSet<&str> = inputs.iter().map(String::as_str).collect();
    let (mut nodes, mut used) = (BTreeSet::new(), HashSet::new());
    let mut open: Vec<&str> = outputs.iter().map(String::as_str).collect();
    while let Some(name) = open.pop() {
        if given.contains(name) || !used.insert(name) {
            continue;
        }
        match producers.get(name) {
            Some(index) if nodes.insert(*index) => open.extend(reads(&graph.node[*index])),
            Some(_) => {}
            None if weights.contains(name) => {}
            None => {
                let (tensor, inputs) = (name.to_owned(), inputs.to_vec());
                return Err(CutError::Unreachable { tensor, inputs });
            }
        }
    }
    Ok((nodes, used))
}

fn value_info(spec: &TensorSpec) -> pb::ValueInfoProto {
    use pb::tensor_shape_proto::{Dimension, dimension::Value};
    let dim = spec.dims.iter().map(|dim| Dimension {
        denotation: None,
        value: match dim {
            Dim::Fixed(size) => Some(Value::DimValue(i64::try_from(*size).unwrap_or(i64::MAX))),
            Dim::Symbolic(name) if name.is_empty() => None,
            Dim::Symbolic(name) => Some(Value::DimParam(name.clone())),
        },
    });
    let tensor = pb::type_proto::Tensor {
        elem_type: Some(spec.element.onnx_number()),
        // No dimensions may mean an unknown rank: a shape of none would claim a scalar.
        shape: (!spec.dims.is_empty()).then(|| pb::TensorShapeProto { dim: dim.collect() }),
    };
    pb::ValueInfoProto {
        name: Some(spec.name.clone()),
        r#type: Some(pb::TypeProto {
            denotation: None,
            value: Some(pb::type_proto::Value::TensorType(tensor)),
        }),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
