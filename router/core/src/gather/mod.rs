//! Fills the inputs of a decision. Decides which at most 16 nodes are worth
//! comparing and copies what is known of them; never which of them is best.
//! It looks at a bounded number of nodes, however large the fleet is.

mod walk;

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::cells::{Cells, Health};
use crate::hash::AffinityKey;
use crate::inputs::{Candidate, Estimate, Excluded, Found, Inputs, MAX_CANDIDATES, Source};
use crate::policy::Policy;
use crate::request::Request;
use crate::rng::Rng;
use crate::topology::index::{OutCounts, View};
use crate::topology::{Entry, HORIZONS, Topology};
use crate::units::{Micros, Timestamp};

/// Most ring points, or slots of an index, that one search looks at.
const STEPS: usize = 1_024;
/// Up to this size the nearest horizon's load is summed anew for every
/// request; beyond it the last sweep's sum is taken.
const EXACT: usize = 64;

/// Finds the candidates of a request. Everything in `inputs` but the policy is
/// overwritten; nothing is allocated.
pub fn gather(
    now: Timestamp,
    topology: &Topology,
    cells: &Cells,
    request: &Request,
    rng: &mut Rng,
    inputs: &mut Inputs,
) {
    inputs.clear();
    inputs.now = now;
    inputs.epoch = topology.epoch();
    inputs.request.clone_from(request);
    let nodes = topology.len() as u32;
    let Some(view) = topology.view(request.model, request.allowed) else {
        inputs.excluded = Excluded { no_model: nodes, ..Excluded::default() };
        return;
    };
    let scout = Scout { now, cells, request, view };
    inputs.excluded = scout.excluded(nodes);
    let Some(nearest) = scout.nearest() else {
        scout.last_resort(inputs);
        return;
    };
    let exact = scout.loads(nearest, inputs);
    match inputs.policy {
        Policy::CappedAffinity(policy) => {
            let (keyed, random) = (usize::from(policy.keyed), usize::from(policy.random));
            match request.key {
                Some(key) => {
                    scout.by_key(nearest, key, keyed, inputs, |_| true);
                    scout.random(nearest, random, rng, inputs);
                }
                None => scout.random(nearest, keyed + random, rng, inputs),
            }
            scout.correct_load(nearest, exact, inputs);
            let load = inputs.horizons[nearest];
            if inputs.candidates().iter().all(|c| policy.over(c, load)) {
                // Bad luck must not send a request away from a place with room.
                scout.random(nearest, 2 * random, rng, inputs);
            }
            let key = request.key.unwrap_or_else(|| AffinityKey(rng.next_u64()));
            scout.farther(nearest, key, inputs);
        }
        Policy::RingBounded(policy) => {
            let key = request.key.unwrap_or_else(|| AffinityKey(rng.next_u64()));
            scout.by_key(nearest, key, usize::from(policy.tries), inputs, |_| true);
            scout.correct_load(nearest, exact, inputs);
            let load = inputs.horizons[nearest];
            if inputs.candidates().iter().all(|c| policy.over(c, load)) {
                scout.by_key(nearest, key, 1, inputs, |c| !policy.over(c, load));
            }
            scout.farther(nearest, key, inputs);
        }
        Policy::Nearest(_) => scout.near(inputs),
    }
    for horizon in nearest..HORIZONS {
        scout.correct_load(horizon, exact && horizon == nearest, inputs);
    }
    inputs.liken_strangers();
}

/// One request's look at the fleet.
struct Scout<'a> {
    now: Timestamp,
    cells: &'a Cells,
    request: &'a Request,
    view: View<'a>,
}

impl<'a> Scout<'a> {
    fn excluded(&self, nodes: u32) -> Excluded {
        let all = self.view.all.len() as u32;
        let within = self.view.all.within(self.request.allowed);
        let out = match self.view.filter {
            None => self.view.index.out(),
            Some(_) => self.count_out(),
        };
        Excluded {
            no_model: nodes.saturating_sub(all),
            not_allowed: all.saturating_sub(within),
            dead: out.dead,
            ejected: out.ejected,
            draining: out.draining,
        }
    }

    /// Counts who is out among the members of a set that has no index.
    fn count_out(&self) -> OutCounts {
        let mut out = OutCounts::default();
        for entry in self.members(HORIZONS) {
            match self.cells.cell(entry.slot).map(|cell| cell.health()) {
                Some(Health::Dead { .. }) => out.dead += 1,
                Some(Health::Ejected { .. }) => out.ejected += 1,
                _ => out.draining += 1,
            }
        }
        out
    }

    /// The nearest horizon with a node that may be chosen.
    fn nearest(&self) -> Option<usize> {
        (0..HORIZONS).find(|h| self.members(*h).any(|e| self.usable(e, *h)))
    }

    /// The members of a horizon, nearest first; at most [`STEPS`] are looked at.
    fn members(&self, horizon: usize) -> impl Iterator<Item = &'a Entry> + use<'_, 'a> {
        let slots: &'a [AtomicU32] = self.view.horizon(horizon);
        slots.iter().take(STEPS).filter_map(|slot| self.view.member(slot.load(Relaxed)))
    }

    /// Whether a node is current, in the horizon and may be chosen: the index
    /// may be a sweep behind the cells.
    fn usable(&self, entry: &Entry, horizon: usize) -> bool {
        self.cells.cell(entry.slot).is_some_and(|cell| {
            usize::from(cell.horizon()) == horizon && cell.health().usable() && !entry.spec.drained
        })
    }

    /// Copies what is known of a node; none when it has just left.
    fn candidate(&self, entry: &Entry, found: Found) -> Option<Candidate> {
        let cell = self.cells.cell(entry.slot)?;
        let spec = &entry.spec;
        let served = spec.served(self.view.model)?;
        let tuning = self.cells.tuning();
        let (leases, reported, health) = (cell.leases(), cell.reported(self.now), cell.health());
        let floor = estimate(cell.floor(), self.prior(entry), tuning.default_rtt);
        Some(Candidate {
            slot: entry.slot,
            node: spec.key,
            region: spec.region,
            found,
            horizon: cell.horizon(),
            health,
            drained: spec.drained,
            floor,
            rtt: estimate(cell.rtt(), None, floor.value).or(floor),
            service: estimate(cell.service(), served.service, tuning.default_service),
            leases,
            reported,
            load: self.cells.load(leases, reported),
            workers: spec.workers,
            weight: spec.weight,
            ramp: health.ramp(self.now, tuning.slow_start),
            held: served.held,
            offload: spec.offload,
            errors: cell.error_rate(),
            price: spec.price,
            carbon: spec.carbon,
        })
    }

    /// The round trip to assume by distance: from the router, or from the
    /// client when the router does not know where it is.
    fn prior(&self, entry: &Entry) -> Option<Micros> {
        if self.view.topology.here().is_some() {
            return entry.prior;
        }
        let (client, node) = self.request.client.zip(entry.spec.place)?;
        Some(client.rtt_prior(node))
    }

    fn push(&self, entry: &Entry, found: Found, inputs: &mut Inputs) -> bool {
        self.candidate(entry, found).is_some_and(|candidate| inputs.push(candidate))
    }

    /// When nobody may be chosen, ejected nodes are better than nothing.
    fn last_resort(&self, inputs: &mut Inputs) {
        for entry in (0..=HORIZONS).flat_map(|h| self.members(h)) {
            let health = self.cells.cell(entry.slot).map(|cell| cell.health());
            if !entry.spec.drained && matches!(health, Some(Health::Ejected { .. })) {
                self.push(entry, Found::Near, inputs);
            }
            if inputs.len() == MAX_CANDIDATES {
                return;
            }
        }
    }

    /// Fills in the horizons' loads; says whether the nearest one's is exact.
    fn loads(&self, nearest: usize, inputs: &mut Inputs) -> bool {
        for horizon in nearest..HORIZONS {
            inputs.horizons[horizon] = self.view.horizon_load(horizon);
        }
        if self.view.horizon(nearest).len() > EXACT {
            return false;
        }
        let sum = &mut inputs.horizons[nearest];
        *sum = Default::default();
        for entry in self.members(nearest).filter(|e| self.usable(e, nearest)) {
            let Some(cell) = self.cells.cell(entry.slot) else { continue };
            let load = self.cells.load(cell.leases(), cell.reported(self.now));
            sum.load = sum.load.plus(load);
            sum.weight += u64::from(entry.spec.weight.get());
            sum.nodes += 1;
        }
        true
    }

    /// A sweep's sum is up to 250 ms old and lags behind a burst: where the
    /// candidates are busier on average than it says, they are right.
    fn correct_load(&self, horizon: usize, exact: bool, inputs: &mut Inputs) {
        let (mut load, mut weight) = (0_u64, 0_u64);
        for c in inputs.candidates().iter().filter(|c| usize::from(c.horizon) == horizon) {
            load = load.saturating_add(c.load.0);
            weight += u64::from(c.weight.get());
        }
        if weight == 0 || exact {
            return;
        }
        let sum = &mut inputs.horizons[horizon];
        sum.weight = sum.weight.max(weight);
        sum.load.0 = sum.load.0.max(crate::units::mul_div(load, sum.weight, weight));
    }
}

fn estimate(measured: Option<Micros>, prior: Option<Micros>, default: Micros) -> Estimate {
    match (measured, prior) {
        (Some(value), _) => Estimate { value, source: Source::Measured },
        (None, Some(value)) => Estimate { value, source: Source::Prior },
        (None, None) => Estimate { value: default, source: Source::Default },
    }
}

impl Estimate {
    /// This one, unless nothing is known.
    fn or(self, other: Self) -> Self {
        if self.source == Source::Default { other } else { self }
    }
}
