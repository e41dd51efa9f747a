//! What needs a view of the fleet, every 250 ms from one thread. Decides who
//! is ejected (never more than a share of the fleet), who is tried again, and
//! which horizon each node belongs to; then puts the indices in order. Never
//! touches what a single observation settles.

use alloc::vec::Vec;

use crate::cells::{Cell, Cells, Health};
use crate::topology::index::{Ranked, Standing};
use crate::topology::{Entry, Topology};
use crate::units::{Micros, MilliRif, Timestamp};

/// What a sweep has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Nodes ejected.
    pub ejected: u32,
    /// Nodes that failed enough to be ejected, but too many are out already.
    pub spared: u32,
    /// Nodes that may be tried again.
    pub half_opened: u32,
    /// Nodes whose slow start is over.
    pub recovered: u32,
    /// Nodes that changed their horizon.
    pub moved: u32,
}

/// Ejects, readmits, assigns horizons and reorders the indices.
pub fn sweep(now: Timestamp, topology: &Topology, cells: &Cells) -> Swept {
    let mut swept = Swept::default();
    let live = || topology.entries().filter_map(|e| cells.cell(e.slot));
    let is_out =
        |cell: &&Cell| matches!(cell.health(), Health::Ejected { .. } | Health::HalfOpen { .. });
    let (nodes, mut out) = (live().count(), live().filter(is_out).count());
    let room = allowed_out(nodes, cells);
    for cell in live() {
        eject(now, cells, cell, room, &mut out, &mut swept);
        readmit(now, cells, cell, &mut swept);
        cell.forgive();
    }
    swept.moved = refresh(topology, cells, Some(now));
    swept
}

/// How many nodes may be out at once: a lone node never, else at least one.
fn allowed_out(nodes: usize, cells: &Cells) -> usize {
    let share = u64::from(cells.tuning().max_ejected.ppm());
    let allowed = crate::units::mul_div(nodes as u64, share, 1_000_000) as usize;
    if nodes < 2 || share == 0 { 0 } else { allowed.max(1) }
}

fn eject(
    now: Timestamp,
    cells: &Cells,
    cell: &Cell,
    room: usize,
    out: &mut usize,
    swept: &mut Swept,
) {
    let tuning = cells.tuning();
    let failing = cell.failures() >= tuning.eject_after || cell.error_rate() > tuning.eject_errors;
    if !failing {
        return;
    }
    let until = now.after(tuning.ejection(cell.ejections()));
    let candidate = |health: Health| health.usable() && !matches!(health, Health::HalfOpen { .. });
    if *out >= room {
        swept.spared += u32::from(candidate(cell.health()));
        return;
    }
    if cell.advance(|h| candidate(h).then_some(Health::Ejected { until })).is_some() {
        cell.set_ejections(|n| n.saturating_add(1));
        *out += 1;
        swept.ejected += 1;
    }
}

fn readmit(now: Timestamp, cells: &Cells, cell: &Cell, swept: &mut Swept) {
    let tuning = cells.tuning();
    let step = cell.advance(|health| match health {
        Health::Ejected { until } if now >= until => Some(Health::HalfOpen { since: now }),
        // Nobody tried it for as long as a whole ejection: let it in slowly.
        Health::HalfOpen { since } if now.since(since) >= tuning.eject_for => {
            Some(Health::SlowStart { from: now })
        }
        Health::SlowStart { from } if now.since(from) >= tuning.slow_start => Some(Health::Healthy),
        _ => None,
    });
    match step {
        Some((_, Health::HalfOpen { .. })) => {
            cell.pardon();
            swept.half_opened += 1;
        }
        Some((_, Health::Healthy)) => {
            cell.set_ejections(|n| n.saturating_sub(1));
            swept.recovered += 1;
        }
        _ => {}
    }
}

/// Assigns horizons and reorders the indices; returns how many nodes changed
/// their horizon. Without a time (a topology being built) reports count as new.
pub(crate) fn refresh(topology: &Topology, cells: &Cells, now: Option<Timestamp>) -> u32 {
    let floor = |entry: &Entry, cell: &Cell| {
        cell.floor().or(entry.prior).unwrap_or(cells.tuning().default_rtt)
    };
    let live = || topology.entries().filter_map(|e| Some((e, cells.cell(e.slot)?)));
    let nearest = live()
        .filter(|(entry, cell)| in_service(entry, cell))
        .map(|(entry, cell)| floor(entry, cell))
        .min();

    let mut moved = 0;
    let mut ranked: Vec<(Micros, Ranked)> = Vec::with_capacity(topology.len());
    for (entry, cell) in live() {
        let floor = floor(entry, cell);
        // With nobody in service there is nothing to be near to.
        let horizon = nearest.map_or(cell.horizon(), |nearest| {
            horizon(&cells.tuning().horizons, nearest, floor, cell.horizon())
        });
        if horizon != cell.horizon() {
            cell.set_horizon(horizon);
            moved += 1;
        }
        let reported = cell.reported(now.unwrap_or_default());
        ranked.push((floor, rank(entry, cell, horizon, cells.load(cell.leases(), reported))));
    }
    ranked.sort_unstable_by_key(|(floor, node)| {
        let place = if let Standing::In(horizon) = node.standing { horizon } else { u8::MAX };
        (place, *floor, node.slot)
    });
    let order: Vec<Ranked> = ranked.into_iter().map(|(_, node)| node).collect();
    for index in topology.indices() {
        index.refresh(&order);
    }
    moved
}

fn in_service(entry: &Entry, cell: &Cell) -> bool {
    !entry.spec.drained && !matches!(cell.health(), Health::Dead { .. } | Health::Draining)
}

fn rank(entry: &Entry, cell: &Cell, horizon: u8, load: MilliRif) -> Ranked {
    let standing = match cell.health() {
        Health::Dead { .. } => Standing::Dead,
        Health::Ejected { .. } => Standing::Ejected,
        Health::Draining => Standing::Draining,
        _ if entry.spec.drained => Standing::Draining,
        _ => Standing::In(horizon),
    };
    Ranked { slot: entry.slot.index, weight: entry.spec.weight.get(), load, standing }
}

/// The horizon of a node. A border is crossed only when it is passed by an
/// eighth, so that a node near one does not swing.
fn horizon(borders: &[Micros; 3], nearest: Micros, floor: Micros, current: u8) -> u8 {
    let beyond = floor.minus(nearest);
    let within = |eighths: u64| {
        let inside = |border: &Micros| beyond <= Micros(border.times(eighths).0 / 8);
        borders.iter().position(inside).unwrap_or(borders.len()) as u8
    };
    if within(9) > current {
        within(8)
    } else if within(7) < current {
        within(8).min(current)
    } else {
        current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_hold_a_node_until_it_is_clearly_past() {
        let borders = [10, 40, 120].map(Micros::from_millis);
        let at = |ms, current| {
            horizon(&borders, Micros::from_millis(5), Micros::from_millis(ms), current)
        };
        assert_eq!([at(5, 0), at(15, 0), at(16, 0), at(17, 0)], [0, 0, 0, 1]);
        assert_eq!([at(15, 1), at(14, 1), at(13, 1)], [1, 1, 0]);
        assert_eq!([at(60, 0), at(300, 0), at(5, 3)], [2, 3, 0]);
    }
}
