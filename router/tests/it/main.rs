//! The router as a process sees it: real sockets on loopback, scripted nodes behind it, an app in
//! front of it. What a single hop decides is tested beside that hop.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "a test's tasks end with its runtime")]

mod bodies;
mod cancel;
mod deadlines;
mod drain;
mod errors;
mod fixture;
mod grpc;
mod grpc_calls;
mod grpc_streams;
mod hygiene;
mod losses;
mod models;
mod passing;
mod policies;
mod probes;
mod retry;
mod streaming;
mod stub;
mod tls;
