//! The outcome of a decision: what is taken, in which order, and why each of
//! the other candidates is not. Fixed size, so that it is reused.

use crate::inputs::MAX_CANDIDATES;
use crate::topology::{NodeKey, Slot};
use crate::units::{Micros, Rif};

/// Why a candidate is not in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reject {
    /// Its region may not answer this request.
    NotAllowed,
    /// It does not answer probes.
    Dead,
    /// It takes nothing new, by its own or the operator's word.
    Draining,
    /// It fails too often and others do not.
    Ejected,
    /// It is being tried again, and one trial is under way.
    Trial,
    /// It has more than its share of the load and others have not.
    OverCap,
    /// Its queue is at its hard limit.
    Full,
    /// Its measured round trip alone exceeds the time left.
    TooFar,
}

impl Reject {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::NotAllowed,
        Self::Dead,
        Self::Draining,
        Self::Ejected,
        Self::Trial,
        Self::OverCap,
        Self::Full,
        Self::TooFar,
    ];

    /// Its name in renderings and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotAllowed => "not_allowed",
            Self::Dead => "dead",
            Self::Draining => "draining",
            Self::Ejected => "ejected",
            Self::Trial => "trial",
            Self::OverCap => "over_cap",
            Self::Full => "full",
            Self::TooFar => "too_far",
        }
    }
}

/// What became of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In the list, at this place.
    Listed(u8),
    /// In the list behind all others, at this place: it is no choice for the
    /// reason given, but better for a retry than to fail.
    Spare(u8, Reject),
    /// Not in the list.
    Rejected(Reject),
}

/// What became of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The list holds nodes within their bounds.
    Placed,
    /// As `Placed`, but the first is predicted to miss the deadline.
    Late,
    /// Every node has more than its share: the list holds where waiting is
    /// shortest.
    Queued,
    /// Every node is ejected: the list holds those, better than nothing.
    LastResort,
    /// There are nodes, but none with room or in reach: refuse with a time to
    /// retry after.
    Shed,
    /// No node may serve the request at all.
    #[default]
    Nobody,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 6] =
        [Self::Placed, Self::Late, Self::Queued, Self::LastResort, Self::Shed, Self::Nobody];

    /// Its name in renderings and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Placed => "placed",
            Self::Late => "late",
            Self::Queued => "queued",
            Self::LastResort => "last_resort",
            Self::Shed => "shed",
            Self::Nobody => "nobody",
        }
    }
}

/// What a request is predicted to take at a node, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Round trips.
    pub network: Micros,
    /// Waiting for a worker.
    pub queue: Micros,
    /// Execution.
    pub service: Micros,
    /// Loading the model.
    pub load: Micros,
    /// Offloading, times its probability.
    pub offload: Micros,
    /// Penalty for recent failures.
    pub errors: Micros,
}

impl Cost {
    /// The sum.
    pub fn total(&self) -> Micros {
        let Self { network, queue, service, load, offload, errors } = *self;
        [queue, service, load, offload, errors].into_iter().fold(network, Micros::plus)
    }
}

/// One entry of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Which candidate of the inputs.
    pub candidate: u8,
    /// Its slot.
    pub slot: Slot,
    /// Its identity.
    pub node: NodeKey,
    /// Own requests it may have in flight, this one included: for `book`.
    pub cap: Rif,
    /// The same when everybody is over their cap: where its queue ends.
    pub limit: Rif,
    /// What the request is predicted to take there.
    pub predicted: Micros,
}

/// What to book, in order: every choice within its cap, then, when all of
/// them are full or lost, every choice up to its limit. A node that was tried
/// comes again; the caller skips it.
pub fn bookings(choices: &[Choice]) -> impl Iterator<Item = (&Choice, Rif)> {
    let within = choices.iter().map(|choice| (choice, choice.cap));
    within.chain(choices.iter().map(|choice| (choice, choice.limit)))
}

/// A decision. Make it once and reuse it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub(crate) outcome: Outcome,
    pub(crate) choices: [Choice; MAX_CANDIDATES],
    pub(crate) listed: u8,
    pub(crate) verdicts: [Verdict; MAX_CANDIDATES],
    pub(crate) costs: [Cost; MAX_CANDIDATES],
    pub(crate) judged: u8,
}

impl Default for Decision {
    fn default() -> Self {
        Self::new()
    }
}

impl Decision {
    /// Nothing decided yet.
    pub fn new() -> Self {
        Self {
            outcome: Outcome::Nobody,
            choices: [Choice::default(); MAX_CANDIDATES],
            listed: 0,
            verdicts: [Verdict::Listed(0); MAX_CANDIDATES],
            costs: [Cost::default(); MAX_CANDIDATES],
            judged: 0,
        }
    }

    /// What became of the request.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Where to send it, best first; retries and hedges go on down the list.
    pub fn choices(&self) -> &[Choice] {
        self.choices.get(..usize::from(self.listed)).unwrap_or(&[])
    }

    /// What became of each candidate, in their order.
    pub fn verdicts(&self) -> &[Verdict] {
        self.verdicts.get(..usize::from(self.judged)).unwrap_or(&[])
    }

    /// What the request would take at each candidate, in their order.
    pub fn costs(&self) -> &[Cost] {
        self.costs.get(..usize::from(self.judged)).unwrap_or(&[])
    }

    pub(crate) fn list(&mut self, choice: Choice) {
        let at = usize::from(self.listed);
        let verdict = self.verdicts.get_mut(usize::from(choice.candidate));
        if let (Some(place), Some(verdict)) = (self.choices.get_mut(at), verdict) {
            *place = choice;
            *verdict = Verdict::Listed(self.listed);
            self.listed += 1;
        }
    }

    /// Lists a rejected candidate as a spare.
    pub(crate) fn spare(&mut self, choice: Choice, reason: Reject) {
        let (candidate, place) = (usize::from(choice.candidate), self.listed);
        self.list(choice);
        if let Some(verdict) = self.verdicts.get_mut(candidate) {
            *verdict = Verdict::Spare(place, reason);
        }
    }

    pub(crate) fn reject(&mut self, candidate: usize, reason: Reject) {
        if let Some(verdict) = self.verdicts.get_mut(candidate) {
            *verdict = Verdict::Rejected(reason);
        }
    }
}
