//! What a bundle's exits and the whole model answer to samples: the logits from which exits are
//! calibrated. Samples are run in batches where the model takes them. It must not judge answers.

use std::slice::ChunksExact;

use midspan_runtime::{
    Dim, Executor, LoadError, RunError, Session, SessionOptions, Tensor, TensorError, TensorRef,
};

use crate::bundle::{Bundle, BundleError};
use crate::manifest::PLAIN;
use crate::samples::Sample;

/// Most samples of one run.
const BATCH: usize = 32;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The stages.
    pub bundle: &'a Bundle,
    /// The ONNX file of the whole model. Without it the bundle's plain stages, one after the other
    /// with nothing quantised between them, stand for it.
    pub whole: Option<&'a [u8]>,
    /// The variant of the stages that an edge runs.
    pub variant: &'a str,
    /// The last cut that an edge reaches; see [`crate::Manifest::last_cut`].
    pub cut: usize,
}

/// Logits of samples, row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logits {
    classes: usize,
    values: Vec<f32>,
}

/// What an exit answers.
#[derive(Clone, Debug, PartialEq)]
pub struct ExitLogits {
    /// The stage that computes it.
    pub stage: usize,
    /// A row for each sample.
    pub logits: Logits,
}

/// What all of them answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers {
    /// The exits up to and with the cut, in their order.
    pub exits: Vec<ExitLogits>,
    /// The whole model.
    pub whole: Logits,
    /// The classes of the samples, where they are known.
    pub labels: Vec<Option<usize>>,
}

/// Why there are no answers.
#[derive(Debug, thiserror::Error)]
pub enum AnswersError {
    /// The bundle is damaged.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// No stage up to the cut has the variant.
    #[error("no stage up to the cut has a variant \"{name}\"; known are {known:?}")]
    NoVariant {
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A model cannot be loaded.
    #[error("{part}: {source}")]
    Load {
        /// Which model.
        part: String,
        /// Cause.
        source: LoadError,
    },
    /// A model does not run on a sample.
    #[error("{part}, sample {sample}: {source}")]
    Run {
        /// Which model.
        part: String,
        /// Number of the first sample of the run.
        sample: usize,
        /// Cause.
        source: RunError,
    },
    /// A model has no output of a name that the manifest gives.
    #[error("{part} has no output \"{name}\"")]
    NoOutput {
        /// Which model.
        part: String,
        /// The name.
        name: String,
    },
    /// The output is not a row of logits for each sample.
    #[error("{part}: exits are for classifiers: \"{name}\" must be FP32 [rows, classes], {got}")]
    NoLogits {
        /// Which model.
        part: String,
        /// The output.
        name: String,
        /// What it is.
        got: String,
    },
    /// Samples that cannot be joined to a batch.
    #[error("sample {sample}: {source}")]
    Sample {
        /// Number of the sample.
        sample: usize,
        /// Cause.
        source: TensorError,
    },
}

impl Logits {
    /// Rows of `classes` values each; what is left over is dropped.
    pub fn new(classes: usize, mut values: Vec<f32>) -> Self {
        values.truncate(values.len().checked_div(classes).unwrap_or(0) * classes);
        Self { classes, values }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.values.len().checked_div(self.classes).unwrap_or(0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The rows in order.
    pub fn rows(&self) -> ChunksExact<'_, f32> {
        self.values.chunks_exact(self.classes.max(1))
    }

    /// One row.
    pub fn row(&self, index: usize) -> Option<&[f32]> {
        self.rows().nth(index)
    }

    /// Appends a tensor of `rows` rows; what it is when it is none of logits.
    fn push(&mut self, tensor: &Tensor, rows: usize) -> Result<(), String> {
        let got = || format!("it gave {} {:?} for {rows} rows", tensor.element(), tensor.shape());
        let (Ok(values), [count, classes]) = (tensor.f32s(), tensor.shape()) else {
            return Err(got());
        };
        let fits = *count == rows && *classes > 0;
        if !fits || (!self.is_empty() && self.classes != *classes) {
            return Err(got());
        }
        self.classes = *classes;
        self.values.extend_from_slice(&values);
        Ok(())
    }
}

/// A loaded model and what it is called in errors.
struct Part {
    name: String,
    session: Session,
}

impl Part {
    fn load(name: String, model: &[u8]) -> Result<Self, AnswersError> {
        match Session::load(model, &SessionOptions::default(), None) {
            Ok(session) => Ok(Self { name, session }),
            Err(source) => Err(AnswersError::Load { part: name, source }),
        }
    }

    /// Whether it takes any number of rows.
    fn open(&self) -> bool {
        let open =
            |spec: &midspan_runtime::TensorSpec| matches!(spec.dims[..], [Dim::Symbolic(_), ..]);
        self.session.inputs().iter().all(open)
    }

    /// Its outputs by name. It reads from `tensors` what it knows.
    fn run(
        &mut self,
        tensors: &[(String, Tensor)],
        sample: usize,
    ) -> Result<Vec<(String, Tensor)>, AnswersError> {
        let known = |name: &str| self.session.inputs().iter().any(|input| input.name == name);
        let inputs: Vec<(&str, TensorRef<'_>)> = tensors
            .iter()
            .filter(|(name, _)| known(name))
            .map(|(name, tensor)| (name.as_str(), tensor.view()))
            .collect();
        let part = &self.name;
        let outputs = self.session.run(&inputs).map_err(|source| AnswersError::Run {
            part: part.clone(),
            sample,
            source,
        })?;
        let names = self.session.outputs().iter().map(|spec| spec.name.clone());
        Ok(names.zip(outputs).collect())
    }

    /// Appends the output `name` to `logits`.
    fn take(
        &self,
        outputs: &[(String, Tensor)],
        name: &str,
        rows: usize,
        logits: &mut Logits,
    ) -> Result<(), AnswersError> {
        let (part, name) = (self.name.clone(), name.to_owned());
        match outputs.iter().find(|(output, _)| *output == name) {
            None => Err(AnswersError::NoOutput { part, name }),
            Some((_, tensor)) => {
                logits.push(tensor, rows).map_err(|got| AnswersError::NoLogits { part, name, got })
            }
        }
    }
}

/// The first `count` stages.
fn stages(bundle: &Bundle, variant: &str, count: usize) -> Result<Vec<Part>, AnswersError> {
    let stages = bundle.manifest().stages.iter().take(count);
    let named = stages.flat_map(|stage| &stage.variants).map(|found| found.name.clone());
    let known: Vec<String> = [PLAIN.to_owned()].into_iter().chain(named).collect();
    if !known.iter().any(|name| name == variant) {
        return Err(AnswersError::NoVariant { name: variant.to_owned(), known });
    }
    let stage = |index| {
        let model = bundle.stage_variant(index, variant)?;
        Part::load(format!("stages[{index}]"), &model)
    };
    (0..count).map(stage).collect()
}

/// Runs the stages up to the cut and the whole model on all samples. `progress` is called with the
/// number of samples done.
///
/// # Errors
/// When the bundle is damaged, a model does not load or run, or an exit or the first output is not
/// a row of FP32 logits for each sample.
pub fn answers(
    of: &Subject<'_>,
    samples: &[Sample],
    progress: &mut dyn FnMut(usize),
) -> Result<Answers, AnswersError> {
    let manifest = of.bundle.manifest();
    let mut front = stages(of.bundle, of.variant, of.cut + 1)?;
    let mut whole = match of.whole {
        Some(model) => vec![Part::load("the whole model".into(), model)?],
        None => stages(of.bundle, PLAIN, of.bundle.stages())?,
    };
    let output = manifest.outputs.first().map(|output| output.tensor.as_str()).unwrap_or_default();
    let exits: Vec<Option<&str>> = manifest.stages[..=of.cut]
        .iter()
        .map(|stage| stage.exit.as_ref().map(|exit| exit.output.as_str()))
        .collect();
    let mut found = Answers {
        exits: (0..exits.len())
            .filter(|stage| exits[*stage].is_some())
            .map(|stage| ExitLogits { stage, logits: Logits::default() })
            .collect(),
        whole: Logits::default(),
        labels: samples.iter().map(|sample| sample.label).collect(),
    };
    let open = front.iter().chain(&whole).all(Part::open);
    let (mut done, mut left) = (0, samples);
    while !left.is_empty() {
        let (run, rest) = left.split_at(batch(left, open));
        let input = stack(run).map_err(|source| AnswersError::Sample { sample: done, source })?;
        let mut carried = input.clone();
        let mut next = found.exits.iter_mut();
        for (part, exit) in front.iter_mut().zip(&exits) {
            carried = part.run(&carried, done)?;
            if let (Some(name), Some(exit)) = (exit, exit.and_then(|_| next.next())) {
                part.take(&carried, name, run.len(), &mut exit.logits)?;
            }
        }
        carried = input;
        for part in &mut whole {
            carried = part.run(&carried, done)?;
        }
        if let Some(last) = whole.last() {
            last.take(&carried, output, run.len(), &mut found.whole)?;
        }
        (done, left) = (done + run.len(), rest);
        progress(done);
    }
    Ok(found)
}

/// Whether two samples can stand in one batch: the same inputs, one row each, equal in form.
fn alike(one: &Sample, other: &Sample) -> bool {
    one.inputs.len() == other.inputs.len()
        && one.inputs.iter().zip(&other.inputs).all(|((name, one), (other_name, other))| {
            name == other_name
                && one.element() == other.element()
                && one.shape() == other.shape()
                && one.shape().first() == Some(&1)
        })
}

/// How many of the first samples make one run.
fn batch(samples: &[Sample], open: bool) -> usize {
    let limit = if open { BATCH } else { 1 };
    let first = samples.iter().take(limit);
    first.take_while(|next| alike(&samples[0], next)).count().max(1)
}

/// The inputs of samples that are alike, one under the other.
fn stack(samples: &[Sample]) -> Result<Vec<(String, Tensor)>, TensorError> {
    let [first, _, ..] = samples else {
        return Ok(samples.first().map(|only| only.inputs.clone()).unwrap_or_default());
    };
    let column = |(at, (name, tensor)): (usize, &(String, Tensor))| {
        let mut shape = tensor.shape().to_vec();
        shape[0] = samples.len();
        let bytes = samples.iter().flat_map(|sample| sample.inputs[at].1.bytes()).copied();
        Ok((name.clone(), Tensor::new(tensor.element(), shape, bytes.collect())?))
    };
    first.inputs.iter().enumerate().map(column).collect()
}

#[cfg(test)]
mod tests;
