//! What router and node share of the network: listening and draining, the transport between hops,
//! bodies, configuration files and telemetry. Nothing here knows of models or of routing.

pub mod admin;
pub mod body;
pub mod client;
pub mod config;
mod connection;
pub mod cors;
pub mod encoding;
mod exchange;
pub mod listen;
mod refusal;
pub mod reply;
pub mod shards;
mod socket;
pub mod tasks;
pub mod telemetry;
pub mod tls;
pub mod transport;
pub mod units;

pub use body::{Body, BodyError};
pub use listen::{Limits, Peer};
pub use tasks::Tasks;
