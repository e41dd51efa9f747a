//! How far down the path the loss is certified. Each step is a hypothesis, "the mean loss here is
//! above the budget", and is rejected when so few losses would be improbable under it:
//!
//! P(Binomial(samples, budget) <= losses) <= 1 - confidence
//!
//! The steps are tested in their order, which was fixed before any data was seen, and testing ends
//! at the first that is not rejected. All before it are certified at once, without a correction
//! for their number: the chance of having certified any step whose loss is above the budget is at
//! most 1 - confidence, over the draw of the samples. It must not look at data otherwise.

use super::path::Path;
use crate::manifest::Loss;
use crate::stats::binomial_tail;

/// A bound that is to be kept, and how surely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    share: f64,
    confidence: f64,
}

/// A number that is no budget or no confidence.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key} = {value}: must be {range}")]
pub struct BudgetError {
    /// Which of the two.
    pub key: &'static str,
    /// The number.
    pub value: f64,
    /// What it may be.
    pub range: &'static str,
}

impl Budget {
    /// A bound of the mean loss per row, above 0 and below 1, and the probability that it holds,
    /// 0.5 to 1 - 1e-9.
    ///
    /// # Errors
    /// Any other number.
    pub fn new(share: f64, confidence: f64) -> Result<Self, BudgetError> {
        if !(share > 0.0 && share < 1.0) {
            return Err(BudgetError { key: "budget", value: share, range: "above 0 and below 1" });
        }
        // Below a half nothing is promised; near 1 the tails are beyond a double's precision.
        if !(0.5..=1.0 - 1e-9).contains(&confidence) {
            let range = "0.5 to 0.999999999";
            return Err(BudgetError { key: "confidence", value: confidence, range });
        }
        Ok(Self { share, confidence })
    }

    /// The bound of the mean loss per row.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// The probability that it holds.
    pub fn confidence(&self) -> f64 {
        self.confidence
    }

    /// Whether so few losses refute that the mean is above the bound.
    fn holds(&self, losses: u64, samples: u64) -> bool {
        binomial_tail(losses, samples, self.share) <= 1.0 - self.confidence
    }

    /// The least number of samples of which the bound can be certified at all: with no loss among
    /// them.
    pub fn least_samples(&self) -> u64 {
        let quotient = (1.0 - self.confidence).ln() / (-self.share).ln_1p();
        let mut least = (quotient as u64).saturating_sub(1);
        // The quotient is right but for its last bits, which matter to nobody where it is so large.
        while quotient < 1e12 && !self.holds(0, least) {
            least += 1;
        }
        least
    }

    /// The most losses among so many samples with which a step is certified; none when there are
    /// fewer than [`Budget::least_samples`].
    pub fn most_losses(&self, samples: u64) -> Option<u64> {
        if !self.holds(0, samples) {
            return None;
        }
        // The tail grows with the losses, and is 1 for all of the samples.
        let (mut most, mut above) = (0, samples);
        while most + 1 < above {
            let middle = most + (above - most) / 2;
            if self.holds(middle, samples) { most = middle } else { above = middle }
        }
        Some(most)
    }

    /// The last step, as a threshold in thousandths, up to which all are certified; none when the
    /// first is not.
    pub fn walk(&self, path: &Path, loss: Loss) -> Option<u32> {
        let most = self.most_losses(path.samples)?;
        let certified = path.steps().take_while(|(_, step)| step.losses(loss) <= most);
        certified.last().map(|(threshold, _)| threshold)
    }
}
