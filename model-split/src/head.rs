//! Merging a head that was trained apart into the stage whose tensor it reads, so that one session
//! answers both. It must not train heads or judge what they answer.

use std::collections::HashSet;

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
}

/// Adds the nodes, weights and outputs of `head` to `stage`. The head's inputs are tensors of the
/// stage by their names.
pub(crate) fn merge(stage: &mut ModelProto, head: ModelProto) -> Result<(), HeadError> {
    for import in &head.opset_import {
        let same = stage.opset_import.iter().find(|other| other.domain() == import.domain());
        match same {
            None => stage.opset_import.push(import.clone()),
            Some(other) if other.version() == import.version() => {}
            Some(other) => {
                return Err(HeadError::Opset {
                    domain: import.domain().to_owned(),
                    head: import.version(),
                    stage: other.version(),
                });
            }
        }
    }
    let (Some(into), Some(graph)) = (stage.graph.as_mut(), head.graph) else {
        return Err(HeadError::NoGraph);
    };
    let known = names(into);
    let reads: HashSet<&str> = graph.input.iter().map(|input| input.name()).collect();
    if let Some(unknown) = reads.iter().find(|name| !known.contains(**name)) {
        return Err(HeadError::Input((*unknown).to_owned()));
    }
    let own = names(&graph);
    if let Some(taken) =
        own.iter().find(|name| known.contains(*name) && !reads.contains(name.as_str()))
    {
        return Err(HeadError::Name((*taken).clone()));
    }
    into.node.extend(graph.node);
    into.initializer.extend(graph.initializer);
    into.output.extend(graph.output);
    Ok(())
}

/// Every tensor of the top graph.
fn names(graph: &pb::GraphProto) -> HashSet<String> {
    let made = graph.node.iter().flat_map(|node| node.output.iter().cloned());
    let weights = graph.initializer.iter().map(|weight| weight.name().to_owned());
    let inputs = graph.input.iter().map(|input| input.name().to_owned());
    made.chain(weights).chain(inputs).filter(|name| !name.is_empty()).collect()
}
