//! The routing decision: pure, no clock, no IO.
//!
//! Where should a request go? [`gather`] copies what is known of at most 16
//! candidates into [`Inputs`], [`choose`] turns them into an ordered list (a
//! pure function of the inputs and a seed), [`book`] takes a [`Lease`] on the
//! first node of the list that has room. What happens to requests and probes
//! comes back through [`observe`]; [`sweep`] runs every 250 ms and does what
//! needs the whole fleet. Time and randomness are arguments: the router, the
//! edge node and the simulator drive the same functions.
//!
//! ```
//! use std::sync::Arc;
//! use midspan_router_core::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cells = Arc::new(Cells::new(64, Tuning::default())?);
//! let model = ModelId(0);
//! let served = Served { model, held: Held::Resident, service: None };
//! let node = NodeSpec::new(NodeKey(hash_bytes(b"edge-a")), RegionId::new(0)?);
//! let node = NodeSpec { models: vec![served], ..node };
//! let topology = TopologyBuilder::new().node(node).build(None, &cells)?;
//!
//! // Once per thread:
//! let mut inputs = Inputs::new(Policy::default());
//! let (mut decision, mut rng) = (Decision::new(), Rng::new(1));
//!
//! // Per request:
//! let (now, seed) = (Timestamp(5_000), rng.next_u64());
//! gather(now, &topology, &cells, &Request::new(model), &mut rng, &mut inputs);
//! choose(&inputs, seed, &mut decision);
//! let mut tries = decision.choices().iter();
//! let lease = tries.find_map(|c| book(&cells, c.slot, c.cap).ok()).ok_or("no room")?;
//! let (slot, latency) = (lease.slot(), Micros::from_millis(12));
//! observe(&cells, now, Event::Answered { slot, latency, server_time: None, report: None });
//! drop(lease);
//! assert_eq!(cells.total_leases(), Rif(0));
//! # Ok(())
//! # }
//! ```
//!
//! Must not know sockets, clocks, serialisation frameworks or metrics.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod book;
mod cells;
mod decision;
mod gather;
mod hash;
mod inputs;
pub mod invariants;
mod observe;
mod place;
mod policy;
mod record;
mod request;
mod rng;
mod sweep;
mod topology;
mod units;

pub use book::{Lease, OverCap, book};
pub use cells::{BadTuning, BootId, CellView, Cells, Health, Tuning};
pub use decision::{Choice, Cost, Decision, Outcome, Reject, Verdict, bookings};
pub use gather::gather;
pub use hash::{AffinityKey, KeyHasher, hash_bytes, mix};
pub use inputs::{
    Candidate, Estimate, Excluded, Found, HorizonLoad, Inputs, MAX_CANDIDATES, Reported, Source,
};
pub use observe::{Event, FailureKind, Report, observe};
pub use place::{BadPlace, Place, RegionId, RegionSet};
pub use policy::{CappedAffinity, Common, Nearest, Policy, RingBounded, choose};
pub use record::{DecisionRecord, MAX_RECORD_BYTES, RecordError, encode, replay};
pub use request::{ModelId, PayloadClass, Request};
pub use rng::Rng;
pub use sweep::{Swept, sweep};
pub use topology::{
    FrozenRing, HORIZONS, Held, NodeKey, NodeSpec, Served, Slot, Topology, TopologyBuilder,
    TopologyError,
};
pub use units::{
    GramsPerKwh, Metres, Micros, MilliRif, Millicost, OutOfRange, Permille, Probability, Rif,
    Timestamp, Weight, Workers,
};
