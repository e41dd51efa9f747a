//! A whole model against its halves: runs both on samples, sends what crosses the cut through the
//! codec, and reports how exact the halves are and how often their answers agree. Nothing is
//! assumed of inputs, outputs and what crosses but that they are tensors: several of each, any
//! element type, fixed or open batch. Quantising ranges are those of the samples themselves.

use midspan_runtime::{Executor, LoadError, RunError, Session, SessionOptions, Tensor, TensorRef};
use serde::Serialize;

use super::compare::{Agreement, Difference, Exactness};
use super::halves::{self, Halves};
use super::wire::{self, Range};
use crate::codec::{CodecError, Precision, Scale};
use crate::cut::{CutError, Types, Uncuttable};
use crate::onnx::{self, ModelProto};
use crate::samples::Sample;

/// What to find out of a cut beside its exactness.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// Bits per element to quantise to, each 1 to 8.
    pub bits: Vec<u8>,
}

/// What was found of one cut.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CutReport {
    /// The tensors that cross.
    pub tensors: Vec<String>,
    /// Samples run.
    pub samples: usize,
    /// How exact the halves are, nothing quantised.
    pub exactness: Exactness,
    /// The differences behind it, over all outputs.
    pub difference: Difference,
    /// Number of the sample that differs most; none when all bits are the same.
    pub worst: Option<usize>,
    /// Rows with the same class, nothing quantised; none when no output is a classification.
    pub agreement: Option<Agreement>,
    /// Mean bytes that cross for a sample, nothing quantised.
    pub bytes: f64,
    /// The same, quantised; empty when nothing that crosses is FP32.
    pub quantised: Vec<Quantised>,
}

/// What was found at a number of bits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quantised {
    /// Bits per element.
    pub bits: u8,
    /// Mean bytes that cross for a sample.
    pub bytes: f64,
    /// Differences of the outputs.
    pub difference: Difference,
    /// Rows with the same class; none when no output is a classification.
    pub agreement: Option<Agreement>,
}

/// Why nothing can be said. Every one has a [`Refusal`].
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The whole model cannot be loaded.
    #[error("the whole model: {0}")]
    WholeLoad(#[source] LoadError),
    /// The whole model does not run on a sample.
    #[error("the whole model, sample {sample}: {source}")]
    WholeRun {
        /// Number of the sample.
        sample: usize,
        /// Cause.
        source: RunError,
    },
    /// The model cannot be divided there.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// The front cannot be loaded.
    #[error("the front: {0}")]
    FrontLoad(#[source] LoadError),
    /// The tail cannot be loaded.
    #[error("the tail: {0}")]
    TailLoad(#[source] LoadError),
    /// The front does not run on a sample.
    #[error("the front, sample {sample}: {source}")]
    FrontRun {
        /// Number of the sample.
        sample: usize,
        /// Cause.
        source: RunError,
    },
    /// The tail does not run on what the front made of a sample.
    #[error("the tail, sample {sample}: {source}")]
    TailRun {
        /// Number of the sample.
        sample: usize,
        /// Cause.
        source: RunError,
    },
    /// What crosses cannot be written.
    #[error("tensor \"{tensor}\", sample {sample}: {source}")]
    Codec {
        /// The tensor.
        tensor: String,
        /// Number of the sample.
        sample: usize,
        /// Cause.
        source: CodecError,
    },
    /// An output that the halves do not have.
    #[error("neither front nor tail answers output \"{output}\"")]
    NoOutput {
        /// Name of the output.
        output: String,
    },
}

/// The reasons for which nothing can be said of a cut. There are no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// There is no ONNX Runtime.
    NoLibrary,
    /// ONNX Runtime does not load the whole model.
    WholeRefused,
    /// The whole model does not run on the samples.
    WholeFails,
    /// Something that is read, crosses or is answered is no tensor of a supported type.
    NotATensor,
    /// Weights are kept in other files.
    ExternalData,
    /// The tensors do not divide the model.
    DoesNotDivide,
    /// ONNX Runtime does not load the front.
    FrontRefused,
    /// ONNX Runtime does not load the tail.
    TailRefused,
    /// The front does not run on the samples.
    FrontFails,
    /// The tail does not run on what the front answers.
    TailFails,
    /// The codec cannot write what crosses.
    Codec,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::NoLibrary,
        Self::WholeRefused,
        Self::WholeFails,
        Self::NotATensor,
        Self::ExternalData,
        Self::DoesNotDivide,
        Self::FrontRefused,
        Self::TailRefused,
        Self::FrontFails,
        Self::TailFails,
        Self::Codec,
    ];

    /// As text.
    pub fn text(self) -> &'static str {
        match self {
            Self::NoLibrary => "there is no ONNX Runtime",
            Self::WholeRefused => "ONNX Runtime does not load the whole model",
            Self::WholeFails => "the whole model does not run",
            Self::NotATensor => "not a tensor of a supported type",
            Self::ExternalData => "weights are kept in other files",
            Self::DoesNotDivide => "the tensors do not divide the model",
            Self::FrontRefused => "ONNX Runtime does not load the front",
            Self::TailRefused => "ONNX Runtime does not load the tail",
            Self::FrontFails => "the front does not run",
            Self::TailFails => "the tail does not run",
            Self::Codec => "the codec cannot write what crosses",
        }
    }

    fn of_load(error: &LoadError, refused: Self) -> Self {
        match error {
            LoadError::Library(_) => Self::NoLibrary,
            LoadError::Unsupported { .. } => Self::NotATensor,
            LoadError::Model(_) => refused,
        }
    }
}

impl CheckError {
    /// Its kind.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::WholeLoad(error) => Refusal::of_load(error, Refusal::WholeRefused),
            Self::FrontLoad(error) => Refusal::of_load(error, Refusal::FrontRefused),
            Self::TailLoad(error) => Refusal::of_load(error, Refusal::TailRefused),
            Self::Cut(CutError::Load(error)) => Refusal::of_load(error, Refusal::WholeRefused),
            Self::Cut(
                CutError::NoSuchTensor { .. }
                | CutError::NotTensor { .. }
                | CutError::Uncuttable {
                    why: Uncuttable::NotTensor { .. } | Uncuttable::Element { .. },
                    ..
                },
            ) => Refusal::NotATensor,
            Self::Cut(CutError::ExternalData { .. }) => Refusal::ExternalData,
            Self::Cut(_) | Self::NoOutput { .. } => Refusal::DoesNotDivide,
            Self::WholeRun { .. } => Refusal::WholeFails,
            Self::FrontRun { .. } => Refusal::FrontFails,
            Self::TailRun { .. } => Refusal::TailFails,
            Self::Codec { .. } => Refusal::Codec,
        }
    }
}

/// A whole model and its answers to samples, for comparing any number of cuts with.
pub struct Checker<'a> {
    samples: &'a [Sample],
    outputs: Vec<String>,
    expected: Vec<Vec<Tensor>>,
}

/// The views that a session takes.
pub(super) fn views(tensors: &[(String, Tensor)]) -> Vec<(&str, TensorRef<'_>)> {
    tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect()
}

impl<'a> Checker<'a> {
    /// Runs the whole model on the samples; `progress` is called after each.
    ///
    /// # Errors
    /// When it does not load or run.
    pub fn new(
        model: &ModelProto,
        samples: &'a [Sample],
        progress: &mut dyn FnMut(),
    ) -> Result<Self, CheckError> {
        let options = SessionOptions::default();
        let mut whole =
            Session::load(&onnx::encode(model), &options, None).map_err(CheckError::WholeLoad)?;
        let mut run = |(index, sample): (usize, &Sample)| {
            let outputs = whole.run(&views(&sample.inputs));
            progress();
            outputs.map_err(|source| CheckError::WholeRun { sample: index, source })
        };
        let expected = samples.iter().enumerate().map(&mut run).collect::<Result<_, _>>()?;
        let outputs = whole.outputs().iter().map(|output| output.name.clone()).collect();
        Ok(Self { samples, outputs, expected })
    }

    /// What the whole model answers to each sample, in the order of its outputs.
    pub fn expected(&self) -> &[Vec<Tensor>] {
        &self.expected
    }

    /// Names of the whole model's outputs.
    pub fn outputs(&self) -> &[String] {
        &self.outputs
    }

    /// Runs halves on the samples, twice where something is quantised; `progress` is called after
    /// each sample of the first time.
    ///
    /// # Errors
    /// When a half does not load or run, lacks an output, or what crosses cannot be written.
    pub fn check(
        &self,
        halves: &Halves,
        options: &CheckOptions,
        progress: &mut dyn FnMut(),
    ) -> Result<CutReport, CheckError> {
        let mut loaded = LoadedHalves::load(halves)?;
        let (mut raw, mut worst) = (Tally::default(), (None, 0.0));
        let mut ranges = vec![Range::default(); halves.crossing.len()];
        for (index, sample) in self.samples.iter().enumerate() {
            let front = loaded.front(index, sample)?;
            for (range, tensor) in ranges.iter_mut().zip(&front.crossing) {
                range.include(tensor);
            }
            let got = loaded.answer(index, sample, &front, Precision::Raw, &[])?;
            let difference = raw.take(&self.outputs, &self.expected[index], &got)?;
            if !difference.bit_exact.0 && (worst.0.is_none() || difference.scaled > worst.1) {
                worst = (Some(index), difference.scaled);
            }
            progress();
        }
        let scales: Vec<Option<Scale>> = ranges.into_iter().map(Range::scale).collect();
        let bits = if scales.iter().any(Option::is_some) { options.bits.as_slice() } else { &[] };
        let mut tallies: Vec<Tally> = bits.iter().map(|_| Tally::default()).collect();
        let again = if bits.is_empty() { &[] } else { self.samples };
        for (index, sample) in again.iter().enumerate() {
            let front = loaded.front(index, sample)?;
            for (tally, bits) in tallies.iter_mut().zip(bits) {
                let got = loaded.answer(index, sample, &front, Precision::Bits(*bits), &scales)?;
                tally.take(&self.outputs, &self.expected[index], &got)?;
            }
        }
        let quantised = bits.iter().zip(tallies).map(|(bits, tally)| Quantised {
            bits: *bits,
            bytes: tally.mean_bytes(),
            difference: tally.difference,
            agreement: tally.agreement,
        });
        Ok(CutReport {
            tensors: halves.crossing.clone(),
            samples: self.samples.len(),
            exactness: raw.difference.exactness(),
            difference: raw.difference,
            worst: worst.0,
            agreement: raw.agreement,
            bytes: raw.mean_bytes(),
            quantised: quantised.collect(),
        })
    }
}

/// Cuts a model at tensors and compares; [`Checker`] does so for many cuts at the price of one run
/// of the whole.
///
/// # Errors
/// When the model does not load or run, is not divided by the tensors, or a half does not load or
/// run.
pub fn check_cut(
    model: &ModelProto,
    types: &Types,
    cut: &[String],
    samples: &[Sample],
    options: &CheckOptions,
) -> Result<CutReport, CheckError> {
    let halves = Halves::at(model, types, cut)?;
    Checker::new(model, samples, &mut || {})?.check(&halves, options, &mut || {})
}

/// What the front makes of a sample.
struct FrontAnswer {
    crossing: Vec<Tensor>,
    /// Outputs of the model that it answers, by name.
    outputs: Vec<(String, Tensor)>,
}

/// What both halves make of a sample.
struct Answer {
    outputs: Vec<(String, Tensor)>,
    bytes: usize,
}

struct LoadedHalves<'a> {
    front: Session,
    tail: Session,
    crossing: &'a [String],
    /// What the tail reads of the sample itself.
    direct: Vec<String>,
}

impl<'a> LoadedHalves<'a> {
    fn load(halves: &'a Halves) -> Result<Self, CheckError> {
        let load = |model| Session::load(&onnx::encode(model), &SessionOptions::default(), None);
        let front = load(&halves.front).map_err(CheckError::FrontLoad)?;
        let tail = load(&halves.tail).map_err(CheckError::TailLoad)?;
        let mut direct = halves::input_names(&halves.tail);
        direct.retain(|name| !halves.crossing.contains(name));
        Ok(Self { front, tail, crossing: &halves.crossing, direct })
    }

    fn front(&mut self, index: usize, sample: &Sample) -> Result<FrontAnswer, CheckError> {
        let outputs = self.front.run(&views(&sample.inputs));
        let outputs = outputs.map_err(|source| CheckError::FrontRun { sample: index, source })?;
        let names = self.front.outputs().iter().map(|output| output.name.clone());
        let outputs: Vec<(String, Tensor)> = names.zip(outputs).collect();
        let find = |name: &String| {
            let found = outputs.iter().find(|(output, _)| output == name);
            let found = found.map(|(_, tensor)| tensor.clone());
            found.ok_or_else(|| CheckError::NoOutput { output: name.clone() })
        };
        let crossing = self.crossing.iter().map(find).collect::<Result<_, _>>()?;
        Ok(FrontAnswer { crossing, outputs })
    }

    fn answer(
        &mut self,
        index: usize,
        sample: &Sample,
        front: &FrontAnswer,
        precision: Precision,
        scales: &[Option<Scale>],
    ) -> Result<Answer, CheckError> {
        let mut inputs: Vec<(String, Tensor)> = Vec::new();
        let mut bytes = 0;
        for (at, (name, tensor)) in self.crossing.iter().zip(&front.crossing).enumerate() {
            let scale = scales.get(at).copied().flatten();
            let (arrived, sent) = wire::cross(tensor, precision, scale).map_err(|source| {
                CheckError::Codec { tensor: name.clone(), sample: index, source }
            })?;
            bytes += sent;
            inputs.push((name.clone(), arrived));
        }
        let direct = sample.inputs.iter().filter(|(name, _)| self.direct.contains(name));
        inputs.extend(direct.cloned());
        let outputs = self.tail.run(&views(&inputs));
        let outputs = outputs.map_err(|source| CheckError::TailRun { sample: index, source })?;
        let names = self.tail.outputs().iter().map(|output| output.name.clone());
        let outputs = names.zip(outputs).chain(front.outputs.iter().cloned());
        Ok(Answer { outputs: outputs.collect(), bytes })
    }
}

#[derive(Default)]
struct Tally {
    difference: Difference,
    agreement: Option<Agreement>,
    bytes: usize,
    samples: usize,
}

impl Tally {
    /// Takes in one sample, and says how far its outputs are off.
    fn take(
        &mut self,
        names: &[String],
        expected: &[Tensor],
        got: &Answer,
    ) -> Result<Difference, CheckError> {
        let mut difference = Difference::default();
        for (name, whole) in names.iter().zip(expected) {
            let Some((_, halves)) = got.outputs.iter().find(|(output, _)| output == name) else {
                return Err(CheckError::NoOutput { output: name.clone() });
            };
            difference.include(&Difference::between(whole, halves));
            if let Some(agreement) = Agreement::between(whole, halves) {
                self.agreement.get_or_insert_default().include(agreement);
            }
        }
        self.difference.include(&difference);
        self.bytes += got.bytes;
        self.samples += 1;
        Ok(difference)
    }

    fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.samples.max(1) as f64
    }
}

#[cfg(test)]
mod tests;
