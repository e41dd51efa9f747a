//! What became of one request, whichever driver sent it. Plain data: no IO, no clock.

use std::fmt;

use midspan_protocol::AnsweredBy;

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Position in the workload, from 0.
    pub index: usize,
    /// Which labelled image was asked about.
    pub image: usize,
    /// The image's true class.
    pub label: u32,
    /// Until the whole answer was read or the failure was known, µs; in an open loop counted from
    /// when the request should have been sent.
    pub latency_us: u64,
    /// How much later than intended it was sent, µs; 0 in a closed loop.
    pub late_us: u64,
    /// The answer, or why there is none.
    pub result: Result<Answer, Failure>,
}

impl Outcome {
    /// Whether the request was answered with the true class.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.result.as_ref().is_ok_and(|answer| answer.predicted == self.label)
    }
}

/// A well-formed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The class with the highest score.
    pub predicted: u32,
    /// Where it was made; `None` when the server does not say.
    pub place: Option<AnsweredBy>,
    /// Why it is less than the full path's, if it is.
    pub degraded: Option<String>,
    /// The node that answered, if it says so.
    pub node: Option<String>,
}

impl Answer {
    /// The row of the report that it belongs to.
    #[must_use]
    pub fn kind(&self) -> AnswerKind {
        match (&self.degraded, self.place) {
            (Some(_), _) => AnswerKind::Degraded,
            (None, Some(place)) => AnswerKind::Placed(place),
            (None, None) => AnswerKind::Unknown,
        }
    }
}

/// How answers are grouped in a report. A degraded answer counts as degraded wherever it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnswerKind {
    /// A full answer of this place.
    Placed(AnsweredBy),
    /// An answer that says it is less than the full path's.
    Degraded,
    /// The server does not say where it was made.
    Unknown,
}

impl fmt::Display for AnswerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placed(place) => place.fmt(f),
            Self::Degraded => f.write_str("degraded"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct Failure {
    /// What the report counts it as.
    pub kind: FailureKind,
    /// The cause in words: the error chain or the start of the error body.
    pub detail: String,
}

impl Failure {
    /// Longest detail that is kept, in characters.
    pub const MAX_DETAIL: usize = 200;

    /// A failure; `detail` is clipped.
    #[must_use]
    pub fn new(kind: FailureKind, detail: &str) -> Self {
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        Self { kind, detail: detail.chars().take(Self::MAX_DETAIL).map(clean).collect() }
    }
}

/// How failures are grouped in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// No connection could be made.
    Connect,
    /// The connection or stream ended before the whole answer.
    Reset,
    /// No whole answer within the timeout.
    Timeout,
    /// An answer with a status other than 200.
    Status(u16),
    /// Status 200 with a body or header that does not follow the protocol.
    BadAnswer,
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect => f.write_str("connect"),
            Self::Reset => f.write_str("reset"),
            Self::Timeout => f.write_str("timeout"),
            Self::Status(code) => write!(f, "status:{code}"),
            Self::BadAnswer => f.write_str("bad_answer"),
        }
    }
}
