//! The order of fields in a record of version 1. A change of it is a new
//! version.

use alloc::vec::Vec;

use super::RecordError;
use super::wire::{Reader, Wire, checked, fields, numbers, tags};
use crate::cells::Health;
use crate::decision::{Choice, Cost, Decision, Outcome, Reject, Verdict};
use crate::hash::AffinityKey;
use crate::inputs::{
    Candidate, Estimate, Excluded, Found, HorizonLoad, Inputs, MAX_CANDIDATES, Reported, Source,
};
use crate::place::{Place, RegionId, RegionSet};
use crate::policy::{CappedAffinity, Common, Nearest, Policy, RingBounded};
use crate::request::{ModelId, PayloadClass, Request};
use crate::topology::{Held, NodeKey, Slot};
use crate::units::{
    GramsPerKwh, Micros, MilliRif, Millicost, Permille, Probability, Rif, Timestamp, Weight,
    Workers,
};

numbers! {
    AffinityKey, GramsPerKwh, Micros, MilliRif, Millicost, ModelId, NodeKey, Permille, Rif,
    Timestamp,
}

checked! {
    Probability: "probability", |v: &Self| v.ppm(), |n| Self::from_ppm(n).ok();
    Weight: "weight", |v: &Self| v.get(), |n| Self::new(n).ok();
    Workers: "number of workers", |v: &Self| v.get(), |n| Self::new(n).ok();
    RegionId: "region", |v: &Self| v.get(), |n| Self::new(n).ok();
    RegionSet: "regions", |v: &Self| v.bits(), |n| Some(Self::from_bits(n));
    Health: "health", |v: &Self| v.pack(), Self::unpack;
    Place: "place",
        |v: &Self| [v.lat().to_bits(), v.lon().to_bits()],
        |[lat, lon]: [u64; 2]| Self::new(f64::from_bits(lat), f64::from_bits(lon)).ok();
}

fields! {
    Common { error_penalty, queue_per_worker }
    RingBounded { epsilon, tries, common }
    Nearest { common }
    CappedAffinity {
        keyed, random, bound, slack, keep, keep_at_least, noise, deadline_share, common,
    }
    Request { model, allowed, key, deadline, payload, hard, client, client_rtt }
    Slot { index, generation }
    Estimate { value, source }
    Reported { total, share, age }
    HorizonLoad { load, weight, nodes }
    Excluded { no_model, not_allowed, dead, ejected, draining }
    Candidate {
        slot, node, region, found, horizon, health, drained, floor, rtt, service, leases,
        reported, load, workers, weight, ramp, held, offload, errors, price, carbon,
    }
    Cost { network, queue, service, load, offload, errors }
    Choice { candidate, slot, node, cap, limit, predicted }
}

tags! {
    PayloadClass: "payload class" { 0 = Small, 1 = Medium, 2 = Large }
    Source: "source" { 0 = Measured, 1 = Prior, 2 = Default }
    Outcome: "outcome" {
        0 = Placed, 1 = Late, 2 = Queued, 3 = LastResort, 4 = Shed, 5 = Nobody,
    }
    Reject: "reason" {
        0 = NotAllowed, 1 = Dead, 2 = Draining, 3 = Ejected, 4 = Trial, 5 = OverCap, 6 = Full,
        7 = TooFar,
    }
}

impl Wire for Policy {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::RingBounded(policy) => (0_u8.put(out), policy.put(out)),
            Self::Nearest(policy) => (1_u8.put(out), policy.put(out)),
            Self::CappedAffinity(policy) => (2_u8.put(out), policy.put(out)),
        };
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, RecordError> {
        match u8::take(from)? {
            0 => Wire::take(from).map(Self::RingBounded),
            1 => Wire::take(from).map(Self::Nearest),
            2 => Wire::take(from).map(Self::CappedAffinity),
            _ => Err(from.invalid("policy")),
        }
    }
}

impl Wire for Found {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Key(rank) => (0_u8.put(out), rank.put(out)),
            Self::Farther => (1_u8.put(out), ()),
            Self::Random => (2_u8.put(out), ()),
            Self::Near => (3_u8.put(out), ()),
        };
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, RecordError> {
        match u8::take(from)? {
            0 => Wire::take(from).map(Self::Key),
            1 => Ok(Self::Farther),
            2 => Ok(Self::Random),
            3 => Ok(Self::Near),
            _ => Err(from.invalid("way of finding")),
        }
    }
}

impl Wire for Held {
    fn put(&self, out: &mut Vec<u8>) {
        let load = match self {
            Self::Resident => None,
            Self::Loadable(time) => Some(*time),
        };
        load.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, RecordError> {
        let load: Option<Micros> = Wire::take(from)?;
        Ok(load.map_or(Self::Resident, Self::Loadable))
    }
}

impl Wire for Verdict {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Listed(rank) => (0_u8.put(out), rank.put(out)),
            Self::Rejected(reason) => (1_u8.put(out), reason.put(out)),
            Self::Spare(rank, reason) => {
                2_u8.put(out);
                (rank.put(out), reason.put(out))
            }
        };
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, RecordError> {
        match u8::take(from)? {
            0 => Wire::take(from).map(Self::Listed),
            1 => Wire::take(from).map(Self::Rejected),
            2 => Ok(Self::Spare(Wire::take(from)?, Wire::take(from)?)),
            _ => Err(from.invalid("verdict")),
        }
    }
}

impl Wire for Inputs {
    fn put(&self, out: &mut Vec<u8>) {
        self.policy.put(out);
        self.now.put(out);
        self.epoch.put(out);
        self.request.put(out);
        self.horizons.put(out);
        self.excluded.put(out);
        (self.len() as u8).put(out);
        self.candidates().iter().for_each(|c| c.put(out));
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, RecordError> {
        let mut inputs = Self::new(Wire::take(from)?);
        inputs.now = Wire::take(from)?;
        inputs.epoch = Wire::take(from)?;
        inputs.request = Wire::take(from)?;
        inputs.horizons = Wire::take(from)?;
        inputs.excluded = Wire::take(from)?;
        for _ in 0..count(from, "number of candidates")? {
            if !inputs.push(Wire::take(from)?) {
                return Err(from.invalid("candidate (its slot occurs twice)"));
            }
        }
        Ok(inputs)
    }
}

pub(super) fn put_decision(decision: &Decision, out: &mut Vec<u8>) {
    decision.outcome.put(out);
    for (verdict, cost) in decision.verdicts().iter().zip(decision.costs()) {
        verdict.put(out);
        cost.put(out);
    }
    decision.listed.put(out);
    decision.choices().iter().for_each(|choice| choice.put(out));
}

/// The number of verdicts is the inputs' number of candidates. What no decision
/// could be, the inputs included, is refused by the invariants.
pub(super) fn take_decision(
    inputs: &Inputs,
    from: &mut Reader<'_>,
) -> Result<Decision, RecordError> {
    let mut decision = Decision::new();
    decision.outcome = Wire::take(from)?;
    decision.judged = inputs.len() as u8;
    for at in 0..inputs.len() {
        decision.verdicts[at] = Wire::take(from)?;
        decision.costs[at] = Wire::take(from)?;
    }
    let listed = count(from, "number of choices")?;
    for at in 0..listed {
        decision.choices[at] = Wire::take(from)?;
    }
    decision.listed = listed as u8;
    match crate::invariants::check(inputs, &decision) {
        Ok(()) => Ok(decision),
        Err(violation) => Err(from.invalid(violation.as_str())),
    }
}

fn count(from: &mut Reader<'_>, what: &'static str) -> Result<usize, RecordError> {
    let n = usize::from(u8::take(from)?);
    if n <= MAX_CANDIDATES { Ok(n) } else { Err(from.invalid(what)) }
}
