//! What a request may ask of the queue (the `schedule_policy` extension): a priority and a timeout.
//!
//! Level 1 goes first, larger numbers later. Level 0, or none, is the default: as level 2, so that
//! 1 is "before the rest" and 3 and up are "after the rest". A level that waits behind others is
//! bounded by its deadline only.

use std::time::Instant;

use midspan_protocol::InferRequest;

use crate::{error::NodeError, infer::Terms};

/// A place in the order of the queue: the least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Priority(u32);

impl Default for Priority {
    fn default() -> Self {
        Self(2)
    }
}

impl Priority {
    /// The priority of this level.
    pub(crate) fn level(level: u32) -> Self {
        if level == 0 { Self::default() } else { Self(level) }
    }
}

/// The terms of a request with what its parameters ask beyond them; `None` when they ask nothing.
///
/// # Errors
/// A priority or a timeout that is no non-negative integer.
pub(crate) fn scheduled(
    terms: &Terms,
    request: &InferRequest,
    now: Instant,
) -> Result<Option<Terms>, NodeError> {
    let (priority, timeout) = (request.priority()?, request.timeout()?);
    if priority.is_none() && timeout.is_none() {
        return Ok(None);
    }
    let until = timeout.and_then(|timeout| now.checked_add(timeout));
    Ok(Some(Terms {
        until: until.map_or(terms.until, |until| until.min(terms.until)),
        priority: priority.map_or(terms.priority, Priority::level),
        ..terms.clone()
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use midspan_protocol::{ExitMode, Parameter};

    use super::*;

    fn ask(pairs: &[(&str, Parameter)]) -> (Instant, Terms, Result<Option<Terms>, NodeError>) {
        let now = Instant::now();
        let until = now + Duration::from_secs(1);
        let terms =
            Terms { mode: ExitMode::Auto, until, context: None, priority: Priority::default() };
        let mut request = InferRequest::default();
        pairs.iter().for_each(|(name, value)| request.parameters.set(name, value.clone()));
        let asked = scheduled(&terms, &request, now);
        (now, terms, asked)
    }

    #[test]
    fn the_default_is_between_first_and_last() {
        let level = Priority::level;
        assert!(level(1) < level(0) && level(0) < level(3) && level(3) < level(u32::MAX));
        assert_eq!((level(0), level(2)), (Priority::default(), Priority::default()));
    }

    #[test]
    fn a_timeout_shortens_and_never_lengthens() {
        let (_, _, nothing) = ask(&[("other", Parameter::Int(1))]);
        assert!(nothing.unwrap().is_none());
        for (micros, kept) in
            [(5, 5), (0, 1_000_000), (2_000_000, 1_000_000), (i64::MAX, 1_000_000)]
        {
            let priority = ("priority", Parameter::Int(7));
            let (now, _, asked) = ask(&[("timeout", Parameter::Int(micros)), priority]);
            let asked = asked.unwrap().unwrap();
            assert_eq!(asked.until - now, Duration::from_micros(kept), "{micros}");
            assert_eq!(asked.priority, Priority(7));
        }
    }

    #[test]
    fn other_types_are_refused_by_name() {
        for name in ["priority", "timeout"] {
            for bad in [
                Parameter::Int(-1),
                Parameter::Text("5".into()),
                Parameter::Float(1.5),
                Parameter::Bool(true),
            ] {
                let error = ask(&[(name, bad.clone())]).2.unwrap_err();
                assert!(error.to_string().contains(name), "{bad:?}: {error}");
            }
        }
    }
}
