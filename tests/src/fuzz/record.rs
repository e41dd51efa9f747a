//! The target of the router's core: decision records.

use midspan_router_core::{DecisionRecord, MAX_RECORD_BYTES, invariants, replay};

use super::Outcome::{self, Refused, Taken};

/// [`DecisionRecord::decode`] and [`replay`] of whatever it takes.
pub(super) fn decision_record(data: &[u8]) -> Outcome {
    let Ok(record) = DecisionRecord::decode(data) else { return Refused };
    assert!(data.len() <= MAX_RECORD_BYTES, "a record of {} bytes is taken", data.len());
    let mut again = Vec::with_capacity(data.len());
    record.encode(&mut again);
    assert_eq!(again, data, "a record has one form only");
    let decision = replay(&record);
    assert_eq!(invariants::check(&record.inputs, &decision), Ok(()), "{decision:?}");
    assert_eq!(replay(&record), decision, "the same inputs and seed decide the same");
    Taken
}
