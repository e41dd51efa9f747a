//! The real program: fleets of child processes on loopback, killed, cut and drained.

mod commands;
mod configs;
mod fleet;
mod resilience;
mod served;
mod up;
