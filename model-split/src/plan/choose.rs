//! From costs and a link to a plan: the Pareto set over latency, bytes towards the cloud, edge
//! work and agreement, the one recommended, and for every other candidate why not. Candidates
//! within a hundredth of the best are as good as it, since times were not measured better than
//! that; of those, the one with the fewest bytes is taken, then the one with the least edge work.

use std::cmp::Ordering;
use std::fmt;

use serde::Serialize;

use super::cost::{Cost, Costs};
use super::{Agreement, Bounds, Goal, Link};
use crate::candidate::Candidate;

/// Within this share of the best is as good.
const AS_GOOD: f64 = 0.01;

/// A plan for one link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The link.
    pub link: Link,
    /// What was to be best.
    pub goal: Goal,
    /// What had to be kept.
    pub bounds: Bounds,
    /// All candidates, the best first.
    pub candidates: Vec<Planned>,
    /// What to do.
    pub verdict: Verdict,
}

/// One candidate on one link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Planned {
    /// The candidate.
    pub candidate: Candidate,
    /// Expected latency, microseconds.
    pub latency_us: f64,
    /// Mean bytes of a request towards the cloud.
    pub uplink_bytes: f64,
    /// Time of the edge's CPU, microseconds.
    pub edge_us: f64,
    /// Time of the cloud's CPU, microseconds.
    pub cloud_us: f64,
    /// Share of requests that are sent.
    pub sent: f64,
    /// Agreement with the whole model.
    pub agreement: Agreement,
    /// Whether its halves were measured; else they lie on a line through measured ones.
    pub timed: bool,
    /// Whether no other candidate is at least as good in everything and better in something.
    pub pareto: bool,
    /// Why it is taken or not.
    pub fate: Fate,
}

/// Why a candidate is taken or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fate {
    /// It is the one.
    Recommended,
    /// It keeps all bounds; another is better in what was asked for.
    Slower {
        /// How much more of it this one needs, as a share.
        more: f64,
    },
    /// Another is at least as good in everything.
    Dominated {
        /// That one.
        by: Candidate,
    },
    /// Its agreement was not measured.
    Unmeasured,
    /// Its agreement is not good enough.
    Agreement {
        /// What can be promised.
        lower: f64,
    },
    /// It needs too much of something.
    Over {
        /// Of what.
        what: &'static str,
        /// How much it needs.
        value: f64,
        /// How much is allowed.
        most: f64,
    },
}

/// What to do on a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Verdict {
    /// The whole model runs on the edge: do not split.
    Local {
        /// The candidate.
        candidate: Candidate,
    },
    /// The input is sent: do not split.
    SendInput {
        /// The candidate.
        candidate: Candidate,
    },
    /// The front runs on the edge.
    Split {
        /// The candidate.
        candidate: Candidate,
    },
    /// Nothing keeps the bounds.
    Nothing,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recommended => f.write_str("recommended"),
            Self::Slower { more } if *more <= AS_GOOD => f.write_str("as good within 1 %"),
            Self::Slower { more } => write!(f, "needs {:.0} % more", more * 100.0),
            Self::Dominated { by } => write!(f, "beaten by: {by}"),
            Self::Unmeasured => f.write_str("agreement not measured"),
            Self::Agreement { lower } => {
                write!(f, "agreement at least {:.2} % only", lower * 100.0)
            }
            Self::Over { what, value, most } => write!(f, "{what} {value:.0}, at most {most:.0}"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { candidate } | Self::SendInput { candidate } => {
                write!(f, "do not split: {candidate}")
            }
            Self::Split { candidate } => write!(f, "split: {candidate}"),
            Self::Nothing => f.write_str("nothing keeps the bounds"),
        }
    }
}

impl Verdict {
    fn of(candidate: Option<&Candidate>) -> Self {
        let Some(candidate) = candidate.cloned() else { return Self::Nothing };
        match candidate {
            Candidate::Local { .. } => Self::Local { candidate },
            Candidate::Input { .. } => Self::SendInput { candidate },
            Candidate::Exit { .. } | Candidate::Activation { .. } => Self::Split { candidate },
        }
    }

    /// The candidate to take.
    pub fn candidate(&self) -> Option<&Candidate> {
        match self {
            Self::Local { candidate }
            | Self::SendInput { candidate }
            | Self::Split { candidate } => Some(candidate),
            Self::Nothing => None,
        }
    }

    /// Whether the model is to be divided.
    pub fn splits(&self) -> bool {
        matches!(self, Self::Split { .. })
    }
}

impl Plan {
    /// The one recommended.
    pub fn recommended(&self) -> Option<&Planned> {
        self.candidates.iter().find(|planned| planned.fate == Fate::Recommended)
    }

    /// The best of those that divide the model, or of those that do not, that keep the bounds.
    pub fn best(&self, splits: bool) -> Option<&Planned> {
        let of_kind = |planned: &&Planned| {
            let split = Verdict::of(Some(&planned.candidate)).splits();
            split == splits && self.bounds.broken(planned).is_none()
        };
        let amount = |planned: &Planned| self.goal.amount(planned);
        let kept = self.candidates.iter().filter(of_kind);
        kept.min_by(|a, b| amount(a).total_cmp(&amount(b)))
    }
}

impl Goal {
    /// What is to be small.
    pub(super) fn amount(self, planned: &Planned) -> f64 {
        match self {
            Self::Latency => planned.latency_us,
            Self::Bytes => planned.uplink_bytes,
            Self::EdgeWork => planned.edge_us,
        }
    }
}

impl Bounds {
    /// The bound that a candidate does not keep.
    fn broken(&self, planned: &Planned) -> Option<Fate> {
        let Some(lower) = planned.agreement.lower() else { return Some(Fate::Unmeasured) };
        if lower < self.min_agreement {
            return Some(Fate::Agreement { lower });
        }
        let limits = [
            ("latency in us", planned.latency_us, self.max_latency_us),
            ("bytes", planned.uplink_bytes, self.max_uplink_bytes),
            ("edge work in us", planned.edge_us, self.max_edge_us),
        ];
        limits.into_iter().find_map(|(what, value, most)| {
            let most = most.filter(|most| value > *most)?;
            Some(Fate::Over { what, value, most })
        })
    }
}

impl Costs {
    /// The plan for a link.
    pub fn on(&self, link: &Link, goal: Goal, bounds: &Bounds) -> Plan {
        let planned = |cost: &Cost| Planned {
            candidate: cost.candidate.clone(),
            latency_us: cost.latency_us(link, &self.load),
            uplink_bytes: cost.uplink_bytes(),
            edge_us: cost.edge_work_us(),
            cloud_us: cost.cloud_work_us(),
            sent: cost.sent,
            agreement: cost.agreement,
            timed: cost.timed,
            pareto: false,
            fate: Fate::Unmeasured,
        };
        let mut all: Vec<Planned> = self.all.iter().map(planned).collect();
        all.sort_by(|a, b| order(a, b, goal));
        let beaten = mark_pareto(&mut all);
        let best = recommended(&all, goal, bounds);
        let least = best.map(|best| goal.amount(&all[best]));
        for (index, planned) in all.iter_mut().enumerate() {
            planned.fate = match (bounds.broken(planned), &beaten[index]) {
                _ if best == Some(index) => Fate::Recommended,
                (Some(fate), _) => fate,
                (None, Some(by)) => Fate::Dominated { by: by.clone() },
                (None, None) => {
                    let (amount, least) = (goal.amount(planned), least.unwrap_or(0.0));
                    Fate::Slower { more: amount / least.max(f64::MIN_POSITIVE) - 1.0 }
                }
            };
        }
        let verdict = Verdict::of(best.map(|best| &all[best].candidate));
        let (link, bounds) = (link.clone(), *bounds);
        Plan { link, goal, bounds, candidates: all, verdict }
    }
}

fn order(a: &Planned, b: &Planned, goal: Goal) -> Ordering {
    let amount = goal.amount(a).total_cmp(&goal.amount(b));
    let others =
        a.latency_us.total_cmp(&b.latency_us).then(a.uplink_bytes.total_cmp(&b.uplink_bytes));
    amount
        .then(others)
        .then(a.edge_us.total_cmp(&b.edge_us))
        .then_with(|| a.candidate.cmp(&b.candidate))
}

/// What is to be small in all: nothing known of agreement is the worst of it.
fn costs(planned: &Planned) -> [f64; 4] {
    let lost = planned.agreement.lower().map_or(2.0, |lower| 1.0 - lower);
    [planned.latency_us, planned.uplink_bytes, planned.edge_us, lost]
}

/// Marks the Pareto set, and tells for each other candidate one of the set that beats it.
fn mark_pareto(all: &mut [Planned]) -> Vec<Option<Candidate>> {
    // In the order of the sums nobody is beaten by a later one.
    let mut by_sum: Vec<usize> = (0..all.len()).collect();
    let keys: Vec<[f64; 4]> = all.iter().map(costs).collect();
    let sum = |index: usize| keys[index].iter().sum::<f64>();
    by_sum.sort_by(|a, b| sum(*a).total_cmp(&sum(*b)));
    let beats = |a: &[f64; 4], b: &[f64; 4]| a != b && a.iter().zip(b).all(|(a, b)| a <= b);
    let mut front: Vec<usize> = Vec::new();
    let mut beaten = vec![None; all.len()];
    for index in by_sum {
        match front.iter().find(|kept| beats(&keys[**kept], &keys[index])) {
            Some(by) => beaten[index] = Some(all[*by].candidate.clone()),
            None => front.push(index),
        }
    }
    for index in front {
        all[index].pareto = true;
    }
    beaten
}

/// The best of those that keep the bounds.
fn recommended(all: &[Planned], goal: Goal, bounds: &Bounds) -> Option<usize> {
    let kept: Vec<usize> =
        (0..all.len()).filter(|index| bounds.broken(&all[*index]).is_none()).collect();
    let amount = |index: usize| goal.amount(&all[index]);
    let least = kept.iter().map(|index| amount(*index)).min_by(f64::total_cmp)?;
    let good = kept.into_iter().filter(|index| amount(*index) <= least * (1.0 + AS_GOOD));
    good.min_by(|a, b| {
        let (a, b) = (&all[*a], &all[*b]);
        a.uplink_bytes
            .total_cmp(&b.uplink_bytes)
            .then(a.edge_us.total_cmp(&b.edge_us))
            .then(a.latency_us.total_cmp(&b.latency_us))
    })
}
