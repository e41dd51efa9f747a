//! Which way of answering a request is best on a link, from the profiles of both devices and the
//! fidelity of what may cross. For every candidate:
//!
//! `latency = E / (1 - u) + h (W / (1 - u) + exchange(up, down) + C / (1 - v))`
//!
//! `E` edge time of every request, `W` edge time of those that are sent (writing the frame or
//! picture), `C` cloud time (reading it, tail or whole model), `h` share of requests that no exit
//! answers, `u` and `v` how busy edge and cloud are (an M/M/1 queue's waiting and service), and
//! `exchange` of [`link`]. Times of halves that were not measured lie on a line through those that
//! were: see `curve`. Times are medians, microseconds. What was not measured of agreement is
//! not known, but for what is the whole model by construction. Pure: no clock, no files.

mod chart;
mod choose;
mod cost;
mod curve;
pub mod link;
pub mod regret;
pub mod report;

use serde::Serialize;

use crate::candidate::{Candidate, Fidelity};
use crate::digest::Digest;
use crate::profile::Profile;

pub use choose::{Fate, Plan, Planned, Verdict};
pub use cost::Costs;
pub use link::{Link, LinkError, State};

/// All that a plan is made of but the link.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// Profile of the edge.
    pub edge: &'a Profile,
    /// Profile of the cloud.
    pub cloud: &'a Profile,
    /// What was measured of candidates; may be empty.
    pub fidelity: &'a [Fidelity],
    /// How many times slower the edge is than where its profile was made; above 0.
    pub edge_slowdown: f64,
    /// Rows of a request; must be among the batches of both profiles.
    pub rows: usize,
    /// How busy both sides are.
    pub load: Load,
    /// Exits at cuts.
    pub exits: &'a [ExitShare],
    /// Bytes that go along with a body, such as the heads of HTTP.
    pub heads: Heads,
}

/// How busy the sides are without this request: shares of time, 0 to below 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    /// The edge.
    pub edge: f64,
    /// The cloud.
    pub cloud: f64,
}

/// What goes along with a body, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Heads {
    /// With a request.
    pub up: f64,
    /// With an answer.
    pub down: f64,
}

/// An exit at a cut.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExitShare {
    /// Tensor of the cut; every cut without one.
    pub cut: Option<String>,
    /// Share of the requests that it answers, 0 to 1.
    pub share: f64,
    /// Upper bound of the share of all requests that it answers otherwise than the whole model
    /// would: the budget of its certificate.
    pub loss: f64,
}

/// What the best candidate is best in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Least latency.
    #[default]
    Latency,
    /// Fewest bytes towards the cloud.
    Bytes,
    /// Least time of the edge's CPU.
    EdgeWork,
}

/// What a candidate must keep to be recommended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Bounds {
    /// Least agreement with the whole model; the lower bound of what was measured must reach it.
    pub min_agreement: f64,
    /// Most latency, microseconds.
    pub max_latency_us: Option<f64>,
    /// Most bytes towards the cloud.
    pub max_uplink_bytes: Option<f64>,
    /// Most time of the edge's CPU, microseconds.
    pub max_edge_us: Option<f64>,
}

/// How often a candidate answers as the whole model does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Agreement {
    /// It is the whole model, in one place or two, nothing lost between.
    Exact,
    /// Half precision of a cut that nobody measured: taken to agree, and said so.
    Assumed,
    /// As measured.
    Measured {
        /// Share of the samples.
        share: f64,
        /// Its lower bound at 95 % confidence.
        lower: f64,
        /// Samples.
        samples: u64,
    },
    /// Nobody measured it.
    Unknown,
}

impl Agreement {
    /// What can be promised; none when nothing is known.
    pub fn lower(&self) -> Option<f64> {
        match self {
            Self::Exact | Self::Assumed => Some(1.0),
            Self::Measured { lower, .. } => Some(*lower),
            Self::Unknown => None,
        }
    }
}

/// Why nothing can be planned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Profiles or fidelities of different models.
    #[error("{what} is of the model {got}, the edge's profile of {expected}")]
    Model {
        /// What differs.
        what: &'static str,
        /// Digest in the edge's profile.
        expected: Digest,
        /// Digest found.
        got: Digest,
    },
    /// A profile without the whole model at this batch.
    #[error("the {side}'s profile has no time of the whole model at {rows} rows; it has {known:?}")]
    Batch {
        /// Which profile.
        side: &'static str,
        /// Rows asked for.
        rows: usize,
        /// Batches that it has.
        known: Vec<usize>,
    },
    /// A number out of range.
    #[error("{key} is {value}: it must be {wanted}")]
    Value {
        /// Which.
        key: &'static str,
        /// The number.
        value: f64,
        /// What it may be.
        wanted: &'static str,
    },
    /// An exit or a fidelity at a cut that the model does not have.
    #[error("the edge's profile knows no cut \"{cut}\"")]
    NoSuchCut {
        /// The name.
        cut: String,
    },
}

impl Inputs<'_> {
    fn check(&self) -> Result<(), PlanError> {
        let (expected, got) = (self.edge.model.sha256, self.cloud.model.sha256);
        if expected != got {
            return Err(PlanError::Model { what: "the cloud's profile", expected, got });
        }
        let share = |key, value: f64| match value {
            0.0..=0.99 => Ok(()),
            _ => Err(PlanError::Value { key, value, wanted: "0 to 0.99" }),
        };
        share("the edge's load", self.load.edge)?;
        share("the cloud's load", self.load.cloud)?;
        let value = self.edge_slowdown;
        if !(0.001..=1000.0).contains(&value) {
            return Err(PlanError::Value { key: "the slowdown", value, wanted: "0.001 to 1000" });
        }
        for exit in self.exits {
            for (key, value) in [("an exit's share", exit.share), ("an exit's loss", exit.loss)] {
                if !(0.0..=1.0).contains(&value) {
                    return Err(PlanError::Value { key, value, wanted: "0 to 1" });
                }
            }
        }
        let exits = self.exits.iter().filter_map(|exit| exit.cut.as_ref());
        let measured = self.fidelity.iter().filter_map(|entry| match &entry.candidate {
            Candidate::Exit { cut, .. } | Candidate::Activation { cut, .. } => Some(cut),
            Candidate::Local { .. } | Candidate::Input { .. } => None,
        });
        let known = |cut: &String| self.edge.cuts.iter().any(|known| known.tensor == *cut);
        match exits.chain(measured).find(|cut| !known(cut)) {
            Some(cut) => Err(PlanError::NoSuchCut { cut: cut.clone() }),
            None => Ok(()),
        }
    }
}

/// Plans one link. For several, compute [`Costs`] once and call [`Costs::on`] for each.
///
/// # Errors
/// When the inputs are of different models, or do not hold what is asked for.
pub fn plan(
    inputs: &Inputs<'_>,
    link: &Link,
    goal: Goal,
    bounds: &Bounds,
) -> Result<Plan, PlanError> {
    Ok(Costs::of(inputs)?.on(link, goal, bounds))
}

#[cfg(test)]
mod tests;
