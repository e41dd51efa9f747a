//! Fitting the temperatures of exits anew, on samples of their own: the temperature under which
//! the logits give the right classes the largest likelihood. What was fitted on a sample must not
//! be certified on it, so the samples are divided first. Not done unless asked for.

use argmin::core::{CostFunction, Error, Executor, State};
use argmin::solver::brent::BrentOpt;
use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::answers::{Answers, ExitLogits, Logits};
use crate::exit::classify;
use crate::manifest::Manifest;

/// One of this many samples is for the temperatures.
const PART: u32 = 5;
/// Temperatures are looked for between the reciprocal of this and itself.
const WIDEST: f64 = 20.0;
const MOST_STEPS: u64 = 100;

/// What was fitted, and what is left to certify.
#[derive(Clone, Debug, PartialEq)]
pub struct Refitted {
    /// The manifest with the new temperatures.
    pub manifest: Manifest,
    /// The other samples' answers.
    pub answers: Answers,
    /// Which samples these are.
    pub left: Vec<usize>,
}

/// The negative log-likelihood of classes, as a function of the logarithm of the temperature.
struct Likelihood<'a> {
    rows: Vec<(&'a [f32], usize)>,
}

impl CostFunction for Likelihood<'_> {
    type Param = f64;
    type Output = f64;

    fn cost(&self, log_temperature: &f64) -> Result<f64, Error> {
        let temperature = log_temperature.exp();
        let loss = |(logits, class): &(&[f32], usize)| {
            let largest = logits.iter().fold(f32::NEG_INFINITY, |most, logit| most.max(*logit));
            let scaled = |logit: f32| (f64::from(logit) - f64::from(largest)) / temperature;
            let sum: f64 = logits.iter().map(|logit| scaled(*logit).exp()).sum();
            sum.ln() - logits.get(*class).map_or(0.0, |logit| scaled(*logit))
        };
        Ok(self.rows.iter().map(loss).sum())
    }
}

/// Divides the samples by `seed`, fits the temperature of every exit on a fifth of them (on labels
/// where there are some, else on the whole model's classes) and leaves the rest.
pub fn refit(manifest: &Manifest, answers: &Answers, seed: u64) -> Refitted {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (fitted, left): (Vec<usize>, Vec<usize>) =
        (0..answers.whole.len()).partition(|_| rng.next_u32() < u32::MAX / PART);
    let mut manifest = manifest.clone();
    for found in &answers.exits {
        let class = |index: usize| {
            let whole = || answers.whole.row(index).map(|logits| classify(logits, 1.0).0);
            answers.labels[index].or_else(whole)
        };
        let rows = fitted.iter().filter_map(|index| {
            let logits = found.logits.row(*index)?;
            logits.iter().all(|logit| logit.is_finite()).then_some((logits, class(*index)?))
        });
        let temperature = fit(rows.collect());
        let exit = manifest.stages.get_mut(found.stage).and_then(|stage| stage.exit.as_mut());
        if let (Some(exit), Some(temperature)) = (exit, temperature) {
            exit.temperature_milli = ((temperature * 1000.0).round() as u32).max(1);
        }
    }
    Refitted { manifest, answers: some(answers, &left), left }
}

/// The temperature of the largest likelihood; none without rows.
fn fit(rows: Vec<(&[f32], usize)>) -> Option<f64> {
    if rows.is_empty() {
        return None;
    }
    let solver = BrentOpt::new(-WIDEST.ln(), WIDEST.ln());
    let run = Executor::new(Likelihood { rows }, solver)
        .configure(|state| state.max_iters(MOST_STEPS))
        .run();
    Some(run.ok()?.state().get_best_param()?.exp())
}

/// The answers to some of the samples.
fn some(answers: &Answers, indices: &[usize]) -> Answers {
    let pick = |logits: &Logits| {
        let rows: Vec<&[f32]> = indices.iter().filter_map(|index| logits.row(*index)).collect();
        Logits::new(rows.first().map_or(0, |row| row.len()), rows.concat())
    };
    Answers {
        exits: answers
            .exits
            .iter()
            .map(|exit| ExitLogits { stage: exit.stage, logits: pick(&exit.logits) })
            .collect(),
        whole: pick(&answers.whole),
        labels: indices.iter().map(|index| answers.labels[*index]).collect(),
    }
}
