//! The system tests' one binary: what holds of the repository, and of every parser on known bytes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod configs;
mod corpus;
mod direction;
mod tidy;
