//! What router and node share of the network: listening and draining, the transport between hops,
//! bodies, configuration files and telemetry. Nothing here knows of models or of routing.

pub mod admin;
pub mod body;
pub mod client;
pub mod config;
pub mod listen;
pub mod reply;
pub mod shards;
pub mod tasks;
pub mod telemetry;
pub mod transport;
pub mod units;

pub use body::{Body, BodyError};
pub use listen::{Limits, Peer};
pub use tasks::Tasks;
