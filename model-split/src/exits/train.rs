//! Training the heads of a bundle, from samples to a manifest: times the shapes, runs the samples,
//! fits and chooses, writes the graphs.

use std::collections::BTreeMap;

use ndarray::Array2;
use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::choose::{self, Chosen, Finished, Judged, softmax};
use super::fit::Targets;
use super::form::{Form, MOST_GRID};
use super::run::{self, Runner};
use super::slot::{Gathered, Slot, time};
use super::{Against, ExitsError, NewExit, Options, Progress, Step, Trained};
use crate::bundle::{Bundle, BundleError};
use crate::digest::Digest;
use crate::exit::classify;
use crate::head;
use crate::manifest::{Exit, Head};
use crate::onnx;
use crate::samples::Sample;
use crate::weights;

/// Fewest samples from which anything can be chosen.
const LEAST_SAMPLES: usize = 100;
/// One of this many samples is held out.
const HELD_OUT: usize = 5;
const MOST_HIDDEN: usize = 4096;
/// Most bytes of features that are kept in memory.
const MOST_BYTES: usize = 4 << 30;

/// Trains an exit for each of `options.stages`. Without `whole`, the stages of the bundle one after
/// the other are the whole model.
///
/// # Errors
/// [`ExitsError`].
pub fn train(
    bundle: &Bundle,
    whole: Option<&[u8]>,
    samples: &[Sample],
    options: &Options,
    progress: Progress<'_>,
) -> Result<Trained, ExitsError> {
    let classes = run::classes(bundle.manifest().outputs.first())?;
    let stages = check(bundle, samples, options, classes)?;
    let needed = match whole {
        Some(_) => stages.last().map_or(0, |last| last + 1),
        None => bundle.stages(),
    };
    let models = (0..needed).map(|stage| plain(bundle, stage)).collect::<Result<Vec<_>, _>>()?;
    let mut runner = Runner::load(bundle, &models, whole)?;
    let mut slots = Vec::new();
    for stage in stages {
        slots.push(Slot::new(bundle, stage, options, classes)?);
    }
    time(&mut slots, &models, &mut runner, &samples[0], options)?;
    let gathered = gather(&mut slots, &mut runner, samples, options.against, progress)?;
    let (train, held_out) = divide(samples.len(), options.seed);
    let steps = slots.iter().map(|slot| slot.shapes.len()).sum();
    let mut done = 0;
    let mut heads = Vec::new();
    for slot in &mut slots {
        let mut fitted = || {
            done += 1;
            progress(Step::Fitting, done, steps);
        };
        heads.push(slot.fit(&gathered, (&train, &held_out), options.seed, &mut fitted)?);
    }
    attach(bundle, slots, heads, &gathered, (&train, &held_out), options.budget)
}

/// Refuses what cannot work; returns the stages in order, each once.
fn check(
    bundle: &Bundle,
    samples: &[Sample],
    options: &Options,
    classes: usize,
) -> Result<Vec<usize>, ExitsError> {
    let odd = |text: String| Err(ExitsError::Options(text));
    let mut stages = options.stages.clone();
    stages.sort_unstable();
    stages.dedup();
    if stages.is_empty() || options.grids.is_empty() || options.hidden.is_empty() {
        return odd("stages, grids and hidden must each name at least one".into());
    }
    if let Some(grid) = options.grids.iter().find(|grid| !(1..=MOST_GRID).contains(*grid)) {
        return odd(format!("a grid must be 1 to {MOST_GRID}, not {grid}"));
    }
    if let Some(hidden) = options.hidden.iter().find(|hidden| **hidden > MOST_HIDDEN) {
        return odd(format!("a hidden layer must have at most {MOST_HIDDEN} units, not {hidden}"));
    }
    if !(options.most_time > 0.0 && (0.0..=1.0).contains(&options.budget)) {
        return odd("the time must be above 0, and the budget 0 to 1".into());
    }
    if samples.len() < LEAST_SAMPLES {
        let count = samples.len();
        let text = format!("{count} samples are too few: at least {LEAST_SAMPLES} are needed");
        return Err(ExitsError::Samples(text));
    }
    if options.against == Against::Labels {
        let wrong = samples.iter().position(|s| s.label.is_none_or(|label| label >= classes));
        if let Some(at) = wrong {
            let text = match samples[at].label {
                None => format!("sample {at} has no label; train against the model instead"),
                Some(label) => format!("sample {at} has the label {label} of {classes} classes"),
            };
            return Err(ExitsError::Samples(text));
        }
    }
    for stage in &stages {
        let found = bundle.manifest().stages.get(*stage);
        if found.is_none() {
            let (stage, stages) = (*stage, bundle.stages());
            return Err(BundleError::NoStage { stage, stages }.into());
        }
        if options.keep && found.is_some_and(|stage| stage.exit.is_some()) {
            let reason = "it has an exit already, which is to be kept".into();
            return Err(ExitsError::Stage { stage: *stage, reason });
        }
    }
    Ok(stages)
}

/// A stage without its exit; the last stage as it is.
fn plain(bundle: &Bundle, stage: usize) -> Result<Vec<u8>, ExitsError> {
    let model = bundle.stage_model(stage)?;
    let Some(cut) = bundle.manifest().stages.get(stage).and_then(|stage| stage.cut.as_ref()) else {
        return Ok(model);
    };
    let mut model = onnx::decode(model.into())?;
    let names: Vec<&str> = cut.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    let key = format!("stages[{stage}]");
    head::keep(&mut model, &names).map_err(|source| ExitsError::Head { key, source })?;
    Ok(onnx::encode(&model))
}

/// Runs all samples, and keeps the features of each slot in it.
fn gather(
    slots: &mut [Slot],
    runner: &mut Runner,
    samples: &[Sample],
    against: Against,
    progress: Progress<'_>,
) -> Result<Gathered, ExitsError> {
    for slot in &mut *slots {
        let mut forms: Vec<Form> = slot.shapes.iter().map(|(form, _)| *form).collect();
        forms.dedup();
        slot.features = forms.into_iter().map(|form| (form, vec![])).collect();
    }
    let width: usize =
        slots.iter().flat_map(|slot| &slot.features).map(|(form, _)| form.features()).sum();
    let bytes = width.saturating_mul(samples.len()).saturating_mul(size_of::<f32>());
    if bytes > MOST_BYTES {
        let (count, most) = (samples.len(), MOST_BYTES >> 20);
        return Err(ExitsError::Samples(format!(
            "the features of {count} samples take {} MiB, more than {most}: take fewer samples or \
             smaller grids",
            bytes >> 20
        )));
    }
    let mut answers: Vec<Vec<f32>> = Vec::new();
    for (index, sample) in samples.iter().enumerate() {
        let passed = runner.run(index, sample)?;
        for slot in &mut *slots {
            slot.take(index, &passed.stages[slot.stage])?;
        }
        if !passed.answer.iter().all(|value| value.is_finite()) {
            let text = format!("the whole model's answer to sample {index} is not finite");
            return Err(ExitsError::Samples(text));
        }
        answers.push(passed.answer);
        progress(Step::Running, index + 1, samples.len());
    }
    let probabilities = answers.iter().all(|row| {
        row.iter().all(|value| *value >= 0.0) && (row.iter().sum::<f32>() - 1.0).abs() < 1e-3
    });
    let whole: Vec<usize> = answers.iter().map(|row| classify(row, 1.0).0).collect();
    let (targets, classes) = match against {
        Against::Labels => {
            let labels: Vec<usize> = samples.iter().filter_map(|sample| sample.label).collect();
            (Targets::Classes(labels.clone()), labels)
        }
        Against::Model => {
            let width = answers.first().map_or(0, Vec::len);
            let soft = |row: Vec<f32>| if probabilities { row } else { softmax(&row) };
            let values: Vec<f32> = answers.into_iter().flat_map(soft).collect();
            let soft = Array2::from_shape_vec((samples.len(), width), values);
            (Targets::Soft(soft.unwrap_or_default()), whole.clone())
        }
    };
    Ok(Gathered { targets, classes, whole, probabilities })
}

/// Indices to fit to and to hold out, in an order that the seed decides.
fn divide(count: usize, seed: u64) -> (Vec<usize>, Vec<usize>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        // The product's high half is as good as even for any count that fits in memory.
        let other = (u128::from(rng.next_u64()) * (last as u128 + 1)) >> 64;
        order.swap(last, other as usize);
    }
    let held_out = order.split_off(count - count / HELD_OUT);
    (order, held_out)
}

/// Writes the heads as blobs and the exits into the manifest.
fn attach(
    bundle: &Bundle,
    slots: Vec<Slot>,
    heads: Vec<(Form, Chosen, Finished)>,
    gathered: &Gathered,
    (train, held_out): (&[usize], &[usize]),
    budget: f64,
) -> Result<Trained, ExitsError> {
    let judged = judged(&heads, gathered, held_out);
    let threshold_milli = choose::threshold_milli(&judged, budget);
    let (mut manifest, mut blobs) = (bundle.manifest().clone(), BTreeMap::new());
    let mut exits = Vec::new();
    for (at, (slot, (form, chosen, head))) in slots.into_iter().zip(heads).enumerate() {
        let (mut model, output) = slot.head(form, &head.layers, gathered.probabilities);
        for (key, graph) in &slot.graphs {
            // Whether one head serves the stage and all its variants.
            let failed = |source| ExitsError::Head { key: key.clone(), source };
            head::merge(&mut graph.clone(), model.clone()).map_err(failed)?;
        }
        let mut blob = |bytes: Vec<u8>| {
            let digest = Digest::of(&bytes);
            blobs.insert(digest, bytes);
            digest
        };
        let weights = blob(weights::detach(&mut model));
        let graph = blob(onnx::encode(&model));
        manifest.stages[slot.stage].exit = Some(Exit {
            output,
            temperature_milli: head.temperature_milli,
            threshold_milli: Some(threshold_milli),
            head: Some(Head { graph, weights }),
        });
        let share = |holds: &dyn Fn(&Judged) -> bool| {
            judged.iter().filter(|row| holds(row)).count() as f64 / judged.len().max(1) as f64
        };
        let sure = |row: &Judged| {
            row.exits.iter().position(|exit| exit.1 >= choose::threshold(threshold_milli))
        };
        let tried = slot.tried.iter().find(|tried| tried.of(form, chosen.shape));
        let (time, alone_us) = tried.map_or((0.0, 0.0), |tried| (tried.time, tried.alone_us));
        exits.push(NewExit {
            stage: slot.stage,
            tensor: slot.tensor.name,
            grid: form.grid(),
            hidden: chosen.shape.hidden,
            penalty: chosen.penalty,
            parameters: chosen.shape.parameters(),
            temperature_milli: head.temperature_milli,
            threshold_milli,
            front_us: slot.front_us,
            time,
            alone_us,
            agreement: share(&|row| row.exits[at].0 == row.whole),
            answered: share(&|row| sure(row) == Some(at)),
            tried: slot.tried,
        });
    }
    Ok(Trained { manifest, blobs, exits, trained_on: train.len(), held_out: held_out.len() })
}

/// What the new exits and the whole model say of the held-out samples.
fn judged(
    heads: &[(Form, Chosen, Finished)],
    gathered: &Gathered,
    held_out: &[usize],
) -> Vec<Judged> {
    let of_row = |(row, sample): (usize, &usize)| {
        let exits = heads.iter().map(|(_, _, head)| {
            choose::judge(&head.answers.row(row).to_vec(), head.temperature_milli)
        });
        Judged { exits: exits.collect(), whole: gathered.whole[*sample] }
    };
    held_out.iter().enumerate().map(of_row).collect()
}
