//! How often values occurred, in bounded memory, whatever their range and their order. Bins start
//! at multiples of a power of two; when a value is too large for them, neighbours are joined until
//! it fits. So the bins depend on the values alone. Values that are not finite are left out.

/// Bins on each side of zero.
const HALF: usize = 1 << HALF_BITS;
const HALF_BITS: i32 = 11;
/// Exponent of bins so narrow that only zeros fit: below it there is no `f32`.
const NARROWEST: i32 = -165;

/// Counts of values.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    /// Bins are `2^exponent` wide.
    exponent: i32,
    counts: Vec<u32>,
    count: u64,
    lo: f32,
    hi: f32,
}

/// A bin that is not empty: its middle, and the values in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bin {
    pub(super) middle: f64,
    pub(super) count: f64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        let (lo, hi) = (f32::INFINITY, f32::NEG_INFINITY);
        Self { exponent: NARROWEST, counts: vec![], count: 0, lo, hi }
    }

    pub(super) fn add(&mut self, values: &[f32]) {
        for value in values.iter().filter(|value| value.is_finite()) {
            if self.counts.is_empty() {
                self.counts = vec![0; 2 * HALF];
            }
            self.widen(needed(*value));
            let bin = self.bin_of(f64::from(*value));
            self.counts[bin] = self.counts[bin].saturating_add(1);
            self.count += 1;
            (self.lo, self.hi) = (self.lo.min(*value), self.hi.max(*value));
        }
    }

    /// Takes over all values of another.
    pub(super) fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = other.clone();
            return;
        }
        self.widen(other.exponent);
        for (index, count) in other.counts.iter().enumerate() {
            let bin = joined(index, self.exponent - other.exponent);
            self.counts[bin] = self.counts[bin].saturating_add(*count);
        }
        self.count += other.count;
        (self.lo, self.hi) = (self.lo.min(other.lo), self.hi.max(other.hi));
    }

    /// Least and largest value; none without values.
    pub(super) fn bounds(&self) -> Option<(f32, f32)> {
        (self.count > 0).then_some((self.lo, self.hi))
    }

    /// The range outside of which at most this share of the values lies on each side, to the
    /// width of a bin.
    pub(super) fn within(&self, share: f64) -> Option<(f32, f32)> {
        let (lo, hi) = self.bounds()?;
        let most = (share.clamp(0.0, 0.5) * self.count as f64).floor() as u64;
        let low = passed(self.counts.iter(), most)?;
        let high = 2 * HALF - passed(self.counts.iter().rev(), most)?;
        Some((lo.max(self.edge(low) as f32), hi.min(self.edge(high) as f32)))
    }

    /// The bins that are not empty, in order.
    pub(super) fn bins(&self) -> impl Iterator<Item = Bin> {
        let width = self.width();
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(
            move |(index, count)| {
                let middle = self.edge(index) + width / 2.0;
                // No value lies outside of the bounds, so no bin's middle should.
                let middle = middle.clamp(f64::from(self.lo), f64::from(self.hi));
                Bin { middle, count: f64::from(*count) }
            },
        )
    }

    fn width(&self) -> f64 {
        f64::from(self.exponent).exp2()
    }

    fn edge(&self, bin: usize) -> f64 {
        (bin as f64 - HALF as f64) * self.width()
    }

    fn bin_of(&self, value: f64) -> usize {
        let bin = (value / self.width()).floor() + HALF as f64;
        (bin.max(0.0) as usize).min(2 * HALF - 1)
    }

    fn widen(&mut self, exponent: i32) {
        if exponent <= self.exponent {
            return;
        }
        let mut counts = vec![0u32; self.counts.len()];
        for (index, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let bin = joined(index, exponent - self.exponent);
            counts[bin] = counts[bin].saturating_add(*count);
        }
        (self.counts, self.exponent) = (counts, exponent);
    }
}

/// The first bin with which more than `most` values are counted.
fn passed<'a>(mut counts: impl Iterator<Item = &'a u32>, most: u64) -> Option<usize> {
    let mut sum = 0;
    counts.position(|count| {
        sum += u64::from(*count);
        sum > most
    })
}

/// The bin that takes over `bin` when bins become `2^by` times as wide.
fn joined(bin: usize, by: i32) -> usize {
    let signed = bin as i64 - HALF as i64;
    ((signed >> by.clamp(0, 63)) + HALF as i64) as usize
}

/// The least exponent of bins that hold a finite value.
fn needed(value: f32) -> i32 {
    if value == 0.0 {
        return NARROWEST;
    }
    let exponent = ((f64::from(value).to_bits() >> 52) & 0x7ff) as i32 - 1023;
    exponent + 1 - HALF_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f32]) -> Histogram {
        let mut histogram = Histogram::new();
        histogram.add(values);
        histogram
    }

    fn counts(histogram: &Histogram) -> (Vec<u32>, i32) {
        (histogram.counts.clone(), histogram.exponent)
    }

    #[test]
    fn order_and_parts_do_not_matter() {
        let values: Vec<f32> =
            (0..500).map(|i| (i as f32 * 0.37).sin() * (i as f32 * 0.05).exp2()).collect();
        let mut backward = values.clone();
        backward.reverse();
        let whole = of(&values);
        assert_eq!(counts(&whole), counts(&of(&backward)));
        let mut parts = of(&values[..7]);
        parts.merge(&of(&values[7..]));
        assert_eq!(counts(&whole), counts(&parts));
        assert_eq!(whole.bounds(), parts.bounds());
    }

    #[test]
    fn every_value_lies_in_its_bin() {
        for value in [0.0, 1.0, -1.0, 0.999, -6.0, 1e-40, f32::MAX, f32::MIN, -0.0, 3.7e-12] {
            let histogram = of(&[value]);
            let bin = histogram.bin_of(f64::from(value));
            let (low, high) = (histogram.edge(bin), histogram.edge(bin + 1));
            assert!((low..high).contains(&f64::from(value)), "{value} is not in {low}..{high}");
            assert_eq!(histogram.within(0.0), Some((value, value)));
        }
    }

    #[test]
    fn tails_are_cut_by_their_share() {
        let values: Vec<f32> = (0..1000).map(|i| i as f32).collect();
        let (lo, hi) = of(&values).within(0.01).unwrap();
        assert!((lo - 10.0).abs() <= 1.0 && (hi - 989.0).abs() <= 2.0, "{lo}..{hi}");
        assert_eq!(of(&values).within(0.0), Some((0.0, 999.0)));
        assert_eq!(of(&[f32::NAN, f32::INFINITY]).within(0.0), None);
        assert_eq!(Histogram::new().bounds(), None);
    }

    #[test]
    fn what_is_not_finite_is_left_out() {
        assert_eq!(of(&[1.0, f32::NAN, f32::NEG_INFINITY, 2.0]).bounds(), Some((1.0, 2.0)));
    }
}
