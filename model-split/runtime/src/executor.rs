//! The one interface through which models are run, and the errors that tell a mistake of the
//! caller from a fault of the execution. It must not queue, retry or time anything.

use crate::tensor::{ElementType, Tensor, TensorRef, TensorSpec};

/// Something that runs one model. `run` takes `&mut self` because ONNX Runtime's own run is not
/// safe to call twice at once on one session: share work by a [`crate::SessionPool`].
pub trait Executor: Send {
    /// What the model reads, in its own order.
    fn inputs(&self) -> &[TensorSpec];

    /// What the model answers, in its own order.
    fn outputs(&self) -> &[TensorSpec];

    /// Runs the model. Inputs may come in any order; the result is in the order of
    /// [`Executor::outputs`].
    ///
    /// # Errors
    /// [`RunError`]; [`RunError::is_caller`] says whose mistake it was.
    fn run(&mut self, inputs: &[(&str, TensorRef<'_>)]) -> Result<Vec<Tensor>, RunError>;
}

/// Why a run gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// A name that is no input of the model.
    #[error("the model has no input \"{name}\"; its inputs are {known:?}")]
    UnknownInput {
        /// Name given.
        name: String,
        /// Names that the model has.
        known: Vec<String>,
    },
    /// An input of the model was not given.
    #[error("input \"{name}\" is missing")]
    MissingInput {
        /// Name of the input.
        name: String,
    },
    /// The same input was given twice.
    #[error("input \"{name}\" is given more than once")]
    RepeatedInput {
        /// Name of the input.
        name: String,
    },
    /// An input of another type.
    #[error("input \"{name}\" must be {expected}, got {got}")]
    Element {
        /// Name of the input.
        name: String,
        /// Type that the model reads.
        expected: ElementType,
        /// Type given.
        got: ElementType,
    },
    /// An input of another shape.
    #[error("input \"{name}\" must have shape {expected}, got {got:?}")]
    Shape {
        /// Name of the input.
        name: String,
        /// Shape that the model reads, as text.
        expected: String,
        /// Shape given.
        got: Vec<usize>,
    },
    /// Values that no tensor of this type may hold.
    #[error("input \"{name}\": {reason}")]
    Value {
        /// Name of the input.
        name: String,
        /// What is wrong with the values.
        reason: String,
    },
    /// The runtime called the arguments invalid: for example two inputs whose batch sizes differ.
    #[error("the model refused its inputs: {0}")]
    Refused(String),
    /// The runtime failed while it ran the model.
    #[error("execution failed: {0}")]
    Execution(String),
    /// The executor panicked; the pool caught it and goes on.
    #[error("the executor panicked: {0}")]
    Panicked(String),
    /// The pool has no worker of this number.
    #[error("worker {worker} does not exist: the pool has {workers}")]
    NoWorker {
        /// Number asked for.
        worker: usize,
        /// Number of workers.
        workers: usize,
    },
}

impl RunError {
    /// Whether the inputs were at fault, so that running them elsewhere cannot help.
    pub fn is_caller(&self) -> bool {
        match self {
            Self::UnknownInput { .. }
            | Self::MissingInput { .. }
            | Self::RepeatedInput { .. }
            | Self::Element { .. }
            | Self::Shape { .. }
            | Self::Value { .. }
            | Self::Refused(_) => true,
            Self::Execution(_) | Self::Panicked(_) | Self::NoWorker { .. } => false,
        }
    }
}

/// Checks names, types and shapes of `inputs` against what a model reads.
///
/// # Errors
/// The first difference, as a mistake of the caller.
pub fn check_inputs(
    specs: &[TensorSpec],
    inputs: &[(&str, TensorRef<'_>)],
) -> Result<(), RunError> {
    for (index, (name, tensor)) in inputs.iter().enumerate() {
        let name = (*name).to_owned();
        let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
            let known = specs.iter().map(|spec| spec.name.clone()).collect();
            return Err(RunError::UnknownInput { name, known });
        };
        if inputs[..index].iter().any(|(earlier, _)| *earlier == name) {
            return Err(RunError::RepeatedInput { name });
        }
        if spec.element != tensor.element() {
            let (expected, got) = (spec.element, tensor.element());
            return Err(RunError::Element { name, expected, got });
        }
        if !spec.admits(tensor.shape()) {
            let (expected, got) = (spec.dims_text(), tensor.shape().to_vec());
            return Err(RunError::Shape { name, expected, got });
        }
    }
    match specs.iter().find(|spec| inputs.iter().all(|(name, _)| *name != spec.name)) {
        Some(spec) => Err(RunError::MissingInput { name: spec.name.clone() }),
        None => Ok(()),
    }
}
