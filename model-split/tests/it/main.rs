//! Tests of the crate from outside, on the default model and its files.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

#[cfg(feature = "tools")]
mod calibrate;
mod default_model;
#[cfg(feature = "tools")]
mod exits;
mod graphs;
mod large;
#[cfg(feature = "tools")]
mod profile;
#[cfg(feature = "tools")]
mod regret;
mod remake;
