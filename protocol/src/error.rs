//! What can be wrong with a message, and the protocol's error body. Every error here is the
//! sender's mistake: a server answers it with 400.

use bytes::Bytes;

/// A message that does not follow the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The JSON part does not parse or has the wrong form.
    #[error("JSON: {0}")]
    Json(String),
    /// `Inference-Header-Content-Length` or the binary part does not fit the body.
    #[error("binary tensor data: {0}")]
    Binary(String),
    /// A gRPC message whose parts do not fit one another.
    #[error("request message: {0}")]
    Message(String),
    /// One named tensor is wrong.
    #[error("{kind} '{name}': {problem}")]
    Tensor {
        /// `input` or `output`.
        kind: &'static str,
        /// The tensor's name as the sender wrote it.
        name: String,
        /// What is wrong, with expected and received values.
        problem: String,
    },
}

impl ProtocolError {
    pub(crate) fn input(name: &str, problem: impl Into<String>) -> Self {
        Self::Tensor { kind: "input", name: clip(name), problem: problem.into() }
    }

    pub(crate) fn output(name: &str, problem: impl Into<String>) -> Self {
        Self::Tensor { kind: "output", name: clip(name), problem: problem.into() }
    }

    /// A stable label for metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Json(_) => "bad_json",
            Self::Binary(_) => "bad_binary",
            Self::Message(_) => "bad_message",
            Self::Tensor { .. } => "bad_tensor",
        }
    }
}

/// The protocol's error body: `{"error": message}`.
#[must_use]
pub fn error_body(message: &str) -> Bytes {
    serde_json::json!({ "error": message }).to_string().into()
}

/// Keeps a hostile name from filling the answer and the log.
pub(crate) fn clip(name: &str) -> String {
    const LIMIT: usize = 128;
    if name.chars().nth(LIMIT).is_none() {
        return name.to_owned();
    }
    name.chars().take(LIMIT).chain(['…']).collect()
}
