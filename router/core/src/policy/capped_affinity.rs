//! `capped_affinity`, the default: affinity while it costs little, else the
//! lowest predicted cost, under a bound on load.
//!
//! ```text
//! over     = load > (bound * mean + slack) * ramp        [requests]
//! mean     = load of the horizon * weight(node) / weight of the horizon
//! near(b)  = cost <= b * (1 + keep) + keep_at_least      [us]
//! ```
//!
//! Among nodes that are not over: those predicted to meet `deadline_share` of
//! the time left (without a deadline: those near the best) come first, by
//! price, then carbon; when none meets it, those near the best, by neither. Among equals in both, the key's primary
//! leads if it is near the best of them; then by cost, raised by a seeded
//! noise of at most `noise`, so that routers with equal knowledge do not move
//! as one. The others follow by cost. Price and carbon never weigh against
//! latency, they only decide among nodes that are good enough. The cost is
//! that of `cost.rs`, which also says what stands in for missing data; without
//! a key there is no primary. Where all are over, the request queues where the
//! cost is lowest. Sources: bounded loads as in arXiv 1608.01350; the rest is
//! a hypothesis from simulation.

use super::{Common, Eligible, PerCandidate, Rated};
use crate::hash::mix;
use crate::inputs::{Candidate, Found, HorizonLoad, Inputs};
use crate::units::{Micros, MilliRif, Permille, Rif, mul_div};

/// Parameters of `capped_affinity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CappedAffinity {
    /// First nodes of the key's order that become candidates.
    pub keyed: u8,
    /// Further candidates drawn at random from the nearest horizon.
    pub random: u8,
    /// Load relative to the mean above which a node is over.
    pub bound: Permille,
    /// Requests that a node may have beyond that.
    pub slack: Rif,
    /// By how much the primary may exceed the best, relatively.
    pub keep: Permille,
    /// By how much the primary may exceed the best besides.
    pub keep_at_least: Micros,
    /// Largest noise on a cost.
    pub noise: Permille,
    /// Part of the time left that a prediction may take up to count as in time.
    pub deadline_share: Permille,
    /// What every policy has.
    pub common: Common,
}

impl Default for CappedAffinity {
    fn default() -> Self {
        Self {
            keyed: 3,
            random: 2,
            bound: Permille(1_600),
            slack: Rif(1),
            keep: Permille(100),
            keep_at_least: Micros::from_millis(2),
            noise: Permille(20),
            deadline_share: Permille(900),
            common: Common::default(),
        }
    }
}

impl CappedAffinity {
    /// The largest load at which the node is not over.
    fn bound(&self, c: &Candidate, horizon: HorizonLoad) -> MilliRif {
        let mean = mul_div(horizon.load.0, u64::from(c.weight.get()), horizon.weight);
        MilliRif(mean).scaled(self.bound).plus(self.slack.into()).scaled(c.ramp)
    }

    /// Whether the node has more than its share.
    pub(crate) fn over(&self, c: &Candidate, horizon: HorizonLoad) -> bool {
        c.load > self.bound(c, horizon)
    }

    /// The largest cost that is near a best cost.
    fn near(&self, best: Micros) -> Micros {
        best.plus(best.scaled(self.keep)).plus(self.keep_at_least)
    }

    fn noisy(&self, cost: Micros, c: &Candidate, seed: u64) -> u64 {
        let draw = mix(seed ^ mix(c.node.0)) % 1_001;
        let largest = cost.scaled(self.noise);
        cost.plus(largest.scaled(Permille(draw as u32))).0
    }

    pub(super) fn rate(
        &self,
        inputs: &Inputs,
        seed: u64,
        eligible: &PerCandidate<Eligible<'_>>,
        rated: &mut PerCandidate<Rated>,
    ) {
        let bound = |c: &Candidate| {
            let horizon = inputs.horizons.get(usize::from(c.horizon));
            self.bound(c, horizon.copied().unwrap_or_default())
        };
        let within =
            || eligible.iter().flatten().filter(|e| e.candidate.load <= bound(e.candidate));
        let best = within().map(|e| e.cost).min().unwrap_or(Micros::MAX);
        let in_time = inputs.request.budget().map(|left| left.scaled(self.deadline_share));
        let late = in_time.is_some_and(|limit| best > limit);
        let limit = in_time.filter(|_| !late).unwrap_or(self.near(best));
        let tariff = |c: &Candidate| match late {
            true => 0,
            false => u64::from(c.price.0) << 32 | u64::from(c.carbon.0),
        };

        for e in eligible.iter().flatten() {
            let c = e.candidate;
            let bound = bound(c);
            let noisy = self.noisy(e.cost, c, seed);
            let good_enough = e.cost <= limit;
            let peers = within().filter(|p| tariff(p.candidate) == tariff(c));
            let best_peer = peers.map(|p| p.cost).min().unwrap_or(Micros::MAX);
            let keep = c.found == Found::Key(0) && e.cost <= self.near(best_peer);
            let order = match good_enough {
                true => [0, tariff(c), u64::from(!keep), noisy],
                false => [1, noisy, 0, 0],
            };
            rated[e.at] = Some(Rated {
                over: c.load > bound,
                // Not over means at most `bound` before this request.
                cap: Rif(bound.minus(c.foreign()).floor().0.saturating_add(1)),
                order,
            });
        }
    }
}
