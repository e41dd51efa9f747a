//! Writes parts of a model. Names, operator sets, functions, metadata, documentation and
//! quantisation annotations are kept; what a part does not need is left out. Where weights are is
//! kept too: those outside of the model stay where they are.

use std::collections::HashSet;

use super::divide::{Undivided, divide, needed};
use super::flow::{Flow, Tensor, sparse_name, title, unique, weight_names};
use super::{Cut, CutError, Types, Uncuttable};
use crate::onnx::{ModelProto, pb};

/// Writes the part of `model` that computes `outputs` from `inputs`.
///
/// # Errors
/// When an output does not follow from the inputs, or a name is unknown.
pub fn extract(
    model: &ModelProto,
    types: &Types,
    inputs: &[String],
    outputs: &[String],
) -> Result<ModelProto, CutError> {
    let graph = model.graph.as_ref().ok_or(CutError::NoGraph)?;
    let flow = Flow::new(graph, &model.functions)?;
    let tensors = |names: &[String]| -> Result<Vec<Tensor>, CutError> {
        let all = names.iter().map(|name| find(&flow, name)).collect::<Result<Vec<_>, _>>()?;
        Ok(unique(all.into_iter()))
    };
    write(model, &flow, types, &tensors(inputs)?, &tensors(outputs)?)
}

/// Writes the front and the tail of a cut. The front reads what the model reads, but for inputs
/// that only the tail needs; it answers the tensors of the cut that it makes, then the outputs of
/// the model that do not follow from the cut. The tail reads the tensors of the cut, and answers
/// the outputs that do.
///
/// # Errors
/// When these tensors are no cut of the model.
pub fn halves(
    model: &ModelProto,
    types: &Types,
    cut: &Cut,
) -> Result<(ModelProto, ModelProto), CutError> {
    let graph = model.graph.as_ref().ok_or(CutError::NoGraph)?;
    let flow = Flow::new(graph, &model.functions)?;
    let crossing = cut.tensors.iter().map(|name| find(&flow, name));
    let crossing = unique(crossing.collect::<Result<Vec<_>, _>>()?.into_iter());
    for tensor in &crossing {
        let name = flow.name(*tensor).to_owned();
        if !flow.tensors[*tensor].live {
            return Err(CutError::Constant { tensor: name });
        }
        if let Some(why) = types.uncuttable(&name).filter(|why| *why != Uncuttable::UnknownRank) {
            return Err(CutError::Uncuttable { tensor: name, why });
        }
    }
    let made = |tensor: &Tensor| flow.tensors[*tensor].producer.is_some();
    if !crossing.iter().any(made) {
        return Err(CutError::Nothing { tensors: cut.tensors.clone() });
    }
    let division = divide(&flow, &crossing).map_err(|error| explain(&flow, cut, &error))?;
    let read_by = |part: &[bool]| -> HashSet<Tensor> {
        let nodes = flow.nodes.iter().zip(part).filter(|(_, part)| **part);
        nodes.flat_map(|(node, _)| node.reads.iter().copied()).collect()
    };
    let (in_front, in_tail) = (read_by(&division.front), read_by(&division.tail));
    let answers: HashSet<Tensor> = division.answers.iter().copied().collect();
    let read = |input: &&Tensor| {
        in_front.contains(*input) || answers.contains(*input) || !in_tail.contains(*input)
    };
    let inputs: Vec<Tensor> = flow.inputs.iter().filter(read).copied().collect();
    let outputs = crossing.iter().filter(|tensor| made(tensor)).chain(&division.answers);
    let outputs = unique(outputs.copied());
    let front = write(model, &flow, types, &inputs, &outputs)?;
    let tail = write(model, &flow, types, &crossing, &division.finals)?;
    Ok((front, tail))
}

fn find(flow: &Flow<'_>, name: &str) -> Result<Tensor, CutError> {
    flow.find(name).ok_or_else(|| CutError::NoSuchTensor { tensor: name.to_owned() })
}

fn explain(flow: &Flow<'_>, cut: &Cut, error: &Undivided) -> CutError {
    let tensors = cut.tensors.clone();
    match error {
        Undivided::Open { tensor, .. } => {
            CutError::Unreachable { tensor: flow.name(*tensor).to_owned(), inputs: tensors }
        }
        Undivided::NotRead(tensor) => {
            CutError::NotRead { tensor: flow.name(*tensor).to_owned(), tensors }
        }
        Undivided::Random(place) => CutError::Uncuttable {
            tensor: tensors.join(","),
            why: Uncuttable::Random { node: title(flow.proto(*place)) },
        },
    }
}

fn write(
    model: &ModelProto,
    flow: &Flow<'_>,
    types: &Types,
    inputs: &[Tensor],
    outputs: &[Tensor],
) -> Result<ModelProto, CutError> {
    let given: HashSet<Tensor> = inputs.iter().copied().collect();
    let part = needed(flow, outputs, &given);
    let mut used: HashSet<&str> = outputs.iter().map(|output| flow.name(*output)).collect();
    let nodes = flow.nodes.iter().zip(&part).filter(|(_, part)| **part).map(|(node, _)| node);
    for tensor in nodes.clone().flat_map(|node| &node.reads).chain(outputs) {
        let info = &flow.tensors[*tensor];
        used.insert(info.name);
        if info.producer.is_none() && !info.weight && !given.contains(tensor) {
            let (tensor, inputs) = (info.name.to_owned(), flow.names(inputs));
            return Err(CutError::Unreachable { tensor, inputs });
        }
    }
    let mut taken: HashSet<String> = flow.tensors.iter().map(|info| info.name.to_owned()).collect();
    let node = nodes
        .map(|node| {
            let mut proto = flow.graph.node[node.index].clone();
            for written in &mut proto.output {
                if flow.find(written).is_some_and(|tensor| given.contains(&tensor)) {
                    *written = unused_name(written, &mut taken);
                }
            }
            proto
        })
        .collect();
    let graph = flow.graph;
    let annotations = kept(&graph.quantization_annotation, |annotation| {
        used.contains(annotation.tensor_name())
            || inputs.iter().any(|input| flow.name(*input) == annotation.tensor_name())
    });
    // What an annotation names is a weight that no node need read.
    used.extend(graph.quantization_annotation.iter().flat_map(|annotation| {
        let here = annotations.iter().any(|kept| kept.tensor_name() == annotation.tensor_name());
        let named = annotation.quant_parameter_tensor_names.iter().map(|entry| entry.value());
        named.filter(move |_| here)
    }));
    let written = pb::GraphProto {
        node,
        initializer: kept(&graph.initializer, |weight| used.contains(weight.name())),
        sparse_initializer: kept(&graph.sparse_initializer, |weight| {
            used.contains(sparse_name(weight))
        }),
        quantization_annotation: annotations,
        value_info: vec![],
        input: declared_inputs(flow, types, inputs, &used)?,
        output: outputs
            .iter()
            .map(|output| declaration(&graph.output, flow.name(*output), types))
            .collect::<Result<_, _>>()?,
        name: graph.name.clone(),
        doc_string: graph.doc_string.clone(),
        metadata_props: graph.metadata_props.clone(),
    };
    Ok(ModelProto { graph: Some(written), ..without_graph(model) })
}

/// The inputs, and those weights in use that the model lists among its inputs: old versions of the
/// format ask for that.
fn declared_inputs(
    flow: &Flow<'_>,
    types: &Types,
    inputs: &[Tensor],
    used: &HashSet<&str>,
) -> Result<Vec<pb::ValueInfoProto>, CutError> {
    let own = inputs.iter().map(|input| declaration(&flow.graph.input, flow.name(*input), types));
    let mut declared = own.collect::<Result<Vec<_>, _>>()?;
    let weights: HashSet<&str> = weight_names(flow.graph).collect();
    let listed = flow.graph.input.iter().filter(|input| weights.contains(input.name()));
    declared.extend(listed.filter(|input| used.contains(input.name())).cloned());
    Ok(declared)
}

/// How the model itself declares a tensor where it does so fully, else what ONNX Runtime found.
fn declaration(
    own: &[pb::ValueInfoProto],
    name: &str,
    types: &Types,
) -> Result<pb::ValueInfoProto, CutError> {
    use pb::type_proto::Value;
    let own = own.iter().find(|info| info.name() == name);
    let value = own.and_then(|info| info.r#type.as_ref()).and_then(|known| known.value.as_ref());
    let full = match value {
        Some(Value::TensorType(tensor)) => tensor.shape.is_some() && tensor.elem_type() != 0,
        Some(_) => true,
        None => false,
    };
    match own {
        Some(info) if full => Ok(info.clone()),
        _ => types.declaration(name),
    }
}

/// A name for an output that the part is given, so that the node that would make it anew must not.
fn unused_name(name: &str, taken: &mut HashSet<String>) -> String {
    let mut fresh = format!("{name}_unused");
    while !taken.insert(fresh.clone()) {
        fresh.push('_');
    }
    fresh
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
