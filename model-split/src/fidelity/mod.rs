//! What each way of offloading puts on the wire, and how often its answer is the whole model's.
//! Every candidate runs on every sample through the code that nodes run: front, frame, tail; or
//! picture, decoder, preprocessing, whole model. It must not judge which candidate is best.
//!
//! - The reference is the whole model on the original input.
//! - Bytes are those of the body: of a frame with its header, of an encoded picture, of a tensor's
//!   elements. Names, headers of requests and the answer are not among them.
//! - A picture is compressed as the pixels that the model reads, after resizing and cropping, and
//!   only where every input is exactly such pixels; else the candidate is refused with the reason.
//!   WebP is libwebp's lossless form at method 6 and the default effort. JPEG is 4:2:0 with the
//!   tables of the standard, those for quantisation scaled as libjpeg does; pictures without colour
//!   are written as grey. (Optimised Huffman tables save little, and the encoder then writes a scan
//!   for each colour, which the decoder of zune-jpeg 0.5.15 reads wrongly.)
//! - Static scales of a cut are measured on calibration samples; they should not be among those
//!   tested.

mod answer;
mod file;
mod forms;
mod halves;
mod tally;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use midspan_runtime::{LoadError, Prepacked, RunError};

pub use answer::Rule;
pub use file::{FORMAT, FidelityFile, FidelityFileError, MeasuredScale};
use forms::Forms;
use halves::{Loaded, Models, Split};
use tally::{Outcome, tally};

use crate::candidate::{Candidate, Fidelity, InputForm, WirePrecision};
use crate::codec::{CodecError, Scale};
use crate::cut::CutError;
use crate::manifest::PLAIN;
use crate::onnx::OnnxError;
use crate::preprocess::Preprocess;
use crate::samples::Sample;
use crate::scale::{Fit, ObserveError, ScaleError};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the input may cross.
    pub inputs: Vec<InputForm>,
    /// Tensors at which to divide.
    pub cuts: Vec<String>,
    /// How the elements of each may cross; a tensor that is not FP32 crosses raw only.
    pub precisions: Vec<WirePrecision>,
    /// How the scales of cuts are made of what is seen on the calibration samples; none where each
    /// frame carries the ranges of its own values.
    pub fit: Option<Fit>,
    /// When two answers agree.
    pub rule: Rule,
    /// Samples that run at once, each on one thread; at least 1.
    pub threads: usize,
}

/// What to measure it on.
#[derive(Clone, Copy)]
pub struct Data<'a> {
    /// What every candidate runs on.
    pub samples: &'a [Sample],
    /// What scales are measured on.
    pub calibration: &'a [Sample],
    /// How a picture becomes an input; without it no candidate sends pictures.
    pub preprocess: Option<&'a Preprocess>,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Measured {
    /// One entry a candidate: inputs first, then cuts in their order.
    pub fidelity: Vec<Fidelity>,
    /// Candidates that cannot be, and why.
    pub refused: Vec<(Candidate, String)>,
    /// The scales that were used.
    pub scales: Vec<MeasuredScale>,
}

/// How far measuring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Scales are measured on the calibration samples of each cut.
    Scales,
    /// Candidates run on the samples.
    Samples,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum FidelityError {
    /// The model is none.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// The model cannot be divided there.
    #[error("cut \"{cut}\": {source}")]
    Cut {
        /// The tensor.
        cut: String,
        /// Cause.
        source: CutError,
    },
    /// The tensors of the model cannot be looked at.
    #[error(transparent)]
    Types(CutError),
    /// A model cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Scales cannot be measured.
    #[error("cut \"{cut}\": {source}")]
    Observe {
        /// The tensor.
        cut: String,
        /// Cause.
        source: ObserveError,
    },
    /// What was seen at a cut makes no scale.
    #[error("cut \"{cut}\": {source}")]
    Scale {
        /// The tensor.
        cut: String,
        /// Cause.
        source: ScaleError,
    },
    /// A model does not run on a sample.
    #[error("sample {sample}: {source}")]
    Run {
        /// Number of the sample.
        sample: usize,
        /// Cause.
        source: RunError,
    },
    /// An activation cannot be written or read.
    #[error("sample {sample}, cut \"{cut}\": {source}")]
    Codec {
        /// Number of the sample.
        sample: usize,
        /// The tensor.
        cut: String,
        /// Cause.
        source: CodecError,
    },
    /// A tensor whose rows have no fixed size, or too many elements for a frame.
    #[error("cut \"{cut}\": rows of {dims} cannot be written as frames")]
    Rows {
        /// The tensor.
        cut: String,
        /// Its dimensions.
        dims: String,
    },
    /// Answers that cannot be compared by the rule.
    #[error("{0}")]
    Answer(String),
    /// Nothing to measure on.
    #[error("there are no samples to measure on")]
    NoSamples,
}

/// Runs every candidate on every sample. `model` is the bytes of its ONNX file. `progress` is told
/// what is done, how much of it, and of how much; it is called from several threads. The result
/// does not depend on the number of threads.
///
/// # Errors
/// When the model cannot be divided, loaded or run, scales cannot be measured, or answers cannot be
/// compared.
pub fn measure(
    model: &[u8],
    data: Data<'_>,
    options: &Options,
    progress: &(dyn Fn(Phase, usize, usize) + Sync),
) -> Result<Measured, FidelityError> {
    if data.samples.is_empty() {
        return Err(FidelityError::NoSamples);
    }
    let models = Models::divide(model, &options.cuts)?;
    let splits = splits(&models, data, options, progress)?;
    let forms = Forms::new(&options.inputs, data.preprocess, data.samples);
    let candidates = candidates(&forms, &splits);
    let rows = run(&models, &splits, &forms, data.samples, options, progress)?;
    let (mut fidelity, mut refused) = (Vec::new(), forms.refused().to_vec());
    for (index, candidate) in candidates.into_iter().enumerate() {
        match tally(rows.iter().map(|row| &row[index])) {
            Ok(counts) => fidelity.push(counts.of(candidate)),
            Err(reason) => refused.push((candidate, reason)),
        }
    }
    let scales = splits.iter().flat_map(Split::measured).collect();
    Ok(Measured { fidelity, refused, scales })
}

/// How each cut is written at each precision.
fn splits(
    models: &Models,
    data: Data<'_>,
    options: &Options,
    progress: &(dyn Fn(Phase, usize, usize) + Sync),
) -> Result<Vec<Split>, FidelityError> {
    let quantised: Vec<u8> = options
        .precisions
        .iter()
        .filter_map(|precision| match precision {
            WirePrecision::Bits(bits) => Some(*bits),
            WirePrecision::Raw | WirePrecision::Half => None,
        })
        .collect();
    let all = options.cuts.len() * data.calibration.len();
    let mut done = 0;
    let mut splits = Vec::new();
    for cut in &options.cuts {
        let mut scales: BTreeMap<u8, Vec<Scale>> = BTreeMap::new();
        if let Some(fit) = options.fit
            && models.is_float(cut)
            && !quantised.is_empty()
        {
            let mut step = || {
                done += 1;
                progress(Phase::Scales, done, all);
            };
            let observed = models.observe(cut, data.calibration, &mut step)?;
            for bits in &quantised {
                let found = observed.scales(fit, *bits);
                let found =
                    found.map_err(|source| FidelityError::Scale { cut: cut.clone(), source })?;
                scales.insert(*bits, found);
            }
        }
        splits.push(models.split(cut, &options.precisions, &scales)?);
    }
    Ok(splits)
}

fn candidates(forms: &Forms<'_>, splits: &[Split]) -> Vec<Candidate> {
    let inputs = forms.forms().map(|form| Candidate::Input { form });
    let activations = splits.iter().flat_map(|split| {
        split.precisions().map(|precision| Candidate::Activation {
            cut: split.cut().to_owned(),
            precision,
            variant: PLAIN.to_owned(),
        })
    });
    inputs.chain(activations).collect()
}

/// The outcomes of all candidates, in their order, for each sample.
type Rows = Vec<Vec<Outcome>>;

fn run(
    models: &Models,
    splits: &[Split],
    forms: &Forms<'_>,
    samples: &[Sample],
    options: &Options,
    progress: &(dyn Fn(Phase, usize, usize) + Sync),
) -> Result<Rows, FidelityError> {
    let (next, done, failed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let results: Mutex<BTreeMap<usize, Result<Vec<Outcome>, FidelityError>>> = Mutex::default();
    let packed: Vec<Prepacked> = (0..models.count())
        .map(|_| Prepacked::new().map_err(LoadError::from))
        .collect::<Result<_, _>>()?;
    let work = || -> Result<(), FidelityError> {
        let mut loaded = Loaded::load(models, &packed, options.rule)?;
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(sample) = samples.get(index).filter(|_| !failed.load(Ordering::Relaxed))
            else {
                return Ok(());
            };
            let row = loaded.row(index, sample, splits, forms);
            failed.fetch_or(row.is_err(), Ordering::Relaxed);
            results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(index, row);
            progress(Phase::Samples, done.fetch_add(1, Ordering::Relaxed) + 1, samples.len());
        }
    };
    let threads = options.threads.clamp(1, samples.len());
    thread::scope(|scope| {
        let workers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut outcome = work();
        for worker in workers {
            let ended = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcome = outcome.and(ended);
        }
        outcome
    })?;
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.into_values().collect()
}

#[cfg(test)]
mod tests;
