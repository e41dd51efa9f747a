//! What the exits of a bundle are worth on samples that had no part in making them: how many they
//! may answer while at most a share of all answers is lost by it. The best threshold is looked for
//! on these very samples, so that heads are compared, and nothing is promised.

use super::choose::{Judged, judge, threshold, threshold_milli};
use super::run::Runner;
use super::{ExitsError, Progress, Step};
use crate::bundle::Bundle;
use crate::exit::classify;
use crate::samples::Sample;

/// One exit, taken alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The stage whose exit it is.
    pub stage: usize,
    /// Samples.
    pub samples: usize,
    /// Share of the samples that the exit may answer, at the best threshold, while at most the
    /// budget of all is answered otherwise than by the whole model.
    pub answered: f64,
    /// That threshold, in thousandths.
    pub threshold_milli: u32,
    /// Share of all samples for which the exit says what the whole model says.
    pub agreement: f64,
    /// Share of all samples for which it is right; none without labels.
    pub accuracy: Option<f64>,
    /// Distance between its confidence and its agreement: the mean over 15 bins of equal width.
    pub calibration_error: f64,
}

/// Scores every exit that stands before the last stage.
///
/// # Errors
/// When a model does not load or run, or is no classifier.
pub fn score(
    bundle: &Bundle,
    whole: Option<&[u8]>,
    samples: &[Sample],
    budget: f64,
    progress: Progress<'_>,
) -> Result<Vec<Score>, ExitsError> {
    let stages = &bundle.manifest().stages;
    let exits: Vec<(usize, &crate::manifest::Exit)> = stages
        .iter()
        .enumerate()
        .filter(|(_, stage)| stage.cut.is_some())
        .filter_map(|(index, stage)| Some((index, stage.exit.as_ref()?)))
        .collect();
    let needed = match whole {
        Some(_) => exits.last().map_or(0, |(stage, _)| stage + 1),
        None => stages.len(),
    };
    let models = (0..needed).map(|stage| bundle.stage_model(stage));
    let models: Vec<Vec<u8>> = models.collect::<Result<_, _>>()?;
    let mut runner = Runner::load(bundle, &models, whole)?;
    let mut rows: Vec<Vec<Judged>> = exits.iter().map(|_| Vec::new()).collect();
    for (index, sample) in samples.iter().enumerate() {
        let passed = runner.run(index, sample)?;
        let (whole, _) = classify(&passed.answer, 1.0);
        for ((stage, exit), rows) in exits.iter().zip(&mut rows) {
            let found = passed.stages[*stage].iter().find(|(name, _)| *name == exit.output);
            let values = found.and_then(|(_, tensor)| tensor.f32s().ok());
            let values = values.ok_or_else(|| ExitsError::Stage {
                stage: *stage,
                reason: format!("it gave no FP32 \"{}\"", exit.output),
            })?;
            rows.push(Judged { exits: vec![judge(&values, exit.temperature_milli)], whole });
        }
        progress(Step::Scoring, index + 1, samples.len());
    }
    let scores = exits.iter().zip(&rows);
    Ok(scores.map(|((stage, _), rows)| summary(*stage, rows, samples, budget)).collect())
}

fn summary(stage: usize, rows: &[Judged], samples: &[Sample], budget: f64) -> Score {
    let count = rows.len().max(1) as f64;
    let milli = threshold_milli(rows, budget);
    let share = |holds: &dyn Fn(usize, f32, &Judged) -> bool| {
        let hits = rows.iter().filter(|row| row.exits.iter().all(|(c, s)| holds(*c, *s, row)));
        hits.count() as f64 / count
    };
    let labelled = !samples.is_empty() && samples.iter().all(|sample| sample.label.is_some());
    let right = rows
        .iter()
        .zip(samples)
        .filter(|(row, sample)| row.exits.iter().any(|(class, _)| Some(*class) == sample.label));
    Score {
        stage,
        samples: rows.len(),
        answered: share(&|_, confidence, _| confidence >= threshold(milli)),
        threshold_milli: milli,
        agreement: share(&|class, _, row| class == row.whole),
        accuracy: labelled.then(|| right.count() as f64 / count),
        calibration_error: calibration_error(rows),
    }
}

fn calibration_error(rows: &[Judged]) -> f64 {
    const BINS: usize = 15;
    let mut bins = [(0.0, 0.0); BINS];
    for row in rows {
        for (class, confidence) in &row.exits {
            let bin = (f64::from(*confidence) * BINS as f64).max(0.0) as usize;
            let (sure, agreed) = &mut bins[bin.min(BINS - 1)];
            *sure += f64::from(*confidence);
            *agreed += f64::from(u8::from(*class == row.whole));
        }
    }
    bins.iter().map(|(sure, agreed): &(f64, f64)| (sure - agreed).abs()).sum::<f64>()
        / rows.len().max(1) as f64
}
