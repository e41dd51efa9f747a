//! Counts over a suite, and what to tell of what did not hold.

use std::collections::BTreeMap;
use std::fmt;

use midspan_split::verify::model::Refusal;

use crate::cases::Case;
use crate::check::{CutOutcome, Outcome, Skip};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) models: usize,
    pub(crate) skipped: BTreeMap<Skip, usize>,
    /// Models that were cut, and those of them whose own answer is what the suite expects.
    pub(crate) cut: usize,
    pub(crate) as_expected: usize,
    pub(crate) cuts: usize,
    pub(crate) exact: usize,
    pub(crate) tolerance: usize,
    pub(crate) refused: BTreeMap<Refusal, usize>,
}

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) counts: Counts,
    largest: f64,
    /// Lines on models that were skipped with a reason of their own, and on cuts that were refused.
    notes: Vec<String>,
    /// Wrong results and panics.
    failures: Vec<String>,
}

impl Report {
    pub(crate) fn add(&mut self, case: &Case, outcome: Outcome) {
        let name = &case.name;
        self.counts.models += 1;
        match outcome {
            Outcome::Panicked(panic) => self.failures.push(format!("{name}: panic: {panic}")),
            Outcome::Skipped(skip, reason) => {
                *self.counts.skipped.entry(skip).or_default() += 1;
                if !reason.is_empty() {
                    self.notes.push(format!("{name}: {skip:?}: {reason}"));
                }
            }
            Outcome::Cut { as_expected, cuts } => {
                self.counts.cut += 1;
                self.counts.as_expected += usize::from(as_expected == Some(true));
                if as_expected == Some(false) {
                    self.notes
                        .push(format!("{name}: the whole differs from what the suite expects"));
                }
                cuts.into_iter().for_each(|cut| self.add_cut(name, cut));
            }
        }
    }

    fn add_cut(&mut self, name: &str, outcome: CutOutcome) {
        self.counts.cuts += 1;
        match outcome {
            CutOutcome::Exact => self.counts.exact += 1,
            CutOutcome::Tolerance(difference) => {
                self.counts.tolerance += 1;
                self.largest = self.largest.max(difference);
            }
            CutOutcome::Wrong { cut, difference } => {
                self.failures.push(format!("{name} at {cut}: differs by {difference:e}"));
            }
            CutOutcome::Refused { cut, refusal, reason } => {
                *self.counts.refused.entry(refusal).or_default() += 1;
                self.notes.push(format!("{name} at {cut}: {refusal:?}: {reason}"));
            }
            CutOutcome::Panicked { cut } => self.failures.push(format!("{name} at {cut}: panic")),
        }
    }

    /// Share of the cuts at which halves equal the whole.
    pub(crate) fn verified_share(&self) -> f64 {
        let verified = self.counts.exact + self.counts.tolerance;
        verified as f64 / self.counts.cuts.max(1) as f64
    }

    pub(crate) fn assert_sound(&self) {
        assert!(self.failures.is_empty(), "{}", self.failures.join("\n"));
        let refused: usize = self.counts.refused.values().sum();
        let counts = &self.counts;
        assert_eq!(counts.cuts, counts.exact + counts.tolerance + refused);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.notes.iter().chain(&self.failures) {
            // Errors of ONNX Runtime run over several lines.
            let line: String = line.replace('\n', " ").chars().take(400).collect();
            writeln!(f, "{line}")?;
        }
        let counts = &self.counts;
        writeln!(f, "models                       {:6}", counts.models)?;
        for (skip, count) in &counts.skipped {
            writeln!(f, "  not cut: {:18}  {count:5}", format!("{skip:?}"))?;
        }
        writeln!(f, "  cut                        {:6}", counts.cut)?;
        writeln!(f, "    answer as the suite says {:6}", counts.as_expected)?;
        writeln!(f, "cuts                         {:6}", counts.cuts)?;
        writeln!(f, "  bit exact                  {:6}", counts.exact)?;
        writeln!(
            f,
            "  in tolerance               {:6}   (at most {:.1e})",
            counts.tolerance, self.largest
        )?;
        for (refusal, count) in &counts.refused {
            writeln!(f, "  refused: {:18}  {count:5}", format!("{refusal:?}"))?;
        }
        writeln!(f, "  wrong or panicked          {:6}", self.failures.len())?;
        write!(f, "verified                     {:6.2} %", self.verified_share() * 100.0)
    }
}
