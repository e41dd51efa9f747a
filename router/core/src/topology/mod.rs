//! Who is in the fleet: an immutable, epoch-numbered picture that is swapped
//! whole. Decides which slot a node has and which slots serve a model within a
//! set of regions; knows nothing of load or health (see `cells`).

mod builder;
pub(crate) mod index;
mod ring;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use self::builder::{TopologyBuilder, TopologyError};
use self::index::{ClassIndex, View};
pub use self::ring::FrozenRing;
use crate::place::{Place, RegionId, RegionSet};
use crate::request::ModelId;
use crate::units::{GramsPerKwh, Micros, Millicost, Weight, Workers};

/// Nearness classes: horizon 0 is the nearest.
pub const HORIZONS: usize = 4;

/// A node's identity across restarts and topologies: the hash of its name,
/// made by the caller with [`crate::hash_bytes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey(pub u64);

/// A node's place in the cells. A slot whose generation is not the cell's own
/// belongs to a node that has left, and everything said about it is ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Index into the cells.
    pub index: u32,
    /// How often the index has changed hands.
    pub generation: u32,
}

/// Whether a model is in a node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Ready to run.
    Resident,
    /// Can be loaded, in about this time.
    Loadable(Micros),
}

/// A model that a node serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Which model.
    pub model: ModelId,
    /// Whether it is in memory.
    pub held: Held,
    /// Service time to assume until one was measured.
    pub service: Option<Micros>,
}

/// What is said of a node, by configuration or by the node itself.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// Its identity.
    pub key: NodeKey,
    /// Its region, which decides residency.
    pub region: RegionId,
    /// Where it is, if known.
    pub place: Option<Place>,
    /// Its share of the work.
    pub weight: Weight,
    /// Requests it executes at once.
    pub workers: Workers,
    /// The operator wants it to get nothing new.
    pub drained: bool,
    /// Price of a request there.
    pub price: Millicost,
    /// Carbon intensity there.
    pub carbon: GramsPerKwh,
    /// Time an offloaded hard case takes from there; none for a node that
    /// answers everything itself.
    pub offload: Option<Micros>,
    /// The models it serves, at most 1,024.
    pub models: Vec<Served>,
}

impl NodeSpec {
    /// A node with one worker, normal weight, no place, price or models.
    pub const fn new(key: NodeKey, region: RegionId) -> Self {
        Self {
            key,
            region,
            place: None,
            weight: Weight::NORMAL,
            workers: Workers::ONE,
            drained: false,
            price: Millicost(0),
            carbon: GramsPerKwh(0),
            offload: None,
            models: Vec::new(),
        }
    }

    /// The entry of a model, if the node serves it.
    pub(crate) fn served(&self, model: ModelId) -> Option<&Served> {
        let at = self.models.binary_search_by_key(&model, |s| s.model).ok()?;
        self.models.get(at)
    }
}

/// A node of a topology.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) slot: Slot,
    pub(crate) spec: NodeSpec,
    /// Round trip to assume from the distance to the router.
    pub(crate) prior: Option<Micros>,
}

/// The fleet, as of one epoch. Made by [`TopologyBuilder`].
#[derive(Debug)]
pub struct Topology {
    epoch: u64,
    here: Option<Place>,
    /// By slot index.
    entries: Box<[Option<Entry>]>,
    /// Sorted by key.
    by_key: Box<[(NodeKey, u32)]>,
    /// Sorted.
    models: Box<[ModelId]>,
    /// The first is [`RegionSet::ALL`].
    classes: Box<[RegionSet]>,
    /// One per model and class, classes varying fastest.
    index: Box<[ClassIndex]>,
    ring: Option<FrozenRing>,
}

impl Topology {
    /// The number of this picture: one more than its predecessor's.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Where the router is, if it was said.
    pub fn here(&self) -> Option<Place> {
        self.here
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The slot of a node.
    pub fn slot_of(&self, key: NodeKey) -> Option<Slot> {
        let at = self.by_key.binary_search_by_key(&key, |(k, _)| *k).ok()?;
        self.entry(self.by_key.get(at)?.1).map(|e| e.slot)
    }

    /// The node in a slot; none when the slot's generation is not this topology's.
    pub fn node(&self, slot: Slot) -> Option<&NodeSpec> {
        self.entry(slot.index).filter(|e| e.slot == slot).map(|e| &e.spec)
    }

    /// Every node with its slot, in the order of slots.
    pub fn nodes(&self) -> impl Iterator<Item = (Slot, &NodeSpec)> {
        self.entries().map(|e| (e.slot, &e.spec))
    }

    /// The ring, if one was attached.
    pub fn ring(&self) -> Option<&FrozenRing> {
        self.ring.as_ref()
    }

    /// This topology with a ring, made from the slots of [`Topology::nodes`].
    /// Points of slots that are not this topology's are walked past.
    #[must_use]
    pub fn with_ring(mut self, ring: FrozenRing) -> Self {
        self.ring = Some(ring);
        self
    }

    pub(crate) fn entry(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index as usize)?.as_ref()
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten()
    }

    pub(crate) fn indices(&self) -> &[ClassIndex] {
        &self.index
    }

    /// Who serves a model, seen through a set of regions; none when nobody
    /// serves it.
    pub(crate) fn view(&self, model: ModelId, allowed: RegionSet) -> Option<View<'_>> {
        let first = self.models.binary_search(&model).ok()? * self.classes.len();
        let all = self.index.get(first)?;
        let class = self.classes.iter().position(|c| *c == allowed);
        let (index, filter) = match class {
            Some(at) => (self.index.get(first + at)?, None),
            None => (all, Some(allowed)),
        };
        Some(View { topology: self, model, all, index, filter })
    }
}
