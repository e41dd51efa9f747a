//! The real program: fleets of child processes on loopback, killed, cut and drained.

#![expect(clippy::expect_used, reason = "a failed expectation is the test's report")]

mod bundles;
mod calibrate;
mod commands;
mod configs;
mod cutting;
mod fleet;
mod plan;
mod resilience;
mod served;
mod up;
