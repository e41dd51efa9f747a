//! What must hold whatever the inputs: written once, used by property tests,
//! the simulator and debug assertions. Decides nothing.

use core::fmt;

use crate::cells::{Cells, Health};
use crate::decision::{Decision, Outcome, Verdict};
use crate::inputs::{Inputs, MAX_CANDIDATES};
use crate::topology::HORIZONS;
use crate::units::Rif;

/// An invariant that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// More than 16 candidates, or verdicts for another number of them.
    Count,
    /// A candidate's horizon does not exist.
    Horizon,
    /// Two candidates or two choices have the same slot.
    Duplicate,
    /// A listed node's region is not allowed.
    NotAllowedListed,
    /// A listed node is dead.
    DeadListed,
    /// A listed node is draining.
    DrainingListed,
    /// A candidate is neither in the list nor has a reason, or both.
    Unjudged,
    /// A choice's prediction is not its candidate's cost.
    Prediction,
    /// A choice may have no request, so booking it is bound to fail.
    Cap,
    /// The outcome says the list is empty and it is not, or the reverse.
    Outcome,
    /// The cells hold another number of leases than there are.
    Leases,
}

impl Violation {
    /// Its name in renderings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Horizon => "horizon",
            Self::Duplicate => "duplicate",
            Self::NotAllowedListed => "not_allowed_listed",
            Self::DeadListed => "dead_listed",
            Self::DrainingListed => "draining_listed",
            Self::Unjudged => "unjudged",
            Self::Prediction => "prediction",
            Self::Cap => "cap",
            Self::Outcome => "outcome",
            Self::Leases => "leases",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant broken: {}", self.as_str())
    }
}

impl core::error::Error for Violation {}

fn ensure(holds: bool, otherwise: Violation) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(otherwise) }
}

/// What must hold of a decision and its inputs.
///
/// # Errors
/// The first invariant that does not hold.
pub fn check(inputs: &Inputs, decision: &Decision) -> Result<(), Violation> {
    let (candidates, choices) = (inputs.candidates(), decision.choices());
    ensure(candidates.len() <= MAX_CANDIDATES, Violation::Count)?;
    ensure(decision.verdicts().len() == candidates.len(), Violation::Count)?;
    for (i, c) in candidates.iter().enumerate() {
        ensure(usize::from(c.horizon) < HORIZONS, Violation::Horizon)?;
        let later = candidates.iter().skip(i + 1);
        ensure(later.into_iter().all(|d| d.slot.index != c.slot.index), Violation::Duplicate)?;
    }
    let mut listed = 0;
    for (i, verdict) in decision.verdicts().iter().enumerate() {
        let (Verdict::Listed(rank) | Verdict::Spare(rank, _)) = verdict else { continue };
        let choice = choices.get(usize::from(*rank)).ok_or(Violation::Unjudged)?;
        ensure(usize::from(choice.candidate) == i, Violation::Unjudged)?;
        listed += 1;
    }
    ensure(listed == choices.len(), Violation::Unjudged)?;
    for choice in choices {
        let at = usize::from(choice.candidate);
        let c = candidates.get(at).ok_or(Violation::Unjudged)?;
        ensure(c.slot == choice.slot && c.node == choice.node, Violation::Unjudged)?;
        ensure(inputs.request.allowed.contains(c.region), Violation::NotAllowedListed)?;
        ensure(!matches!(c.health, Health::Dead { .. }), Violation::DeadListed)?;
        let draining = c.drained || c.health == Health::Draining;
        ensure(!draining, Violation::DrainingListed)?;
        let cost = decision.costs().get(at).ok_or(Violation::Unjudged)?;
        ensure(choice.predicted == cost.total(), Violation::Prediction)?;
        ensure(choice.cap > Rif(0), Violation::Cap)?;
    }
    let empty = matches!(decision.outcome(), Outcome::Shed | Outcome::Nobody);
    ensure(empty == choices.is_empty(), Violation::Outcome)
}

/// What must hold of the cells while `outstanding` leases exist, all of them
/// on slots that have not changed hands, and no booking is under way.
///
/// # Errors
/// When the cells count another number.
pub fn check_leases(cells: &Cells, outstanding: usize) -> Result<(), Violation> {
    ensure(cells.total_leases().0 as usize == outstanding, Violation::Leases)
}
