//! A consistent-hash ring, frozen by the shell. Decides the order in which a
//! key meets the nodes; never which of them is eligible.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Slot;
use crate::hash::AffinityKey;

/// Points of the ring in order. Two arrays, because the search reads only points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrozenRing {
    points: Box<[u64]>,
    slots: Box<[Slot]>,
}

impl FrozenRing {
    /// A ring of the given points, in any order; of two nodes at the same
    /// point the lower slot comes first.
    pub fn new(mut points: Vec<(u64, Slot)>) -> Self {
        points.sort_unstable();
        let slots = points.iter().map(|(_, slot)| *slot).collect();
        Self { points: points.into_iter().map(|(point, _)| point).collect(), slots }
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether there is no point.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The slots clockwise from a key, once around: the first is that of the
    /// first point at or after the key.
    pub fn walk(&self, key: AffinityKey) -> impl Iterator<Item = Slot> + '_ {
        let start = self.points.partition_point(|p| *p < key.0);
        let (before, after) = self.slots.split_at(start.min(self.slots.len()));
        after.iter().chain(before).copied()
    }
}
