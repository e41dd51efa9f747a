//! Fitting a head to features: softmax cross-entropy with an L2 penalty, minimised by L-BFGS
//! (Liu and Nocedal, "On the limited memory BFGS method for large scale optimization", Mathematical
//! Programming 45, 1989) with the gradient written out here. After every few steps the loss on rows
//! that are not fitted to is looked at, and the best weights by it are kept.
//!
//! Sums over rows run in a fixed order and nothing is random but the start of a hidden layer, which
//! is made of a seed: the same rows give the same weights on one machine. It must not choose the
//! shape or the penalty.

use std::cell::RefCell;

use argmin::core::{CostFunction, Executor, Gradient, State, TerminationReason, TerminationStatus};
use argmin::solver::linesearch::MoreThuenteLineSearch;
use argmin::solver::quasinewton::LBFGS;
use ndarray::linalg::general_mat_mul;
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Rows whose logits are in memory at once.
const CHUNK: usize = 4096;
/// Pairs of steps and gradient changes that L-BFGS keeps.
const MEMORY: usize = 10;
/// Steps between two looks at the held-out rows.
const ROUND: u64 = 20;
const MOST_STEPS: u64 = 300;
/// Smallest fall of the loss that is worth another step: what `f32` products can still tell.
const LEAST_FALL: f64 = 1e-6;

/// What rows should give.
#[derive(Clone, Debug)]
pub(super) enum Targets {
    /// A class for each.
    Classes(Vec<usize>),
    /// A distribution over the classes for each.
    Soft(Array2<f32>),
}

/// Features of some rows and what these should give.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub(super) features: Array2<f32>,
    pub(super) targets: Targets,
}

/// Sizes of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) features: usize,
    /// Units of the hidden layer; 0 for none.
    pub(super) hidden: usize,
    pub(super) classes: usize,
}

/// A layer: a matrix of one row per output, and a bias.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layer {
    pub(super) weights: Array2<f32>,
    pub(super) bias: Array1<f32>,
}

impl Layer {
    fn apply(&self, rows: ArrayView2<'_, f32>) -> Array2<f32> {
        rows.dot(&self.weights.t()) + &self.bias
    }
}

/// The layers of a head: one, or two with a ReLU between them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layers {
    pub(super) hidden: Option<Layer>,
    pub(super) last: Layer,
}

impl Layers {
    fn of(params: &[f64], shape: Shape) -> Self {
        let mut rest = params.iter().map(|value| *value as f32);
        let mut layer = |inputs: usize, outputs: usize| Layer {
            weights: Array2::from_shape_fn((outputs, inputs), |_| rest.next().unwrap_or(0.0)),
            bias: Array1::from_shape_fn(outputs, |_| rest.next().unwrap_or(0.0)),
        };
        let hidden = (shape.hidden > 0).then(|| layer(shape.features, shape.hidden));
        let inputs = if shape.hidden > 0 { shape.hidden } else { shape.features };
        Self { hidden, last: layer(inputs, shape.classes) }
    }

    /// A head of this shape that answers 0.
    pub(super) fn zeros(shape: Shape) -> Self {
        Self::of(&[], shape)
    }

    /// The logits of some rows, `[rows, classes]`.
    pub(super) fn logits(&self, rows: ArrayView2<'_, f32>) -> Array2<f32> {
        match &self.hidden {
            None => self.last.apply(rows),
            Some(layer) => self.last.apply(relu(layer.apply(rows)).view()),
        }
    }

    /// The same head for features that are not standardised: `x` in place of `(x - mean) * scale`.
    pub(super) fn folded(mut self, mean: &Array1<f32>, scale: &Array1<f32>) -> Self {
        let first = self.hidden.as_mut().unwrap_or(&mut self.last);
        first.weights *= scale;
        first.bias -= &first.weights.dot(mean);
        self
    }
}

fn relu(mut values: Array2<f32>) -> Array2<f32> {
    values.mapv_inplace(|value| value.max(0.0));
    values
}

impl Shape {
    pub(super) fn parameters(&self) -> usize {
        let (features, hidden, classes) = (self.features, self.hidden, self.classes);
        if hidden == 0 {
            return (features + 1) * classes;
        }
        (features + 1) * hidden + (hidden + 1) * classes
    }

    /// Where fitting starts: nothing for one layer, for two the uniform distribution of He et al.,
    /// "Delving deep into rectifiers" (2015), whose deviation is the root of 2 / inputs.
    pub(super) fn start(&self, seed: u64) -> Vec<f64> {
        let mut params = vec![0.0; self.parameters()];
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut fill = |values: &mut [f64], inputs: usize| {
            let bound = (6.0 / inputs.max(1) as f64).sqrt();
            for value in values {
                *value = (f64::from(rng.next_u32()) / f64::from(u32::MAX) * 2.0 - 1.0) * bound;
            }
        };
        if self.hidden > 0 {
            let first = self.features * self.hidden;
            let second = first + self.hidden;
            fill(&mut params[..first], self.features);
            fill(&mut params[second..second + self.hidden * self.classes], self.hidden);
        }
        params
    }
}

/// Turns logits into probabilities in place and returns the sum over rows of the cross-entropy.
fn softmax_loss(logits: &mut Array2<f32>, targets: &Targets, from: usize) -> f64 {
    let mut loss = 0.0;
    for (index, mut row) in logits.axis_iter_mut(Axis(0)).enumerate() {
        let largest = row.fold(f32::NEG_INFINITY, |best, value| best.max(*value));
        let sum: f64 = row.iter().map(|value| f64::from(value - largest).exp()).sum();
        let log_sum = sum.ln() + f64::from(largest);
        match targets {
            Targets::Classes(classes) => loss += log_sum - f64::from(row[classes[from + index]]),
            Targets::Soft(soft) => {
                let pairs = row.iter().zip(soft.row(from + index));
                loss += pairs
                    .map(|(value, target)| f64::from(*target) * (log_sum - f64::from(*value)))
                    .sum::<f64>();
            }
        }
        row.mapv_inplace(|value| (f64::from(value) - log_sum).exp() as f32);
    }
    loss
}

/// The mean cross-entropy of a head on some rows.
pub(super) fn loss(layers: &Layers, rows: &Rows) -> f64 {
    let mut sum = 0.0;
    for (chunk, part) in rows.features.axis_chunks_iter(Axis(0), CHUNK).enumerate() {
        sum += softmax_loss(&mut layers.logits(part), &rows.targets, chunk * CHUNK);
    }
    sum / rows.features.nrows().max(1) as f64
}

/// Loss and gradient of one point, which the line search asks for one after the other.
struct Point {
    params: Vec<f64>,
    loss: f64,
    gradient: Vec<f64>,
}

/// What is minimised: the mean cross-entropy, and `decay / 2` times the squares of the weights
/// (biases excepted).
struct Objective<'a> {
    rows: &'a Rows,
    shape: Shape,
    decay: f64,
    last: RefCell<Option<Point>>,
}

impl Objective<'_> {
    fn at<T>(&self, params: &[f64], take: impl Fn(&Point) -> T) -> T {
        let mut last = self.last.borrow_mut();
        if let Some(point) = last.as_ref().filter(|point| point.params == params) {
            return take(point);
        }
        let (loss, gradient) = self.evaluate(params);
        take(last.insert(Point { params: params.to_vec(), loss, gradient }))
    }

    fn evaluate(&self, params: &[f64]) -> (f64, Vec<f64>) {
        let layers = Layers::of(params, self.shape);
        let mut slope = Layers::zeros(self.shape);
        let count = self.rows.features.nrows().max(1);
        let mut sum = 0.0;
        for (chunk, rows) in self.rows.features.axis_chunks_iter(Axis(0), CHUNK).enumerate() {
            let hidden = layers.hidden.as_ref().map(|layer| relu(layer.apply(rows)));
            let inputs = hidden.as_ref().map_or(rows, |hidden| hidden.view());
            let mut delta = layers.last.apply(inputs);
            sum += softmax_loss(&mut delta, &self.rows.targets, chunk * CHUNK);
            minus_targets(&mut delta, &self.rows.targets, chunk * CHUNK);
            delta /= count as f32;
            add_slope(&mut slope.last, &delta, inputs);
            if let (Some(hidden), Some(slope)) = (&hidden, &mut slope.hidden) {
                let mut back = delta.dot(&layers.last.weights);
                back.zip_mut_with(hidden, |slope, unit| *slope *= f32::from(*unit > 0.0));
                add_slope(slope, &back, rows);
            }
        }
        let mut gradient = Vec::with_capacity(params.len());
        let mut loss = sum / count as f64;
        for layer in slope.hidden.iter().chain([&slope.last]) {
            for value in &layer.weights {
                let weight = params[gradient.len()];
                loss += self.decay / 2.0 * weight * weight;
                gradient.push(f64::from(*value) + self.decay * weight);
            }
            gradient.extend(layer.bias.iter().map(|value| f64::from(*value)));
        }
        (loss, gradient)
    }
}

fn minus_targets(delta: &mut Array2<f32>, targets: &Targets, from: usize) {
    match targets {
        Targets::Classes(classes) => {
            for (mut row, class) in delta.axis_iter_mut(Axis(0)).zip(&classes[from..]) {
                row[*class] -= 1.0;
            }
        }
        Targets::Soft(soft) => *delta -= &soft.slice(s![from..from + delta.nrows(), ..]),
    }
}

fn add_slope(slope: &mut Layer, delta: &Array2<f32>, inputs: ArrayView2<'_, f32>) {
    general_mat_mul(1.0, &delta.t(), &inputs, 1.0, &mut slope.weights);
    slope.bias += &delta.sum_axis(Axis(0));
}

type ArgminError = argmin::core::Error;

impl CostFunction for Objective<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, params: &Vec<f64>) -> Result<f64, ArgminError> {
        Ok(self.at(params, |point| point.loss))
    }
}

impl Gradient for Objective<'_> {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;

    fn gradient(&self, params: &Vec<f64>) -> Result<Vec<f64>, ArgminError> {
        Ok(self.at(params, |point| point.gradient.clone()))
    }
}

/// What came of fitting.
#[derive(Clone, Debug)]
pub(super) struct Fitted {
    /// For another fit to start at.
    pub(super) params: Vec<f64>,
    pub(super) layers: Layers,
    /// Mean cross-entropy of the held-out rows, without the penalty.
    pub(super) held_out: f64,
}

/// Fits a head of this shape to `rows`, beginning at `start`; of the weights met on the way it
/// takes those with the least loss on the rows `held_out`. Ends when neither loss falls any more,
/// or after 300 steps.
pub(super) fn fit(
    rows: &Rows,
    held_out: &Rows,
    shape: Shape,
    decay: f64,
    start: Vec<f64>,
) -> Fitted {
    let judge = |params: Vec<f64>| {
        let layers = Layers::of(&params, shape);
        let held_out = loss(&layers, held_out);
        Fitted { params, layers, held_out }
    };
    let mut best = judge(start.clone());
    let objective = Objective { rows, shape, decay, last: RefCell::default() };
    let search = MoreThuenteLineSearch::new();
    let Ok(solver) = LBFGS::new(search, MEMORY).with_tolerance_cost(LEAST_FALL) else {
        return best;
    };
    let mut run = Executor::new(objective, solver)
        .configure(|state| state.param(start).max_iters(ROUND))
        .run();
    // A line search that finds nothing lower has come as far as `f32` lets it.
    while let Ok(mut round) = run {
        let Some(params) = round.state.get_best_param().cloned() else { break };
        let found = judge(params);
        let falls = found.held_out < best.held_out - LEAST_FALL;
        if found.held_out <= best.held_out {
            best = found;
        }
        let unfinished = round.state.termination_status
            == TerminationStatus::Terminated(TerminationReason::MaxItersReached);
        let steps = round.state.get_iter();
        let (Some(objective), true) = (round.problem.take_problem(), unfinished && falls) else {
            break;
        };
        if steps >= MOST_STEPS {
            break;
        }
        round.state.termination_status = TerminationStatus::NotTerminated;
        let state = round.state.max_iters(steps + ROUND);
        run = Executor::new(objective, round.solver).configure(|_| state).run();
    }
    best
}

#[cfg(test)]
mod tests;
