//! The decision itself: filter, rate by the policy, list. A pure function of
//! the inputs and a seed; a policy only says how full a node may be and in
//! which order nodes are preferred, all else is the same for every policy.
//!
//! To add a policy: a file here that opens with formula, units, behaviour when
//! data is missing and source; a variant of [`Policy`]; its candidates in
//! `gather`; its tag in `record`.

mod capped_affinity;
mod cost;
mod nearest;
mod ring_bounded;

#[cfg(test)]
mod tests;

pub use self::capped_affinity::CappedAffinity;
pub(crate) use self::cost::predict;
pub use self::nearest::Nearest;
pub use self::ring_bounded::RingBounded;
use crate::cells::Health;
use crate::decision::{Choice, Cost, Decision, Outcome, Reject, Verdict};
use crate::inputs::{Candidate, Inputs, MAX_CANDIDATES, Source};
use crate::units::{Micros, OutOfRange, Rif};

/// How to decide. Swapped whole; part of every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Consistent hashing with bounded loads.
    RingBounded(RingBounded),
    /// The smallest probed round trip.
    Nearest(Nearest),
    /// Affinity while it costs little, else the lowest predicted cost.
    CappedAffinity(CappedAffinity),
}

impl Default for Policy {
    fn default() -> Self {
        Self::CappedAffinity(CappedAffinity::default())
    }
}

impl Policy {
    /// The names that [`Policy::from_name`] knows.
    pub const NAMES: [&'static str; 3] = ["capped_affinity", "nearest", "ring_bounded"];

    /// The policy of that name, with its default parameters.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "ring_bounded" => Self::RingBounded(RingBounded::default()),
            "nearest" => Self::Nearest(Nearest::default()),
            "capped_affinity" => Self::default(),
            _ => return None,
        })
    }

    /// Its name in configuration, renderings and metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::RingBounded(_) => "ring_bounded",
            Self::Nearest(_) => "nearest",
            Self::CappedAffinity(_) => "capped_affinity",
        }
    }

    /// This policy, if its parameters make sense.
    ///
    /// # Errors
    /// Names the first parameter that is outside its range.
    pub fn checked(self) -> Result<Self, OutOfRange> {
        let within = |what, got: u64, min: u64, max: u64| match (min..=max).contains(&got) {
            true => Ok(()),
            false => Err(OutOfRange { what, got, min, max }),
        };
        within("queue_per_worker", self.common().queue_per_worker.into(), 1, u16::MAX.into())?;
        match &self {
            Self::RingBounded(policy) => within("tries", policy.tries.into(), 1, 12)?,
            Self::Nearest(_) => {}
            Self::CappedAffinity(policy) => {
                // With the second draw and the farther horizons at most 16.
                within("keyed", policy.keyed.into(), 1, 6)?;
                within("random", policy.random.into(), 0, 2)?;
                within("noise", policy.noise.0.into(), 0, 1_000)?;
                within("deadline_share", policy.deadline_share.0.into(), 1, 1_000)?;
            }
        }
        Ok(self)
    }

    /// What every policy has.
    pub const fn common(&self) -> &Common {
        match self {
            Self::RingBounded(policy) => &policy.common,
            Self::Nearest(policy) => &policy.common,
            Self::CappedAffinity(policy) => &policy.common,
        }
    }
}

/// Parameters that every policy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// What a failure costs: added to the prediction times its probability; a
    /// quarter of it for a node that is suspect.
    pub error_penalty: Micros,
    /// Requests in flight per worker at which a node gets nothing more.
    pub queue_per_worker: u16,
}

impl Default for Common {
    fn default() -> Self {
        Self { error_penalty: Micros::from_millis(200), queue_per_worker: 64 }
    }
}

/// A policy's word on one eligible candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rated {
    /// It has more than its share.
    pub(crate) over: bool,
    /// Own requests it may have in flight, the next one included.
    pub(crate) cap: Rif,
    /// Lower comes first, compared from the left; ties by candidate number.
    pub(crate) order: [u64; 4],
}

/// An eligible candidate, its number and its predicted cost.
#[derive(Clone, Copy)]
pub(crate) struct Eligible<'a> {
    pub(crate) at: usize,
    pub(crate) candidate: &'a Candidate,
    pub(crate) cost: Micros,
}

/// One value per candidate.
pub(crate) type PerCandidate<T> = [Option<T>; MAX_CANDIDATES];

/// Decides. The same inputs and seed give the same decision, bit for bit, on
/// every machine; nothing is allocated.
pub fn choose(inputs: &Inputs, seed: u64, decision: &mut Decision) {
    *decision = Decision::new();
    decision.judged = inputs.len() as u8;
    let mut eligible: PerCandidate<Eligible<'_>> = [None; MAX_CANDIDATES];
    for (at, candidate) in inputs.candidates().iter().enumerate() {
        let cost = predict(candidate, &inputs.request, inputs.policy.common());
        decision.costs[at] = cost;
        match screen(inputs, candidate) {
            Some(reason) => decision.reject(at, reason),
            None => eligible[at] = Some(Eligible { at, candidate, cost: cost.total() }),
        }
    }
    let mut rated: PerCandidate<Rated> = [None; MAX_CANDIDATES];
    match &inputs.policy {
        Policy::RingBounded(policy) => policy.rate(inputs, &eligible, &mut rated),
        Policy::Nearest(policy) => policy.rate(&eligible, &mut rated),
        Policy::CappedAffinity(policy) => policy.rate(inputs, seed, &eligible, &mut rated),
    }
    list(inputs, &rated, decision);
    if decision.listed == 0 {
        last_resort(inputs, decision);
    }
    debug_assert_eq!(crate::invariants::check(inputs, decision), Ok(()));
}

/// Why a candidate cannot be taken under any policy.
fn screen(inputs: &Inputs, c: &Candidate) -> Option<Reject> {
    if !inputs.request.allowed.contains(c.region) {
        return Some(Reject::NotAllowed);
    }
    match c.health {
        Health::Dead { .. } => return Some(Reject::Dead),
        Health::Draining => return Some(Reject::Draining),
        _ if c.drained => return Some(Reject::Draining),
        Health::Ejected { .. } => return Some(Reject::Ejected),
        Health::HalfOpen { .. } if c.leases > Rif(0) => return Some(Reject::Trial),
        _ => {}
    }
    let budget = inputs.request.budget();
    if c.floor.source == Source::Measured && budget.is_some_and(|left| c.floor.value > left) {
        return Some(Reject::TooFar);
    }
    (hard_cap(inputs, c) <= c.leases).then_some(Reject::Full)
}

/// Own requests that may be in flight at a node before its queue is at the
/// hard limit, given what others have there.
fn hard_cap(inputs: &Inputs, c: &Candidate) -> Rif {
    let limit = u64::from(c.workers.get()) * u64::from(inputs.policy.common().queue_per_worker);
    let limit = Rif(u32::try_from(limit).unwrap_or(u32::MAX));
    Rif(limit.0.saturating_sub(c.foreign().floor().0))
}

/// Lists who is within bounds, in the policy's order, and behind them those
/// who are not, where waiting is shortest first: the next request must not go
/// there, but a retry may, when every node within bounds was lost.
fn list(inputs: &Inputs, rated: &PerCandidate<Rated>, decision: &mut Decision) {
    let mut order: [(bool, [u64; 4], u8); MAX_CANDIDATES] = [(true, [0; 4], 0); MAX_CANDIDATES];
    let mut n = 0;
    for (at, rating) in rated.iter().enumerate() {
        let Some(rating) = rating else { continue };
        let wait = [decision.costs[at].total().0, 0, 0, 0];
        let key = if rating.over { wait } else { rating.order };
        order[n] = (rating.over, key, at as u8);
        n += 1;
    }
    let order = &mut order[..n];
    order.sort_unstable();
    let queued = order.first().is_some_and(|(over, ..)| *over);
    for (over, _, at) in order {
        let at = usize::from(*at);
        let (Some(c), Some(rating)) = (inputs.candidates().get(at), rated[at]) else { continue };
        let hard = hard_cap(inputs, c);
        let cap = match c.health {
            Health::HalfOpen { .. } => Rif(1),
            _ if *over => hard,
            _ => rating.cap.min(hard),
        };
        let choice = choice(c, at, [cap, hard], decision);
        if *over && !queued {
            decision.spare(choice, Reject::OverCap);
        } else {
            decision.list(choice);
        }
    }
    decision.outcome = match decision.choices().first() {
        None => Outcome::Nobody,
        Some(_) if queued => Outcome::Queued,
        Some(first) if inputs.request.budget().is_some_and(|left| first.predicted > left) => {
            Outcome::Late
        }
        Some(_) => Outcome::Placed,
    };
}

fn choice(c: &Candidate, at: usize, [cap, limit]: [Rif; 2], decision: &Decision) -> Choice {
    let predicted = decision.costs.get(at).map_or(Micros::ZERO, Cost::total);
    Choice { candidate: at as u8, slot: c.slot, node: c.node, cap, limit, predicted }
}

/// With nobody else, nodes that are ejected or being tried are listed.
fn last_resort(inputs: &Inputs, decision: &mut Decision) {
    let reason = |d: &Decision, at: usize| match d.verdicts().get(at) {
        Some(Verdict::Rejected(reason)) => Some(*reason),
        _ => None,
    };
    let mut busy = false;
    let mut order = [(Micros::MAX, u8::MAX); MAX_CANDIDATES];
    for (at, c) in inputs.candidates().iter().enumerate() {
        match reason(decision, at) {
            Some(Reject::Ejected | Reject::Trial) if hard_cap(inputs, c) > c.leases => {
                order[at] = (decision.costs[at].total(), at as u8);
            }
            Some(Reject::Full | Reject::TooFar | Reject::Ejected | Reject::Trial) => busy = true,
            _ => {}
        }
    }
    order.sort_unstable();
    for (_, at) in order {
        let at = usize::from(at);
        if let Some(c) = inputs.candidates().get(at) {
            let hard = hard_cap(inputs, c);
            let choice = choice(c, at, [hard, hard], decision);
            decision.list(choice);
        }
    }
    decision.outcome = match (decision.listed > 0, busy) {
        (true, _) => Outcome::LastResort,
        (false, true) => Outcome::Shed,
        (false, false) => Outcome::Nobody,
    };
}
