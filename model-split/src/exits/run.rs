//! Running samples through a bundle's stages and through the whole model: what heads are trained
//! and judged on. Nothing is quantised, as exits read a tensor before it crosses. It must not judge.

use midspan_runtime::{Executor, Session, SessionOptions, Tensor, TensorRef, TensorSpec};

use super::ExitsError;
use crate::bundle::Bundle;
use crate::manifest::{AppTensor, InnerTensor};
use crate::samples::Sample;

/// The stages up to some cut, and what says what the whole model answers.
pub(super) struct Runner {
    stages: Vec<Loaded>,
    whole: Option<(Session, usize)>,
    answer: String,
    classes: usize,
}

struct Loaded {
    session: Session,
    reads: Vec<String>,
}

/// What became of one sample.
pub(super) struct Passed {
    /// Outputs of each stage that ran, by their names.
    pub(super) stages: Vec<Vec<(String, Tensor)>>,
    /// What the whole model answers for it, one value per class.
    pub(super) answer: Vec<f32>,
}

/// The number of classes that a model answers, whose first output is this.
pub(super) fn classes(output: Option<&AppTensor>) -> Result<usize, ExitsError> {
    let refuse = |found: String| {
        let reason = "exits are for classifiers, whose first output is FP32 [rows, classes]";
        ExitsError::NoClassifier(format!("{reason}; {found}"))
    };
    let Some(output) = output else { return Err(refuse("the model has none".into())) };
    let found = || format!("\"{}\" is {} {:?}", output.tensor, output.datatype, output.shape);
    match output.shape.as_slice() {
        [_, count] if output.datatype == "FP32" && *count >= 2 => {
            usize::try_from(*count).map_err(|_| refuse(found()))
        }
        _ => Err(refuse(found())),
    }
}

impl Runner {
    /// Loads these models as the first stages of `bundle`, which must be all of them where there
    /// is no `whole` model.
    pub(super) fn load(
        bundle: &Bundle,
        stages: &[Vec<u8>],
        whole: Option<&[u8]>,
    ) -> Result<Self, ExitsError> {
        let manifest = bundle.manifest();
        let classes = classes(manifest.outputs.first())?;
        let answer =
            manifest.outputs.first().map_or("", |output| output.tensor.as_str()).to_owned();
        let load = |model: &[u8]| Session::load(model, &SessionOptions::default(), None);
        let whole = whole.map(load).transpose()?;
        let whole = match whole {
            None => None,
            Some(session) => {
                let position = session.outputs().iter().position(|found| found.name == answer);
                let absent = || {
                    let text = format!("the whole model has no output \"{answer}\"");
                    ExitsError::NoClassifier(text)
                };
                let position = position.ok_or_else(absent)?;
                Some((session, position))
            }
        };
        let mut loaded = Vec::new();
        for (model, stage) in stages.iter().zip(&manifest.stages) {
            let reads = stage.inputs.iter().map(|input| input.name.clone()).collect();
            loaded.push(Loaded { session: load(model)?, reads });
        }
        Ok(Self { stages: loaded, whole, answer, classes })
    }

    /// Runs one sample, which has the number `index` in messages.
    pub(super) fn run(&mut self, index: usize, sample: &Sample) -> Result<Passed, ExitsError> {
        let failed = |source| ExitsError::Run { sample: index, source };
        let mut passed: Vec<Vec<(String, Tensor)>> = Vec::new();
        for stage in &mut self.stages {
            let given = passed.last().unwrap_or(&sample.inputs);
            let inputs = select(&stage.reads, given);
            let outputs = stage.session.run(&inputs).map_err(failed)?;
            let names = stage.session.outputs().iter().map(|output| output.name.clone());
            passed.push(names.zip(outputs).collect());
        }
        let answer = match &mut self.whole {
            Some((whole, position)) => {
                let reads: Vec<String> =
                    whole.inputs().iter().map(|input| input.name.clone()).collect();
                let mut outputs = whole.run(&select(&reads, &sample.inputs)).map_err(failed)?;
                Some(outputs.swap_remove(*position))
            }
            None => {
                let last = passed.last().into_iter().flatten();
                last.into_iter().find(|(name, _)| *name == self.answer).map(|(_, out)| out.clone())
            }
        };
        let values = answer.as_ref().and_then(|answer| answer.f32s().ok());
        match values {
            Some(values) if values.len() == self.classes => {
                Ok(Passed { stages: passed, answer: values.into_owned() })
            }
            _ => Err(ExitsError::NoClassifier(format!(
                "sample {index}: \"{}\" is not one row of {} FP32 values",
                self.answer, self.classes
            ))),
        }
    }
}

/// What a model reads of what is given, by name; what is missing is the model's to say.
fn select<'a>(reads: &'a [String], given: &'a [(String, Tensor)]) -> Vec<(&'a str, TensorRef<'a>)> {
    let find = |name: &'a String| {
        let found = given.iter().find(|(other, _)| other == name)?;
        Some((name.as_str(), found.1.view()))
    };
    reads.iter().filter_map(find).collect()
}

/// The tensor of a stage's cut that a head reads: the first that it can read.
pub(super) fn readable(bundle: &Bundle, stage: usize) -> Result<TensorSpec, ExitsError> {
    let stages = &bundle.manifest().stages;
    let Some(found) = stages.get(stage) else {
        let reason = format!("the bundle has {} stages", stages.len());
        return Err(ExitsError::Stage { stage, reason });
    };
    let Some(cut) = &found.cut else {
        let reason = "it is the last one, which answers itself".into();
        return Err(ExitsError::Stage { stage, reason });
    };
    let specs: Vec<TensorSpec> = cut.tensors.iter().filter_map(InnerTensor::spec).collect();
    let first = specs.iter().find(|spec| super::form::Form::of(spec, 1).is_ok());
    let Some(first) = first.or(specs.first()) else {
        return Err(ExitsError::Stage { stage, reason: "nothing crosses its cut".into() });
    };
    // Says why not.
    super::form::Form::of(first, 1)?;
    Ok(first.clone())
}
