//! Times of repeated runs and their spread. Pure.

use serde::{Deserialize, Serialize};

/// What repeated runs took, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// Runs measured, those for warming up not counted.
    pub runs: usize,
    /// Shortest.
    pub min_us: f64,
    /// First quartile.
    pub q1_us: f64,
    /// Median.
    pub median_us: f64,
    /// Third quartile.
    pub q3_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
}

/// A tenth of a nanosecond is nothing that a clock says.
fn rounded(us: f64) -> f64 {
    (us * 1000.0).round() / 1000.0
}

impl Timing {
    /// Of runs in microseconds; none of no runs.
    pub fn of(mut us: Vec<f64>) -> Option<Self> {
        if us.is_empty() {
            return None;
        }
        us.sort_by(f64::total_cmp);
        // Linear between the two neighbours, as most statistics programs do.
        let at = |share: f64| {
            let place = share * (us.len() - 1) as f64;
            let (low, high) = (place.floor() as usize, place.ceil() as usize);
            rounded(us[low] + (us[high] - us[low]) * place.fract())
        };
        Some(Self {
            runs: us.len(),
            min_us: at(0.0),
            q1_us: at(0.25),
            median_us: at(0.5),
            q3_us: at(0.75),
            p95_us: at(0.95),
        })
    }

    /// The middle half of the runs lies within this share of the median.
    pub fn spread(&self) -> f64 {
        (self.q3_us - self.q1_us) / self.median_us.max(f64::MIN_POSITIVE)
    }

    /// Whether the numbers can be times of runs.
    pub(super) fn is_sound(&self) -> bool {
        let times = [0.0, self.min_us, self.q1_us, self.median_us, self.q3_us, self.p95_us];
        self.runs > 0 && self.p95_us.is_finite() && times.is_sorted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_linear_between_runs() {
        let timing = Timing::of(vec![5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((timing.min_us, timing.q1_us, timing.median_us), (1.0, 2.0, 3.0));
        assert_eq!((timing.q3_us, timing.p95_us, timing.runs), (4.0, 4.8, 5));
        assert!((timing.spread() - 2.0 / 3.0).abs() < 1e-12);
        assert!(timing.is_sound());
        assert!(!Timing { q1_us: 3.5, ..timing }.is_sound());
        assert!(!Timing { p95_us: f64::NAN, ..timing }.is_sound());
        assert_eq!(Timing::of(vec![]), None);
    }
}
