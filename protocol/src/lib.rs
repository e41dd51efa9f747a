//! Open Inference Protocol (KServe V2) types and codecs: JSON, the binary tensor extension, and
//! Midspan's own headers.
//!
//! Everything here is bytes in, values out: no sockets, no clock, no model. A tensor is always
//! held in the binary extension's form (little-endian, row-major, BYTES elements length-prefixed),
//! whichever form it arrived in, so that the rest of the system sees one representation.

pub mod answer;
pub mod context;
pub mod datatype;
pub mod error;
pub mod grpc;
pub mod headers;
mod json;
pub mod load;
pub mod metadata;
pub mod openapi;
pub mod parameters;
pub mod request;
pub mod response;
pub mod route;
pub mod statistics;
pub mod tensor;
pub mod timing;

pub use answer::{AnsweredBy, ExitMode};
pub use context::Context;
pub use datatype::Datatype;
pub use error::{ProtocolError, error_body};
pub use load::LoadReport;
pub use parameters::{Parameter, Parameters};
pub use request::{InferRequest, RequestedOutput};
pub use response::{Encoded, InferResponse};
pub use route::{ModelName, Route, RouteFault, Verb};
pub use tensor::Tensor;
