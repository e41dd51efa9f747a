//! The real program: fleets of child processes on loopback, killed, cut and drained.

#![expect(clippy::expect_used, reason = "a failed expectation is the test's report")]

mod commands;
mod configs;
mod fleet;
mod resilience;
mod served;
mod up;
