//! The ways to find candidates within a horizon: a key's order, the first of
//! it in each farther horizon, chance, nearness. Decides nothing about load.
//!
//! A key's order is that of the ring; where the ring does not yield enough
//! nodes within its steps (there is none, or the set is a small part of the
//! fleet), the rest follows by rendezvous score.

use core::sync::atomic::Ordering::Relaxed;

use super::{EXACT, STEPS, Scout};
use crate::hash::{AffinityKey, rendezvous};
use crate::inputs::{Candidate, Found, Inputs, MAX_CANDIDATES};
use crate::rng::Rng;
use crate::topology::{Entry, HORIZONS};

impl Scout<'_> {
    /// Adds the first `want` acceptable nodes of the key's order in a horizon.
    pub(super) fn by_key(
        &self,
        horizon: usize,
        key: AffinityKey,
        want: usize,
        inputs: &mut Inputs,
        accept: impl Fn(&Candidate) -> bool,
    ) {
        // A small horizon is soon exhausted: no use in walking on for more.
        let want = want.min(self.view.horizon(horizon).len());
        let mut rank = inputs.len();
        let goal = (rank + want).min(MAX_CANDIDATES);
        let mut add = |entry: &Entry, inputs: &mut Inputs| {
            let found = Found::Key(rank as u8);
            let candidate = self.candidate(entry, found).filter(&accept);
            rank += usize::from(candidate.is_some_and(|c| inputs.push(c)));
            rank >= goal
        };
        if want == 0 {
            return;
        }
        let ring = self.view.topology.ring();
        for slot in ring.into_iter().flat_map(|ring| ring.walk(key)).take(STEPS) {
            let Some(entry) = self.view.current(slot) else { continue };
            if !inputs.has(slot.index) && self.usable(entry, horizon) && add(entry, inputs) {
                return;
            }
        }
        let acceptable = |entry: &Entry| {
            !inputs.has(entry.slot.index)
                && self.candidate(entry, Found::Random).is_some_and(|c| accept(&c))
        };
        let best: [_; MAX_CANDIDATES] = self.best(horizon, key, STEPS, acceptable);
        for entry in best.into_iter().flatten() {
            if add(entry, inputs) {
                return;
            }
        }
    }

    /// Adds the first of the key's order in each farther horizon: by
    /// rendezvous among its nearest, which is cheap where few nodes are far.
    pub(super) fn farther(&self, nearest: usize, key: AffinityKey, inputs: &mut Inputs) {
        for horizon in nearest + 1..HORIZONS {
            if let [Some(entry)] = self.best(horizon, key, EXACT, |_| true) {
                self.push(entry, Found::Farther, inputs);
            }
        }
    }

    /// Adds up to `want` nodes of a horizon, drawn at random. A draw that hits
    /// a candidate is repeated, at most three times as often as nodes wanted.
    pub(super) fn random(&self, horizon: usize, want: usize, rng: &mut Rng, inputs: &mut Inputs) {
        let slots = self.view.horizon(horizon);
        let goal = (inputs.len() + want).min(MAX_CANDIDATES);
        for _ in 0..3 * want {
            if inputs.len() >= goal {
                return;
            }
            let Some(slot) = slots.get(rng.below(slots.len() as u32) as usize) else { return };
            let Some(entry) = self.view.member(slot.load(Relaxed)) else { continue };
            if self.usable(entry, horizon) {
                self.push(entry, Found::Random, inputs);
            }
        }
        // Draws may all have hit the few nodes taken: a small horizon is filled
        // up in order, so that no eligible node is left out by bad luck.
        let rest = self.members(horizon).take(EXACT);
        for entry in rest.filter(|e| self.usable(e, horizon)) {
            if inputs.len() >= goal {
                return;
            }
            self.push(entry, Found::Random, inputs);
        }
    }

    /// Adds the nearest nodes, whatever their horizon.
    pub(super) fn near(&self, inputs: &mut Inputs) {
        for horizon in 0..HORIZONS {
            for entry in self.members(horizon).filter(|e| self.usable(e, horizon)) {
                if inputs.len() == MAX_CANDIDATES {
                    return;
                }
                self.push(entry, Found::Near, inputs);
            }
        }
    }

    /// The nodes with the highest rendezvous scores, highest first, among the
    /// first `steps` of a horizon.
    fn best<const N: usize>(
        &self,
        horizon: usize,
        key: AffinityKey,
        steps: usize,
        accept: impl Fn(&Entry) -> bool,
    ) -> [Option<&Entry>; N] {
        let mut best: [Option<&Entry>; N] = [None; N];
        let mut scores = [0_u64; N];
        for entry in self.members(horizon).take(steps) {
            let score = rendezvous(key, entry.spec.key.0);
            let below = |i: &usize| best[*i].is_none() || scores[*i] < score;
            let Some(at) = (0..N).find(below) else { continue };
            if self.usable(entry, horizon) && accept(entry) {
                best[at..].rotate_right(1);
                scores[at..].rotate_right(1);
                (best[at], scores[at]) = (Some(entry), score);
            }
        }
        best
    }
}
