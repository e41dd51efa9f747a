//! Tests of the crate from outside, on the default model and its files.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod default_model;
mod remake;
