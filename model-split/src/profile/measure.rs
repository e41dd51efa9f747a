//! Makes a [`Profile`] on the device at hand: the cut-out halves are run, not their operators,
//! because what ONNX Runtime fuses makes the times of operators add up to something else. Runs are
//! interleaved (every part once, then every part again, each round starting one further), so that
//! whatever disturbs the machine disturbs all parts. One thread a session, as nodes run them.

use midspan_runtime::{
    Dim, Executor, LoadError, RunError, Session, SessionOptions, Tensor, TensorSpec,
};

use super::bench::{Bench, merged};
use super::pictures::{Picture, PictureSize, PicturesError};
use super::slow::Slowdown;
use super::timing::Timing;
use super::{CutNotes, Device, FORMAT, ModelNotes, Part, PictureTime, Profile, VariantNotes, work};
use crate::candidate::InputForm;
use crate::codec::CodecError;
use crate::cut::{self, CutError, Found, Types, cuts, extract};
use crate::digest::Digest;
use crate::manifest::PLAIN;
use crate::onnx::{self, ModelProto, OnnxError};
use crate::samples::{self, SamplesError};

/// Forms of pictures that are timed.
const FORMS: [InputForm; 4] =
    [InputForm::WebpLossless, InputForm::Jpeg(75), InputForm::Jpeg(90), InputForm::Jpeg(98)];

/// Which cuts are timed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All.
    All,
    /// So many, evenly over the model's work.
    Evenly(usize),
    /// Those of these tensors.
    Named(Vec<String>),
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The model's file.
    pub model: &'a [u8],
    /// Other ways to run it: names and files that have its tensors' names.
    pub variants: &'a [(String, Vec<u8>)],
    /// Which cuts.
    pub cuts: Wanted,
    /// Rows of a run; those over 1 are left out for a model of a fixed batch.
    pub batches: &'a [usize],
    /// Bits on the wire, beside raw and half precision.
    pub bits: &'a [u8],
    /// Runs of each part that count.
    pub runs: usize,
    /// How much slower the device is made.
    pub slowdown: Slowdown,
    /// Files of pictures whose writing is timed; a made-up one without any.
    pub pictures: &'a [std::path::PathBuf],
    /// Today, `YYYY-MM-DD`.
    pub date: &'a str,
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A file is no model.
    #[error("{variant}: {source}")]
    Onnx {
        /// The variant.
        variant: String,
        /// Cause.
        source: OnnxError,
    },
    /// A model cannot be divided.
    #[error("{variant}: {source}")]
    Cut {
        /// The variant.
        variant: String,
        /// Cause.
        source: CutError,
    },
    /// A part cannot be loaded.
    #[error("{part}: {source}")]
    Load {
        /// The part.
        part: String,
        /// Cause.
        source: LoadError,
    },
    /// A part does not run.
    #[error("{part}: {source}")]
    Run {
        /// The part.
        part: String,
        /// Cause.
        source: RunError,
    },
    /// The model's inputs cannot be made up.
    #[error(transparent)]
    Samples(#[from] SamplesError),
    /// An activation cannot be written.
    #[error("cut \"{cut}\": {source}")]
    Codec {
        /// Tensor of the cut.
        cut: String,
        /// Cause.
        source: CodecError,
    },
    /// A picture cannot be written or read.
    #[error(transparent)]
    Pictures(#[from] PicturesError),
    /// A tensor that is no cut of the model.
    #[error("\"{tensor}\" is no tensor at which the model can be divided; there are {known}, such as {}", .examples.join(", "))]
    NoSuchCut {
        /// The name given.
        tensor: String,
        /// Number of cuts.
        known: usize,
        /// Some of them.
        examples: Vec<String>,
    },
    /// A request that asks for nothing.
    #[error("{0}")]
    Request(&'static str),
}

pub(super) type Inputs = Vec<(String, Tensor)>;

/// A model and what is known of its tensors.
pub(super) struct Known {
    pub(super) name: String,
    pub(super) model: ModelProto,
    pub(super) types: Types,
}

impl Known {
    fn of(name: &str, bytes: &[u8]) -> Result<Self, MeasureError> {
        let model = onnx::decode(bytes.to_vec().into())
            .map_err(|source| MeasureError::Onnx { variant: name.to_owned(), source })?;
        let types = Types::infer(&model)
            .map_err(|source| MeasureError::Cut { variant: name.to_owned(), source })?;
        Ok(Self { name: name.to_owned(), model, types })
    }

    fn cut_error(&self) -> impl Fn(CutError) -> MeasureError + '_ {
        |source| MeasureError::Cut { variant: self.name.clone(), source }
    }

    pub(super) fn part(
        &self,
        inputs: &[String],
        outputs: &[String],
    ) -> Result<Vec<u8>, MeasureError> {
        let part = extract(&self.model, &self.types, inputs, outputs).map_err(self.cut_error())?;
        Ok(onnx::encode(&part))
    }
}

fn name_of(part: &Part) -> String {
    match part {
        Part::Whole => "the whole model".into(),
        Part::Front { cut } => format!("the front up to \"{cut}\""),
        Part::Tail { cut } => format!("the tail from \"{cut}\""),
    }
}

pub(super) fn load(part: &Part, model: &[u8]) -> Result<Session, MeasureError> {
    let fault = |source| MeasureError::Load { part: name_of(part), source };
    Session::load(model, &SessionOptions::default(), None).map_err(fault)
}

pub(super) fn run(
    session: &mut impl Executor,
    part: &Part,
    inputs: &Inputs,
) -> Result<Vec<Tensor>, MeasureError> {
    let views: Vec<_> =
        inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
    session.run(&views).map_err(|source| MeasureError::Run { part: name_of(part), source })
}

/// Measures.
///
/// # Errors
/// [`MeasureError`], naming the part or the cut.
pub fn measure(
    request: &Request<'_>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Profile, MeasureError> {
    if request.runs == 0 || request.batches.contains(&0) {
        return Err(MeasureError::Request("runs and batches must be at least 1"));
    }
    let plain = Known::of(PLAIN, request.model)?;
    let mut whole = load(&Part::Whole, request.model)?;
    let inputs = samples::random(whole.inputs(), 1, 1)?.swap_remove(0).inputs;
    let answers = run(&mut whole, &Part::Whole, &inputs)?;
    let open = |spec: &TensorSpec| matches!(spec.dims.first(), Some(Dim::Symbolic(_)));
    let batched = whole.inputs().iter().all(open);
    let picture = match whole.inputs() {
        [input] => PictureSize::of(input),
        _ => None,
    };
    drop(whole);
    let cuts = describe(&plain, &inputs)?;
    let timed = chosen(&cuts, &request.cuts)?;
    let mut bench = Bench {
        request,
        plain: &plain,
        variants: request
            .variants
            .iter()
            .map(|(name, bytes)| Known::of(name, bytes))
            .collect::<Result<_, _>>()?,
        inputs: &inputs,
        batches: request.batches.iter().copied().filter(|batch| batched || *batch == 1).collect(),
        parts: vec![],
        codec: vec![],
    };
    if bench.batches.is_empty() {
        return Err(MeasureError::Request("the model's batch is fixed: only --batch 1 can be run"));
    }
    bench.all(&timed, progress)?;
    let (parts, codec) = (bench.parts, bench.codec);
    let bytes = |tensors: &[Tensor]| tensors.iter().map(|t| t.bytes().len() as u64).sum();
    let notes = |(name, bytes): (&str, &[u8])| VariantNotes {
        name: name.to_owned(),
        sha256: Digest::of(bytes),
    };
    let others = request.variants.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    Ok(Profile {
        format: FORMAT,
        model: ModelNotes {
            sha256: Digest::of(request.model),
            input_bytes: inputs.iter().map(|(_, tensor)| tensor.bytes().len() as u64).sum(),
            output_bytes: bytes(&answers),
        },
        device: Device::here(),
        date: request.date.to_owned(),
        slowdown: request.slowdown.times(),
        variants: [(PLAIN, request.model)].into_iter().chain(others).map(notes).collect(),
        cuts,
        parts: merged(parts),
        codec,
        pictures: picture.map_or(Ok(vec![]), |size| pictures(request, size))?,
    })
}

/// All cuts with the shapes that they have when the model runs on `inputs`.
fn describe(plain: &Known, inputs: &Inputs) -> Result<Vec<CutNotes>, MeasureError> {
    let options = cut::Options { tensors: 1 };
    let all = cuts(&plain.model, &plain.types, &options).map_err(plain.cut_error())?;
    // Where the last output, which all of the model computes, is the tail's to answer.
    let outputs = plain.model.graph.iter().flat_map(|graph| &graph.output);
    let last = outputs.last().map(|output| output.name().to_owned());
    let divides = |found: &Found| last.as_ref().is_none_or(|last| !found.answers.contains(last));
    let found = all.found.into_iter().filter(divides);
    let names: Vec<String> = found.flat_map(|found| found.cut.tensors).collect();
    if names.is_empty() {
        return Ok(vec![]);
    }
    let given: Vec<String> = inputs.iter().map(|(name, _)| name.clone()).collect();
    let shares = work::front_shares(&plain.model, &plain.types, &given, &names)
        .map_err(plain.cut_error())?;
    let part = Part::Whole;
    let mut exposed = load(&part, &plain.part(&given, &names)?)?;
    // A cut may need only some of the inputs.
    let known: Vec<String> = exposed.inputs().iter().map(|spec| spec.name.clone()).collect();
    let inputs = inputs.iter().filter(|(name, _)| known.contains(name)).cloned().collect();
    let values = run(&mut exposed, &part, &inputs)?;
    let notes =
        names.into_iter().zip(shares).zip(values).map(|((tensor, front_share), value)| CutNotes {
            tensor,
            datatype: value.element().oip_name().to_owned(),
            shape: value.shape().to_vec(),
            front_share,
        });
    Ok(notes.collect())
}

/// The cuts to be timed.
fn chosen(cuts: &[CutNotes], wanted: &Wanted) -> Result<Vec<String>, MeasureError> {
    let name = |cut: &CutNotes| cut.tensor.clone();
    match wanted {
        Wanted::All => Ok(cuts.iter().map(name).collect()),
        Wanted::Evenly(count) => Ok(evenly(cuts, *count).into_iter().map(name).collect()),
        Wanted::Named(names) => {
            let missing = names.iter().find(|name| cuts.iter().all(|cut| cut.tensor != **name));
            match missing {
                None => Ok(names.clone()),
                Some(tensor) => Err(MeasureError::NoSuchCut {
                    tensor: tensor.clone(),
                    known: cuts.len(),
                    examples: cuts.iter().take(5).map(name).collect(),
                }),
            }
        }
    }
}

/// `count` of the cuts, each the nearest to its part of the work. Of several at about the same
/// place the one with the fewest bytes is taken: it is the one that may be worth crossing at.
fn evenly(cuts: &[CutNotes], count: usize) -> Vec<&CutNotes> {
    let mut taken: Vec<&CutNotes> = Vec::new();
    for index in 0..count.min(cuts.len()) {
        let (low, high) = (index as f64 / count as f64, (index + 1) as f64 / count as f64);
        let middle = f64::midpoint(low, high);
        let free = || cuts.iter().filter(|cut| !taken.contains(cut));
        let here = free().filter(|cut| (low..high).contains(&cut.front_share));
        let smallest = here.min_by_key(|cut| cut.bytes());
        let away = |cut: &CutNotes| (cut.front_share - middle).abs();
        let nearest = || free().min_by(|a, b| away(a).total_cmp(&away(b)));
        taken.extend(smallest.or_else(nearest));
    }
    taken.sort_by(|a, b| a.front_share.total_cmp(&b.front_share));
    taken
}

fn pictures(request: &Request<'_>, size: PictureSize) -> Result<Vec<PictureTime>, MeasureError> {
    let mut pictures: Vec<Picture> = Vec::new();
    for path in request.pictures {
        pictures.push(Picture::read(path, size)?);
    }
    if pictures.is_empty() {
        pictures.push(Picture::synthetic(size));
    }
    let mut times = vec![(vec![], vec![]); FORMS.len()];
    for round in 0..=request.runs.max(pictures.len()) {
        let picture = &pictures[round % pictures.len()];
        for (form, (encode, decode)) in FORMS.iter().zip(&mut times) {
            let (bytes, writing) = request.slowdown.take(|| picture.encode(*form));
            let bytes = bytes?;
            let (read, reading) = request.slowdown.take(|| picture.decode(&bytes));
            read.map_err(|source| PicturesError::Picture { path: form.to_string(), source })?;
            if round > 0 {
                encode.push(writing.as_secs_f64() * 1e6);
                decode.push(reading.as_secs_f64() * 1e6);
            }
        }
    }
    let timed = FORMS.iter().zip(times).filter_map(|(form, (encode, decode))| {
        Some(PictureTime { form: *form, encode: Timing::of(encode)?, decode: Timing::of(decode)? })
    });
    Ok(timed.collect())
}
