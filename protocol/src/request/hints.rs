//! Parameters that the protocol gives a type and a meaning: scheduling, sequences, classification.

use std::time::Duration;

use super::{InferRequest, RequestedOutput};
use crate::{
    Parameter, ProtocolError,
    parameters::{NO_SHARED_MEMORY, SHARED_MEMORY},
};

/// Which sequence a request belongs to, and its place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// The sequence.
    pub id: SequenceId,
    /// This is its first request.
    pub start: bool,
    /// This is its last request.
    pub end: bool,
}

/// A sequence's id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SequenceId {
    /// A number other than 0.
    Number(u64),
    /// A string other than the empty one.
    Text(String),
}

impl InferRequest {
    /// Place in the queue, 1 before 2; `None` when the model's default holds (not sent, or 0).
    ///
    /// # Errors
    /// A value that is no non-negative integer.
    pub fn priority(&self) -> Result<Option<u32>, ProtocolError> {
        let value = self.parameters.unsigned("priority")?.filter(|value| *value > 0);
        // What is beyond the type comes last in any case.
        Ok(value.map(|value| u32::try_from(value).unwrap_or(u32::MAX)))
    }

    /// How long the request may wait; `None` when there is no limit (not sent, or 0). The
    /// parameter counts microseconds.
    ///
    /// # Errors
    /// A value that is no non-negative integer.
    pub fn timeout(&self) -> Result<Option<Duration>, ProtocolError> {
        let value = self.parameters.unsigned("timeout")?.filter(|value| *value > 0);
        Ok(value.map(Duration::from_micros))
    }

    /// The sequence that the request belongs to; `None` when it stands alone (no id, 0 or "").
    ///
    /// # Errors
    /// A `sequence_id` that is neither non-negative integer nor string; a flag that is no boolean.
    pub fn sequence(&self) -> Result<Option<Sequence>, ProtocolError> {
        let start = self.parameters.flag("sequence_start")?.unwrap_or(false);
        let end = self.parameters.flag("sequence_end")?.unwrap_or(false);
        let id = match self.parameters.get("sequence_id") {
            Some(Parameter::Text(text)) => Some(SequenceId::Text(text.clone())),
            Some(value) => Some(SequenceId::Number(value.as_u64().ok_or_else(|| {
                ProtocolError::Json(
                    "parameter 'sequence_id' is neither a non-negative integer nor a string".into(),
                )
            })?)),
            None => None,
        };
        let none = [SequenceId::Number(0), SequenceId::Text(String::new())];
        Ok(id.filter(|id| !none.contains(id)).map(|id| Sequence { id, start, end }))
    }

    /// Reads all of them once, so that a request with a bad one is refused by whoever parses it.
    pub(crate) fn check_hints(&self) -> Result<(), ProtocolError> {
        self.priority()?;
        self.timeout()?;
        self.sequence()?;
        self.parameters.flag("binary_data_output")?;
        for output in &self.outputs {
            output.classification()?;
            if output.parameters.get(SHARED_MEMORY).is_some() {
                return Err(ProtocolError::output(&output.name, NO_SHARED_MEMORY));
            }
            output.parameters.flag("binary_data")?;
        }
        Ok(())
    }
}

impl RequestedOutput {
    /// How many of the highest classes to answer instead of the tensor, if that is asked for.
    ///
    /// # Errors
    /// A value that is no positive integer.
    pub fn classification(&self) -> Result<Option<usize>, ProtocolError> {
        let Some(value) = self.parameters.get("classification") else { return Ok(None) };
        let count = value.as_u64().filter(|count| *count > 0);
        count
            // More than there are classes means all of them.
            .map(|count| Some(usize::try_from(count).unwrap_or(usize::MAX)))
            .ok_or_else(|| {
                ProtocolError::output(&self.name, "classification is not a positive integer")
            })
    }
}
