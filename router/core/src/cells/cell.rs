//! One slot's words and how an observation becomes an estimate in them.
//! Knows neither the fleet nor what an event means for a node's health.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{BootId, Health};
use crate::inputs::Reported;
use crate::units::{Micros, Probability, Rif, Timestamp};

/// One slot.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Cell {
    /// Generation above, own requests in flight below.
    lease: AtomicU64,
    /// Reported requests in flight above, our share of them below.
    report: AtomicU64,
    /// Time of the report plus one; zero: none.
    report_at: AtomicU64,
    health: AtomicU64,
    /// Average service time in us; zero: unknown.
    service: AtomicU32,
    /// Average failure in 1/65,536 above, failures in a row below.
    errors: AtomicU32,
    /// Minimum round trip of the window `floor_window`, us; zero: unknown.
    floor: AtomicU32,
    /// That of the window before.
    floor_before: AtomicU32,
    floor_window: AtomicU32,
    /// Average round trip, us; zero: unknown.
    rtt: AtomicU32,
    /// From the top: horizon, ejections so far, failed probes in a row, unused.
    marks: AtomicU32,
    /// Boot id; zero: unknown.
    boot: AtomicU32,
}

const _: () = assert!(size_of::<Cell>() == 64, "a cell is one cache line");

const HORIZON_SHIFT: u32 = 24;
const EJECTIONS_SHIFT: u32 = 16;
const PROBES_SHIFT: u32 = 8;

fn known(us: u32) -> Option<Micros> {
    (us > 0).then(|| Micros(u64::from(us)))
}

fn clamp(time: Micros) -> u32 {
    u32::try_from(time.0).unwrap_or(u32::MAX).max(1)
}

/// Moves an average an eighth of the way to a sample; the first sample is it.
fn average(word: &AtomicU32, sample: Micros) {
    let (old, new) = (word.load(Relaxed), clamp(sample));
    let next = if old == 0 {
        new
    } else {
        let moved = (i64::from(new) - i64::from(old)) / 8;
        u32::try_from(i64::from(old) + moved).unwrap_or(u32::MAX).max(1)
    };
    word.store(next, Relaxed);
}

impl Cell {
    /// Forgets everything, begins a new generation and returns it.
    pub(super) fn turn_over(&self) -> u32 {
        let generation = self.generation().wrapping_add(1);
        self.lease.store(u64::from(generation) << 32, Relaxed);
        self.forget_process();
        self.health.store(Health::Healthy.pack(), Relaxed);
        for word in [&self.service, &self.floor, &self.floor_before, &self.floor_window] {
            word.store(0, Relaxed);
        }
        for word in [&self.rtt, &self.marks, &self.boot] {
            word.store(0, Relaxed);
        }
        generation
    }

    pub(super) fn take(&self, generation: u32, cap: Rif) -> Result<(), Option<Rif>> {
        let mut word = self.lease.load(Relaxed);
        loop {
            let leases = word as u32;
            if (word >> 32) as u32 != generation {
                return Err(None);
            }
            // Stopping short of u32::MAX keeps the count out of the generation.
            if leases >= cap.0 || leases == u32::MAX {
                return Err(Some(Rif(leases)));
            }
            match self.lease.compare_exchange_weak(word, word + 1, Relaxed, Relaxed) {
                Ok(_) => return Ok(()),
                Err(seen) => word = seen,
            }
        }
    }

    pub(super) fn give_back(&self, generation: u32) {
        let less = |word: u64| {
            let current = (word >> 32) as u32 == generation;
            (current && word as u32 > 0).then(|| word - 1)
        };
        let done = self.lease.fetch_update(Relaxed, Relaxed, less);
        debug_assert!(
            done.is_ok() || self.generation() != generation,
            "a lease was released twice"
        );
    }

    pub(crate) fn generation(&self) -> u32 {
        (self.lease.load(Relaxed) >> 32) as u32
    }

    pub(crate) fn leases(&self) -> Rif {
        Rif(self.lease.load(Relaxed) as u32)
    }

    pub(crate) fn health(&self) -> Health {
        Health::unpack(self.health.load(Relaxed)).unwrap_or_default()
    }

    /// Moves the health by `step` unless it says none; returns old and new.
    pub(crate) fn advance(
        &self,
        step: impl Fn(Health) -> Option<Health>,
    ) -> Option<(Health, Health)> {
        let mut word = self.health.load(Relaxed);
        loop {
            let old = Health::unpack(word).unwrap_or_default();
            let new = step(old)?;
            match self.health.compare_exchange_weak(word, new.pack(), Relaxed, Relaxed) {
                Ok(_) => return Some((old, new)),
                Err(seen) => word = seen,
            }
        }
    }

    pub(crate) fn reported(&self, now: Timestamp) -> Option<Reported> {
        let at = self.report_at.load(Relaxed).checked_sub(1)?;
        let word = self.report.load(Relaxed);
        let (total, share) = (Rif((word >> 32) as u32), Rif(word as u32));
        Some(Reported { total, share, age: now.since(Timestamp(at)) })
    }

    pub(crate) fn report(&self, now: Timestamp, total: Rif, share: Rif) {
        let share = share.min(total);
        self.report.store(u64::from(total.0) << 32 | u64::from(share.0), Relaxed);
        self.report_at.store(now.0.saturating_add(1), Relaxed);
    }

    /// Notes the boot id; says whether it is another one than before.
    pub(crate) fn rebooted(&self, boot: BootId) -> bool {
        let before = self.boot.swap(boot.0.get(), Relaxed);
        before != 0 && before != boot.0.get()
    }

    /// Forgets what was true of one process of the node only.
    pub(crate) fn forget_process(&self) {
        self.report_at.store(0, Relaxed);
        self.errors.store(0, Relaxed);
    }

    pub(crate) fn service(&self) -> Option<Micros> {
        known(self.service.load(Relaxed))
    }

    pub(crate) fn served(&self, sample: Micros) {
        average(&self.service, sample);
    }

    pub(crate) fn rtt(&self) -> Option<Micros> {
        known(self.rtt.load(Relaxed))
    }

    /// The smaller minimum of the last two windows that had samples: with no
    /// samples it stays, it never decays.
    pub(crate) fn floor(&self) -> Option<Micros> {
        let (now, before) = (self.floor.load(Relaxed), self.floor_before.load(Relaxed));
        known(if before == 0 { now } else { now.min(before) })
    }

    pub(crate) fn round_trip(&self, now: Timestamp, sample: Micros, window: Micros) {
        average(&self.rtt, sample);
        let (sample, window) = (clamp(sample), (now.0 / window.0.max(1)) as u32);
        let floor = self.floor.load(Relaxed);
        if floor == 0 || self.floor_window.load(Relaxed) != window {
            self.floor_before.store(floor, Relaxed);
            self.floor.store(sample, Relaxed);
            self.floor_window.store(window, Relaxed);
        } else {
            self.floor.fetch_min(sample, Relaxed);
        }
    }

    pub(crate) fn failures(&self) -> u16 {
        self.errors.load(Relaxed) as u16
    }

    pub(crate) fn error_rate(&self) -> Probability {
        let rate = u64::from(self.errors.load(Relaxed) >> 16);
        Probability::from_ppm((rate * 1_000_000 / 65_535) as u32).unwrap_or(Probability::ONE)
    }

    /// Counts an answer or a failure (weight 1/16); returns failures in a row.
    pub(crate) fn outcome(&self, failed: bool) -> u16 {
        self.edit_errors(|rate, row| match failed {
            true => (rate + (65_535 - rate).div_ceil(16), row.saturating_add(1)),
            false => (rate - rate.div_ceil(16), 0),
        })
    }

    /// Lets old failures count less, so that a node nobody chooses recovers.
    pub(crate) fn forgive(&self) {
        if self.errors.load(Relaxed) >> 16 != 0 {
            self.edit_errors(|rate, row| (rate - rate.div_ceil(32), row));
        }
    }

    /// A node that is tried again begins with a clean record.
    pub(crate) fn pardon(&self) {
        self.errors.store(0, Relaxed);
    }

    fn edit_errors(&self, edit: impl Fn(u32, u16) -> (u32, u16)) -> u16 {
        let step = |word: u32| {
            let (rate, row) = edit(word >> 16, word as u16);
            Some(rate.min(65_535) << 16 | u32::from(row))
        };
        let _ = self.errors.fetch_update(Relaxed, Relaxed, step);
        self.failures()
    }

    pub(crate) fn horizon(&self) -> u8 {
        self.mark(HORIZON_SHIFT)
    }

    pub(crate) fn set_horizon(&self, horizon: u8) {
        self.set_mark(HORIZON_SHIFT, |_| horizon);
    }

    pub(crate) fn ejections(&self) -> u8 {
        self.mark(EJECTIONS_SHIFT)
    }

    pub(crate) fn set_ejections(&self, edit: impl Fn(u8) -> u8) {
        self.set_mark(EJECTIONS_SHIFT, edit);
    }

    pub(crate) fn probe_answered(&self) {
        self.set_mark(PROBES_SHIFT, |_| 0);
    }

    /// Counts a failed probe; returns failed ones in a row.
    pub(crate) fn probe_failed(&self) -> u8 {
        self.set_mark(PROBES_SHIFT, |n| n.saturating_add(1))
    }

    fn mark(&self, shift: u32) -> u8 {
        (self.marks.load(Relaxed) >> shift) as u8
    }

    fn set_mark(&self, shift: u32, edit: impl Fn(u8) -> u8) -> u8 {
        let step = |word: u32| {
            let new = u32::from(edit((word >> shift) as u8));
            Some(word & !(0xff << shift) | new << shift)
        };
        let _ = self.marks.fetch_update(Relaxed, Relaxed, step);
        self.mark(shift)
    }
}
