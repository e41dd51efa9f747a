//! Seeded randomness (SplitMix64): the same seed gives the same numbers on every machine. Never
//! seeds itself.

/// A SplitMix64 generator; statistics, not secrets.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `0..bound`; `bound` must not be 0. The multiply-shift bias is below 2^-32 for
    /// every bound used here.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0);
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in the half-open interval (0, 1].
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sequence_and_bounds() {
        // The reference values of SplitMix64 for seed 1234567.
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.next(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next(), 3_203_168_211_198_807_973);
        for _ in 0..1000 {
            assert!(rng.below(7) < 7);
            let unit = rng.unit();
            assert!(unit > 0.0 && unit <= 1.0);
        }
    }
}
