//! The last decisions of every thread, as the bytes that replay alone, and their rendering for
//! `GET /decisions/<id>`.

use std::{
    fmt,
    str::FromStr,
    sync::{Mutex, PoisonError},
};

use midspan_router_core::{Decision, DecisionRecord, Inputs, Verdict};
use serde_json::{Value, json};

use crate::fleet::Fleet;

/// Names one decision of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionId {
    shard: u16,
    sequence: u64,
}

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.shard, self.sequence)
    }
}

impl FromStr for DecisionId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (shard, sequence) = text.split_once('-')?;
            Some(Self {
                shard: u16::from_str_radix(shard, 16).ok()?,
                sequence: u64::from_str_radix(sequence, 16).ok()?,
            })
        };
        parse().ok_or_else(|| "a decision id looks like 0-1f".to_owned())
    }
}

/// A bounded ring of records per thread. The lock is taken by its own thread, and by the admin
/// port when somebody asks.
pub struct Records {
    rings: Vec<Mutex<Ring>>,
    capacity: usize,
}

#[derive(Default)]
struct Ring {
    next: u64,
    bytes: Vec<Vec<u8>>,
}

impl Records {
    /// Room for `capacity` decisions of each of `shards` threads.
    #[must_use]
    pub fn new(shards: usize, capacity: usize) -> Self {
        Self { rings: (0..shards).map(|_| Mutex::default()).collect(), capacity: capacity.max(1) }
    }

    /// Keeps one decision, forgetting the oldest.
    pub(crate) fn keep(
        &self,
        shard: usize,
        inputs: &Inputs,
        seed: u64,
        decision: &Decision,
    ) -> DecisionId {
        let mut id = DecisionId { shard: u16::try_from(shard).unwrap_or(u16::MAX), sequence: 0 };
        let Some(ring) = self.rings.get(shard) else { return id };
        let mut ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
        id.sequence = ring.next;
        ring.next += 1;
        let at = usize::try_from(id.sequence % self.capacity as u64).unwrap_or(0);
        if ring.bytes.len() <= at {
            ring.bytes.push(Vec::new());
        }
        if let Some(bytes) = ring.bytes.get_mut(at) {
            bytes.clear();
            midspan_router_core::encode(inputs, seed, decision, bytes);
        }
        id
    }

    /// A decision that is still kept.
    #[must_use]
    pub fn get(&self, id: DecisionId) -> Option<DecisionRecord> {
        let ring = self.rings.get(usize::from(id.shard))?;
        let ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = ring.next.saturating_sub(self.capacity as u64);
        if id.sequence < oldest || id.sequence >= ring.next {
            return None;
        }
        let at = usize::try_from(id.sequence % self.capacity as u64).ok()?;
        DecisionRecord::decode(ring.bytes.get(at)?).ok()
    }

    /// The newest decision of any thread.
    #[must_use]
    pub fn last(&self) -> Option<DecisionId> {
        let newest = |shard: usize, ring: &Mutex<Ring>| {
            let next = ring.lock().unwrap_or_else(PoisonError::into_inner).next;
            let id =
                DecisionId { shard: u16::try_from(shard).ok()?, sequence: next.checked_sub(1)? };
            Some((self.get(id)?.inputs.now, id))
        };
        let all = self.rings.iter().enumerate().filter_map(|(shard, ring)| newest(shard, ring));
        all.max_by_key(|(now, _)| *now).map(|(_, id)| id)
    }
}

/// A record in words: every candidate, what was known of it, and why it was or was not taken.
#[must_use]
pub(crate) fn render(fleet: &Fleet, id: DecisionId, record: &DecisionRecord) -> Value {
    let name = |node| {
        let index = fleet.index_of(node);
        index.and_then(|index| fleet.nodes.get(index)).map_or("?", |node| node.name.as_str())
    };
    let inputs = &record.inputs;
    let decision = &record.decision;
    let rows = inputs.candidates().iter().zip(decision.verdicts()).zip(decision.costs());
    let candidates: Vec<Value> = rows
        .map(|((candidate, verdict), cost)| {
            json!({
                "node": name(candidate.node),
                "verdict": match verdict {
                    Verdict::Listed(place) => format!("choice {}", u32::from(*place) + 1),
                    Verdict::Spare(place, reason) => {
                        format!("spare {} ({})", u32::from(*place) + 1, reason.as_str())
                    }
                    Verdict::Rejected(reason) => reason.as_str().to_owned(),
                },
                "found": candidate.found.as_str(),
                "horizon": candidate.horizon,
                "health": candidate.health.as_str(),
                "floor_rtt_us": candidate.floor.value.0,
                "floor_rtt_source": candidate.floor.source.as_str(),
                "service_us": candidate.service.value.0,
                "service_source": candidate.service.source.as_str(),
                "own_requests": candidate.leases.0,
                "load": candidate.load.to_string(),
                "predicted_us": cost.total().0,
                "cost_us": {
                    "network": cost.network.0,
                    "queue": cost.queue.0,
                    "service": cost.service.0,
                    "load": cost.load.0,
                    "offload": cost.offload.0,
                    "errors": cost.errors.0,
                },
            })
        })
        .collect();
    let excluded = &inputs.excluded;
    json!({
        "id": id.to_string(),
        "policy": inputs.policy.as_str(),
        "model": fleet.model_name(inputs.request.model).map(|model| model.to_string()),
        "at_us": inputs.now.0,
        "epoch": inputs.epoch,
        "seed": format!("{:016x}", record.seed),
        "outcome": decision.outcome().as_str(),
        "choices": decision.choices().iter().map(|choice| name(choice.node)).collect::<Vec<_>>(),
        "candidates": candidates,
        "excluded": {
            "no_model": excluded.no_model,
            "not_allowed": excluded.not_allowed,
            "dead": excluded.dead,
            "ejected": excluded.ejected,
            "draining": excluded.draining,
        },
        "replays": midspan_router_core::replay(record) == record.decision,
    })
}
