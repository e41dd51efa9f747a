//! A variant in 8-bit integers (INT8, static QDQ) of the stages that an edge runs: made of samples
//! by ONNX Runtime's own Python tools, checked to read and answer what the stages as they were cut
//! do, measured against them on other samples, and recorded in the bundle with what was measured.
//! Names, types and shapes of what crosses stay, so that no split id changes.

mod environment;
mod measure;
mod npz;
mod tools;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use midspan_runtime::{Executor as _, LoadError, RunError, Tensor};

pub use environment::{Environment, EnvironmentError};
pub use measure::Counts;
use tools::{Part, session};

use crate::bundle::{Bundle, BundleError};
use crate::digest::Digest;
use crate::manifest::{Manifest, Measured, PLAIN, Variant};
use crate::onnx::{self, ModelProto, OnnxError};
use crate::rewrite::{RewriteError, rewrite};
use crate::samples::{self, Sample};
use crate::weights;

/// How ranges are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calibration {
    /// From the least to the largest value seen.
    #[default]
    MinMax,
    /// Without the outermost values.
    Percentile,
    /// Where the distribution loses least.
    Entropy,
}

impl Calibration {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::MinMax => "minmax",
            Self::Percentile => "percentile",
            Self::Entropy => "entropy",
        }
    }
}

/// What to make.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the variant.
    pub name: String,
    /// How ranges are found.
    pub calibration: Calibration,
    /// Weights of 7 bits: for CPUs without VNNI, whose 16-bit sums overflow with 8.
    pub reduce_range: bool,
    /// Today, `YYYY-MM-DD`.
    pub date: String,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A stage is being quantised: samples that were run of all.
    Calibrating {
        /// The stage.
        stage: usize,
        /// Samples run.
        done: usize,
        /// Samples in all.
        total: usize,
    },
    /// The variant is being measured: samples that were run of all.
    Measuring {
        /// Samples run.
        done: usize,
        /// Samples in all.
        total: usize,
    },
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantised {
    /// Stages that have the variant now.
    pub stages: usize,
    /// Tensors that are quantised in them.
    pub tensors: usize,
    /// Whether weights have a scale per channel, in all of these stages.
    pub per_channel: bool,
    /// Bytes of graphs and weights of these stages as they were cut, and in the variant.
    pub bytes: (u64, u64),
    /// What was measured.
    pub counts: Counts,
    /// Certificates of an earlier variant of this name, which hold no longer.
    pub dropped: usize,
}

/// Why there is no variant.
#[derive(Debug, thiserror::Error)]
pub enum QuantiseError {
    /// The bundle cannot be read.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The new bundle cannot be written.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
    /// There is no Python that can.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// Samples that cannot be used.
    #[error("samples: {0}")]
    Samples(String),
    /// The name is taken or no name.
    #[error("variant = \"{name}\": {reason}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Python gave up.
    #[error("stages[{stage}]: the quantisation tools failed: {detail}")]
    Tools {
        /// The stage.
        stage: usize,
        /// The end of what they said.
        detail: String,
    },
    /// What was given, or what the tools wrote, is no model.
    #[error("stages[{stage}]: no model: {source}")]
    Onnx {
        /// The stage.
        stage: usize,
        /// Cause.
        source: OnnxError,
    },
    /// What they wrote reads or answers something else.
    #[error("stages[{stage}]: quantised, it differs from what was cut: {reason}")]
    Differs {
        /// The stage.
        stage: usize,
        /// In what.
        reason: String,
    },
    /// A stage does not load.
    #[error("stages[{stage}]: {source}")]
    Load {
        /// The stage.
        stage: usize,
        /// Cause.
        source: LoadError,
    },
    /// A stage does not run.
    #[error("stages[{stage}]: sample {sample}: {source}")]
    Run {
        /// The stage.
        stage: usize,
        /// Number of the sample.
        sample: usize,
        /// Cause.
        source: RunError,
    },
    /// The file system said no.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: std::path::PathBuf,
        /// Cause.
        source: io::Error,
    },
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl Fn(io::Error) -> QuantiseError + 'a {
    move |source| QuantiseError::Io { doing, path: path.to_owned(), source }
}

/// Quantises the stages that an edge runs by default and writes the bundle with the new variant to
/// `out`, which may be the bundle's own folder. `calibration` gives the ranges; `held_out` must be
/// other samples: the variant is measured on them.
///
/// # Errors
/// [`QuantiseError`]; `out` is as it was then.
pub fn quantise(
    bundle: &Bundle,
    (calibration, held_out): (&[Sample], &[Sample]),
    options: &Options,
    environment: &Environment,
    out: &Path,
    progress: &mut dyn FnMut(Step),
) -> Result<Quantised, QuantiseError> {
    let name = || options.name.clone();
    if options.name == PLAIN {
        return Err(QuantiseError::Name { name: name(), reason: "is the stages as they were cut" });
    }
    if calibration.is_empty() || held_out.is_empty() {
        return Err(QuantiseError::Samples("some to calibrate and some to measure on".into()));
    }
    let mut draft = Draft::new(bundle, calibration);
    for stage in 0..draft.manifest.local_stages {
        draft.add(bundle, stage, options, environment, progress)?;
    }
    let Draft { mut manifest, blobs, tensors, per_channel, bytes, .. } = draft;
    let held = manifest.local_stages;
    // A variant of the same name in a stage that does not run here would be another's.
    for stage in &mut manifest.stages[held..] {
        stage.variants.retain(|variant| variant.name != options.name);
    }
    let before = manifest.certificates.len();
    manifest.certificates.retain(|found| found.variant != options.name);
    let dropped = before - manifest.certificates.len();
    // Measured as nodes will load it: written, opened, heads merged.
    let scratch = tempfile::tempdir().map_err(failed("create", &std::env::temp_dir()))?;
    let written = rewrite(bundle, manifest.clone(), blobs.clone(), &scratch.path().join("draft"))?;
    let counts = measure::bundle(&written, &options.name, held_out, &mut |done| {
        progress(Step::Measuring { done, total: held_out.len() });
    })?;
    let scales = if per_channel { "per channel" } else { "per tensor" };
    let narrow = if options.reduce_range { ", 7-bit weights" } else { "" };
    let method = format!("static QDQ, {scales}, {}{narrow}", options.calibration.name());
    record(&mut manifest, options, &counts, &method, calibration.len(), held_out);
    rewrite(bundle, manifest, blobs, out)?;
    Ok(Quantised { stages: held, tensors, per_channel, bytes, counts, dropped })
}

/// Quantises a whole ONNX model that is no bundle, and returns the new one. What was measured is in
/// the second value; it has no exits.
///
/// # Errors
/// [`QuantiseError`].
pub fn quantise_model(
    model: &[u8],
    (calibration, held_out): (&[Sample], &[Sample]),
    options: &Options,
    environment: &Environment,
    progress: &mut dyn FnMut(Step),
) -> Result<(Vec<u8>, Quantised), QuantiseError> {
    let plain = onnx::decode(model.to_vec().into())
        .map_err(|source| QuantiseError::Onnx { stage: 0, source })?;
    let rows: Vec<Row> = calibration.iter().map(|sample| sample.inputs.clone()).collect();
    let total = rows.len();
    let Part { model: made, tensors, per_channel } =
        tools::quantise(&plain, &[], &rows, 0, options, environment, &mut |done| {
            progress(Step::Calibrating { stage: 0, done, total });
        })?;
    let made = onnx::encode(&made);
    let counts = measure::models(model, &made, held_out, &mut |done| {
        progress(Step::Measuring { done, total: held_out.len() });
    })?;
    let bytes = (model.len() as u64, made.len() as u64);
    Ok((made, Quantised { stages: 1, tensors, per_channel, bytes, counts, dropped: 0 }))
}

type Row = Vec<(String, Tensor)>;

/// The new bundle, as it grows stage by stage.
struct Draft {
    manifest: Manifest,
    blobs: BTreeMap<Digest, Vec<u8>>,
    /// What the next stage reads, of each calibration sample.
    rows: Vec<Row>,
    tensors: usize,
    per_channel: bool,
    bytes: (u64, u64),
}

impl Draft {
    fn new(bundle: &Bundle, calibration: &[Sample]) -> Self {
        Self {
            manifest: bundle.manifest().clone(),
            blobs: BTreeMap::new(),
            rows: calibration.iter().map(|sample| sample.inputs.clone()).collect(),
            tensors: 0,
            per_channel: true,
            bytes: (0, 0),
        }
    }

    fn add(
        &mut self,
        bundle: &Bundle,
        stage: usize,
        options: &Options,
        environment: &Environment,
        progress: &mut dyn FnMut(Step),
    ) -> Result<(), QuantiseError> {
        let plain = plain(bundle, stage)?;
        let keep = head_reads(bundle, stage)?;
        let total = self.rows.len();
        let Part { mut model, tensors, per_channel } =
            tools::quantise(&plain, &keep, &self.rows, stage, options, environment, &mut |done| {
                progress(Step::Calibrating { stage, done, total });
            })?;
        self.tensors += tensors;
        self.per_channel &= per_channel;
        if stage + 1 < self.manifest.local_stages {
            self.rows = propagate(&plain, &self.manifest, &self.rows, stage)?;
        }
        let parts = &mut self.manifest.stages[stage];
        for blob in [parts.graph, parts.weights] {
            self.bytes.0 += bundle.blob(blob, &format!("stages[{stage}]"))?.len() as u64;
        }
        let weights = weights::detach(&mut model);
        let graph = onnx::encode(&model);
        self.bytes.1 += (weights.len() + graph.len()) as u64;
        parts.variants.retain(|variant| variant.name != options.name);
        parts.variants.push(Variant {
            name: options.name.clone(),
            graph: Digest::of(&graph),
            weights: Digest::of(&weights),
            measured: None,
        });
        self.blobs.extend([graph, weights].map(|blob| (Digest::of(&blob), blob)));
        Ok(())
    }
}

fn record(
    manifest: &mut Manifest,
    options: &Options,
    counts: &Counts,
    method: &str,
    calibration: usize,
    held_out: &[Sample],
) {
    let data = samples::digest(held_out);
    for (stage, exit) in manifest.stages.iter_mut().zip(&counts.exits) {
        let found = stage.variants.iter_mut().find(|variant| variant.name == options.name);
        if let Some(variant) = found {
            variant.measured = Some(Measured {
                method: method.to_owned(),
                calibration: calibration as u64,
                samples: counts.samples,
                agreeing: counts.agreeing,
                exit_agreeing: *exit,
                error_milli: (counts.error * 1000.0).round().clamp(0.0, 1e15) as u64,
                data,
                date: options.date.clone(),
            });
        }
    }
}

/// A stage as it was cut, without its exit's head.
fn plain(bundle: &Bundle, stage: usize) -> Result<ModelProto, BundleError> {
    let parts = &bundle.manifest().stages[stage];
    bundle.joined(parts.graph, parts.weights, &format!("stages[{stage}]"))
}

/// Inner tensors that the head of the stage's exit reads.
fn head_reads(bundle: &Bundle, stage: usize) -> Result<Vec<String>, BundleError> {
    let exit = bundle.manifest().stages[stage].exit.as_ref();
    let Some(head) = exit.and_then(|exit| exit.head.as_ref()) else { return Ok(Vec::new()) };
    let head = bundle.joined(head.graph, head.weights, &format!("stages[{stage}].exit.head"))?;
    let graph = head.graph.unwrap_or_default();
    Ok(graph.input.iter().map(|input| input.name().to_owned()).collect())
}

/// What the next stage reads of each sample.
fn propagate(
    model: &ModelProto,
    manifest: &Manifest,
    rows: &[Row],
    stage: usize,
) -> Result<Vec<Row>, QuantiseError> {
    let mut session = session(model, stage)?;
    let wanted = manifest.stages[stage + 1].inputs.iter().map(|input| input.name.clone());
    let wanted: Vec<String> = wanted.collect();
    let run = |(sample, row): (usize, &Row)| {
        let views: Vec<_> =
            row.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
        let outputs = session.run(&views);
        let outputs = outputs.map_err(|source| QuantiseError::Run { stage, sample, source })?;
        let names = session.outputs().iter().map(|spec| spec.name.clone());
        let mut named: HashMap<String, Tensor> = names.zip(outputs).collect();
        let row = wanted.iter().filter_map(|name| Some((name.clone(), named.remove(name)?)));
        Ok(row.collect())
    };
    rows.iter().enumerate().map(run).collect()
}

#[cfg(test)]
mod tests;
