//! Quantities with their units. Decides nothing; keeps a duration from being
//! passed where a load is meant. All arithmetic saturates, because a record
//! read back from disk may hold any value.

use core::fmt;

/// A value outside its type's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// The quantity that was being made.
    pub what: &'static str,
    /// The value given.
    pub got: u64,
    /// The smallest value accepted.
    pub min: u64,
    /// The largest value accepted.
    pub max: u64,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, got, min, max } = self;
        write!(f, "{what} must be within {min}..={max}, got {got}")
    }
}

impl core::error::Error for OutOfRange {}

/// A duration in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest duration.
    pub const MAX: Self = Self(u64::MAX);

    /// A duration of so many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// A duration of so many seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// The sum, at most [`Micros::MAX`].
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// So many times this duration.
    pub const fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }

    /// This duration scaled by a ratio, rounded down.
    pub fn scaled(self, by: Permille) -> Self {
        Self(mul_div(self.0, u64::from(by.0), 1_000))
    }

    /// The expectation of a cost that is paid with probability `p`.
    pub fn expected(self, p: Probability) -> Self {
        Self(mul_div(self.0, u64::from(p.0), u64::from(Probability::ONE.0)))
    }
}

impl From<core::time::Duration> for Micros {
    /// Whole microseconds, at most [`Micros::MAX`].
    fn from(span: core::time::Duration) -> Self {
        Self(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}ms", self.0 / 1_000, self.0 % 1_000)
    }
}

/// A point in time: monotonic microseconds since the process started, given
/// by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Time since `earlier`; zero when `earlier` lies ahead.
    pub const fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }

    /// The point `by` later.
    pub const fn after(self, by: Micros) -> Self {
        Self(self.0.saturating_add(by.0))
    }
}

/// A count of requests in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rif(pub u32);

/// A load in thousandths of a request in flight: reports age in fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MilliRif(pub u64);

impl MilliRif {
    /// No load.
    pub const ZERO: Self = Self(0);

    /// The sum, saturating.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Whole requests, rounded up.
    pub const fn ceil(self) -> Rif {
        let whole = self.0.div_ceil(1_000);
        Rif(if whole > u32::MAX as u64 { u32::MAX } else { whole as u32 })
    }

    /// Whole requests, rounded down.
    pub const fn floor(self) -> Rif {
        let whole = self.0 / 1_000;
        Rif(if whole > u32::MAX as u64 { u32::MAX } else { whole as u32 })
    }

    /// This load scaled by a ratio, rounded up.
    pub fn scaled(self, by: Permille) -> Self {
        let product = u128::from(self.0) * u128::from(by.0);
        Self(u64::try_from(product.div_ceil(1_000)).unwrap_or(u64::MAX))
    }
}

impl From<Rif> for MilliRif {
    fn from(rif: Rif) -> Self {
        Self(u64::from(rif.0) * 1_000)
    }
}

impl fmt::Display for MilliRif {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

/// A ratio in thousandths; may exceed one (1,600 is 1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permille(pub u32);

impl Permille {
    /// The ratio one.
    pub const ONE: Self = Self(1_000);
}

/// A probability or share in parts per million, never above one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u32);

impl Probability {
    /// Impossible.
    pub const ZERO: Self = Self(0);
    /// Certain.
    pub const ONE: Self = Self(1_000_000);

    /// From parts per million.
    ///
    /// # Errors
    /// When above 1,000,000.
    pub const fn from_ppm(ppm: u32) -> Result<Self, OutOfRange> {
        if ppm > Self::ONE.0 {
            return Err(OutOfRange {
                what: "probability (ppm)",
                got: ppm as u64,
                min: 0,
                max: 1_000_000,
            });
        }
        Ok(Self(ppm))
    }

    /// From whole per cent, values above 100 taken as 100.
    pub const fn percent(percent: u8) -> Self {
        Self(if percent > 100 { 1_000_000 } else { percent as u32 * 10_000 })
    }

    /// Parts per million.
    pub const fn ppm(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:04}%", self.0 / 10_000, self.0 % 10_000)
    }
}

/// The price of one request at a node: thousandths of the operator's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millicost(pub u32);

/// Carbon intensity of a node's power: grams of CO2 per kilowatt-hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GramsPerKwh(pub u32);

/// A distance in metres.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metres(pub u64);

/// A node's share of the work relative to its peers, 1..=10,000. A node that
/// should get nothing is drained, not weighted zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u16);

impl Weight {
    /// The usual weight, 100.
    pub const NORMAL: Self = Self(100);

    /// A weight.
    ///
    /// # Errors
    /// When zero or above 10,000.
    pub const fn new(weight: u16) -> Result<Self, OutOfRange> {
        if weight == 0 || weight > 10_000 {
            return Err(OutOfRange { what: "weight", got: weight as u64, min: 1, max: 10_000 });
        }
        Ok(Self(weight))
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// Requests a node executes at once, 1..=65,535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workers(u16);

impl Workers {
    /// One worker.
    pub const ONE: Self = Self(1);

    /// A number of workers.
    ///
    /// # Errors
    /// When zero.
    pub const fn new(workers: u16) -> Result<Self, OutOfRange> {
        if workers == 0 {
            return Err(OutOfRange { what: "workers", got: 0, min: 1, max: u16::MAX as u64 });
        }
        Ok(Self(workers))
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// `a * b / c` without overflow, rounded down, saturating; zero when `c` is zero.
pub(crate) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    if c == 0 {
        return 0;
    }
    // The 64-bit path covers every realistic value and avoids a slow wide division.
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_refused_with_the_value_and_the_bounds() {
        use std::string::ToString;
        let err = Probability::from_ppm(1_000_001).unwrap_err();
        assert_eq!(err.to_string(), "probability (ppm) must be within 0..=1000000, got 1000001");
        assert!(Weight::new(0).is_err() && Weight::new(10_001).is_err());
        assert!(Workers::new(0).is_err() && Workers::new(u16::MAX).is_ok());
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Micros::MAX.plus(Micros(1)), Micros::MAX);
        assert_eq!(Micros(1).minus(Micros(2)), Micros::ZERO);
        assert_eq!(Micros::MAX.scaled(Permille(2_000)), Micros::MAX);
        assert_eq!(Micros(1_000).scaled(Permille(1_100)), Micros(1_100));
        assert_eq!(MilliRif(u64::MAX).scaled(Permille(1_600)), MilliRif(u64::MAX));
        assert_eq!(MilliRif(1_001).ceil(), Rif(2));
        assert_eq!(MilliRif(u64::MAX).floor(), Rif(u32::MAX));
        assert_eq!(mul_div(u64::MAX, 6, 3), u64::MAX);
        assert_eq!(mul_div(7, 3, 0), 0);
    }

    #[test]
    fn expectation_is_linear_in_the_probability() {
        let cost = Micros::from_millis(80);
        assert_eq!(cost.expected(Probability::ZERO), Micros::ZERO);
        assert_eq!(cost.expected(Probability::percent(25)), Micros::from_millis(20));
        assert_eq!(cost.expected(Probability::ONE), cost);
    }
}
