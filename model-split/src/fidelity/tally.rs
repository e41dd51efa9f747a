//! Counting the outcomes of one candidate.

use crate::candidate::{Candidate, Fidelity};
use crate::stats::lower_bound;

/// The confidence of [`Fidelity::agreement_lower`].
const CONFIDENCE: f64 = 0.95;

/// What one candidate did with one sample, or why it cannot.
pub(super) type Outcome = Result<Crossed, String>;

/// Something crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crossed {
    pub(super) bytes: u64,
    pub(super) agrees: bool,
}

/// The outcomes of a candidate that all samples can take.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Counts {
    /// Ascending.
    bytes: Vec<u64>,
    agreeing: u64,
}

/// Counts outcomes; the first refusal refuses the candidate.
pub(super) fn tally<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Result<Counts, String> {
    let mut counts = Counts { bytes: vec![], agreeing: 0 };
    for (sample, outcome) in outcomes.enumerate() {
        let crossed = outcome.as_ref().map_err(|reason| format!("sample {sample}: {reason}"))?;
        counts.bytes.push(crossed.bytes);
        counts.agreeing += u64::from(crossed.agrees);
    }
    counts.bytes.sort_unstable();
    Ok(counts)
}

impl Counts {
    pub(super) fn of(self, candidate: Candidate) -> Fidelity {
        let Self { bytes, agreeing } = self;
        let samples = bytes.len() as u64;
        // The least value that at least 95 % of the samples do not exceed.
        let rank = (bytes.len() * 95).div_ceil(100).saturating_sub(1);
        Fidelity {
            candidate,
            bytes: bytes.iter().sum::<u64>() as f64 / samples.max(1) as f64,
            bytes_p95: bytes.get(rank).copied().unwrap_or(0),
            samples,
            agreeing,
            agreement_lower: lower_bound(agreeing, samples, CONFIDENCE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::InputForm;

    #[test]
    fn outcomes_are_counted() {
        let outcomes: Vec<Outcome> =
            (1..=100).map(|bytes| Ok(Crossed { bytes, agrees: bytes != 7 })).collect();
        let form = Candidate::Input { form: InputForm::Tensor };
        let fidelity = tally(outcomes.iter()).unwrap().of(form);
        assert_eq!((fidelity.bytes, fidelity.bytes_p95), (50.5, 95));
        assert_eq!((fidelity.samples, fidelity.agreeing), (100, 99));
        // One miss of 100: Clopper and Pearson give 4.66 % at most.
        assert!((fidelity.agreement_lower - 0.9534).abs() < 1e-4, "{fidelity:?}");
    }

    #[test]
    fn one_refusal_refuses_all() {
        let outcomes = [Ok(Crossed { bytes: 1, agrees: true }), Err("not a picture".to_owned())];
        assert_eq!(tally(outcomes.iter()), Err("sample 1: not a picture".into()));
    }
}
