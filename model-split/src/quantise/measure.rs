//! How often a variant answers as the stages that were cut do. It counts; it does not judge.

use std::collections::HashMap;

use midspan_runtime::{Executor as _, Session, SessionOptions, Tensor};

use super::QuantiseError;
use crate::bundle::Bundle;
use crate::exit::classify;
use crate::manifest::{Manifest, PLAIN};
use crate::samples::Sample;

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Samples run.
    pub samples: u64,
    /// Samples with the same class of the whole model's answer, nothing quantised on the wire; none
    /// for a model that is no classifier.
    pub agreeing: Option<u64>,
    /// For each stage before the cut, samples whose exit names the same class; none for a stage
    /// without an exit.
    pub exits: Vec<Option<u64>>,
    /// Root of the mean square error of what crosses (of the answer where nothing does), as a share
    /// of its own root mean square.
    pub error: f64,
}

type Values = HashMap<String, Tensor>;

/// One stage, loaded.
struct Loaded {
    session: Session,
    index: usize,
}

impl Loaded {
    fn new(bundle: &Bundle, index: usize, variant: &str) -> Result<Self, QuantiseError> {
        let model = bundle.stage_variant(index, variant)?;
        let session = Session::load(&model, &SessionOptions::default(), None)
            .map_err(|source| QuantiseError::Load { stage: index, source })?;
        Ok(Self { session, index })
    }

    /// Adds what the stage computes to what is known.
    fn run(&mut self, values: &mut Values, sample: usize) -> Result<(), QuantiseError> {
        let known = self.session.inputs().iter();
        let inputs =
            known.filter_map(|spec| Some((spec.name.clone(), values.get(&spec.name)?.clone())));
        let inputs: Vec<(String, Tensor)> = inputs.collect();
        let views: Vec<_> =
            inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
        let stage = self.index;
        let outputs = self.session.run(&views);
        let outputs = outputs.map_err(|source| QuantiseError::Run { stage, sample, source })?;
        let names = self.session.outputs().iter().map(|spec| spec.name.clone());
        values.extend(names.zip(outputs));
        Ok(())
    }
}

fn run(stages: &mut [Loaded], values: &mut Values, sample: usize) -> Result<(), QuantiseError> {
    stages.iter_mut().try_for_each(|stage| stage.run(values, sample))
}

/// The class that these logits name; none when they are no logits.
fn class(values: &Values, output: &str) -> Option<usize> {
    let tensor = values.get(output)?;
    let logits = tensor.f32s().ok().filter(|logits| !logits.is_empty())?;
    matches!(tensor.shape(), [1, _]).then(|| classify(&logits, 1.0).0)
}

/// Names of the tensors that cross after the stages that an edge runs; of the answers where none do.
fn crossing(manifest: &Manifest) -> Vec<&str> {
    let last = manifest.local_stages.checked_sub(1).and_then(|last| manifest.stages.get(last));
    match last.and_then(|stage| stage.cut.as_ref()) {
        Some(cut) => cut.tensors.iter().map(|tensor| tensor.name.as_str()).collect(),
        None => manifest.outputs.iter().map(|output| output.tensor.as_str()).collect(),
    }
}

/// What is compared: the same samples go through both sides, and what comes out of each through a
/// tail of its own values.
struct Sides<'a> {
    plain: Vec<Loaded>,
    varied: Vec<Loaded>,
    tail: Vec<Loaded>,
    /// Name of each stage's exit.
    exits: Vec<Option<&'a str>>,
    /// Names of the tensors whose error is measured.
    crossing: Vec<&'a str>,
    /// Name of the answer.
    answer: &'a str,
}

/// Runs every sample through the stages as they were cut and with those before the cut in the
/// variant. `progress` is called with the number of samples done.
pub(super) fn bundle(
    bundle: &Bundle,
    variant: &str,
    samples: &[Sample],
    progress: &mut dyn FnMut(usize),
) -> Result<Counts, QuantiseError> {
    let manifest = bundle.manifest();
    let held = manifest.local_stages;
    let load = |range: std::ops::Range<usize>, variant| {
        range.map(|index| Loaded::new(bundle, index, variant)).collect::<Result<Vec<_>, _>>()
    };
    let exits = manifest.stages[..held].iter();
    let sides = Sides {
        plain: load(0..held, PLAIN)?,
        varied: load(0..held, variant)?,
        tail: load(held..manifest.stages.len(), PLAIN)?,
        exits: exits.map(|stage| stage.exit.as_ref().map(|exit| exit.output.as_str())).collect(),
        crossing: crossing(manifest),
        answer: manifest.outputs.first().map_or("", |output| output.tensor.as_str()),
    };
    count(sides, samples, progress)
}

/// Runs every sample through two models that answer the same.
pub(super) fn models(
    plain: &[u8],
    varied: &[u8],
    samples: &[Sample],
    progress: &mut dyn FnMut(usize),
) -> Result<Counts, QuantiseError> {
    let load = |model: &[u8]| {
        let session = Session::load(model, &SessionOptions::default(), None);
        session.map_err(|source| QuantiseError::Load { stage: 0, source })
    };
    let session = load(plain)?;
    let names: Vec<String> = session.outputs().iter().map(|spec| spec.name.clone()).collect();
    let sides = Sides {
        plain: vec![Loaded { session, index: 0 }],
        varied: vec![Loaded { session: load(varied)?, index: 0 }],
        tail: vec![],
        exits: vec![None],
        crossing: names.iter().map(String::as_str).collect(),
        answer: names.first().map_or("", String::as_str),
    };
    count(sides, samples, progress)
}

fn count(
    mut sides: Sides<'_>,
    samples: &[Sample],
    progress: &mut dyn FnMut(usize),
) -> Result<Counts, QuantiseError> {
    let mut counts = Counts {
        exits: sides.exits.iter().map(|exit| exit.map(|_| 0)).collect(),
        agreeing: Some(0),
        ..Counts::default()
    };
    let (mut error, mut power) = (0.0, 0.0);
    for (index, sample) in samples.iter().enumerate() {
        let mut expected: Values = sample.inputs.iter().cloned().collect();
        let mut got = expected.clone();
        run(&mut sides.plain, &mut expected, index)?;
        run(&mut sides.varied, &mut got, index)?;
        for (count, exit) in counts.exits.iter_mut().zip(&sides.exits) {
            if let (Some(count), Some(exit)) = (count, exit) {
                *count += u64::from(class(&expected, exit) == class(&got, exit));
            }
        }
        run(&mut sides.tail, &mut expected, index)?;
        run(&mut sides.tail, &mut got, index)?;
        for name in &sides.crossing {
            let floats = |values: &Values| Some(values.get(*name)?.f32s().ok()?.into_owned());
            let (Some(a), Some(b)) = (floats(&expected), floats(&got)) else { continue };
            for (a, b) in a.iter().zip(&b) {
                let (a, b) = (f64::from(*a), f64::from(*b));
                error += (a - b) * (a - b);
                power += a * a;
            }
        }
        let answers = (class(&expected, sides.answer), class(&got, sides.answer));
        counts.agreeing = match (counts.agreeing, answers) {
            (Some(count), (Some(a), Some(b))) => Some(count + u64::from(a == b)),
            _ => None,
        };
        counts.samples += 1;
        progress(index + 1);
    }
    let share = if error == 0.0 { 0.0 } else { f64::sqrt(error / power) };
    counts.error = if share.is_nan() { f64::INFINITY } else { share };
    Ok(counts)
}
