//! Makes a bundle of a whole ONNX model and a spec: cuts the stages, takes out their weights,
//! names blobs by their digests, writes the folder. The same model and spec give the same bytes.
//! It must not measure anything: the scales, temperatures and thresholds come from the spec.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use midspan_runtime::{ElementType, LoadError, RunError};

use crate::bundle::{Bundle, BundleError, MANIFEST, read_bounded};
use crate::codec;
use crate::cut::{CutError, Types, extract};
use crate::digest::{Digest, SplitId};
use crate::exit::classify;
use crate::labelled::{Labelled, LabelledError};
use crate::manifest::{
    AppTensor, CodecSpec, Cut, Exit, FORMAT, GoldenSample, InnerTensor, LabelledBlobs, Manifest,
    ManifestError, PLATFORM, Stage, StaticScale,
};
use crate::onnx::{self, ModelProto, OnnxError};
use crate::rewrite::{Fresh, RewriteError, refuse_occupied};
use crate::spec::{CutSpec, ExitSpec, Named, Spec};
use crate::verify::{Chain, ChainError};
use crate::weights;

const LARGEST_SAMPLES: u64 = 256 << 20;
/// Golden samples that are kept, and how many are tried for them.
const GOLDEN: (usize, usize) = (8, 64);
/// Least lead of the best logit of a golden sample: far more than CPUs differ by.
const GOLDEN_LEAD: f32 = 1.0;

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The split id at the default cut; none for a bundle of one stage.
    pub split_id: Option<SplitId>,
    /// Number of blobs.
    pub blobs: usize,
    /// Bytes of all blobs.
    pub bytes: u64,
}

/// Why no bundle was made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The model is none.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// The model cannot be cut as the spec says.
    #[error("stages[{stage}]: {source}")]
    Cut {
        /// The stage.
        stage: usize,
        /// Cause.
        source: CutError,
    },
    /// The model's tensors cannot be looked at.
    #[error(transparent)]
    Types(CutError),
    /// The spec does not suit the model or itself.
    #[error("{key}: {reason}")]
    Spec {
        /// The key in the spec.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// The manifest that came out makes no sense.
    #[error("the spec gives no valid manifest: {0}")]
    Manifest(#[from] ManifestError),
    /// Labelled samples are damaged.
    #[error("labelled.{0}")]
    Labelled(#[from] LabelledError),
    /// What was written cannot be read again.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A stage cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The golden samples cannot be run.
    #[error("{0}")]
    Unsuitable(String),
    /// A stage does not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The folder cannot be written.
    #[error(transparent)]
    Write(#[from] RewriteError),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

fn fault(key: impl Into<String>, reason: impl Into<String>) -> MakeError {
    MakeError::Spec { key: key.into(), reason: reason.into() }
}

impl From<ChainError> for MakeError {
    fn from(error: ChainError) -> Self {
        match error {
            ChainError::Bundle(source) => Self::Bundle(source),
            ChainError::Load(source) => Self::Load(source),
            ChainError::Unsuitable(reason) => Self::Unsuitable(reason),
        }
    }
}

/// Makes the bundle of `model` (the bytes of its ONNX file) in the folder `out`, which is replaced
/// if it holds a bundle. `base` is where the spec's relative paths start.
///
/// # Errors
/// [`MakeError`]; `out` is as it was then.
pub fn make(model: &[u8], spec: &Spec, base: &Path, out: &Path) -> Result<Made, MakeError> {
    refuse_occupied(out)?;
    let model = onnx::decode(model.to_vec().into())?;
    let types = Types::infer(&model).map_err(MakeError::Types)?;
    let mut blobs = Blobs::default();
    let stages = stages(&model, &types, spec, &mut blobs)?;
    let (labelled, samples) = labelled(spec, base, &mut blobs)?;
    let manifest = Manifest {
        format: FORMAT,
        name: spec.name.clone(),
        version: spec.version.clone(),
        platform: PLATFORM.to_owned(),
        inputs: app_tensors("inputs", &spec.inputs, &types)?,
        outputs: app_tensors("outputs", &spec.outputs, &types)?,
        stateful: spec.stateful,
        local_stages: spec.local_stages,
        stages,
        preprocess: spec.preprocess.clone(),
        labels: spec.labels.clone(),
        labelled,
        golden: vec![],
        certificates: vec![],
    };
    manifest.validate()?;
    write(manifest, &blobs, samples.as_ref(), out)
}

#[derive(Default)]
struct Blobs(BTreeMap<Digest, Vec<u8>>);

impl Blobs {
    fn add(&mut self, bytes: Vec<u8>) -> Digest {
        let digest = Digest::of(&bytes);
        self.0.insert(digest, bytes);
        digest
    }
}

/// Writes into a new folder beside `out`, adds the golden samples, then takes the place of `out`.
fn write(
    mut manifest: Manifest,
    blobs: &Blobs,
    samples: Option<&Labelled>,
    out: &Path,
) -> Result<Made, MakeError> {
    let fresh = Fresh::beside(out)?;
    for (digest, bytes) in &blobs.0 {
        fresh.blob(*digest, bytes)?;
    }
    fresh.write(MANIFEST, &manifest.to_json()?)?;
    let bundle = Bundle::open(fresh.folder())?;
    if let Some(samples) = samples {
        manifest.golden = golden(&bundle, samples)?;
        fresh.write(MANIFEST, &manifest.to_json()?)?;
    }
    fresh.take_place(out)?;
    Ok(Made {
        split_id: bundle.split_id(),
        blobs: blobs.0.len(),
        bytes: blobs.0.values().map(|bytes| bytes.len() as u64).sum(),
    })
}

fn stages(
    model: &ModelProto,
    types: &Types,
    spec: &Spec,
    blobs: &mut Blobs,
) -> Result<Vec<Stage>, MakeError> {
    let mut inputs: Vec<String> = spec.inputs.iter().map(|input| input.tensor.clone()).collect();
    let mut stages = Vec::new();
    for (index, stage) in spec.stages.iter().enumerate() {
        let cut_error = |source| MakeError::Cut { stage: index, source };
        let last = index + 1 == spec.stages.len();
        if last == stage.cut.is_some() {
            let reason = "all stages but the last have a cut, and the last has none";
            return Err(fault(format!("stages[{index}].cut"), reason));
        }
        let mut outputs: Vec<String> = stage.cut.iter().map(|cut| cut.tensor.clone()).collect();
        outputs.extend(stage.exit.iter().map(|exit| exit.output.clone()));
        if last {
            let app = spec.outputs.iter().map(|output| output.tensor.clone());
            outputs
                .extend(app.filter(|name| stage.exit.as_ref().is_none_or(|e| e.output != *name)));
        }
        let mut part = extract(model, types, &inputs, &outputs).map_err(cut_error)?;
        let weights = blobs.add(weights::detach(&mut part));
        let graph = blobs.add(onnx::encode(&part));
        let inner = |names: &[String]| -> Result<Vec<InnerTensor>, MakeError> {
            let specs = names.iter().map(|name| types.get(name).map(InnerTensor::of));
            specs.collect::<Result<_, _>>().map_err(cut_error)
        };
        let cut = match &stage.cut {
            Some(cut) => Some(Cut {
                tensors: inner(std::slice::from_ref(&cut.tensor))?,
                codec: codec_spec(index, cut, types)?,
            }),
            None => None,
        };
        let exit = match &stage.exit {
            Some(exit) => Some(exit_of(index, exit, last, spec, types)?),
            None => None,
        };
        stages.push(Stage { graph, weights, inputs: inner(&inputs)?, cut, exit, variants: vec![] });
        inputs = stage.cut.iter().map(|cut| cut.tensor.clone()).collect();
    }
    Ok(stages)
}

fn codec_spec(stage: usize, cut: &CutSpec, types: &Types) -> Result<CodecSpec, MakeError> {
    let spec = types.get(&cut.tensor).map_err(|source| MakeError::Cut { stage, source })?;
    // Only f32 is quantised: what else crosses a cut travels as it is.
    let scales = match (spec.element, cut.lo, cut.hi) {
        (ElementType::F32, Some(lo), Some(hi)) => vec![StaticScale::new(lo, hi)],
        (ElementType::F32, ..) => {
            let reason = "lo and hi are missing; give both, or samples to measure them on";
            return Err(fault(format!("stages[{stage}].cut"), reason));
        }
        _ => vec![],
    };
    let (bits, allowed) = (cut.bits, cut.allowed.clone());
    Ok(CodecSpec { version: codec::VERSION, bits, allowed, scales })
}

fn exit_of(
    stage: usize,
    exit: &ExitSpec,
    last: bool,
    spec: &Spec,
    types: &Types,
) -> Result<Exit, MakeError> {
    let key = |rest: &str| format!("stages[{stage}].exit.{rest}");
    let logits = types.get(&exit.output).map_err(|source| MakeError::Cut { stage, source })?;
    if logits.element != ElementType::F32 || logits.dims.len() != 2 {
        let reason = format!(
            "exits are for classifiers: \"{}\" must be FP32 [rows, classes], it is {} {}",
            exit.output,
            logits.element,
            logits.dims_text()
        );
        return Err(fault(key("output"), reason));
    }
    let first = spec.outputs.first().map(|output| output.tensor.as_str());
    if last && first != Some(&exit.output) {
        return Err(fault(key("output"), "the last exit must be the first of outputs"));
    }
    if last == exit.threshold.is_some() {
        let reason = "all exits but the last have a threshold; the last always answers";
        return Err(fault(key("threshold"), reason));
    }
    let milli = |value: f64, rest: &str| {
        let milli = (value * 1000.0).round();
        if (0.0..=1_000_000.0).contains(&milli) {
            return Ok(milli as u32);
        }
        Err(fault(key(rest), "out of range"))
    };
    Ok(Exit {
        output: exit.output.clone(),
        temperature_milli: milli(exit.temperature, "temperature")?,
        threshold_milli: exit.threshold.map(|value| milli(value, "threshold")).transpose()?,
        head: None,
    })
}

fn app_tensors(key: &str, named: &[Named], types: &Types) -> Result<Vec<AppTensor>, MakeError> {
    let tensor = |(index, named): (usize, &Named)| {
        let spec = types
            .get(&named.tensor)
            .map_err(|error| fault(format!("{key}[{index}].tensor"), error.to_string()))?;
        let InnerTensor { datatype, shape, name: tensor } = InnerTensor::of(spec);
        Ok(AppTensor { name: named.name.clone(), datatype, shape, tensor })
    };
    named.iter().enumerate().map(tensor).collect()
}

type Samples = (Option<LabelledBlobs>, Option<Labelled>);

fn labelled(spec: &Spec, base: &Path, blobs: &mut Blobs) -> Result<Samples, MakeError> {
    let Some(files) = &spec.labelled else { return Ok((None, None)) };
    let read = |file: &Path| {
        let path = base.join(file);
        read_bounded(&path, LARGEST_SAMPLES)
            .map_err(|source| MakeError::Read { path: path.clone(), source })
    };
    let (images, labels) = (read(&files.images)?, read(&files.labels)?);
    let samples = Labelled::from_idx_gz(&images, &labels)?;
    let names = LabelledBlobs { images: blobs.add(images), labels: blobs.add(labels) };
    Ok((Some(names), Some(samples)))
}

/// The first few samples on whose class no CPU's rounding can have a say.
fn golden(bundle: &Bundle, samples: &Labelled) -> Result<Vec<GoldenSample>, MakeError> {
    let mut chain = Chain::load(bundle)?;
    let mut golden = Vec::new();
    for sample in 0..samples.len().min(GOLDEN.1) {
        let Some(input) = samples.tensor(sample) else { break };
        let answers = chain.run(&input)?;
        let Some(Ok(logits)) = answers.last().map(|tensor| tensor.f32s()) else { break };
        let (class, _) = classify(&logits, 1.0);
        let best = logits.get(class).copied().unwrap_or(f32::NAN);
        let others = logits.iter().enumerate().filter(|(index, _)| *index != class);
        if others.into_iter().all(|(_, logit)| best - logit >= GOLDEN_LEAD) {
            golden.push(GoldenSample { sample, class });
        }
        if golden.len() == GOLDEN.0 {
            break;
        }
    }
    Ok(golden)
}
