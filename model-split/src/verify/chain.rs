//! The stages of a bundle loaded one after the other, as one program runs them. It must not
//! compare anything.

use midspan_runtime::{Executor, LoadError, RunError, Session, SessionOptions, Tensor, TensorRef};

use crate::bundle::{Bundle, BundleError};
use crate::exit::ExitRule;

/// All stages of a bundle.
pub(crate) struct Chain {
    pub(super) stages: Vec<LoadedStage>,
}

pub(super) struct LoadedStage {
    session: Session,
    input: String,
    /// Index among the outputs of what the next stage reads; for the last stage, of the answer.
    carries: usize,
    pub(super) exit: Option<(usize, ExitRule)>,
}

impl Chain {
    pub(crate) fn load(bundle: &Bundle) -> Result<Self, ChainError> {
        let manifest = bundle.manifest();
        let mut stages = Vec::new();
        for (index, stage) in manifest.stages.iter().enumerate() {
            let model = bundle.stage_model(index)?;
            let session = Session::load(&model, &SessionOptions::default(), None)?;
            let carried = match &stage.cut {
                Some(cut) => cut.tensors.first().map(|tensor| tensor.name.as_str()),
                None => manifest.outputs.first().map(|output| output.tensor.as_str()),
            };
            let position =
                |name: &str| session.outputs().iter().position(|output| output.name == name);
            let exit =
                stage.exit.as_ref().and_then(|exit| Some((position(&exit.output)?, exit.rule()?)));
            let ([input], Some(carries)) = (stage.inputs.as_slice(), carried.and_then(position))
            else {
                return Err(ChainError::Unsuitable(format!(
                    "stages[{index}] reads more than one tensor, or lacks its cut or output"
                )));
            };
            stages.push(LoadedStage { input: input.name.clone(), carries, exit, session });
        }
        Ok(Self { stages })
    }

    /// What each stage hands on for an input, nothing quantised; the last entry is the answer.
    pub(crate) fn run(&mut self, input: &Tensor) -> Result<Vec<Tensor>, RunError> {
        let mut carried: Vec<Tensor> = Vec::new();
        for stage in &mut self.stages {
            let input = carried.last().unwrap_or(input).view();
            carried.push(stage.run(input)?.0);
        }
        Ok(carried)
    }
}

/// Why a chain of stages could not be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChainError {
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{0}")]
    Unsuitable(String),
}

impl LoadedStage {
    /// What it hands on, and the class of its exit where that is sure.
    pub(super) fn run(
        &mut self,
        input: TensorRef<'_>,
    ) -> Result<(Tensor, Option<usize>), RunError> {
        let mut outputs = self.session.run(&[(self.input.as_str(), input)])?;
        let sure = self.exit.and_then(|(output, rule)| {
            let decision = rule.decide(&outputs[output].f32s().ok()?);
            decision.sure.then_some(decision.class)
        });
        Ok((outputs.swap_remove(self.carries), sure))
    }
}
