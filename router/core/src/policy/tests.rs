//! `choose` on inputs made by hand: what no fleet would produce must hold too.

use crate::cells::Health;
use crate::decision::{Decision, Outcome, Reject, Verdict};
use crate::inputs::{Candidate, Estimate, Found, HorizonLoad, Inputs, Source};
use crate::place::{RegionId, RegionSet};
use crate::policy::{CappedAffinity, Common, Nearest, Policy, RingBounded, choose};
use crate::topology::{Held, NodeKey, Slot};
use crate::units::{
    GramsPerKwh, Micros, MilliRif, Millicost, Permille, Probability, Rif, Timestamp, Weight,
    Workers,
};

fn candidate(index: u32, rtt: u64) -> Candidate {
    let estimate = |ms| Estimate { value: Micros::from_millis(ms), source: Source::Measured };
    Candidate {
        slot: Slot { index, generation: 1 },
        node: NodeKey(u64::from(index)),
        region: RegionId::ZERO,
        found: Found::Random,
        horizon: 0,
        health: Health::Healthy,
        drained: false,
        floor: estimate(rtt),
        rtt: estimate(rtt),
        service: estimate(10),
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
    }
}

fn decide(policy: Policy, candidates: &[Candidate], seed: u64) -> Decision {
    decide_within(None, policy, candidates, seed)
}

fn decide_within(
    deadline: Option<Micros>,
    policy: Policy,
    candidates: &[Candidate],
    seed: u64,
) -> Decision {
    let mut inputs = Inputs::new(policy);
    inputs.horizons = [HorizonLoad { load: MilliRif(4_000), weight: 400, nodes: 4 }; 4];
    for c in candidates {
        assert!(inputs.push(*c));
    }
    inputs.request.deadline = deadline;
    inputs.request.allowed = RegionSet::of([RegionId::ZERO]);
    let mut decision = Decision::new();
    choose(&inputs, seed, &mut decision);
    crate::invariants::check(&inputs, &decision).unwrap();
    decision
}

fn every_policy() -> impl Iterator<Item = Policy> {
    Policy::NAMES.into_iter().map(|name| Policy::from_name(name).unwrap())
}

#[test]
fn names_lead_to_their_policies_and_back() {
    for name in Policy::NAMES {
        assert_eq!(Policy::from_name(name).unwrap().as_str(), name);
    }
    assert_eq!(Policy::from_name("prequel"), None);
}

#[test]
fn parameters_out_of_range_are_named() {
    for policy in every_policy() {
        assert_eq!(policy.checked(), Ok(policy));
    }
    let named = |policy: Policy| policy.checked().unwrap_err().what;
    let capped = CappedAffinity::default();
    assert_eq!(named(Policy::CappedAffinity(CappedAffinity { keyed: 0, ..capped })), "keyed");
    assert_eq!(named(Policy::CappedAffinity(CappedAffinity { random: 3, ..capped })), "random");
    let ring = RingBounded { tries: 13, ..RingBounded::default() };
    assert_eq!(named(Policy::RingBounded(ring)), "tries");
    let common = Common { queue_per_worker: 0, ..Common::default() };
    assert_eq!(named(Policy::Nearest(Nearest { common })), "queue_per_worker");
}

#[test]
fn every_policy_filters_before_it_scores() {
    let t = Timestamp(0);
    let with = |index, edit: &dyn Fn(&mut Candidate)| {
        let mut c = candidate(index, 1);
        edit(&mut c);
        c
    };
    let candidates = [
        with(0, &|c| c.region = RegionId::new(1).unwrap()),
        with(1, &|c| c.health = Health::Dead { since: t }),
        with(2, &|c| c.health = Health::Draining),
        with(3, &|c| c.drained = true),
        with(4, &|c| c.health = Health::Ejected { until: t }),
        with(5, &|c| (c.health, c.leases) = (Health::HalfOpen { since: t }, Rif(1))),
        with(6, &|c| (c.leases, c.load) = (Rif(64), MilliRif(64_000))),
        with(7, &|c| c.load = MilliRif(64_000)),
        candidate(8, 99),
    ];
    for policy in every_policy() {
        let decision = decide(policy, &candidates, 1);
        let rejected = [
            Reject::NotAllowed,
            Reject::Dead,
            Reject::Draining,
            Reject::Draining,
            Reject::Ejected,
            Reject::Trial,
            Reject::Full,
            Reject::Full,
        ];
        let expected = rejected.map(Verdict::Rejected);
        assert_eq!(decision.verdicts()[..8], expected, "{}", policy.as_str());
        assert_eq!(decision.choices()[0].node, NodeKey(8));
        assert_eq!(decision.outcome(), Outcome::Placed);
        // Without the last, the ejected and the tried ones are better than nothing.
        let decision = decide(policy, &candidates[..8], 1);
        assert_eq!(decision.outcome(), Outcome::LastResort);
        assert_eq!(decision.choices().len(), 2);
        assert_eq!(decide(policy, &candidates[6..8], 1).outcome(), Outcome::Shed);
        assert_eq!(decide(policy, &candidates[..4], 1).outcome(), Outcome::Nobody);
        assert_eq!(decide(policy, &[], 1).outcome(), Outcome::Nobody);
    }
}

#[test]
fn extreme_values_neither_panic_nor_wrap() {
    let mut c = candidate(0, 1);
    (c.load, c.leases) = (MilliRif(u64::MAX), Rif(u32::MAX));
    c.floor.value = Micros::MAX;
    c.service.value = Micros::MAX;
    c.held = Held::Loadable(Micros::MAX);
    c.ramp = Permille(0);
    let mut d = candidate(1, 1);
    d.service.value = Micros::MAX;
    for policy in every_policy() {
        let decision = decide(policy, &[c, d], u64::MAX);
        assert_eq!(decision.choices()[0].node, NodeKey(1), "{}", policy.as_str());
        assert_eq!(decision.choices()[0].predicted, Micros::MAX);
    }
}

#[test]
fn nearest_prefers_what_was_measured_and_ignores_load() {
    let mut guessed = candidate(0, 1);
    guessed.rtt.source = Source::Prior;
    let mut busy = candidate(1, 20);
    busy.load = MilliRif(60_000);
    let decision = decide(Policy::Nearest(Nearest::default()), &[guessed, busy], 0);
    assert_eq!(decision.choices()[0].node, NodeKey(1));
}

#[test]
fn noise_splits_equals_by_seed_and_never_beyond_two_per_cent() {
    let equals = [candidate(0, 20), candidate(1, 20), candidate(2, 22)];
    let mut first = [0; 3];
    for seed in 0..200 {
        let decision = decide(Policy::default(), &equals, seed);
        first[decision.choices()[0].node.0 as usize] += 1;
    }
    assert!(first[0] > 60 && first[1] > 60, "{first:?}");
    assert_eq!(first[2], 0, "2 ms of 30 are more than the noise");
    let quiet = CappedAffinity { noise: Permille(0), ..CappedAffinity::default() };
    for seed in 0..50 {
        let decision = decide(Policy::CappedAffinity(quiet), &equals, seed);
        assert_eq!(decision.choices()[0].node, NodeKey(0));
    }
}

#[test]
fn a_trial_may_hold_one_request_only() {
    let mut c = candidate(0, 1);
    c.health = Health::HalfOpen { since: Timestamp(0) };
    for policy in every_policy() {
        assert_eq!(decide(policy, &[c], 0).choices()[0].cap, Rif(1), "{}", policy.as_str());
    }
}

#[test]
fn bound_follows_weight() {
    let mut heavy = candidate(0, 1);
    heavy.weight = Weight::new(200).unwrap();
    // Mean 1 per 100 of weight: bounds 1.6 * 2 + 1 = 4.2 and 1.6 + 1 = 2.6.
    let caps = |c| decide(Policy::default(), &[c], 0).choices()[0].cap;
    assert_eq!(caps(heavy), Rif(5));
    assert_eq!(caps(candidate(1, 1)), Rif(3));
}

#[test]
fn only_a_measured_round_trip_can_be_too_far() {
    let mut guessed = candidate(0, 80);
    guessed.floor.source = Source::Prior;
    let deadline = Some(Micros::from_millis(50));
    for policy in every_policy() {
        let decision = decide_within(deadline, policy, &[guessed, candidate(1, 80)], 0);
        assert_eq!(decision.outcome(), Outcome::Late, "{}", policy.as_str());
        assert_eq!(decision.verdicts()[1], Verdict::Rejected(Reject::TooFar));
    }
}

#[test]
fn when_all_are_late_affinity_still_counts_and_price_does_not() {
    let (mut primary, mut cheap) = (candidate(0, 22), candidate(1, 20));
    (primary.found, primary.price) = (Found::Key(0), Millicost(7));
    cheap.price = Millicost(1);
    for seed in 0..20 {
        let deadline = Some(Micros::from_millis(25));
        let late = decide_within(deadline, Policy::default(), &[primary, cheap], seed);
        assert_eq!(late.outcome(), Outcome::Late);
        assert_eq!(late.choices()[0].node, NodeKey(0));
        let in_time = decide(Policy::default(), &[primary, cheap], seed);
        assert_eq!(in_time.choices()[0].node, NodeKey(1));
    }
}
