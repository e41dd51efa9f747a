//! Why the router itself answers a request with an error: one table from cause to status, for
//! REST and for gRPC.

use http::{Response, StatusCode, header};
use midspan_net::{
    Body, BodyError,
    encoding::{self, DecodeError},
    reply,
};
use midspan_protocol::{RouteFault, grpc::peek::PeekError};

use crate::grpc::status::{self, Code};

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The app.
    Client,
    /// This router or the fleet's state.
    Router,
    /// A node.
    Node,
}

/// An error that the router answers itself. A node's own errors pass through unchanged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RouteError {
    /// The path names no endpoint, or not with this method.
    #[error(transparent)]
    Route(#[from] RouteFault),
    /// No node serves the model.
    #[error("Request for unknown model: '{0}' is not found")]
    UnknownModel(String),
    /// The router has just started and has not heard of every node.
    #[error("this router has just started and does not know all its nodes yet")]
    Cold,
    /// A header or path that cannot be used.
    #[error("{0}")]
    BadRequest(String),
    /// gRPC: the first message does not say its model.
    #[error(transparent)]
    Message(#[from] PeekError),
    /// gRPC: no such method is offered.
    #[error("{0} is not offered")]
    Unimplemented(String),
    /// gRPC: the health service knows no such service.
    #[error("no service '{0}' is known here")]
    UnknownService(String),
    /// A path of gRPC without what gRPC needs.
    #[error("gRPC needs HTTP/2 and content-type application/grpc")]
    NotGrpc,
    /// Clients may not load and unload models through this router.
    #[error("loading and unloading is off; set model_control = true in the router's configuration")]
    ModelControl,
    /// The request's body is over the limit.
    #[error("the request body is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The limit, bytes.
        limit: usize,
    },
    /// The body is in a coding that is not supported.
    #[error("{0}")]
    Encoding(String),
    /// The client stopped sending before the end of its body.
    #[error("the request body ended early: {0}")]
    ClientBody(String),
    /// The deadline passed.
    #[error("the deadline of {millis} ms passed before an answer came")]
    Deadline {
        /// The deadline.
        millis: u64,
    },
    /// Nodes serve the model, but none can be used now.
    #[error("no node can serve model '{model}' now: {state}")]
    NoNode {
        /// The model.
        model: String,
        /// Why, in words.
        state: &'static str,
    },
    /// The node was lost, and no retry was possible.
    #[error("node '{node}' was lost: {cause}")]
    NodeLost {
        /// The node's name.
        node: String,
        /// What happened.
        cause: String,
    },
}

impl RouteError {
    /// The table: status, the same for gRPC, metric label, blame.
    const fn row(&self) -> (StatusCode, Code, &'static str, Blame) {
        use Blame::{Client, Node, Router};
        use StatusCode as S;
        match self {
            Self::Route(RouteFault::NotFound(_)) => {
                (S::NOT_FOUND, Code::Unimplemented, "not_found", Client)
            }
            Self::Route(RouteFault::Method { .. }) => {
                (S::METHOD_NOT_ALLOWED, Code::Unimplemented, "method", Client)
            }
            Self::Route(RouteFault::Name(_)) | Self::BadRequest(_) => {
                (S::BAD_REQUEST, Code::InvalidArgument, "bad_request", Client)
            }
            Self::UnknownModel(_) => (S::NOT_FOUND, Code::NotFound, "unknown_model", Client),
            Self::Cold => (S::SERVICE_UNAVAILABLE, Code::Unavailable, "cold", Router),
            Self::Message(PeekError::TooLarge { .. }) | Self::TooLarge { .. } => {
                (S::PAYLOAD_TOO_LARGE, Code::ResourceExhausted, "too_large", Client)
            }
            Self::Message(PeekError::Coding(_)) => {
                (S::UNSUPPORTED_MEDIA_TYPE, Code::Unimplemented, "coding", Client)
            }
            Self::Encoding(_) => {
                (S::UNSUPPORTED_MEDIA_TYPE, Code::Unimplemented, "encoding", Client)
            }
            Self::Message(_) => (S::BAD_REQUEST, Code::InvalidArgument, "bad_message", Client),
            Self::Unimplemented(_) => {
                (S::NOT_IMPLEMENTED, Code::Unimplemented, "unimplemented", Client)
            }
            Self::UnknownService(_) => (S::NOT_FOUND, Code::NotFound, "unknown_service", Client),
            Self::NotGrpc => (S::UNSUPPORTED_MEDIA_TYPE, Code::Internal, "not_grpc", Client),
            Self::ModelControl => (S::FORBIDDEN, Code::PermissionDenied, "model_control", Client),
            Self::ClientBody(_) => (S::BAD_REQUEST, Code::Cancelled, "client_body", Client),
            Self::Deadline { .. } => (S::GATEWAY_TIMEOUT, Code::DeadlineExceeded, "deadline", Node),
            Self::NoNode { .. } => (S::SERVICE_UNAVAILABLE, Code::Unavailable, "no_node", Router),
            Self::NodeLost { .. } => (S::SERVICE_UNAVAILABLE, Code::Unavailable, "node_lost", Node),
        }
    }

    /// The status that the app sees.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.row().0
    }

    /// A stable label for metrics and logs.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        self.row().2
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn blame(&self) -> Blame {
        self.row().3
    }

    /// Whether the app may send the same request again soon.
    #[must_use]
    pub fn retry(&self) -> bool {
        self.status() == StatusCode::SERVICE_UNAVAILABLE
    }

    /// The error as an answer of gRPC.
    pub(crate) fn grpc_response(&self) -> Response<Body> {
        status::trailers_only(self.row().1, &self.to_string())
    }

    /// The error as an answer.
    #[must_use]
    pub fn response(&self) -> Response<Body> {
        let allow = match self {
            Self::Route(RouteFault::Method { allow, .. }) => Some(*allow),
            _ => None,
        };
        let unread = matches!(self, Self::TooLarge { .. } | Self::ClientBody(_));
        let mut response = reply::refusal(self.status(), &self.to_string(), allow, unread);
        if matches!(self, Self::Encoding(_)) {
            response.headers_mut().insert(header::ACCEPT_ENCODING, encoding::SUPPORTED);
        }
        response
    }
}

impl From<DecodeError> for RouteError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Unsupported(_) => Self::Encoding(error.to_string()),
            DecodeError::Corrupt { .. } => Self::BadRequest(error.to_string()),
            DecodeError::Body(BodyError::TooLarge { limit }) => Self::TooLarge { limit },
            DecodeError::Body(error) => Self::ClientBody(error.to_string()),
        }
    }
}
