//! Why the node answers a request with an error: one table from cause to status.

use http::{Response, StatusCode, header};
use midspan_net::{
    Body, BodyError,
    encoding::{self, DecodeError},
    reply,
};
use midspan_protocol::{ProtocolError, RouteFault};
use midspan_runtime::RunError;

/// A request that gets no answer of a model.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NodeError {
    /// The path names no endpoint, or not with this method.
    #[error(transparent)]
    Route(#[from] RouteFault),
    /// The model or version is not here.
    #[error("Request for unknown model: '{0}' is not found")]
    UnknownModel(String),
    /// The model is known here, but not in service now.
    #[error("model '{name}' is not loaded: {reason}")]
    NotLoaded {
        /// The model, and the version if one was named.
        name: String,
        /// What the repository index says of it.
        reason: String,
    },
    /// A model could not be loaded. What is wrong is on this node, so the asker cannot mend it.
    #[error("loading failed: {0}")]
    Load(String),
    /// Clients may not load and unload models here.
    #[error("loading and unloading is off; set model_control = true in the node's configuration")]
    ModelControl,
    /// A header that cannot be used.
    #[error("{0}")]
    BadRequest(String),
    /// The request's policy does not allow the data here.
    #[error("the request must not be processed in region '{0}'")]
    Region(String),
    /// The body is in a coding that is not supported.
    #[error("{0}")]
    Encoding(String),
    /// The body is no complete stream of its coding.
    #[error("{0}")]
    Corrupt(String),
    /// A gRPC call in a form that is none.
    #[error("{0}")]
    MediaType(&'static str),
    /// The body does not follow the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The body is over the limit.
    #[error("the request body is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The limit, bytes.
        limit: usize,
    },
    /// The sender stopped before the end of the body.
    #[error("the request body ended early: {0}")]
    ClientBody(String),
    /// Too many runs wait already.
    #[error("the queue is full: {waiting} runs wait for {workers} workers")]
    QueueFull {
        /// Runs that wait.
        waiting: usize,
        /// Threads that run models.
        workers: usize,
    },
    /// The deadline passed.
    #[error("the deadline passed before the model could run")]
    Deadline,
    /// The model refused the input.
    #[error("{0}")]
    Input(String),
    /// The run failed.
    #[error("the model failed: {0}")]
    Execution(String),
    /// No cloud answered, and there is no exit to fall back to.
    #[error("the hard case could not be sent to a cloud ({0}) and the model has no exit here")]
    NoFallback(&'static str),
    /// The activation belongs to another split.
    #[error("split {got} is not live here")]
    Split {
        /// As the sender stated it.
        got: String,
        /// The ids that can be resumed.
        live: Vec<String>,
    },
    /// The node is going away.
    #[error("this node is draining")]
    Draining,
}

impl NodeError {
    const fn row(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Route(RouteFault::NotFound(_)) => (StatusCode::NOT_FOUND, "not_found"),
            Self::Route(RouteFault::Method { .. }) => (StatusCode::METHOD_NOT_ALLOWED, "method"),
            Self::Route(RouteFault::Name(_)) => (StatusCode::BAD_REQUEST, "bad_request"),
            Self::UnknownModel(_) => (StatusCode::NOT_FOUND, "unknown_model"),
            Self::NotLoaded { .. } => (StatusCode::SERVICE_UNAVAILABLE, "not_loaded"),
            Self::Load(_) => (StatusCode::INTERNAL_SERVER_ERROR, "load"),
            Self::ModelControl => (StatusCode::FORBIDDEN, "model_control"),
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            Self::Region(_) => (StatusCode::FORBIDDEN, "region"),
            Self::Encoding(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoding"),
            Self::Corrupt(_) => (StatusCode::BAD_REQUEST, "corrupt"),
            Self::MediaType(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type"),
            Self::Protocol(_) => (StatusCode::BAD_REQUEST, "protocol"),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            Self::ClientBody(_) => (StatusCode::BAD_REQUEST, "client_body"),
            Self::QueueFull { .. } => (StatusCode::SERVICE_UNAVAILABLE, "queue_full"),
            Self::Deadline => (StatusCode::GATEWAY_TIMEOUT, "deadline"),
            Self::Input(_) => (StatusCode::BAD_REQUEST, "input"),
            Self::Execution(_) => (StatusCode::INTERNAL_SERVER_ERROR, "execution"),
            Self::NoFallback(_) => (StatusCode::SERVICE_UNAVAILABLE, "no_fallback"),
            Self::Split { .. } => (StatusCode::CONFLICT, "split"),
            Self::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        }
    }

    /// The status on the wire.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.row().0
    }

    /// A stable label for metrics and logs.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        self.row().1
    }

    /// The error as an answer.
    #[must_use]
    pub fn response(&self) -> Response<Body> {
        if let Self::Split { live, .. } = self {
            let body = serde_json::json!({ "error": self.to_string(), "live": live });
            return reply::value(self.status(), &body);
        }
        let allow = match self {
            Self::Route(RouteFault::Method { allow, .. }) => Some(*allow),
            _ => None,
        };
        let unread = matches!(self, Self::TooLarge { .. } | Self::ClientBody(_) | Self::Corrupt(_));
        let mut response = reply::refusal(self.status(), &self.to_string(), allow, unread);
        if matches!(self, Self::Encoding(_)) {
            response.headers_mut().insert(header::ACCEPT_ENCODING, encoding::SUPPORTED);
        }
        response
    }
}

impl From<DecodeError> for NodeError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Unsupported(_) => Self::Encoding(error.to_string()),
            DecodeError::Corrupt { .. } => Self::Corrupt(error.to_string()),
            DecodeError::Body(BodyError::TooLarge { limit }) => Self::TooLarge { limit },
            DecodeError::Body(BodyError::Deadline) => Self::Deadline,
            DecodeError::Body(error) => Self::ClientBody(error.to_string()),
        }
    }
}

impl From<RunError> for NodeError {
    fn from(error: RunError) -> Self {
        if error.is_caller() {
            Self::Input(error.to_string())
        } else {
            Self::Execution(error.to_string())
        }
    }
}
