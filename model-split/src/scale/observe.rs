//! Runs the front of a model on samples and collects the values of the tensor at its end; fills in
//! what a spec leaves to be measured.

use midspan_runtime::{
    ElementType, Executor as _, LoadError, RunError, Session, SessionOptions, TensorError,
    TensorRef,
};

use super::{Fit, Observed, ScaleError, Unit};
use crate::cut::{CutError, Types, extract};
use crate::onnx::{self, ModelProto, OnnxError};
use crate::samples::Sample;
use crate::spec::Spec;

/// Why the values of a tensor could not be seen.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The model is none.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// The front cannot be written.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// The front cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The front does not run on a sample.
    #[error("sample {sample}: {source}")]
    Run {
        /// Number of the sample.
        sample: usize,
        /// Cause.
        source: RunError,
    },
    /// The tensor is not FP32.
    #[error("\"{tensor}\": {source}")]
    Element {
        /// The tensor.
        tensor: String,
        /// Cause.
        source: TensorError,
    },
    /// What was seen makes no scale.
    #[error("\"{tensor}\": {source}")]
    Scale {
        /// The tensor.
        tensor: String,
        /// Cause.
        source: ScaleError,
    },
    /// There is nothing to look at.
    #[error("no samples to measure scales on")]
    NoSamples,
}

/// The values of `tensor`, an FP32 tensor inside of `model`, on all samples. `progress` is called
/// after each.
///
/// # Errors
/// When the front cannot be written, loaded or run, or the tensor is not FP32.
pub fn observe(
    model: &ModelProto,
    types: &Types,
    inputs: &[String],
    tensor: &str,
    samples: &[Sample],
    progress: &mut dyn FnMut(),
) -> Result<Observed, ObserveError> {
    let front = onnx::encode(&extract(model, types, inputs, &[tensor.to_owned()])?);
    let mut front = Session::load(&front, &SessionOptions::default(), None)?;
    let mut observed: Option<Observed> = None;
    for (index, sample) in samples.iter().enumerate() {
        let given: Vec<(&str, TensorRef<'_>)> =
            sample.inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
        let outputs =
            front.run(&given).map_err(|source| ObserveError::Run { sample: index, source })?;
        for output in &outputs {
            let values = output
                .f32s()
                .map_err(|source| ObserveError::Element { tensor: tensor.to_owned(), source })?;
            let row = output.shape().get(1..).unwrap_or_default();
            let observed = observed.get_or_insert_with(|| Observed::new(row));
            observed.add(&values, row.iter().product());
        }
        progress();
    }
    observed.ok_or(ObserveError::NoSamples)
}

/// Measures the ranges that the cuts of a spec lack, one for each tensor, at the bits that the
/// spec names. `model` is the bytes of its file. Cuts that have a range, or whose elements are not
/// FP32, stay as they are. `progress` is called with what was done, and what there is to do.
///
/// # Errors
/// As [`observe`], and when what was seen makes no scale.
pub fn fill(
    spec: &mut Spec,
    model: &[u8],
    samples: &[Sample],
    fit: Fit,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(), ObserveError> {
    let model = onnx::decode(model.to_vec().into())?;
    let types = Types::infer(&model)?;
    let inputs: Vec<String> = spec.inputs.iter().map(|input| input.tensor.clone()).collect();
    let mut open = Vec::new();
    for cut in spec.stages.iter_mut().filter_map(|stage| stage.cut.as_mut()) {
        let float = types.get(&cut.tensor)?.element == ElementType::F32;
        if float && cut.lo.is_none() && cut.hi.is_none() {
            open.push(cut);
        }
    }
    let all = open.len() * samples.len();
    let mut done = 0;
    for cut in open {
        let mut step = || {
            done += 1;
            progress(done, all);
        };
        let observed = observe(&model, &types, &inputs, &cut.tensor, samples, &mut step)?;
        let scales = observed.scales(Fit { unit: Unit::Tensor, ..fit }, cut.bits);
        let scales =
            scales.map_err(|source| ObserveError::Scale { tensor: cut.tensor.clone(), source })?;
        if let [scale] = scales[..] {
            (cut.lo, cut.hi) = (Some(scale.lo()), Some(scale.hi()));
        }
    }
    Ok(())
}
