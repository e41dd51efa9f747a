//! Merging a head that was trained apart into the stage whose tensor it reads, so that one session
//! answers both; what only an exit in its place had needed is left out. It must not train heads or
//! judge what they answer.

use std::collections::{HashMap, HashSet};

use crate::onnx::{ModelProto, pb};

/// Why a head does not suit a stage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// A side has no graph.
    #[error("a model has no graph")]
    NoGraph,
    /// The stage does not compute what the head reads.
    #[error("it reads \"{0}\", which the stage does not have")]
    Input(String),
    /// A name that both use for different things.
    #[error("both it and the stage have a tensor \"{0}\"")]
    Name(String),
    /// A function that both define.
    #[error("both it and the stage have a function \"{0}\"")]
    Function(String),
    /// It is written in another version of the operators.
    #[error("it needs version {head} of the operators \"{domain}\", the stage has {stage}")]
    Opset {
        /// Domain of the operators; empty for those of ONNX.
        domain: String,
        /// Version that the head is written in.
        head: i64,
        /// Version that the stage is written in.
        stage: i64,
    },
    /// An output that neither the stage nor the head has.
    #[error("neither it nor the stage answers \"{0}\"")]
    Output(String),
}

/// Adds the nodes, weights and outputs of `head` to `stage`. The head's inputs are tensors of the
/// stage by their names.
pub(crate) fn merge(stage: &mut ModelProto, head: ModelProto) -> Result<(), HeadError> {
    let imports = new_imports(stage, &head)?;
    let name = |function: &pb::FunctionProto| function.name().to_owned();
    let known_functions: HashSet<String> = stage.functions.iter().map(name).collect();
    if let Some(taken) = head.functions.iter().map(name).find(|name| known_functions.contains(name))
    {
        return Err(HeadError::Function(taken));
    }
    let (Some(into), Some(graph)) = (stage.graph.as_mut(), head.graph) else {
        return Err(HeadError::NoGraph);
    };
    let readable = tensors(into);
    let reads: HashSet<&str> = graph.input.iter().map(|input| input.name()).collect();
    if let Some(unknown) = graph.input.iter().find(|input| !readable.contains(input.name())) {
        return Err(HeadError::Input(unknown.name().to_owned()));
    }
    // Inside a body no name may stand for two things either.
    let taken = readable.into_iter().chain(inner(into)).collect::<HashSet<String>>();
    let mut own = tensors(&graph).into_iter().chain(inner(&graph));
    if let Some(name) = own.find(|name| taken.contains(name) && !reads.contains(name.as_str())) {
        return Err(HeadError::Name(name));
    }
    into.node.extend(graph.node);
    into.initializer.extend(graph.initializer);
    into.sparse_initializer.extend(graph.sparse_initializer);
    into.quantization_annotation.extend(graph.quantization_annotation);
    into.output.extend(graph.output);
    stage.functions.extend(head.functions);
    stage.opset_import.extend(imports);
    stage.ir_version = stage.ir_version.max(head.ir_version);
    Ok(())
}

/// The operators of ONNX have two names.
fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

/// What of the head's imports the stage does not have yet.
fn new_imports(
    stage: &ModelProto,
    head: &ModelProto,
) -> Result<Vec<pb::OperatorSetIdProto>, HeadError> {
    let mut new = Vec::new();
    for import in &head.opset_import {
        let same =
            |other: &&pb::OperatorSetIdProto| domain(other.domain()) == domain(import.domain());
        match stage.opset_import.iter().find(same) {
            None => new.push(import.clone()),
            Some(other) if other.version() == import.version() => {}
            Some(other) => {
                return Err(HeadError::Opset {
                    domain: domain(import.domain()).to_owned(),
                    head: import.version(),
                    stage: other.version(),
                });
            }
        }
    }
    Ok(new)
}

/// Leaves of a stage what its outputs of these names need, and those outputs, in the stage's order.
pub(crate) fn keep(stage: &mut ModelProto, outputs: &[&str]) -> Result<(), HeadError> {
    let graph = stage.graph.as_mut().ok_or(HeadError::NoGraph)?;
    let answers = |name: &str| graph.output.iter().any(|output| output.name() == name);
    if let Some(absent) = outputs.iter().find(|name| !answers(name)) {
        return Err(HeadError::Output((*absent).to_owned()));
    }
    let mut makers: HashMap<&str, usize> = HashMap::new();
    for (index, node) in graph.node.iter().enumerate() {
        makers.extend(node.output.iter().map(|name| (name.as_str(), index)));
    }
    let mut used: HashSet<String> = HashSet::new();
    let mut nodes = vec![false; graph.node.len()];
    let mut open: Vec<&str> = outputs.to_vec();
    while let Some(name) = open.pop() {
        if !used.insert(name.to_owned()) {
            continue;
        }
        if let Some(index) = makers.get(name)
            && !std::mem::replace(&mut nodes[*index], true)
        {
            open.extend(mentioned(&graph.node[*index]));
        }
    }
    let mut nodes = nodes.into_iter();
    graph.node.retain(|_| nodes.next().unwrap_or(true));
    graph.initializer.retain(|weight| used.contains(weight.name()));
    graph.sparse_initializer.retain(|weight| used.contains(sparse_name(weight)));
    graph.quantization_annotation.retain(|found| used.contains(found.tensor_name()));
    graph.output.retain(|output| outputs.contains(&output.name()));
    Ok(())
}

fn bodies(node: &pb::NodeProto) -> impl Iterator<Item = &pb::GraphProto> {
    node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
}

/// Every name that a node reads, and every name that its bodies read or pass on: more than what
/// these capture, which does no harm, as names are unique.
fn mentioned(node: &pb::NodeProto) -> Vec<&str> {
    let mut names: Vec<&str> = node.input.iter().map(String::as_str).collect();
    for body in bodies(node) {
        names.extend(body.node.iter().flat_map(mentioned));
        names.extend(body.output.iter().map(|output| output.name()));
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Every tensor inside the bodies of a graph's nodes.
fn inner(graph: &pb::GraphProto) -> Vec<String> {
    let of_body = |body| tensors(body).into_iter().chain(inner(body));
    graph.node.iter().flat_map(bodies).flat_map(of_body).collect()
}

fn sparse_name(weight: &pb::SparseTensorProto) -> &str {
    weight.values.as_ref().map_or("", |values| values.name())
}

/// Every tensor of a graph, also of the bodies inside it.
#[cfg(feature = "tools")]
pub(crate) fn names(graph: &pb::GraphProto) -> Vec<String> {
    tensors(graph).into_iter().chain(inner(graph)).collect()
}

/// Every tensor of the top graph.
fn tensors(graph: &pb::GraphProto) -> HashSet<String> {
    let made = graph.node.iter().flat_map(|node| node.output.iter().map(String::as_str));
    let weights = graph.initializer.iter().map(|weight| weight.name());
    let sparse = graph.sparse_initializer.iter().map(sparse_name);
    let inputs = graph.input.iter().map(|input| input.name());
    let all = made.chain(weights).chain(sparse).chain(inputs);
    all.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
