//! Load for Midspan: one workload, its drivers, one report, and the link emulator that puts a
//! WAN between processes of one machine.
//!
//! [`workload`] says what is asked and when, without IO; [`live`] asks it of a running endpoint;
//! [`report`] sums up outcomes, whichever driver made them. [`emulator`] relays TCP with a link's
//! delay and bandwidth; [`links`] is how a driver in another process reads its counters.

pub mod emulator;
pub mod links;
pub mod live;
pub mod outcome;
pub mod report;
mod rng;
pub mod workload;
