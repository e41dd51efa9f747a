//! Graph surgery: finds the tensors at which a model can be divided and writes the part between
//! given inputs and outputs. Shapes and types of inner tensors come from ONNX Runtime itself. It
//! must not choose a cut, and it changes nothing of what it keeps but `value_info`, which is
//! cleared: wrong leftovers there make ONNX Runtime refuse a model.
//!
//! What depends on constants only is not live: it is recomputed in every part that reads it.
//! Tensors that the bodies of If, Loop and Scan capture count as read by the node that holds them.

use std::io;

use midspan_runtime::session::LoadError;

use crate::onnx::external::ExternalError;

pub(crate) mod divide;
mod find;
pub(crate) mod flow;
mod part;
mod types;
mod uncuttable;

pub use find::{Cuts, Found, Options, cuts, single_tensor_cuts};
pub use part::{extract, halves};
pub use types::Types;
pub use uncuttable::{Region, Uncuttable};

/// The most tensors that a cut found by [`cuts`] may have.
pub const MOST_TENSORS: usize = 4;

/// Where to divide a model: what the tail is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cut {
    /// Names of tensors that the front makes, and of inputs of the model that the tail reads too.
    pub tensors: Vec<String>,
}

impl Cut {
    /// A cut at these tensors.
    pub fn at<S: Into<String>>(tensors: impl IntoIterator<Item = S>) -> Self {
        Self { tensors: tensors.into_iter().map(Into::into).collect() }
    }
}

/// Why a part of a model could not be written.
#[derive(Debug, thiserror::Error)]
pub enum CutError {
    /// The model has no graph.
    #[error("the model has no graph")]
    NoGraph,
    /// Weights live in files of their own, and nobody said where those are.
    #[error(
        "weight \"{tensor}\" is kept outside the model's file: open the model by its path, or save \
         it with its weights inside"
    )]
    ExternalData {
        /// Name of the weight.
        tensor: String,
    },
    /// A weight outside of the model's file is not where it should be.
    #[error(transparent)]
    External(#[from] ExternalError),
    /// An output needs something that the given inputs do not lead to.
    #[error("output needs tensor \"{tensor}\", which does not follow from the inputs {inputs:?}")]
    Unreachable {
        /// The tensor that is missing.
        tensor: String,
        /// The inputs given.
        inputs: Vec<String>,
    },
    /// A name that is no tensor of the model.
    #[error("the model has no tensor \"{tensor}\" of a supported type")]
    NoSuchTensor {
        /// The name.
        tensor: String,
    },
    /// A value that is no tensor of a supported type.
    #[error("\"{tensor}\" is a {found}, which cannot be an input or output of a part")]
    NotTensor {
        /// Its name.
        tensor: String,
        /// What it is.
        found: String,
    },
    /// A cut that names no tensor that the model makes.
    #[error("a cut needs a tensor that the model makes from its inputs, got {tensors:?}")]
    Nothing {
        /// The tensors given.
        tensors: Vec<String>,
    },
    /// A tensor that is the same for every input.
    #[error("tensor \"{tensor}\" depends on no input: there is nothing to cut")]
    Constant {
        /// Its name.
        tensor: String,
    },
    /// A tensor of the cut that nothing behind it reads.
    #[error("tensor \"{tensor}\" is not read behind a cut at {tensors:?}")]
    NotRead {
        /// Its name.
        tensor: String,
        /// All tensors of the cut.
        tensors: Vec<String>,
    },
    /// A cut for one of the known reasons is none.
    #[error("the model cannot be cut at \"{tensor}\": {why}")]
    Uncuttable {
        /// Name of the tensor.
        tensor: String,
        /// The reason.
        why: Uncuttable,
    },
    /// A node that waits for its own output.
    #[error("node {node} reads what follows from it")]
    Cycle {
        /// The node.
        node: String,
    },
    /// There is no room for temporary files.
    #[error("cannot write a temporary file: {source}")]
    Scratch {
        /// Cause.
        source: io::Error,
    },
    /// ONNX Runtime refused the model.
    #[error(transparent)]
    Load(#[from] LoadError),
}

#[cfg(test)]
mod tests;
