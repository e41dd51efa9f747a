//! How busy this node is, as routers are told: requests in flight in all and of the asking router,
//! typical service time, predicted wait.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use midspan_protocol::LoadReport;

/// Routers whose shares are counted; requests of further ones count in the total only.
const MAX_ROUTERS: usize = 1024;

/// The node's load.
pub(crate) struct Load {
    boot: u64,
    workers: u32,
    in_flight: AtomicU32,
    shares: Mutex<HashMap<String, u32>>,
    service_us: AtomicU64,
}

/// One request in flight; gives its place back on drop, also when the client goes away.
pub(crate) struct InFlight<'l> {
    load: &'l Load,
    router: Option<String>,
}

impl Load {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            // Differs between starts, which is all that a boot id must do.
            boot: RandomState::new().hash_one(std::process::id()),
            workers: u32::try_from(workers).unwrap_or(u32::MAX),
            in_flight: AtomicU32::new(0),
            shares: Mutex::default(),
            service_us: AtomicU64::new(0),
        }
    }

    /// Counts a request of `router`.
    pub(crate) fn enter(&self, router: Option<&str>) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let router = router.filter(|name| {
            let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
            if shares.len() >= MAX_ROUTERS && !shares.contains_key(*name) {
                return false;
            }
            *shares.entry((*name).to_owned()).or_default() += 1;
            true
        });
        InFlight { load: self, router: router.map(str::to_owned) }
    }

    /// Notes how long a request's runs took.
    pub(crate) fn served(&self, ran: Duration) {
        let sample = u64::try_from(ran.as_micros()).unwrap_or(u64::MAX).max(1);
        // Two threads may lose one another's sample; an average does not mind.
        let old = self.service_us.load(Ordering::Relaxed);
        let new = if old == 0 { sample } else { old - old / 8 + sample / 8 };
        self.service_us.store(new, Ordering::Relaxed);
    }

    /// The report for `router`.
    pub(crate) fn report(&self, router: Option<&str>, queued: usize, draining: bool) -> LoadReport {
        let share = router.and_then(|name| {
            self.shares.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
        });
        let service_us = self.service_us.load(Ordering::Relaxed);
        LoadReport {
            boot: self.boot,
            rif: self.in_flight.load(Ordering::Relaxed),
            share: share.unwrap_or(0),
            workers: self.workers,
            service_us,
            wait_us: service_us.saturating_mul(queued as u64) / u64::from(self.workers.max(1)),
            draining,
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.load.in_flight.fetch_sub(1, Ordering::Relaxed);
        let Some(router) = &self.router else { return };
        let mut shares = self.load.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get_mut(router) {
            *share -= 1;
            if *share == 0 {
                shares.remove(router);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back_and_shares_are_told_apart() {
        let load = Load::new(2);
        let first = load.enter(Some("r1"));
        let second = load.enter(Some("r2"));
        let third = load.enter(None);
        load.served(Duration::from_micros(800));
        let report = load.report(Some("r1"), 4, false);
        assert_eq!((report.rif, report.share, report.wait_us), (3, 1, 1600));
        drop((first, second, third));
        let report = load.report(Some("r1"), 0, true);
        assert_eq!((report.rif, report.share, report.draining), (0, 0, true));
        assert!(load.shares.lock().unwrap().is_empty());
    }
}
