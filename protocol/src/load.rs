//! The load report that rides on every node response and probe: our header with every field, and
//! the ORCA `endpoint-load-metrics` text form for other balancers.

use std::fmt::Write;

/// What a node says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Changes at every start of the node's process: old counts are void.
    pub boot: u64,
    /// Requests in flight at the node, from everybody.
    pub rif: u32,
    /// Of these, the ones from the asking router.
    pub share: u32,
    /// Requests that the node works on at once.
    pub workers: u32,
    /// Typical service time without waiting, µs; 0 when nothing was served yet.
    pub service_us: u64,
    /// Predicted wait of a request that arrives now, µs.
    pub wait_us: u64,
    /// The node finishes what it has and takes no more.
    pub draining: bool,
}

impl LoadReport {
    /// Value of the `midspan-load` header.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut out = String::with_capacity(80);
        let written = write!(
            out,
            "boot={:x};rif={};share={};workers={};service={};wait={};draining={}",
            self.boot,
            self.rif,
            self.share,
            self.workers,
            self.service_us,
            self.wait_us,
            u8::from(self.draining)
        );
        debug_assert!(written.is_ok());
        out
    }

    /// Reads the header; unknown keys are skipped so that versions can differ. `None` when a known
    /// key has a bad value or `boot` is missing.
    #[must_use]
    pub fn decode(value: &str) -> Option<Self> {
        let mut report = Self::default();
        let mut booted = false;
        for pair in value.split(';').take(32) {
            let (key, value) = pair.split_once('=')?;
            match key {
                "boot" => {
                    report.boot = u64::from_str_radix(value, 16).ok()?;
                    booted = true;
                }
                "rif" => report.rif = value.parse().ok()?,
                "share" => report.share = value.parse().ok()?,
                "workers" => report.workers = value.parse().ok()?,
                "service" => report.service_us = value.parse().ok()?,
                "wait" => report.wait_us = value.parse().ok()?,
                "draining" => report.draining = value == "1",
                _ => {}
            }
        }
        booted.then_some(report)
    }

    /// ORCA text form (`TEXT name=value, ...`).
    #[must_use]
    pub fn orca(&self) -> String {
        let utilisation = f64::from(self.rif) / f64::from(self.workers.max(1));
        format!(
            "TEXT application_utilization={utilisation:.3}, named_metrics.requests_in_flight={}, \
             named_metrics.queue_wait_us={}",
            self.rif, self.wait_us
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_tolerance() {
        let report = LoadReport {
            boot: u64::MAX,
            rif: 7,
            share: 3,
            workers: 2,
            service_us: 410,
            wait_us: 900,
            draining: true,
        };
        assert_eq!(LoadReport::decode(&report.encode()), Some(report));
        assert_eq!(LoadReport::decode("boot=1;new=thing").map(|r| r.boot), Some(1));
        for bad in ["", "rif=1", "boot=zz", "boot=1;rif=-1", "boot"] {
            assert_eq!(LoadReport::decode(bad), None, "{bad}");
        }
        assert!(report.orca().starts_with("TEXT application_utilization=3.500"));
    }
}
