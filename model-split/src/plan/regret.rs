//! How much slower than the best measured way the planner's is: a table of measured latencies of
//! every candidate on several links and edges, and a judge that plans each cell from a profile of a
//! few cuts and looks up what its choice really took. The planner sees no cell. Pure; the table is
//! measured by `model-split/measure/regret`.

use serde::{Deserialize, Serialize};

use super::{Bounds, Costs, Goal, Heads, Inputs, Link, LinkError, Load, PlanError};
use crate::candidate::{Candidate, Fidelity};
use crate::manifest::PLAIN;
use crate::profile::{Part, Profile};

/// The format that this version reads and writes.
pub const FORMAT: u32 = 1;

/// Measured latencies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// [`FORMAT`].
    pub format: u32,
    /// Runs of which each latency is the median.
    pub runs: usize,
    /// Agreement that a candidate must keep.
    pub min_agreement: f64,
    /// Bytes that went along with each body, up and down.
    pub heads: (f64, f64),
    /// One entry a model.
    pub models: Vec<Measured>,
}

/// What was measured of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Name of the model.
    pub name: String,
    /// What the planner sees of times: a few of the cuts, on the device as it is.
    pub profile: Profile,
    /// The cells, in the order of each candidate's latencies.
    pub cells: Vec<Cell>,
    /// All candidates.
    pub candidates: Vec<Entry>,
}

/// A link and an edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// The link, in its text form.
    pub link: String,
    /// How many times slower the edge is.
    pub slowdown: f64,
}

/// One candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The candidate.
    pub candidate: Candidate,
    /// What was measured of its agreement, where it was.
    pub fidelity: Option<Fidelity>,
    /// Median latency in each cell, microseconds; none where it was not run because its bytes alone
    /// would take longer than [`Entry::NOT_RUN_US`].
    pub us: Vec<Option<f64>>,
    /// The same end to end, for the contenders of each cell: front, frame, link, tail and answer
    /// in one run. `us` is the sum of what the parts took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub whole_us: Vec<Option<f64>>,
}

impl Entry {
    /// Candidates whose bytes alone take longer on a line are not run there: in no cell is that
    /// near the best.
    pub const NOT_RUN_US: f64 = 1e6;
}

/// How the planner did in one cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// Name of the model.
    pub model: String,
    /// The cell.
    pub cell: Cell,
    /// What the planner took.
    pub taken: Candidate,
    /// What it took, as measured, microseconds.
    pub taken_us: f64,
    /// What it was planned to take.
    pub planned_us: f64,
    /// The best of all that keep the agreement.
    pub best: Candidate,
    /// What that took, as measured.
    pub best_us: f64,
}

impl Judged {
    /// How much longer the planner's choice took than the best, as a share.
    pub fn regret(&self) -> f64 {
        self.taken_us / self.best_us - 1.0
    }
}

/// Why a table cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum RegretError {
    /// The planner refuses what the table gives it.
    #[error("{model}: {source}")]
    Plan {
        /// The model.
        model: String,
        /// Cause.
        source: PlanError,
    },
    /// A cell's link is none.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The planner's choice was not measured, or nothing was.
    #[error("{model}, {link}, {slowdown} times slower: {what}")]
    Missing {
        /// The model.
        model: String,
        /// The cell's link.
        link: String,
        /// The cell's edge.
        slowdown: f64,
        /// What is missing.
        what: String,
    },
}

impl Measured {
    /// The share of the model's cuts of which the planner sees times.
    pub fn seen(&self) -> f64 {
        let timed = self.profile.cuts.iter().filter(|cut| {
            let part = Part::Front { cut: cut.tensor.clone() };
            self.profile.part_us(&part, PLAIN, 1).is_some()
        });
        timed.count() as f64 / self.profile.cuts.len().max(1) as f64
    }
}

impl Table {
    /// Plans every cell and looks up what the plan took.
    ///
    /// # Errors
    /// When a cell cannot be planned, or the choice was not measured.
    pub fn judge(&self) -> Result<Vec<Judged>, RegretError> {
        let mut judged = Vec::new();
        for measured in &self.models {
            for (index, cell) in measured.cells.iter().enumerate() {
                judged.push(self.cell(measured, index, cell)?);
            }
        }
        Ok(judged)
    }

    /// What contenders took end to end as a share of the sums of their parts.
    pub fn whole_over_parts(&self) -> Vec<f64> {
        let entries = self.models.iter().flat_map(|measured| &measured.candidates);
        let both = entries.flat_map(|entry| entry.us.iter().zip(&entry.whole_us));
        both.filter_map(|(parts, whole)| Some((*whole)? / (*parts)?)).collect()
    }

    fn cell(&self, measured: &Measured, index: usize, cell: &Cell) -> Result<Judged, RegretError> {
        let fidelity: Vec<Fidelity> =
            measured.candidates.iter().filter_map(|entry| entry.fidelity.clone()).collect();
        let inputs = Inputs {
            edge: &measured.profile,
            cloud: &measured.profile,
            fidelity: &fidelity,
            edge_slowdown: cell.slowdown,
            rows: 1,
            load: Load::default(),
            exits: &[],
            heads: Heads { up: self.heads.0, down: self.heads.1 },
        };
        let model = || measured.name.clone();
        let costs =
            Costs::of(&inputs).map_err(|source| RegretError::Plan { model: model(), source })?;
        let link: Link = cell.link.parse()?;
        let bounds = Bounds { min_agreement: self.min_agreement, ..Bounds::default() };
        let plan = costs.on(&link, Goal::Latency, &bounds);
        let missing = |what: String| {
            let (link, slowdown) = (cell.link.clone(), cell.slowdown);
            RegretError::Missing { model: model(), link, slowdown, what }
        };
        let taken_us = |candidate: &Candidate| {
            let entry = measured.candidates.iter().find(|entry| entry.candidate == *candidate);
            entry.and_then(|entry| *entry.us.get(index)?)
        };
        let taken = plan.recommended().ok_or_else(|| missing("nothing is recommended".into()))?;
        let good = plan.candidates.iter().filter(|planned| {
            planned.agreement.lower().is_some_and(|lower| lower >= self.min_agreement)
        });
        let (best_us, best) = good
            .filter_map(|planned| Some((taken_us(&planned.candidate)?, &planned.candidate)))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .ok_or_else(|| missing("nothing was measured".into()))?;
        Ok(Judged {
            model: model(),
            cell: cell.clone(),
            taken_us: taken_us(&taken.candidate)
                .ok_or_else(|| missing(format!("{} was not measured", taken.candidate)))?,
            taken: taken.candidate.clone(),
            planned_us: taken.latency_us,
            best: best.clone(),
            best_us,
        })
    }
}
