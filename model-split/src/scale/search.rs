//! The range of least mean squared error of a histogram. Both ends are searched on a grid between
//! the mean and the bounds, first coarse, then fine around the best.

use super::histogram::Histogram;

/// Ends tried on each side, in each of the two passes.
const GRID: usize = 40;

/// Sums over all bins up to one, so that a range is judged in two look-ups.
struct Sums {
    middles: Vec<f64>,
    /// Count, sum and sum of squares of the bins before each.
    before: Vec<[f64; 3]>,
}

impl Sums {
    fn of(values: &Histogram) -> Self {
        let (mut middles, mut before, mut sum) = (vec![], vec![[0.0; 3]], [0.0; 3]);
        for bin in values.bins() {
            middles.push(bin.middle);
            for (power, part) in sum.iter_mut().enumerate() {
                *part += bin.count * bin.middle.powi(power as i32);
            }
            before.push(sum);
        }
        Self { middles, before }
    }

    /// Sum of the squared errors of a range at this many steps.
    fn error(&self, lo: f64, hi: f64, steps: f64) -> f64 {
        let all = self.before[self.middles.len()];
        let below = self.before[self.middles.partition_point(|middle| *middle < lo)];
        let inside = self.before[self.middles.partition_point(|middle| *middle <= hi)];
        let above = [all[0] - inside[0], all[1] - inside[1], all[2] - inside[2]];
        let distance =
            |end: f64, part: [f64; 3]| part[2] - 2.0 * end * part[1] + end * end * part[0];
        let step = (hi - lo) / steps;
        distance(lo, below) + distance(hi, above) + (inside[0] - below[0]) * step * step / 12.0
    }
}

/// The range; none without values.
pub(super) fn least_error(values: &Histogram, bits: u8) -> Option<(f32, f32)> {
    let (least, most) = values.bounds()?;
    let (lo, hi) = (f64::from(least), f64::from(most));
    let sums = Sums::of(values);
    let [count, sum, _] = *sums.before.last()?;
    let mean = (sum / count).clamp(lo, hi);
    let steps = f64::from((1u32 << bits.clamp(1, 8)) - 1);
    // Shares of the way from the mean to each bound.
    let mut best = (f64::INFINITY, 1.0, 1.0);
    let mut pass = |centre: (f64, f64), reach: f64| {
        let at = |middle: f64, index: usize| {
            (middle + reach * (2.0 * index as f64 / GRID as f64 - 1.0)).clamp(0.0, 1.0)
        };
        // From the widest down, so that of equal ranges the widest is kept.
        for low in (0..=GRID).rev().map(|index| at(centre.0, index)) {
            for high in (0..=GRID).rev().map(|index| at(centre.1, index)) {
                let error = sums.error(mean + (lo - mean) * low, mean + (hi - mean) * high, steps);
                if error < best.0 {
                    best = (error, low, high);
                }
            }
        }
        (best.1, best.2)
    };
    let coarse = pass((0.5, 0.5), 0.5);
    let (low, high) = pass(coarse, 1.0 / GRID as f64);
    Some(((mean + (lo - mean) * low) as f32, (mean + (hi - mean) * high) as f32))
}
