//! Booking: one in-flight request at a node. Decides only whether there is
//! room; the order of tries is the decision's.

use alloc::sync::Arc;
use core::fmt;

use crate::cells::Cells;
use crate::topology::Slot;
use crate::units::Rif;

/// The node cannot be booked; try the next choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverCap {
    /// It has as many of this router's requests as it may have.
    Full {
        /// The node's slot.
        slot: Slot,
        /// Own requests in flight there.
        leases: Rif,
        /// The bound.
        cap: Rif,
    },
    /// The node has left the fleet since the decision.
    Gone {
        /// The slot it had.
        slot: Slot,
    },
}

impl OverCap {
    /// Its name in renderings and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full { .. } => "full",
            Self::Gone { .. } => "gone",
        }
    }
}

impl fmt::Display for OverCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { slot, leases, cap } => {
                write!(f, "slot {} is full: {} in flight, cap {}", slot.index, leases.0, cap.0)
            }
            Self::Gone { slot } => write!(f, "slot {} has changed hands", slot.index),
        }
    }
}

impl core::error::Error for OverCap {}

/// A booking. Dropping it gives the place back, exactly once: it can be moved
/// to whatever holds the response body, and cannot be copied.
#[derive(Debug)]
#[must_use = "dropping a lease gives the place back"]
pub struct Lease {
    cells: Arc<Cells>,
    slot: Slot,
}

impl Lease {
    /// The booked slot.
    pub fn slot(&self) -> Slot {
        self.slot
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.cells.give_back(self.slot);
    }
}

/// Books one request at a node that may have at most `cap` of this router's
/// requests in flight, this one included. The count never exceeds the cap,
/// however many threads book at once.
///
/// # Errors
/// When the node is full or gone; nothing is booked then.
pub fn book(cells: &Arc<Cells>, slot: Slot, cap: Rif) -> Result<Lease, OverCap> {
    match cells.take(slot, cap) {
        Ok(()) => Ok(Lease { cells: Arc::clone(cells), slot }),
        Err(Some(leases)) => Err(OverCap::Full { slot, leases, cap }),
        Err(None) => Err(OverCap::Gone { slot }),
    }
}
