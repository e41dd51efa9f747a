//! Nodes as processes see them: real ONNX Runtime, the embedded model, real sockets on loopback.
//! What a single step decides is tested beside that step.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "a test's tasks end with its runtime")]

mod bad_input;
mod certified;
mod classification;
mod cloud;
mod control;
mod degraded;
mod drain;
mod endpoints;
mod fixture;
mod grpc;
mod grpc_limits;
mod grpc_stream;
mod infer;
mod onnx;
mod overload;
mod raw;
mod rows;
mod schedule;
mod statistics;
mod stub;
