//! Choosing a head on samples that it was not fitted to: its grid, hidden layer and penalty by
//! their cross-entropy, its temperature by the same, and a first threshold by counting. The
//! threshold is no promise: a certificate needs samples that nothing was chosen on.

use argmin::core::{CostFunction, Executor, State};
use argmin::solver::brent::BrentOpt;
use ndarray::{Array1, Array2, Axis};

use super::fit::{self, Fitted, Layers, Rows, Shape, Targets};
use crate::exit::ExitRule;

/// Training rows that choosing looks at; the chosen head is fitted to all.
const MOST_ROWS: usize = 10_000;
/// Penalties that are tried, largest first: each divided by the number of rows.
const PENALTIES: [f64; 4] = [100.0, 10.0, 1.0, 0.1];
/// Temperatures are looked for in this range.
const TEMPERATURES: (f64, f64) = (0.01, 100.0);

/// Rows of one form, divided into those to fit to and those to choose on.
pub(super) struct Divided {
    pub(super) train: Rows,
    pub(super) held_out: Rows,
    /// The class of each held-out row that its confidence speaks of.
    pub(super) classes: Vec<usize>,
    mean: Array1<f32>,
    scale: Array1<f32>,
}

impl Divided {
    /// Takes rows apart by their indices and standardises all by the mean and deviation of those
    /// to fit to. A feature that never changes there is left out.
    pub(super) fn new(rows: &Rows, classes: &[usize], train: &[usize], held_out: &[usize]) -> Self {
        let mut fitted = rows.features.select(Axis(0), train);
        let mut judged = rows.features.select(Axis(0), held_out);
        let count = train.len().max(1) as f64;
        let moment = |column: ndarray::ArrayView1<'_, f32>| {
            let mean = column.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
            let squares = column.iter().map(|value| (f64::from(*value) - mean).powi(2));
            let deviation = (squares.sum::<f64>() / count).sqrt();
            let usable = deviation > 1e-6 * mean.abs().max(1e-3);
            (mean as f32, if usable { (1.0 / deviation) as f32 } else { 0.0 })
        };
        let moments: Vec<(f32, f32)> = fitted.columns().into_iter().map(moment).collect();
        let mean: Array1<f32> = moments.iter().map(|moment| moment.0).collect();
        let scale: Array1<f32> = moments.iter().map(|moment| moment.1).collect();
        for features in [&mut fitted, &mut judged] {
            *features -= &mean;
            *features *= &scale;
        }
        let targets = |indices: &[usize]| match &rows.targets {
            Targets::Soft(soft) => Targets::Soft(soft.select(Axis(0), indices)),
            Targets::Classes(all) => Targets::Classes(indices.iter().map(|at| all[*at]).collect()),
        };
        Self {
            train: Rows { features: fitted, targets: targets(train) },
            held_out: Rows { features: judged, targets: targets(held_out) },
            classes: held_out.iter().map(|at| classes[*at]).collect(),
            mean,
            scale,
        }
    }

    /// The first rows to fit to, as they are in no order.
    fn some(&self) -> Rows {
        let count = self.train.features.nrows().min(MOST_ROWS);
        let indices: Vec<usize> = (0..count).collect();
        let targets = match &self.train.targets {
            Targets::Soft(soft) => Targets::Soft(soft.select(Axis(0), &indices)),
            Targets::Classes(all) => Targets::Classes(all[..count].to_vec()),
        };
        Rows { features: self.train.features.select(Axis(0), &indices), targets }
    }
}

/// The best head of one shape.
pub(super) struct Chosen {
    pub(super) shape: Shape,
    /// The penalty, before it is divided by the number of rows.
    pub(super) penalty: f64,
    fitted: Fitted,
    /// Mean negative logarithm of the held-out classes' probabilities, at the best
    /// temperature.
    pub(super) held_out: f64,
}

/// Fits heads of one shape, from the largest penalty down, each from where the last one ended,
/// until the held-out rows say that smaller ones do harm.
pub(super) fn choose(data: &Divided, shape: Shape, probabilities: bool, seed: u64) -> Chosen {
    let rows = data.some();
    let count = rows.features.nrows().max(1) as f64;
    let attempt = |penalty: f64, start: Vec<f64>| {
        let fitted = fit::fit(&rows, &data.held_out, shape, penalty / count, start);
        let answers = data.answers(&fitted.layers, probabilities);
        let (_, held_out) = temperature(&answers, &data.classes);
        Chosen { shape, penalty, fitted, held_out }
    };
    let mut best = attempt(PENALTIES[0], shape.start(seed));
    for penalty in &PENALTIES[1..] {
        let next = attempt(*penalty, best.fitted.params.clone());
        if next.held_out >= best.held_out {
            break;
        }
        best = next;
    }
    best
}

/// The finished head: fitted to all rows, for features as they are.
pub(super) struct Finished {
    pub(super) layers: Layers,
    pub(super) temperature_milli: u32,
    /// What the held-out rows get.
    pub(super) answers: Array2<f32>,
}

/// Fits the chosen head to all rows where choosing saw some, and sets its temperature.
pub(super) fn finish(data: &Divided, chosen: &Chosen, probabilities: bool) -> Finished {
    let count = data.train.features.nrows();
    let fitted = if count > MOST_ROWS {
        let decay = chosen.penalty / count as f64;
        let start = chosen.fitted.params.clone();
        fit::fit(&data.train, &data.held_out, chosen.shape, decay, start)
    } else {
        chosen.fitted.clone()
    };
    let answers = data.answers(&fitted.layers, probabilities);
    let (temperature, _) = temperature(&answers, &data.classes);
    Finished {
        layers: fitted.layers.folded(&data.mean, &data.scale),
        temperature_milli: (temperature * 1000.0).round().clamp(1.0, 1e6) as u32,
        answers,
    }
}

impl Divided {
    fn answers(&self, layers: &Layers, probabilities: bool) -> Array2<f32> {
        let mut answers = layers.logits(self.held_out.features.view());
        if probabilities {
            for mut row in answers.rows_mut() {
                let probabilities = softmax(&row.to_vec());
                row.assign(&Array1::from_vec(probabilities));
            }
        }
        answers
    }
}

/// `exp(x) / sum(exp(x))` of one row.
pub(super) fn softmax(row: &[f32]) -> Vec<f32> {
    let largest = row.iter().fold(f32::NEG_INFINITY, |best, value| best.max(*value));
    let powers: Vec<f64> = row.iter().map(|value| f64::from(value - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| (power / sum) as f32).collect()
}

struct Scaled<'a> {
    answers: &'a Array2<f32>,
    classes: &'a [usize],
}

impl CostFunction for Scaled<'_> {
    type Param = f64;
    type Output = f64;

    /// Mean negative log-likelihood at the temperature `exp(log)`.
    fn cost(&self, log: &f64) -> Result<f64, argmin::core::Error> {
        let temperature = log.exp();
        let rows = self.answers.rows().into_iter().zip(self.classes);
        let sum: f64 = rows
            .map(|(row, class)| {
                let largest = row.fold(f32::NEG_INFINITY, |best, value| best.max(*value));
                let scaled = |value: f32| f64::from(value - largest) / temperature;
                row.iter().map(|value| scaled(*value).exp()).sum::<f64>().ln() - scaled(row[*class])
            })
            .sum();
        Ok(sum / self.classes.len().max(1) as f64)
    }
}

/// The temperature with the least mean negative log-likelihood, found by Brent's method on its
/// logarithm, in which that has one minimum; and the likelihood.
pub(super) fn temperature(answers: &Array2<f32>, classes: &[usize]) -> (f64, f64) {
    let problem = Scaled { answers, classes };
    let plain = problem.cost(&0.0).unwrap_or(f64::INFINITY);
    let solver = BrentOpt::new(TEMPERATURES.0.ln(), TEMPERATURES.1.ln());
    let run = Executor::new(problem, solver).configure(|state| state.max_iters(100)).run();
    let found = run.ok().and_then(|result| {
        let log = *result.state.get_best_param()?;
        Some((log.exp(), result.state.get_best_cost()))
    });
    found.filter(|(_, cost)| *cost <= plain).unwrap_or((1.0, plain))
}

/// What the exits before a cut say of one row: for each the class and its confidence. And what the
/// whole model says.
pub(super) struct Judged {
    pub(super) exits: Vec<(usize, f32)>,
    pub(super) whole: usize,
}

/// The least threshold, in thousandths, at which at most `budget` (0 to 1) of the rows are answered
/// by the first exit that is as sure, and otherwise than by the whole model; 1000 where no other
/// keeps to it.
pub(super) fn threshold_milli(rows: &[Judged], budget: f64) -> u32 {
    let allowed = (budget * rows.len() as f64).floor() as usize;
    let losses = |milli: u32| {
        let answered = |row: &&Judged| {
            let sure = row.exits.iter().find(|(_, confidence)| *confidence >= threshold(milli));
            sure.is_some_and(|(class, _)| *class != row.whole)
        };
        rows.iter().filter(answered).count()
    };
    // From above, so that a lucky dip far below does not count.
    (0..1000).rev().take_while(|milli| losses(*milli) <= allowed).last().unwrap_or(1000)
}

/// A threshold in thousandths as an exit's rule has it.
pub(super) fn threshold(milli: u32) -> f32 {
    milli as f32 / 1000.0
}

/// Class and confidence of one row of answers.
pub(super) fn judge(row: &[f32], temperature_milli: u32) -> (usize, f32) {
    let rule = ExitRule { temperature: temperature_milli as f32 / 1000.0, threshold: 0.0 };
    let decision = rule.decide(row);
    // A row that is not sound is never sure.
    (decision.class, if decision.sure { decision.confidence } else { -1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_temperature_undoes_a_scale() {
        // Two classes with log-odds that are right: 1 in 4 of the rows is of the other class.
        let right = 3f32.ln();
        let classes = [0, 0, 0, 1];
        for scale in [0.2f32, 1.0, 7.0] {
            let answers =
                Array2::from_shape_fn(
                    (4, 2),
                    |(_, class)| {
                        if class == 0 { right * scale } else { 0.0 }
                    },
                );
            let (found, likelihood) = temperature(&answers, &classes);
            assert!((found / f64::from(scale) - 1.0).abs() < 1e-3, "{found} is not {scale}");
            let expected = -(0.75 * 0.75f64.ln() + 0.25 * 0.25f64.ln());
            assert!((likelihood - expected).abs() < 1e-6);
        }
        // Rows that are all right would be infinitely sure: the range bounds it.
        let answers = Array2::from_shape_fn((4, 2), |(_, class)| class as f32);
        let (coldest, _) = temperature(&answers, &[1; 4]);
        assert!((0.0099..0.05).contains(&coldest), "{coldest}");
    }

    #[test]
    fn the_threshold_keeps_to_the_budget() {
        let row = |class, confidence, whole| Judged { exits: vec![(class, confidence)], whole };
        let rows = [row(0, 0.9, 0), row(0, 0.8, 1), row(0, 0.7, 0), row(0, 0.6, 1)];
        assert_eq!(threshold_milli(&rows, 0.0), 801);
        assert_eq!(threshold_milli(&rows, 0.25), 601);
        assert_eq!(threshold_milli(&rows, 0.5), 0);
        assert_eq!(threshold_milli(&[row(0, 1.0, 1)], 0.0), 1000);
        // The first exit that is sure answers.
        let two = |second| Judged { exits: vec![(0, 0.5), (1, second)], whole: 1 };
        assert_eq!(threshold_milli(&[two(0.9), two(0.4)], 0.0), 501);
    }

    #[test]
    fn features_are_standardised_by_the_rows_that_are_fitted_to() {
        let features =
            Array2::from_shape_vec((4, 2), vec![1.0, 5.0, 3.0, 5.0, 9.0, 7.0, 0.0, 0.0]).unwrap();
        let rows = Rows { features, targets: Targets::Classes(vec![0, 1, 1, 0]) };
        let data = Divided::new(&rows, &[0, 1, 1, 0], &[0, 1], &[3, 2]);
        assert_eq!(data.train.features.column(0).to_vec(), [-1.0, 1.0]);
        assert_eq!(data.held_out.features.column(0).to_vec(), [-2.0, 7.0]);
        assert_eq!(data.held_out.features.column(1).to_vec(), [0.0, 0.0], "it never changed");
        assert_eq!(data.classes, [0, 1]);
    }
}
