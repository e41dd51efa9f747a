//! What a decision knows: copied values, so that a record of them replays
//! alone. Decides nothing.

use crate::cells::Health;
use crate::place::RegionId;
use crate::policy::Policy;
use crate::request::{ModelId, Request};
use crate::topology::{HORIZONS, Held, NodeKey, Slot};
use crate::units::{
    GramsPerKwh, Micros, MilliRif, Millicost, Permille, Probability, Rif, Timestamp, Weight,
    Workers,
};

/// Most candidates of one decision.
pub const MAX_CANDIDATES: usize = 16;

/// Where an estimate comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Measured on this node.
    Measured,
    /// Derived: a distance, or the operator's word.
    Prior,
    /// Nothing is known of this node.
    #[default]
    Default,
}

impl Source {
    /// Its name in renderings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Prior => "prior",
            Self::Default => "default",
        }
    }
}

/// A duration and how it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The duration.
    pub value: Micros,
    /// How it is known.
    pub source: Source,
}

/// Why a node became a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// In the order of the request's key; 0 is the primary.
    Key(u8),
    /// First of the key's order in a farther horizon.
    Farther,
    /// Drawn at random from the nearest horizon.
    Random,
    /// Among the nearest by round trip.
    Near,
}

impl Found {
    /// Its name in renderings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key(0) => "primary",
            Self::Key(_) => "key",
            Self::Farther => "farther",
            Self::Random => "random",
            Self::Near => "near",
        }
    }
}

/// A node's last load report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Requests in flight there, from everyone.
    pub total: Rif,
    /// Those of them that this router had sent.
    pub share: Rif,
    /// Time since the report.
    pub age: Micros,
}

/// A node that may be chosen, and all that is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its slot.
    pub slot: Slot,
    /// Its identity.
    pub node: NodeKey,
    /// Its region.
    pub region: RegionId,
    /// Why it is here.
    pub found: Found,
    /// Its horizon, below [`HORIZONS`].
    pub horizon: u8,
    /// Its health.
    pub health: Health,
    /// The operator wants it to get nothing new.
    pub drained: bool,
    /// Windowed minimum of the round trip.
    pub floor: Estimate,
    /// Smoothed round trip; the floor when there is none.
    pub rtt: Estimate,
    /// Time that one request takes to execute.
    pub service: Estimate,
    /// Own requests in flight.
    pub leases: Rif,
    /// The last report, if any.
    pub reported: Option<Reported>,
    /// Load: others' requests by the report, aged, and own ones now.
    pub load: MilliRif,
    /// Requests executed at once.
    pub workers: Workers,
    /// Share of the work.
    pub weight: Weight,
    /// Part of its capacity that may be used: below one in a slow start.
    pub ramp: Permille,
    /// Whether the model is in memory.
    pub held: Held,
    /// Time an offloaded hard case takes from there.
    pub offload: Option<Micros>,
    /// Recent failures among its answers.
    pub errors: Probability,
    /// Price of a request there.
    pub price: Millicost,
    /// Carbon intensity there.
    pub carbon: GramsPerKwh,
}

impl Candidate {
    /// Fills the unused places, so that equal inputs are equal bytes.
    const BLANK: Self = Self {
        slot: Slot { index: 0, generation: 0 },
        node: NodeKey(0),
        region: RegionId::ZERO,
        found: Found::Random,
        horizon: 0,
        health: Health::Healthy,
        drained: false,
        floor: Estimate { value: Micros::ZERO, source: Source::Default },
        rtt: Estimate { value: Micros::ZERO, source: Source::Default },
        service: Estimate { value: Micros::ZERO, source: Source::Default },
        leases: Rif(0),
        reported: None,
        load: MilliRif::ZERO,
        workers: Workers::ONE,
        weight: Weight::NORMAL,
        ramp: Permille::ONE,
        held: Held::Resident,
        offload: None,
        errors: Probability::ZERO,
        price: Millicost(0),
        carbon: GramsPerKwh(0),
    };

    /// The part of the load that is not this router's own.
    pub fn foreign(&self) -> MilliRif {
        self.load.minus(self.leases.into())
    }
}

/// Load of one horizon, over the nodes that may be chosen there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HorizonLoad {
    /// Sum of loads.
    pub load: MilliRif,
    /// Sum of weights.
    pub weight: u64,
    /// Number of nodes.
    pub nodes: u32,
}

/// Nodes that did not become candidates, by reason. Each is counted once,
/// under the first reason that applies, in the order of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excluded {
    /// Do not serve the model.
    pub no_model: u32,
    /// Are in a region that the request may not use.
    pub not_allowed: u32,
    /// Do not answer probes.
    pub dead: u32,
    /// Fail too often.
    pub ejected: u32,
    /// Drain, by their own or the operator's word.
    pub draining: u32,
}

impl Excluded {
    /// The counts with their names in renderings and metrics.
    pub const fn by_reason(&self) -> [(&'static str, u32); 5] {
        let Self { no_model, not_allowed, dead, ejected, draining } = *self;
        [
            ("no_model", no_model),
            ("not_allowed", not_allowed),
            ("dead", dead),
            ("ejected", ejected),
            ("draining", draining),
        ]
    }
}

/// Everything that a decision is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    /// How to decide; kept over [`crate::gather`].
    pub policy: Policy,
    /// When the inputs were gathered.
    pub now: Timestamp,
    /// Which topology they were gathered from.
    pub epoch: u64,
    /// The request.
    pub request: Request,
    /// Load by horizon.
    pub horizons: [HorizonLoad; HORIZONS],
    /// What the index excluded.
    pub excluded: Excluded,
    candidates: [Candidate; MAX_CANDIDATES],
    len: u8,
}

impl Inputs {
    /// Inputs with no candidates yet, for decisions by `policy`. Make it once
    /// and reuse it: [`crate::gather`] overwrites everything but the policy.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            now: Timestamp::default(),
            epoch: 0,
            request: Request::new(ModelId(0)),
            horizons: [HorizonLoad::default(); HORIZONS],
            excluded: Excluded::default(),
            candidates: [Candidate::BLANK; MAX_CANDIDATES],
            len: 0,
        }
    }

    /// The candidates.
    pub fn candidates(&self) -> &[Candidate] {
        self.candidates.get(..self.len()).unwrap_or(&[])
    }

    /// How many candidates there are.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there is no candidate.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a candidate unless there are [`MAX_CANDIDATES`] already or one
    /// with the same slot index; says whether it was added.
    pub fn push(&mut self, candidate: Candidate) -> bool {
        if self.len() >= MAX_CANDIDATES || self.has(candidate.slot.index) {
            return false;
        }
        self.candidates[self.len()] = candidate;
        self.len += 1;
        true
    }

    /// Assumes of candidates that were never seen to execute a request that
    /// they are as fast as the others are on average. Any fixed guess would
    /// either shun a new node for good or send everybody there.
    pub(crate) fn liken_strangers(&mut self) {
        let known = self.candidates().iter().filter(|c| c.service.source == Source::Measured);
        let (sum, n) = known
            .fold((0_u64, 0_u64), |(sum, n), c| (sum.saturating_add(c.service.value.0), n + 1));
        let Some(mean) = sum.checked_div(n) else { return };
        let len = self.len();
        for candidate in self.candidates.iter_mut().take(len) {
            if candidate.service.source == Source::Default {
                candidate.service = Estimate { value: Micros(mean), source: Source::Prior };
            }
        }
    }

    pub(crate) fn has(&self, index: u32) -> bool {
        self.candidates().iter().any(|c| c.slot.index == index)
    }

    pub(crate) fn clear(&mut self) {
        self.candidates = [Candidate::BLANK; MAX_CANDIDATES];
        self.len = 0;
        self.horizons = [HorizonLoad::default(); HORIZONS];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn a_stranger_is_taken_for_as_fast_as_the_others() {
        let with = |index, value, source| Candidate {
            slot: Slot { index, generation: 0 },
            service: Estimate { value: Micros(value), source },
            ..Candidate::BLANK
        };
        let liken = |candidates: &[Candidate]| {
            let mut inputs = Inputs::new(Policy::default());
            candidates.iter().for_each(|candidate| assert!(inputs.push(*candidate)));
            inputs.liken_strangers();
            [0, 1, 2].map(|at| inputs.candidates()[at].service)
        };
        let stranger = with(2, 10_000, Source::Default);
        let known = [with(0, 100, Source::Measured), with(1, 300, Source::Measured), stranger];
        assert_eq!(liken(&known)[2], Estimate { value: Micros(200), source: Source::Prior });
        let stated = [with(0, 500, Source::Prior), with(1, 700, Source::Default), stranger];
        assert_eq!(liken(&stated), stated.map(|candidate| candidate.service));
    }
}
