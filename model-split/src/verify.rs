//! Is the split model still the whole one? Runs both on samples and reports how far their answers
//! differ as they are, how often their classes agree when what crosses is quantised, and what the
//! exits make of the samples. It reports; it does not judge.

use midspan_runtime::{Executor, LoadError, RunError, Session, SessionOptions, Tensor, TensorRef};

use crate::bundle::{Bundle, BundleError};
use crate::codec::{self, Codec, CodecError, Frame, Precision};
use crate::digest::SplitId;
use crate::exit::{ExitRule, classify};
use crate::labelled::Labelled;

/// A model input, and its class where that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The input, one row.
    pub input: Tensor,
    /// Its class.
    pub label: Option<usize>,
}

/// All samples of a labelled set.
pub fn samples_of(labelled: &Labelled) -> Vec<Sample> {
    (0..labelled.len())
        .filter_map(|index| {
            Some(Sample { input: labelled.tensor(index)?, label: labelled.label(index) })
        })
        .collect()
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifyReport {
    /// Samples run.
    pub samples: usize,
    /// Largest difference of any value of the last stage's first output from the whole model's,
    /// nothing quantised.
    pub max_abs_diff: f32,
    /// Whether all those values were the same bits.
    pub bit_exact: bool,
    /// Share of samples with the same class, nothing quantised.
    pub agreement_raw: f64,
    /// Share of samples with the same class when all of them cross at these bits.
    pub agreement: Vec<(u8, f64)>,
    /// Share of samples that an exit before the default cut answers; none without such an exit.
    pub exit_share: Option<f64>,
    /// Share of samples with the right class; none when a sample has no label.
    pub accuracy: Option<Accuracy>,
}

/// Shares of samples with the right class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// By the whole model.
    pub whole: f64,
    /// By an exit where it is sure, else by the last stage after crossing at the default bits.
    pub served: f64,
}

/// Why nothing could be said.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The bundle is damaged.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A model cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A model does not run on a sample.
    #[error("sample {sample}: {source}")]
    Run {
        /// Number of the sample.
        sample: usize,
        /// Cause.
        source: RunError,
    },
    /// What crosses cannot be written at these bits.
    #[error("sample {sample}: {source}")]
    Codec {
        /// Number of the sample.
        sample: usize,
        /// Cause.
        source: CodecError,
    },
    /// A bundle or model that cannot be compared.
    #[error("{0}")]
    Unsuitable(String),
}

/// The stages of a bundle, loaded one after the other.
pub(crate) struct Chain {
    stages: Vec<LoadedStage>,
}

struct LoadedStage {
    session: Session,
    input: String,
    /// Index among the outputs of what the next stage reads; for the last stage, of the answer.
    carries: usize,
    exit: Option<(usize, ExitRule)>,
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

impl From<ChainError> for VerifyError {
    fn from(error: ChainError) -> Self {
        match error {
            ChainError::Bundle(source) => Self::Bundle(source),
            ChainError::Load(source) => Self::Load(source),
            ChainError::Unsuitable(reason) => Self::Unsuitable(reason),
        }
    }
}

impl LoadedStage {
    /// What it hands on, and the class of its exit where that is sure.
    fn run(&mut self, input: TensorRef<'_>) -> Result<(Tensor, Option<usize>), RunError> {
        let mut outputs = self.session.run(&[(self.input.as_str(), input)])?;
        let sure = self.exit.and_then(|(output, rule)| {
            let decision = rule.decide(&outputs[output].f32s().ok()?);
            decision.sure.then_some(decision.class)
        });
        Ok((outputs.swap_remove(self.carries), sure))
    }
}

/// Runs the whole model and the bundle's stages on `samples`. `progress` is called with the number
/// of samples done and in all.
///
/// # Errors
/// When the bundle is damaged, a model does not load or run, or the two cannot be compared: more
/// than one input, or a first output that is not FP32.
pub fn verify(
    bundle: &Bundle,
    whole_model: &[u8],
    samples: &[Sample],
    bits: &[u8],
    progress: &mut dyn FnMut(usize, usize),
) -> Result<VerifyReport, VerifyError> {
    let manifest = bundle.manifest();
    let mut whole = Session::load(whole_model, &SessionOptions::default(), None)?;
    let ([input], Some(output)) = (manifest.inputs.as_slice(), manifest.outputs.first()) else {
        return Err(VerifyError::Unsuitable("only models with one input can be compared".into()));
    };
    let answer = whole.outputs().iter().position(|spec| spec.name == output.tensor);
    let answer = answer.ok_or_else(|| {
        VerifyError::Unsuitable(format!("the whole model has no output \"{}\"", output.tensor))
    })?;
    let mut chain = Chain::load(bundle)?;
    let offload = Offload::of(bundle);
    let mut tally = Tally::new(bits);
    for (index, sample) in samples.iter().enumerate() {
        let run_error = |source| VerifyError::Run { sample: index, source };
        let expected = whole
            .run(&[(input.tensor.as_str(), sample.input.view())])
            .map_err(run_error)?
            .swap_remove(answer);
        tally.take(index, sample, &expected, &mut chain, &offload)?;
        progress(index + 1, samples.len());
    }
    Ok(tally.report(samples, &chain, offload.local_stages))
}

/// Where and how samples cross by default.
struct Offload {
    local_stages: usize,
    codec: Option<(Codec, SplitId, Precision)>,
}

impl Offload {
    fn of(bundle: &Bundle) -> Self {
        let local_stages = bundle.manifest().local_stages;
        let cut = local_stages.saturating_sub(1);
        let codec = bundle
            .codec(cut)
            .zip(bundle.split_id_at(cut))
            .zip(bundle.precision(cut))
            .map(|((codec, id), precision)| (codec, id, precision));
        Self { local_stages, codec }
    }

    /// What arrives on the other side of what is sent.
    fn cross(&self, rows: Tensor, precision: Precision) -> Result<Tensor, CodecError> {
        let Some((codec, id, _)) = &self.codec else { return Ok(rows) };
        let bytes = codec::encode(&rows.view(), codec, precision, *id)?;
        Frame::parse(&bytes)?.decode(codec)
    }
}

struct Tally<'a> {
    bits: &'a [u8],
    max_abs_diff: f32,
    bit_exact: bool,
    same_raw: usize,
    same: Vec<usize>,
    exits: usize,
    whole_right: usize,
    served_right: usize,
}

fn class_of(tensor: &Tensor) -> Result<usize, VerifyError> {
    let logits = tensor
        .f32s()
        .map_err(|error| VerifyError::Unsuitable(format!("the first output: {error}")))?;
    Ok(classify(&logits, 1.0).0)
}

impl<'a> Tally<'a> {
    fn new(bits: &'a [u8]) -> Self {
        Self {
            bits,
            max_abs_diff: 0.0,
            bit_exact: true,
            same_raw: 0,
            same: vec![0; bits.len()],
            exits: 0,
            whole_right: 0,
            served_right: 0,
        }
    }

    fn take(
        &mut self,
        index: usize,
        sample: &Sample,
        expected: &Tensor,
        chain: &mut Chain,
        offload: &Offload,
    ) -> Result<(), VerifyError> {
        let run_error = |source| VerifyError::Run { sample: index, source };
        let expected_class = class_of(expected)?;
        let local = offload.local_stages.min(chain.stages.len());
        let (front, tail) = chain.stages.split_at_mut(local);
        let (mut at_cut, mut sure) = (sample.input.clone(), None);
        for stage in front {
            let (carried, exit) = stage.run(at_cut.view()).map_err(run_error)?;
            (at_cut, sure) = (carried, sure.or(exit));
        }
        let mut finish = |mut rows: Tensor| -> Result<Tensor, VerifyError> {
            for stage in &mut *tail {
                rows = stage.run(rows.view()).map_err(run_error)?.0;
            }
            Ok(rows)
        };
        let raw = finish(at_cut.clone())?;
        self.compare(expected, &raw)?;
        self.same_raw += usize::from(class_of(&raw)? == expected_class);
        let mut at = |precision| {
            let crossed = offload
                .cross(at_cut.clone(), precision)
                .map_err(|source| VerifyError::Codec { sample: index, source })?;
            class_of(&finish(crossed)?)
        };
        for (same, bits) in self.same.iter_mut().zip(self.bits) {
            *same += usize::from(at(Precision::Bits(*bits))? == expected_class);
        }
        self.exits += usize::from(sure.is_some());
        if let Some(label) = sample.label {
            let served = match (sure, &offload.codec) {
                (Some(class), _) => class,
                (None, Some((_, _, precision))) => at(*precision)?,
                (None, None) => class_of(&raw)?,
            };
            self.whole_right += usize::from(expected_class == label);
            self.served_right += usize::from(served == label);
        }
        Ok(())
    }

    fn compare(&mut self, expected: &Tensor, got: &Tensor) -> Result<(), VerifyError> {
        let differ = || VerifyError::Unsuitable("the first outputs differ in shape or type".into());
        let (Ok(whole), Ok(split)) = (expected.f32s(), got.f32s()) else { return Err(differ()) };
        if expected.shape() != got.shape() {
            return Err(differ());
        }
        self.bit_exact &= expected.bytes() == got.bytes();
        for (whole, split) in whole.iter().zip(&*split) {
            // The same bits are no difference, even of a NaN; a NaN against a number is one.
            if whole.to_bits() != split.to_bits() {
                let difference = (whole - split).abs();
                let worst = if difference.is_nan() { f32::INFINITY } else { difference };
                self.max_abs_diff = self.max_abs_diff.max(worst);
            }
        }
        Ok(())
    }

    fn report(&self, samples: &[Sample], chain: &Chain, local_stages: usize) -> VerifyReport {
        let count = samples.len();
        let share = |part: usize| part as f64 / count.max(1) as f64;
        let exits = chain.stages.iter().take(local_stages).any(|stage| stage.exit.is_some());
        let labelled = count > 0 && samples.iter().all(|sample| sample.label.is_some());
        let same = self.bits.iter().zip(&self.same);
        VerifyReport {
            samples: count,
            max_abs_diff: self.max_abs_diff,
            bit_exact: self.bit_exact,
            agreement_raw: share(self.same_raw),
            agreement: same.map(|(bits, same)| (*bits, share(*same))).collect(),
            exit_share: exits.then(|| share(self.exits)),
            accuracy: labelled.then(|| Accuracy {
                whole: share(self.whole_right),
                served: share(self.served_right),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
