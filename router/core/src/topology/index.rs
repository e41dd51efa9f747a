//! Who serves a model within a set of regions, nearest first. The set is fixed
//! when the topology is built; its order, and what is known of each horizon's
//! load, is rewritten by every sweep in place, with atomics. A reader that
//! runs beside a sweep may meet a node twice or not at all, never a node
//! outside the set; `gather` drops duplicates and checks each node's cell.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{Entry, HORIZONS, Slot, Topology};
use crate::inputs::HorizonLoad;
use crate::place::{RegionId, RegionSet};
use crate::request::ModelId;
use crate::units::MilliRif;

/// What a sweep found out about one slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranked {
    pub(crate) slot: u32,
    pub(crate) weight: u16,
    pub(crate) load: MilliRif,
    pub(crate) standing: Standing,
}

/// Where a slot belongs in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// May be chosen; its horizon.
    In(u8),
    Dead,
    Ejected,
    Draining,
}

/// How many of the index's nodes are out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutCounts {
    pub(crate) dead: u32,
    pub(crate) ejected: u32,
    pub(crate) draining: u32,
}

/// The nodes of one model and one set of regions.
#[derive(Debug)]
pub(crate) struct ClassIndex {
    /// Nearest first; those that may not be chosen last.
    order: Box<[AtomicU32]>,
    /// One bit per slot index.
    members: Box<[u64]>,
    ends: [AtomicU32; HORIZONS],
    load: [AtomicU64; HORIZONS],
    weight: [AtomicU64; HORIZONS],
    out: [AtomicU32; 3],
    /// How many members each region has.
    regions: Box<[(RegionId, u32)]>,
}

impl ClassIndex {
    pub(super) fn new(slots: usize, members: &[&Entry]) -> Self {
        let mut bits: Vec<u64> = alloc::vec![0; slots.div_ceil(64)];
        let mut regions: BTreeMap<RegionId, u32> = BTreeMap::new();
        for entry in members {
            bits[entry.slot.index as usize / 64] |= 1 << (entry.slot.index % 64);
            *regions.entry(entry.spec.region).or_default() += 1;
        }
        Self {
            order: members.iter().map(|entry| AtomicU32::new(entry.slot.index)).collect(),
            regions: regions.into_iter().collect(),
            members: bits.into_boxed_slice(),
            ends: Default::default(),
            load: Default::default(),
            weight: Default::default(),
            out: Default::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.members.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// The slots of a horizon; with [`HORIZONS`], those that may not be chosen.
    fn horizon(&self, horizon: usize) -> &[AtomicU32] {
        let end = |h: usize| self.ends.get(h).map_or(self.len(), |e| e.load(Relaxed) as usize);
        let last = end(horizon).min(self.len());
        let first = if horizon == 0 { 0 } else { end(horizon - 1).min(last) };
        &self.order[first..last]
    }

    pub(crate) fn out(&self) -> OutCounts {
        let [dead, ejected, draining] = [0, 1, 2].map(|i: usize| self.out[i].load(Relaxed));
        OutCounts { dead, ejected, draining }
    }

    /// How many members are in a region of the set.
    pub(crate) fn within(&self, allowed: RegionSet) -> u32 {
        self.regions.iter().filter(|(region, _)| allowed.contains(*region)).map(|(_, n)| n).sum()
    }

    fn horizon_load(&self, horizon: usize) -> HorizonLoad {
        HorizonLoad {
            load: MilliRif(self.load[horizon].load(Relaxed)),
            weight: self.weight[horizon].load(Relaxed),
            nodes: self.horizon(horizon).len() as u32,
        }
    }

    /// Rewrites the order from the fleet's order: `ranked` holds every slot of
    /// the topology, those that may be chosen first, by horizon, nearest first.
    pub(crate) fn refresh(&self, ranked: &[Ranked]) {
        let mut at = 0_u32;
        let mut ends = [0_u32; HORIZONS];
        let mut load = [MilliRif::ZERO; HORIZONS];
        let mut weight = [0_u64; HORIZONS];
        let mut out = [0_u32; 3];
        for node in ranked.iter().filter(|node| self.contains(node.slot)) {
            if let Some(place) = self.order.get(at as usize) {
                place.store(node.slot, Relaxed);
            }
            at += 1;
            match node.standing {
                Standing::In(horizon) => {
                    let horizon = usize::from(horizon).min(HORIZONS - 1);
                    ends[horizon] = at;
                    load[horizon] = load[horizon].plus(node.load);
                    weight[horizon] += u64::from(node.weight);
                }
                Standing::Dead => out[0] += 1,
                Standing::Ejected => out[1] += 1,
                Standing::Draining => out[2] += 1,
            }
        }
        for h in 0..HORIZONS {
            // An empty horizon ends where its predecessor does.
            ends[h] = ends[h].max(if h == 0 { 0 } else { ends[h - 1] });
            self.ends[h].store(ends[h], Relaxed);
            self.load[h].store(load[h].0, Relaxed);
            self.weight[h].store(weight[h], Relaxed);
        }
        for (cell, count) in self.out.iter().zip(out) {
            cell.store(count, Relaxed);
        }
    }
}

/// An index as one request sees it. When the request's set of regions is none
/// of the topology's classes, the model's whole index is filtered by region.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) model: ModelId,
    pub(crate) all: &'a ClassIndex,
    pub(crate) index: &'a ClassIndex,
    pub(crate) filter: Option<RegionSet>,
}

impl<'a> View<'a> {
    /// The entry of a slot index, if it belongs to the view.
    pub(crate) fn member(&self, index: u32) -> Option<&'a Entry> {
        let entry = self.topology.entry(index).filter(|_| self.index.contains(index))?;
        self.filter.is_none_or(|set| set.contains(entry.spec.region)).then_some(entry)
    }

    /// The entry of a slot, if it belongs to the view and is not outdated.
    pub(crate) fn current(&self, slot: Slot) -> Option<&'a Entry> {
        self.member(slot.index).filter(|e| e.slot == slot)
    }

    /// Slot indices of a horizon (or, with [`HORIZONS`], of those that are
    /// out), nearest first. With a filter some may not be members.
    pub(crate) fn horizon(self, horizon: usize) -> &'a [AtomicU32] {
        self.index.horizon(horizon)
    }

    /// Load of a horizon as of the last sweep. With a filter: that of all
    /// regions, the best estimate there is.
    pub(crate) fn horizon_load(&self, horizon: usize) -> HorizonLoad {
        self.index.horizon_load(horizon)
    }
}
