//! Why the router itself answers a request with an error: one table from cause to status.

use http::{Response, StatusCode};
use midspan_net::{Body, reply};
use midspan_protocol::RouteFault;

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
    /// The request's body is over the limit.
    #[error("the request body is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The limit, bytes.
        limit: usize,
    },
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
    /// The table: status, metric label, blame.
    const fn row(&self) -> (StatusCode, &'static str, Blame) {
        use Blame::{Client, Node, Router};
        match self {
            Self::Route(RouteFault::NotFound(_)) => (StatusCode::NOT_FOUND, "not_found", Client),
            Self::Route(RouteFault::Method { .. }) => {
                (StatusCode::METHOD_NOT_ALLOWED, "method", Client)
            }
            Self::Route(RouteFault::Name(_)) => (StatusCode::BAD_REQUEST, "bad_request", Client),
            Self::UnknownModel(_) => (StatusCode::NOT_FOUND, "unknown_model", Client),
            Self::Cold => (StatusCode::SERVICE_UNAVAILABLE, "cold", Router),
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad_request", Client),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too_large", Client),
            Self::ClientBody(_) => (StatusCode::BAD_REQUEST, "client_body", Client),
            Self::Deadline { .. } => (StatusCode::GATEWAY_TIMEOUT, "deadline", Node),
            Self::NoNode { .. } => (StatusCode::SERVICE_UNAVAILABLE, "no_node", Router),
            Self::NodeLost { .. } => (StatusCode::SERVICE_UNAVAILABLE, "node_lost", Node),
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
        self.row().1
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn blame(&self) -> Blame {
        self.row().2
    }

    /// Whether the app may send the same request again soon.
    #[must_use]
    pub fn retry(&self) -> bool {
        self.status() == StatusCode::SERVICE_UNAVAILABLE
    }

    /// The error as an answer.
    #[must_use]
    pub fn response(&self) -> Response<Body> {
        let allow = match self {
            Self::Route(RouteFault::Method { allow, .. }) => Some(*allow),
            _ => None,
        };
        let unread = matches!(self, Self::TooLarge { .. } | Self::ClientBody(_));
        reply::refusal(self.status(), &self.to_string(), allow, unread)
    }
}
