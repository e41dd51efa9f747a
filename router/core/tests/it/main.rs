//! Features of the core, from outside: text in, decision trace out; and the
//! properties that hold whatever happens. No clock, no IO.

#![expect(clippy::unwrap_used, reason = "tests")]

mod bounded;
mod dsl;
mod health;
mod placing;
mod props;
