//! A bundle's stages against its whole model: how exact they are together, how often the classes
//! agree when a sample crosses at each of the cuts, and what the exits make of the samples.

use midspan_runtime::{Executor, LoadError, RunError, Session, SessionOptions, Tensor};
use serde::Serialize;

use super::chain::{Chain, ChainError};
use super::compare::{Difference, Exactness};
use crate::bundle::{Bundle, BundleError};
use crate::codec::{self, Codec, CodecError, Frame, Precision};
use crate::digest::SplitId;
use crate::exit::classify;
use crate::samples::Sample;

/// What came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifyReport {
    /// Samples run.
    pub samples: usize,
    /// How exact the first output of the last stage is, nothing quantised.
    pub exactness: Exactness,
    /// The differences behind it.
    pub difference: Difference,
    /// Share of samples with the same class, nothing quantised.
    pub agreement_raw: f64,
    /// The cuts in their order.
    pub cuts: Vec<StageCut>,
    /// Share of samples that an exit before the default cut answers; none without such an exit.
    pub exit_share: Option<f64>,
    /// Share of samples with the right class; none when a sample has no label.
    pub accuracy: Option<Accuracy>,
}

/// What came out where all samples cross at one cut.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageCut {
    /// The tensor that crosses.
    pub tensor: String,
    /// Whether an edge node offloads there by default.
    pub default: bool,
    /// Bits, and the share of samples with the same class.
    pub agreement: Vec<(u8, f64)>,
}

/// Shares of samples with the right class.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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

impl From<ChainError> for VerifyError {
    fn from(error: ChainError) -> Self {
        match error {
            ChainError::Bundle(source) => Self::Bundle(source),
            ChainError::Load(source) => Self::Load(source),
            ChainError::Unsuitable(reason) => Self::Unsuitable(reason),
        }
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
    let mut tally = Tally::new(bundle, bits)?;
    for (index, sample) in samples.iter().enumerate() {
        let given = sample.single().ok_or_else(|| {
            VerifyError::Unsuitable(format!("sample {index} is none of one input"))
        })?;
        let expected = whole
            .run(&[(input.tensor.as_str(), given.view())])
            .map_err(|source| VerifyError::Run { sample: index, source })?
            .swap_remove(answer);
        tally.take(index, given, sample.label, &expected)?;
        progress(index + 1, samples.len());
    }
    Ok(tally.report(samples))
}

/// A cut and the samples that crossed there.
struct Crossing {
    tensor: String,
    /// Without a codec, rows cross as they are.
    codec: Option<(Codec, SplitId, Precision)>,
    same: Vec<usize>,
}

impl Crossing {
    fn of(bundle: &Bundle, cut: usize, bits: &[u8]) -> Self {
        let stage = bundle.manifest().stages.get(cut);
        let tensors = stage.and_then(|stage| stage.cut.as_ref()).map(|cut| cut.tensors.as_slice());
        let codec = bundle.codec(cut).zip(bundle.split_id_at(cut)).zip(bundle.precision(cut));
        Self {
            tensor: tensors
                .and_then(<[_]>::first)
                .map_or(String::new(), |first| first.name.clone()),
            codec: codec.map(|((codec, id), precision)| (codec, id, precision)),
            same: vec![0; bits.len()],
        }
    }

    /// What arrives on the other side of what is sent.
    fn cross(&self, rows: Tensor, precision: Precision) -> Result<Tensor, CodecError> {
        let Some((codec, id, _)) = &self.codec else { return Ok(rows) };
        let bytes = codec::encode(&rows.view(), codec, precision, *id)?;
        Frame::parse(&bytes)?.decode(codec)
    }
}

struct Tally<'a> {
    chain: Chain,
    local_stages: usize,
    bits: &'a [u8],
    cuts: Vec<Crossing>,
    difference: Difference,
    same_raw: usize,
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
    fn new(bundle: &Bundle, bits: &'a [u8]) -> Result<Self, VerifyError> {
        let chain = Chain::load(bundle)?;
        let cuts =
            (0..chain.stages.len().saturating_sub(1)).map(|cut| Crossing::of(bundle, cut, bits));
        Ok(Self {
            cuts: cuts.collect(),
            local_stages: bundle.manifest().local_stages.min(chain.stages.len()),
            chain,
            bits,
            difference: Difference::default(),
            same_raw: 0,
            exits: 0,
            whole_right: 0,
            served_right: 0,
        })
    }

    fn take(
        &mut self,
        index: usize,
        input: &Tensor,
        label: Option<usize>,
        expected: &Tensor,
    ) -> Result<(), VerifyError> {
        let run_error = |source| VerifyError::Run { sample: index, source };
        let expected_class = class_of(expected)?;
        let (mut carried, mut sure) = (Vec::new(), None);
        for (number, stage) in self.chain.stages.iter_mut().enumerate() {
            let (tensor, exit) =
                stage.run(carried.last().unwrap_or(input).view()).map_err(run_error)?;
            carried.push(tensor);
            sure = sure.or(exit.filter(|_| number < self.local_stages));
        }
        let raw = carried.pop().unwrap_or_else(|| input.clone());
        self.difference.include(&Difference::between(expected, &raw));
        self.same_raw += usize::from(class_of(&raw)? == expected_class);
        self.exits += usize::from(sure.is_some());
        for (cut, at_cut) in carried.iter().enumerate() {
            for (position, bits) in self.bits.iter().enumerate() {
                let class = self.across(index, cut, at_cut, Precision::Bits(*bits))?;
                self.cuts[cut].same[position] += usize::from(class == expected_class);
            }
        }
        let Some(label) = label else { return Ok(()) };
        let cut = self.local_stages.saturating_sub(1);
        let precision = self.cuts.get(cut).and_then(|cut| cut.codec.as_ref()).map(|codec| codec.2);
        let served = match (sure, carried.get(cut).zip(precision)) {
            (Some(class), _) => class,
            (None, Some((at_cut, precision))) => self.across(index, cut, at_cut, precision)?,
            (None, None) => class_of(&raw)?,
        };
        self.whole_right += usize::from(expected_class == label);
        self.served_right += usize::from(served == label);
        Ok(())
    }

    /// The class that the later stages find when rows cross at this cut.
    fn across(
        &mut self,
        index: usize,
        cut: usize,
        at_cut: &Tensor,
        precision: Precision,
    ) -> Result<usize, VerifyError> {
        let mut rows = self.cuts[cut]
            .cross(at_cut.clone(), precision)
            .map_err(|source| VerifyError::Codec { sample: index, source })?;
        for stage in self.chain.stages.iter_mut().skip(cut + 1) {
            let ran = stage.run(rows.view());
            rows = ran.map_err(|source| VerifyError::Run { sample: index, source })?.0;
        }
        class_of(&rows)
    }

    fn report(self, samples: &[Sample]) -> VerifyReport {
        let count = samples.len();
        let share = |part: usize| part as f64 / count.max(1) as f64;
        let exits =
            self.chain.stages.iter().take(self.local_stages).any(|stage| stage.exit.is_some());
        let labelled = count > 0 && samples.iter().all(|sample| sample.label.is_some());
        let cut = |(index, cut): (usize, Crossing)| StageCut {
            tensor: cut.tensor,
            default: index + 1 == self.local_stages,
            agreement: self
                .bits
                .iter()
                .zip(&cut.same)
                .map(|(bits, same)| (*bits, share(*same)))
                .collect(),
        };
        VerifyReport {
            samples: count,
            exactness: self.difference.exactness(),
            difference: self.difference,
            agreement_raw: share(self.same_raw),
            cuts: self.cuts.into_iter().enumerate().map(cut).collect(),
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
