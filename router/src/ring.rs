//! The hash ring: one for all models, made with `hashring` and frozen for the core to walk.
//!
//! `hashring` answers only "who owns this key"; the core must walk on to the next owner without
//! cloning the ring. Its points are therefore hashed a second time here, with the same hasher and
//! the same bytes, and handed over as a sorted slice; a test holds the two together. Placement is
//! pinned by a golden file: a change of it empties every warm cache of a fleet.

use std::hash::{BuildHasher, Hash, Hasher};

use hashring::{DefaultHashBuilder, HashRing};
use midspan_router_core::{FrozenRing, NodeKey, Slot, Topology};

/// Points of a node with normal weight.
const POINTS: usize = 160;

/// One of a node's points on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    node: NodeKey,
    replica: u32,
    slot: Slot,
}

impl Hash for Point {
    /// Explicit bytes: the derive would hash in native byte order and with the field layout.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.node.0.to_le_bytes());
        state.write(&self.replica.to_le_bytes());
    }
}

/// The ring of a topology's nodes, points in proportion to their weights.
#[must_use]
pub(crate) fn freeze(topology: &Topology) -> FrozenRing {
    let ring = build(topology);
    FrozenRing::new(ring.into_iter().map(|point| (hash(&point), point.slot)).collect())
}

fn build(topology: &Topology) -> HashRing<Point> {
    let mut points = Vec::with_capacity(topology.len() * POINTS);
    for (slot, spec) in topology.nodes() {
        let count = (POINTS * usize::from(spec.weight.get())).div_ceil(100).max(1);
        let replicas = 0..u32::try_from(count).unwrap_or(u32::MAX);
        points.extend(replicas.map(|replica| Point { node: spec.key, replica, slot }));
    }
    let mut ring = HashRing::new();
    ring.batch_add(points);
    ring
}

fn hash(point: &Point) -> u64 {
    DefaultHashBuilder.hash_one(point)
}

#[cfg(test)]
mod tests;
