//! One function per parser of bytes from outside: what a fuzzer calls with anything, and the
//! corpus test with known inputs. Each asserts what must hold of whatever the parser takes, above
//! all that writing it and reading it again changes nothing. None may depend on the clock, on
//! files or on chance: the same bytes do the same.

mod coding;
mod config;
mod grpc;
pub mod mutate;
mod peek;
mod protocol;
mod record;
mod split;

/// Whether the parser took the input. A seed's name says which it is to be: `ok-` or `bad-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was a valid message, and all that was asserted held.
    Taken,
    /// It was refused with an error.
    Refused,
}

/// A target: its name, which is also that of its binary and corpus folder, and its function.
pub type Target = (&'static str, fn(&[u8]) -> Outcome);

/// Every target.
pub const TARGETS: &[Target] = &[
    ("content_coding", coding::content_coding),
    ("context_header", protocol::context_header),
    ("decision_record", record::decision_record),
    ("frame", split::frame),
    ("grpc_peek", peek::grpc_peek),
    ("grpc_request", grpc::grpc_request),
    ("grpc_response", grpc::grpc_response),
    ("infer_request", protocol::infer_request),
    ("infer_response", protocol::infer_response),
    ("load_report", protocol::load_report),
    ("manifest", split::manifest),
    ("node_config", config::node_config),
    ("picture", split::picture),
    ("route", protocol::route),
    ("router_config", config::router_config),
    ("server_timing", protocol::server_timing),
];

/// Runs the target called `name`.
///
/// # Panics
/// When there is no such target, or when what it asserts does not hold.
pub fn run(name: &str, data: &[u8]) -> Outcome {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let Some((_, target)) = target else { panic!("no fuzz target is called {name}") };
    target(data)
}
