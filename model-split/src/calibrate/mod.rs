//! Thresholds of exits whose loss is bounded: given what the exits and the whole model answer to
//! samples, the lowest threshold at which the mean loss per row is at most a budget, with a stated
//! probability over the draw of the samples. The bound needs no assumption but that the samples
//! are drawn as requests will be; it holds for any number of samples, not only for many.
//!
//! The method is that of Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then Test:
//! Calibrating Predictive Algorithms to Achieve Risk Control", 2021 (arXiv:2110.01052): testing in
//! a fixed sequence along one path (`path`), with the exact tail of the binomial distribution
//! (`sequence`). Pure: no files, clock or models; temperatures are taken as they are.

mod certify;
mod path;
mod sequence;
mod temperature;

pub use certify::{Setting, certified};
pub use path::{Path, Row, STRICTEST, Step, Word, rows};
pub use sequence::{Budget, BudgetError};
pub use temperature::{Refitted, refit};

use crate::manifest::Loss;
use crate::stats::{binomial_tail, lower_bound, upper_bound};

/// What the method is called in certificates.
pub const METHOD: &str = "Learn then Test (arXiv:2110.01052): fixed sequence of thresholds from \
                          1.000 down by 0.001, exact binomial tail";

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibrated {
    /// The threshold of every exit, in thousandths.
    pub threshold_milli: u32,
    /// The bound that it keeps.
    pub budget: Budget,
    /// Samples it was found on.
    pub samples: u64,
    /// Samples that an exit answered.
    pub answered: u64,
    /// Bounds of the share of requests that an exit answers, each side with half of what the
    /// confidence leaves.
    pub share: (f64, f64),
    /// The losses that could be measured: by disagreement always, by label where all samples have
    /// one.
    pub measured: Vec<Measured>,
}

/// A loss at the threshold that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Which.
    pub loss: Loss,
    /// Samples with loss 1.
    pub losses: u64,
    /// Probability of so few if the mean were above the budget.
    pub p_value: f64,
    /// What so many losses would bound at this threshold alone, at the same confidence.
    pub upper: f64,
    /// Whether the budget is certified for it.
    pub certified: bool,
}

/// Why no threshold is certified.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CalibrateError {
    /// Even no loss at all would not do.
    #[error(
        "{samples} samples are too few: a mean loss of at most {budget} can be promised with \
         {confidence} confidence from {least} samples on"
    )]
    TooFew {
        /// Samples given.
        samples: u64,
        /// Samples needed at least.
        least: u64,
        /// Bound of the mean loss.
        budget: f64,
        /// Its confidence.
        confidence: f64,
    },
    /// The loss by label needs labels.
    #[error("sample {0} has no label: the loss by label needs the class of every sample")]
    Unlabelled(usize),
    /// Nothing to set a threshold of.
    #[error("no stage up to the cut has an exit")]
    NoExit,
    /// The exits are wrong where they are surest.
    #[error(
        "no threshold is certified: at 1.000, the strictest, {losses} of {samples} samples are \
         lost, and at most {most} may be for a budget of {budget} with {confidence} confidence"
    )]
    None {
        /// Losses at the first step.
        losses: u64,
        /// Samples given.
        samples: u64,
        /// The most losses that would do.
        most: u64,
        /// Bound of the mean loss.
        budget: f64,
        /// Its confidence.
        confidence: f64,
    },
}

/// The most losses among so many samples with which a step is certified: to be asked before models
/// are run on them.
///
/// # Errors
/// When the samples are too few to certify the budget even without a loss.
pub fn enough(samples: u64, budget: Budget) -> Result<u64, CalibrateError> {
    budget.most_losses(samples).ok_or_else(|| CalibrateError::TooFew {
        samples,
        least: budget.least_samples(),
        budget: budget.share(),
        confidence: budget.confidence(),
    })
}

/// The lowest threshold of which `budget` is certified for `loss`. Since a row that is lost by
/// label is one by disagreement too, a threshold that is certified for the latter is so for both.
///
/// # Errors
/// When the samples are too few or lack labels, or no threshold is certified.
pub fn calibrate(rows: &[Row], budget: Budget, loss: Loss) -> Result<Calibrated, CalibrateError> {
    if rows.iter().all(|row| row.exits.is_empty()) && !rows.is_empty() {
        return Err(CalibrateError::NoExit);
    }
    let unlabelled = rows.iter().position(|row| row.label.is_none());
    if let (Loss::Label, Some(index)) = (loss, unlabelled) {
        return Err(CalibrateError::Unlabelled(index));
    }
    let path = Path::of(rows);
    let samples = path.samples;
    let (share, confidence) = (budget.share(), budget.confidence());
    let most = enough(samples, budget)?;
    let threshold_milli = budget.walk(&path, loss).ok_or_else(|| {
        let losses = path.at(STRICTEST).losses(loss);
        CalibrateError::None { losses, samples, most, budget: share, confidence }
    })?;
    let step = path.at(threshold_milli);
    let measured = |loss| {
        let losses = step.losses(loss);
        Measured {
            loss,
            losses,
            p_value: binomial_tail(losses, samples, share),
            upper: upper_bound(losses, samples, confidence),
            // A threshold above the last that is certified is so, too.
            certified: budget.walk(&path, loss).is_some_and(|last| last <= threshold_milli),
        }
    };
    let by_label = unlabelled.is_none().then_some(Loss::Label);
    let side = (1.0 + confidence) / 2.0;
    let bound = |bound: fn(u64, u64, f64) -> f64| bound(step.answered, samples, side);
    Ok(Calibrated {
        threshold_milli,
        budget,
        samples,
        answered: step.answered,
        share: (bound(lower_bound), bound(upper_bound)),
        measured: [Some(Loss::Disagreement), by_label]
            .into_iter()
            .flatten()
            .map(measured)
            .collect(),
    })
}

#[cfg(test)]
mod tests;
