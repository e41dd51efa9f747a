//! Sums up outcomes, whichever driver made them: accuracy, where answers were made, latencies,
//! errors, uplink bytes. Pure: no IO, no clock; it decides what is counted as what.

mod table;

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;
use midspan_protocol::AnsweredBy;
use serde::{Deserialize, Serialize};

use crate::outcome::{AnswerKind, FailureKind, Outcome};

/// The summary of a run. Its JSON names are stable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How the run was made.
    pub settings: Settings,
    /// Requests that finished: answers and failures.
    pub requests: usize,
    /// Of these, the well-formed answers.
    pub answers: usize,
    /// Why the run ended before the workload did, if it did.
    pub stopped: Option<Stopped>,
    /// Failures by kind, most frequent first.
    pub errors: Vec<ErrorCount>,
    /// Answers with the true class, as a share of the answers; `None` without answers.
    pub accuracy: Option<f64>,
    /// Answers that an exit or the whole model at the edge gave and that are not degraded, as a
    /// share of the answers; `None` without answers.
    pub edge_share: Option<f64>,
    /// One entry per kind of answer: exits, local, cloud, degraded, unknown.
    pub kinds: Vec<KindSummary>,
    /// Latency over all answers; `None` without answers.
    pub latency: Option<Latency>,
    /// Answers per second of wall time.
    pub answers_per_s: f64,
    /// Wall time of the run, µs (virtual time in a simulation).
    pub wall_us: u64,
    /// Open loop: how well the driver kept to its schedule.
    pub late: Late,
    /// What crossed the emulated links, if they were asked.
    pub uplink: Option<Uplink>,
    /// What else a reader should know.
    pub notes: Vec<String>,
}

/// How a run was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// `live` or `sim`.
    pub driver: String,
    /// What was asked.
    pub endpoint: String,
    /// Model name.
    pub model: String,
    /// Requests planned.
    pub requests: usize,
    /// Requests in flight, at most.
    pub concurrency: usize,
    /// `closed`, `even` or `poisson`.
    pub pace: String,
    /// Rate of an open loop.
    pub rate_per_s: Option<f64>,
    /// Limit of one request, ms.
    pub timeout_ms: u64,
    /// Limit of the run, ms.
    pub max_duration_ms: u64,
    /// `h1` or `h2`.
    pub protocol: String,
    /// `binary` or `json`.
    pub body: String,
    /// The workload's seed.
    pub seed: u64,
}

/// Why a run ended before its workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// It was told to.
    Cancelled,
    /// Its time was up.
    Duration,
    /// A request failed and the run was not to go on.
    Failure,
}

/// Failures of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCount {
    /// `connect`, `reset`, `timeout`, `status:<code>` or `bad_answer`.
    pub kind: String,
    /// How many.
    pub count: usize,
    /// The first one's cause.
    pub sample: String,
}

/// Answers of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindSummary {
    /// `exit:<n>`, `local`, `cloud`, `degraded` or `unknown`.
    pub kind: String,
    /// How many.
    pub count: usize,
    /// Share of them with the true class.
    pub accuracy: f64,
    /// Their latency.
    pub latency: Latency,
}

/// Latency quantiles, µs; within 0.1 % of the exact ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Half are at most this.
    pub p50_us: u64,
    /// 90 % are at most this.
    pub p90_us: u64,
    /// 99 % are at most this.
    pub p99_us: u64,
    /// The longest, exact.
    pub max_us: u64,
}

/// Requests of an open loop that were sent more than a millisecond after their time, because all
/// places were in use or the driver itself was held up. Their wait is part of their latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// How many.
    pub count: usize,
    /// The longest wait of any request, µs.
    pub max_us: u64,
}

/// What crossed the emulated links during the run, whoever sent it: probes and health checks
/// included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Uplink {
    /// Payload bytes towards the links' targets.
    pub bytes_up: u64,
    /// Payload bytes back.
    pub bytes_down: u64,
    /// Requests that the cloud answered in full.
    pub hard_cases: usize,
    /// `bytes_up / hard_cases`; `None` without hard cases.
    pub bytes_per_hard_case: Option<f64>,
}

impl Uplink {
    /// The figures of `hard_cases` requests that moved these bytes.
    #[must_use]
    pub fn new(bytes_up: u64, bytes_down: u64, hard_cases: usize) -> Self {
        let bytes_per_hard_case = ratio(bytes_up as f64, hard_cases);
        Self { bytes_up, bytes_down, hard_cases, bytes_per_hard_case }
    }
}

impl Report {
    /// Sums up `outcomes` of a run that took `wall`.
    #[must_use]
    pub fn new(outcomes: &[Outcome], wall: Duration, settings: Settings) -> Self {
        let mut all = Group::default();
        let mut groups: BTreeMap<AnswerKind, Group> = BTreeMap::new();
        for outcome in outcomes {
            if let Ok(answer) = &outcome.result {
                all.add(outcome);
                groups.entry(answer.kind()).or_default().add(outcome);
            }
        }
        let at_edge = |kind: &AnswerKind| matches!(kind, AnswerKind::Placed(p) if p.at_edge());
        let edge: usize =
            groups.iter().filter(|(kind, _)| at_edge(kind)).map(|(_, group)| group.count).sum();
        let kinds = groups.iter().map(|(kind, group)| KindSummary {
            kind: kind.to_string(),
            count: group.count,
            accuracy: ratio(group.right as f64, group.count).unwrap_or(0.0),
            latency: group.latency(),
        });
        Self {
            settings,
            requests: outcomes.len(),
            answers: all.count,
            stopped: None,
            errors: errors(outcomes),
            accuracy: ratio(all.right as f64, all.count),
            edge_share: ratio(edge as f64, all.count),
            kinds: kinds.collect(),
            latency: (all.count > 0).then(|| all.latency()),
            answers_per_s: per_second(all.count, wall),
            wall_us: u64::try_from(wall.as_micros()).unwrap_or(u64::MAX),
            late: late(outcomes),
            uplink: None,
            notes: Vec::new(),
        }
    }

    /// Requests that the cloud answered in full.
    #[must_use]
    pub fn hard_cases(&self) -> usize {
        let cloud = AnswerKind::Placed(AnsweredBy::Cloud).to_string();
        self.kinds.iter().find(|row| row.kind == cloud).map_or(0, |row| row.count)
    }

    /// The report as text for people, a few aligned tables.
    #[must_use]
    pub fn render(&self) -> String {
        table::render(self)
    }
}

fn errors(outcomes: &[Outcome]) -> Vec<ErrorCount> {
    let mut counts: BTreeMap<FailureKind, ErrorCount> = BTreeMap::new();
    for failure in outcomes.iter().filter_map(|outcome| outcome.result.as_ref().err()) {
        let entry = counts.entry(failure.kind).or_insert_with(|| ErrorCount {
            kind: failure.kind.to_string(),
            count: 0,
            sample: failure.detail.clone(),
        });
        entry.count += 1;
    }
    let mut counts: Vec<ErrorCount> = counts.into_values().collect();
    counts.sort_by_key(|entry| std::cmp::Reverse(entry.count));
    counts
}

fn late(outcomes: &[Outcome]) -> Late {
    const NOTICED_US: u64 = 1000;
    Late {
        count: outcomes.iter().filter(|outcome| outcome.late_us > NOTICED_US).count(),
        max_us: outcomes.iter().map(|outcome| outcome.late_us).max().unwrap_or(0),
    }
}

fn ratio(part: f64, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part / whole as f64)
}

fn per_second(count: usize, wall: Duration) -> f64 {
    if wall.is_zero() { 0.0 } else { count as f64 / wall.as_secs_f64() }
}

/// Answers that are summed up together.
struct Group {
    count: usize,
    right: usize,
    max_us: u64,
    histogram: Histogram<u64>,
}

impl Default for Group {
    fn default() -> Self {
        const HOUR_US: u64 = 3_600_000_000;
        #[expect(clippy::expect_used, reason = "1 < HOUR_US / 2 and 3 digits are within bounds")]
        let histogram = Histogram::new_with_bounds(1, HOUR_US, 3).expect("constant bounds");
        Self { count: 0, right: 0, max_us: 0, histogram }
    }
}

impl Group {
    fn add(&mut self, outcome: &Outcome) {
        self.count += 1;
        self.right += usize::from(outcome.is_right());
        self.max_us = self.max_us.max(outcome.latency_us);
        self.histogram.saturating_record(outcome.latency_us.max(1));
    }

    fn latency(&self) -> Latency {
        // A bucket's upper end may lie above the longest latency.
        let at = |quantile| self.histogram.value_at_quantile(quantile).min(self.max_us);
        Latency { p50_us: at(0.5), p90_us: at(0.9), p99_us: at(0.99), max_us: self.max_us }
    }
}

#[cfg(test)]
mod tests;
