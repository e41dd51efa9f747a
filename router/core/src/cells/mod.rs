//! What is known of each node, one cache line of atomics per slot. Decides how
//! an observation becomes an estimate; never which node is chosen.
//!
//! All accesses are relaxed: each word stands for itself, nothing is published
//! through them, and a decision on words of slightly different age is as good.
//! Only the lease count and the generation must agree, so they share a word.

mod cell;
mod health;
mod tuning;

use alloc::boxed::Box;
use core::num::NonZeroU32;

pub(crate) use self::cell::Cell;
pub use self::health::Health;
pub use self::tuning::{BadTuning, Tuning};
use crate::inputs::Reported;
use crate::topology::Slot;
use crate::units::{Micros, MilliRif, Probability, Rif, Timestamp};

/// A node process's identity: a number drawn when it started. Another one
/// means that the node has restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BootId(pub NonZeroU32);

impl BootId {
    /// The id of a longer number. Two starts of one node get the same id once in 2^32.
    pub const fn fold(number: u64) -> Self {
        let folded = (number ^ (number >> 32)) as u32;
        match NonZeroU32::new(folded) {
            Some(id) => Self(id),
            None => Self(NonZeroU32::MAX),
        }
    }
}

/// The cells of a fleet. Made once with room for the largest fleet, shared by
/// all threads and by every topology that follows.
#[derive(Debug)]
pub struct Cells {
    cells: Box<[Cell]>,
    tuning: Tuning,
}

/// What is known of a node, for status pages and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellView {
    /// Health.
    pub health: Health,
    /// Own requests in flight.
    pub leases: Rif,
    /// The last report and its age.
    pub reported: Option<Reported>,
    /// Load: others' requests by the report, aged, and own ones now.
    pub load: MilliRif,
    /// Average service time, if measured.
    pub service: Option<Micros>,
    /// Windowed minimum round trip, if measured.
    pub floor: Option<Micros>,
    /// Average round trip, if measured.
    pub rtt: Option<Micros>,
    /// Recent failures among answers.
    pub errors: Probability,
    /// Failed requests in a row.
    pub failures: u16,
    /// Horizon.
    pub horizon: u8,
}

impl Cells {
    /// Room for `capacity` nodes (64 bytes each, allocated now), observed with
    /// `tuning`.
    ///
    /// # Errors
    /// When the tuning makes no sense.
    pub fn new(capacity: u16, tuning: Tuning) -> Result<Self, BadTuning> {
        let cells = (0..capacity).map(|_| Cell::default()).collect();
        Ok(Self { cells, tuning: tuning.checked()? })
    }

    /// Most nodes that fit.
    pub fn capacity(&self) -> usize {
        self.cells.len()
    }

    /// The thresholds and time constants.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// What is known of a node; none when the slot is outdated.
    pub fn view(&self, slot: Slot, now: Timestamp) -> Option<CellView> {
        let cell = self.cell(slot)?;
        let (reported, leases) = (cell.reported(now), cell.leases());
        Some(CellView {
            health: cell.health(),
            leases,
            reported,
            load: self.load(leases, reported),
            service: cell.service(),
            floor: cell.floor(),
            rtt: cell.rtt(),
            errors: cell.error_rate(),
            failures: cell.failures(),
            horizon: cell.horizon(),
        })
    }

    /// Sum of own requests in flight, over all slots.
    pub fn total_leases(&self) -> Rif {
        Rif(self.cells.iter().fold(0, |sum, cell| sum.saturating_add(cell.leases().0)))
    }

    pub(crate) fn cell(&self, slot: Slot) -> Option<&Cell> {
        self.cells.get(slot.index as usize).filter(|c| c.generation() == slot.generation)
    }

    pub(crate) fn load(&self, leases: Rif, reported: Option<Reported>) -> MilliRif {
        let foreign = reported.map_or(MilliRif::ZERO, |report| {
            let others = Rif(report.total.0.saturating_sub(report.share.0));
            MilliRif::from(others).scaled(self.tuning.freshness(report.age))
        });
        foreign.plus(leases.into())
    }

    /// Hands an index to another node: forgets everything, begins a new
    /// generation and returns it. Leases of the old one no longer count.
    pub(crate) fn turn_over(&self, index: u32) -> u32 {
        self.cells.get(index as usize).map_or(0, Cell::turn_over)
    }

    /// Counts one more own request unless that makes more than `cap`: then the
    /// count is returned, or none when the slot has changed hands.
    pub(crate) fn take(&self, slot: Slot, cap: Rif) -> Result<(), Option<Rif>> {
        self.cells.get(slot.index as usize).ok_or(None)?.take(slot.generation, cap)
    }

    /// Counts one own request less, unless the slot has changed hands.
    pub(crate) fn give_back(&self, slot: Slot) {
        if let Some(cell) = self.cells.get(slot.index as usize) {
            cell.give_back(slot.generation);
        }
    }
}
