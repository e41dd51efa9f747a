//! What happened: probes, answers, failures. Decides how an event changes one
//! node's cell; lock-free, from any thread. Never looks at other nodes.

use crate::cells::{BootId, Cell, Cells, Health, Tuning};
use crate::topology::Slot;
use crate::units::{Micros, Rif, Timestamp};

/// A node's word about its own load, from a probe or a response's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which process says so.
    pub boot: BootId,
    /// Requests in flight there, from everyone.
    pub total: Rif,
    /// Those of them that came from the asking router.
    pub share: Rif,
    /// It takes nothing new.
    pub draining: bool,
}

/// How a request failed. A 4xx answer is the client's fault: it is an
/// [`Event::Answered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection.
    Connect,
    /// The connection or stream broke.
    Reset,
    /// No answer in time.
    Timeout,
    /// The node answered with a server error.
    ServerError,
}

impl FailureKind {
    /// Its name in renderings and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Reset => "reset",
            Self::Timeout => "timeout",
            Self::ServerError => "5xx",
        }
    }
}

/// Something that happened at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A probe was answered.
    ProbeOk {
        /// The node.
        slot: Slot,
        /// Time from sending to the answer.
        rtt: Micros,
        /// The part of it that the node says it spent.
        server_time: Micros,
        /// Its load; none from a server that does not report.
        report: Option<Report>,
    },
    /// A probe was not answered, or not in time.
    ProbeFailed {
        /// The node.
        slot: Slot,
    },
    /// A request was answered, by whatever status but a 5xx.
    Answered {
        /// The node.
        slot: Slot,
        /// Time from sending to the answer.
        latency: Micros,
        /// Time the node spent executing it, queueing excluded.
        server_time: Option<Micros>,
        /// Its load.
        report: Option<Report>,
    },
    /// A request failed.
    Failed {
        /// The node.
        slot: Slot,
        /// How.
        kind: FailureKind,
    },
    /// The node said that it takes nothing new.
    Draining {
        /// The node.
        slot: Slot,
    },
}

impl Event {
    /// The node it happened at.
    pub const fn slot(&self) -> Slot {
        match *self {
            Self::ProbeOk { slot, .. }
            | Self::ProbeFailed { slot }
            | Self::Answered { slot, .. }
            | Self::Failed { slot, .. }
            | Self::Draining { slot } => slot,
        }
    }
}

/// Takes note of an event. One of an outdated slot is ignored.
pub fn observe(cells: &Cells, now: Timestamp, event: Event) {
    let Some(cell) = cells.cell(event.slot()) else { return };
    let tuning = cells.tuning();
    match event {
        Event::ProbeOk { rtt, server_time, report, .. } => {
            cell.probe_answered();
            // A server time beyond the round trip is nonsense: taking it off
            // would make the node look like a neighbour.
            let wire = if server_time < rtt { rtt.minus(server_time) } else { rtt };
            cell.round_trip(now, wire, tuning.floor_window);
            cell.advance(|health| match health {
                Health::Suspect => Some(Health::Healthy),
                Health::Dead { .. } => Some(Health::SlowStart { from: now }),
                _ => None,
            });
            note_report(cell, now, report);
        }
        Event::ProbeFailed { .. } => {
            let failed = cell.probe_failed();
            cell.advance(|health| match health {
                Health::Dead { .. } => None,
                _ if failed >= tuning.dead_after => Some(Health::Dead { since: now }),
                Health::Healthy => Some(Health::Suspect),
                _ => None,
            });
        }
        Event::Answered { latency, server_time, report, .. } => {
            cell.outcome(false);
            note_service(cell, latency, server_time);
            cell.advance(|health| match health {
                Health::HalfOpen { .. } => Some(Health::SlowStart { from: now }),
                _ => None,
            });
            note_report(cell, now, report);
        }
        Event::Failed { .. } => {
            cell.outcome(true);
            fail_trial(cell, now, tuning);
        }
        Event::Draining { .. } => {
            cell.advance(|health| match health {
                Health::Dead { .. } | Health::Draining => None,
                _ => Some(Health::Draining),
            });
        }
    }
}

/// One failure ends a trial at once, with a longer ejection.
fn fail_trial(cell: &Cell, now: Timestamp, tuning: &Tuning) {
    let until = now.after(tuning.ejection(cell.ejections()));
    let ejected = cell.advance(|health| match health {
        Health::HalfOpen { .. } => Some(Health::Ejected { until }),
        _ => None,
    });
    if ejected.is_some() {
        cell.set_ejections(|n| n.saturating_add(1));
    }
}

fn note_report(cell: &Cell, now: Timestamp, report: Option<Report>) {
    let Some(report) = report else { return };
    if cell.rebooted(report.boot) {
        cell.forget_process();
        cell.advance(|health| match health {
            Health::Dead { .. } => None,
            _ => Some(Health::SlowStart { from: now }),
        });
    }
    cell.report(now, report.total, report.share);
    cell.advance(|health| match (report.draining, health) {
        (true, Health::Draining | Health::Dead { .. }) => None,
        (true, _) => Some(Health::Draining),
        (false, Health::Draining) => Some(Health::SlowStart { from: now }),
        (false, _) => None,
    });
}

/// Without the node's word, latency less the floor bounds the service time
/// from above (it holds queueing and transfer), so it may only lower it.
fn note_service(cell: &Cell, latency: Micros, server_time: Option<Micros>) {
    let bound = || latency.minus(cell.floor().unwrap_or_default());
    match server_time {
        Some(time) if time <= latency => cell.served(time),
        _ if cell.service().is_none_or(|known| bound() < known) => cell.served(bound()),
        _ => {}
    }
}
