//! How observations become estimates and states: thresholds and time
//! constants, validated once. Decides nothing by itself.

use core::fmt;

use crate::units::{Micros, Permille, Probability};

/// Thresholds and time constants of `observe` and `sweep`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// A report counts for less with age and for nothing after this time.
    pub report_ttl: Micros,
    /// The floor round trip is the minimum over one to two of these.
    pub floor_window: Micros,
    /// Round trip of a node of which not even the place is known.
    pub default_rtt: Micros,
    /// Service time of a node of which none was measured or stated.
    pub default_service: Micros,
    /// How much slower than the nearest node a node may be to belong to
    /// horizon 0, 1 and 2; what is slower still is horizon 3.
    pub horizons: [Micros; 3],
    /// Failed probes in a row after which a node is dead.
    pub dead_after: u8,
    /// Failed requests in a row after which a node is ejected.
    pub eject_after: u16,
    /// Share of recent failures above which a node is ejected.
    pub eject_errors: Probability,
    /// Largest share of the fleet that may be ejected (at least one node, if
    /// there are two).
    pub max_ejected: Probability,
    /// How long the first ejection lasts; each further one twice as long.
    pub eject_for: Micros,
    /// The longest ejection.
    pub eject_at_most: Micros,
    /// How long a node that came back is given less than its share.
    pub slow_start: Micros,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            report_ttl: Micros::from_secs(2),
            floor_window: Micros::from_secs(10),
            default_rtt: Micros::from_millis(50),
            default_service: Micros::from_millis(10),
            horizons: [10, 40, 120].map(Micros::from_millis),
            dead_after: 3,
            eject_after: 5,
            eject_errors: Probability::percent(50),
            max_ejected: Probability::percent(50),
            eject_for: Micros::from_secs(5),
            eject_at_most: Micros::from_secs(60),
            slow_start: Micros::from_secs(10),
        }
    }
}

/// A tuning that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadTuning {
    /// The field.
    pub field: &'static str,
    /// What it must be.
    pub must: &'static str,
}

impl fmt::Display for BadTuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.field, self.must)
    }
}

impl core::error::Error for BadTuning {}

impl Tuning {
    /// This tuning, if it makes sense.
    ///
    /// # Errors
    /// Names the first field that does not.
    pub fn checked(self) -> Result<Self, BadTuning> {
        let positive = "more than zero";
        let rules = [
            ("report_ttl", self.report_ttl > Micros::ZERO, positive),
            ("floor_window", self.floor_window > Micros::ZERO, positive),
            ("default_rtt", self.default_rtt > Micros::ZERO, positive),
            ("default_service", self.default_service > Micros::ZERO, positive),
            ("horizons", self.horizons.is_sorted(), "in rising order"),
            ("dead_after", self.dead_after > 0, positive),
            ("eject_after", self.eject_after > 0, positive),
            ("eject_for", self.eject_for > Micros::ZERO, positive),
            ("eject_at_most", self.eject_at_most >= self.eject_for, "at least eject_for"),
        ];
        match rules.into_iter().find(|(_, ok, _)| !ok) {
            Some((field, _, must)) => Err(BadTuning { field, must }),
            None => Ok(self),
        }
    }

    /// How long the next ejection lasts after so many before it.
    pub(crate) fn ejection(&self, before: u8) -> Micros {
        self.eject_for.times(1 << before.min(20)).min(self.eject_at_most)
    }

    /// How much of a report of this age still counts.
    pub(crate) fn freshness(&self, age: Micros) -> Permille {
        let left = self.report_ttl.minus(age);
        Permille(crate::units::mul_div(left.0, 1_000, self.report_ttl.0) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_named() {
        let bad = Tuning { report_ttl: Micros::ZERO, ..Tuning::default() };
        assert_eq!(bad.checked().unwrap_err().field, "report_ttl");
        let bad = Tuning { horizons: [Micros(2), Micros(1), Micros(3)], ..Tuning::default() };
        assert_eq!(bad.checked().unwrap_err().field, "horizons");
        assert!(Tuning::default().checked().is_ok());
    }

    #[test]
    fn ejections_double_up_to_the_cap() {
        let tuning = Tuning::default();
        let secs = |n| tuning.ejection(n).0 / 1_000_000;
        assert_eq!([secs(0), secs(1), secs(3), secs(4), secs(255)], [5, 10, 40, 60, 60]);
    }
}
