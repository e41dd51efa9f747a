//! The protocol over gRPC: generated messages and services, and what turns them into the types
//! that REST uses too. Nothing here opens a socket or reads a clock.

pub mod convert;
pub mod describe;
pub mod method;
pub mod peek;
pub mod timeout;

/// Messages, server and client of `inference.GRPCInferenceService`, generated from
/// `proto/inference.proto`.
pub mod inference {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        reason = "generated; what is documented is documented in the .proto file"
    )]
    tonic::include_proto!("inference");
}

/// Messages, server and client of `grpc.health.v1.Health`, generated from `proto/health.proto`.
pub mod health {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        reason = "generated; what is documented is documented in the .proto file"
    )]
    tonic::include_proto!("grpc.health.v1");
}
