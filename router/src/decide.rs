//! Where this request goes: gathers what is known, asks the core, keeps the record. Everything
//! that decides is in the core; here are only the conversions.

use std::{sync::PoisonError, time::Instant};

use midspan_protocol::ModelName;
use midspan_router_core::{
    AffinityKey, Choice, KeyHasher, Micros, Outcome, PayloadClass, Place, Request, choose, gather,
};

use crate::{admit::Terms, error::RouteError, records::DecisionId, shard::Shard};

/// A decision; its list is empty when no node may be asked.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    /// Where to send the request, best first.
    pub(crate) choices: Vec<Choice>,
    /// The core's word for what became of the request.
    pub(crate) outcome: Outcome,
    /// For `explain`.
    pub(crate) id: DecisionId,
}

impl Decided {
    /// Why the list is empty, for the app's developer.
    pub(crate) fn why_nowhere(&self) -> &'static str {
        match self.outcome {
            Outcome::Nobody => "every node that serves it is down or draining",
            _ => "every node that serves it is full, or too far away for the deadline",
        }
    }
}

/// Decides for a model request whose body has `length` bytes (0 when unknown).
pub(crate) fn decide(
    shard: &Shard,
    terms: &Terms,
    model: &ModelName,
    client: Option<Place>,
    length: u64,
) -> Result<Decided, RouteError> {
    let fleet = &shard.fleet;
    let id = fleet.model(model).ok_or_else(|| {
        if fleet.is_cold() { RouteError::Cold } else { RouteError::UnknownModel(model.to_string()) }
    })?;
    let left = terms.until.saturating_duration_since(Instant::now());
    let mut request = Request::new(id);
    request.key = Some(affinity(terms, model, client));
    request.deadline = terms.deadline.map(|_| Micros::from(left));
    request.payload = PayloadClass::of_len(length);
    request.client = client;

    let mut scratch = shard.scratch.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = &mut *scratch;
    gather(
        fleet.now(),
        &fleet.topology(),
        &fleet.cells,
        &request,
        &mut scratch.rng,
        &mut scratch.inputs,
    );
    let seed = scratch.rng.next_u64();
    choose(&scratch.inputs, seed, &mut scratch.decision);
    let record = shard.records.keep(shard.index, &scratch.inputs, seed, &scratch.decision);
    let (choices, outcome) = (scratch.decision.choices().to_vec(), scratch.decision.outcome());
    Ok(Decided { choices, outcome, id: record })
}

/// The affinity key: the app's session if it names one, else model and client cell, so that the
/// requests of one neighbourhood share a warm node.
fn affinity(terms: &Terms, model: &ModelName, client: Option<Place>) -> AffinityKey {
    if let Some(session) = &terms.session {
        return KeyHasher::new().field(b"session").field(session).finish();
    }
    let cell = client.map_or(u32::MAX, Place::cell);
    KeyHasher::new()
        .field(b"model")
        .field(model.name.as_bytes())
        .field(&cell.to_le_bytes())
        .finish()
}
