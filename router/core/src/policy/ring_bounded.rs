//! `ring_bounded`: consistent hashing with bounded loads.
//!
//! ```text
//! cap(node) = ceil((1 + epsilon) * (load of the horizon + 1) * weight(node) / weight of the horizon)
//! ```
//!
//! in requests; a request goes to the first node of its key's order whose load
//! plus one is within its cap, in the nearest horizon, then in the farther
//! ones. With `m` keys on `n` equal nodes none has more than
//! `ceil((1 + epsilon) m / n)`. The sum of loads is exact up to 64 nodes in
//! the horizon; beyond, it is the last sweep's, or the candidates' mean where
//! that is higher. When data is missing: without a key the order is random;
//! without reports the loads are our own; without a ring the order is that of
//! rendezvous hashing. A slow start scales the cap. Latency plays no part but
//! for the horizons. Source: Mirrokni, Thorup, Zadimoghaddam, "Consistent
//! Hashing with Bounded Loads", arXiv 1608.01350.

use super::{Common, Eligible, PerCandidate, Rated};
use crate::inputs::{Candidate, Found, HorizonLoad, Inputs};
use crate::units::{MilliRif, Permille};

/// Parameters of `ring_bounded`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingBounded {
    /// By how much a node may exceed the mean load (250 is a quarter).
    pub epsilon: Permille,
    /// Nodes of the key's order that become candidates, full or not; when all
    /// are full, the first of the order that is not joins them.
    pub tries: u8,
    /// What every policy has.
    pub common: Common,
}

impl Default for RingBounded {
    fn default() -> Self {
        Self { epsilon: Permille(250), tries: 8, common: Common::default() }
    }
}

impl RingBounded {
    /// The node's bound: whole requests.
    fn cap(&self, c: &Candidate, horizon: HorizonLoad) -> MilliRif {
        let bound = Permille(self.epsilon.0.saturating_add(1_000));
        let next = horizon.load.plus(MilliRif(1_000));
        let share = next.0 as u128 * u128::from(c.weight.get());
        // Scaled before the division, so that only one rounding happens: up.
        let scaled = share.saturating_mul(u128::from(bound.0));
        let cap = scaled.div_ceil(u128::from(horizon.weight.max(1)) * 1_000);
        let cap = MilliRif(u64::try_from(cap).unwrap_or(u64::MAX));
        MilliRif::from(cap.scaled(c.ramp).ceil())
    }

    /// Whether one more request would exceed the node's bound.
    pub(crate) fn over(&self, c: &Candidate, horizon: HorizonLoad) -> bool {
        c.load.plus(MilliRif(1_000)) > self.cap(c, horizon)
    }

    pub(super) fn rate(
        &self,
        inputs: &Inputs,
        eligible: &PerCandidate<Eligible<'_>>,
        rated: &mut PerCandidate<Rated>,
    ) {
        for Eligible { at, candidate: c, .. } in eligible.iter().flatten() {
            let horizon = inputs.horizons.get(usize::from(c.horizon)).copied().unwrap_or_default();
            let rank = match c.found {
                Found::Key(rank) => u64::from(rank),
                _ => u64::MAX,
            };
            rated[*at] = Some(Rated {
                over: self.over(c, horizon),
                cap: self.cap(c, horizon).minus(c.foreign()).floor(),
                order: [u64::from(c.horizon), rank, 0, 0],
            });
        }
    }
}
