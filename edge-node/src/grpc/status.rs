//! How failures look over gRPC: one table between HTTP statuses, which errors and metrics are
//! told by, and gRPC codes. The text is REST's.

use http::{HeaderMap, Response, StatusCode};
use midspan_net::telemetry::Metric;
use tonic::{Code, Status};

use crate::error::NodeError;

/// A service's answer.
pub(super) type Answer = Response<tonic::body::Body>;

/// Characters of a message that are sent: it travels in a header.
const MOST_TEXT: usize = 1024;

/// The first row that has what is looked for counts, in both directions.
const TABLE: [(StatusCode, Code); 13] = [
    (StatusCode::OK, Code::Ok),
    (StatusCode::BAD_REQUEST, Code::InvalidArgument),
    (StatusCode::NOT_FOUND, Code::NotFound),
    (StatusCode::FORBIDDEN, Code::PermissionDenied),
    (StatusCode::PAYLOAD_TOO_LARGE, Code::ResourceExhausted),
    (StatusCode::PAYLOAD_TOO_LARGE, Code::OutOfRange),
    (StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable),
    (StatusCode::GATEWAY_TIMEOUT, Code::DeadlineExceeded),
    (StatusCode::CONFLICT, Code::FailedPrecondition),
    (StatusCode::NOT_IMPLEMENTED, Code::Unimplemented),
    (StatusCode::METHOD_NOT_ALLOWED, Code::Unimplemented),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::Unimplemented),
    (StatusCode::INTERNAL_SERVER_ERROR, Code::Internal),
];

/// The error as a status. Counts it, so call it once for each error.
pub(super) fn status(error: &NodeError) -> Status {
    Metric::NodeErrors.counter(&[error.reason()]).increment(1);
    tracing::debug!(%error, "refused");
    Status::new(code(error.status()), text(error))
}

/// The error's text, bounded.
pub(super) fn text(error: &NodeError) -> String {
    let text = error.to_string();
    match text.char_indices().nth(MOST_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn code(status: StatusCode) -> Code {
    TABLE.iter().find(|row| row.0 == status).map_or(Code::Internal, |row| row.1)
}

/// What a finished unary call counts as. A status that is not in the head is in the trailers,
/// after an answer: the call was answered.
pub(super) fn outcome(head: &HeaderMap) -> StatusCode {
    let code = Status::from_header_map(head).map_or(Code::Ok, |status| status.code());
    TABLE.iter().find(|row| row.1 == code).map_or(StatusCode::INTERNAL_SERVER_ERROR, |row| row.0)
}

/// The answer to a method that is not here.
pub(super) fn no_such_method(path: &str) -> Answer {
    let path: String = path.chars().take(256).collect();
    Status::unimplemented(format!("no such method: {path}")).into_http()
}

/// A service refuses a method that it does not know without a word; this adds which.
pub(super) fn named(answer: Answer, path: &str) -> Answer {
    let status = Status::from_header_map(answer.headers());
    let silent =
        |status: &Status| status.code() == Code::Unimplemented && status.message().is_empty();
    if status.as_ref().is_some_and(silent) { no_such_method(path) } else { answer }
}

#[cfg(test)]
mod tests {
    use midspan_protocol::{ProtocolError, RouteFault};

    use super::*;

    #[test]
    fn every_error_has_its_code() {
        let split = NodeError::Split { got: "x".into(), live: Vec::new() };
        for (error, expected) in [
            (RouteFault::NotFound("/".into()).into(), Code::NotFound),
            (RouteFault::Method { path: "/".into(), allow: "GET" }.into(), Code::Unimplemented),
            (NodeError::UnknownModel("m".into()), Code::NotFound),
            (NodeError::BadRequest("b".into()), Code::InvalidArgument),
            (NodeError::Region("r".into()), Code::PermissionDenied),
            (NodeError::Encoding("br".into()), Code::Unimplemented),
            (NodeError::MediaType("m"), Code::Unimplemented),
            (ProtocolError::Message("p".into()).into(), Code::InvalidArgument),
            (NodeError::TooLarge { limit: 1 }, Code::ResourceExhausted),
            (NodeError::QueueFull { waiting: 1, workers: 1 }, Code::Unavailable),
            (NodeError::Deadline, Code::DeadlineExceeded),
            (NodeError::Input("i".into()), Code::InvalidArgument),
            (NodeError::Execution("e".into()), Code::Internal),
            (NodeError::NoFallback("f"), Code::Unavailable),
            (split, Code::FailedPrecondition),
            (NodeError::Draining, Code::Unavailable),
        ] {
            let status = status(&error);
            assert_eq!((status.code(), status.message()), (expected, &*error.to_string()));
            let counted = outcome(status.into_http::<()>().headers());
            assert!(counted == error.status() || expected == Code::Unimplemented, "{error}");
        }
        assert_eq!(outcome(&HeaderMap::new()), StatusCode::OK);
        let over = Status::out_of_range("message").into_http::<()>();
        assert_eq!(outcome(over.headers()), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(outcome(Status::data_loss("").into_http::<()>().headers()), 500);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let status = status(&NodeError::Input("é".repeat(5_000)));
        assert_eq!(status.message().chars().count(), MOST_TEXT + 1);
        assert!(status.message().ends_with("é…"));
    }

    #[test]
    fn an_unknown_method_is_named() {
        let silent = Status::unimplemented("").into_http();
        let named = named(silent, "/a/B");
        let status = Status::from_header_map(named.headers()).unwrap();
        assert_eq!(
            (status.code(), status.message()),
            (Code::Unimplemented, "no such method: /a/B")
        );
        let other = super::named(Status::not_found("gone").into_http(), "/a/B");
        assert_eq!(Status::from_header_map(other.headers()).unwrap().message(), "gone");
    }
}
