//! Exact bounds of a probability from counts: Clopper and Pearson, "The use of confidence or
//! fiducial limits illustrated in the case of the binomial", Biometrika 26 (1934). One-sided. Pure.

use statrs::distribution::{Beta, Binomial, ContinuousCDF as _, DiscreteCDF as _};

/// Confidences nearer to 0 and 1 than this count as this near: beyond it the library gives up.
const LEAST: f64 = 1e-12;

/// The largest probability that is not refuted by `hits` of `trials` at this confidence (0 to 1).
/// 1 when there were no trials.
pub fn upper_bound(hits: u64, trials: u64, confidence: f64) -> f64 {
    if hits >= trials {
        return 1.0;
    }
    let beta = Beta::new(hits as f64 + 1.0, (trials - hits) as f64);
    beta.map_or(1.0, |beta| beta.inverse_cdf(confidence.clamp(LEAST, 1.0 - LEAST)))
}

/// The smallest probability that is not refuted by `hits` of `trials` at this confidence (0 to 1).
/// 0 when there were no trials.
pub fn lower_bound(hits: u64, trials: u64, confidence: f64) -> f64 {
    let hits = hits.min(trials);
    if hits == 0 {
        return 0.0;
    }
    let beta = Beta::new(hits as f64, (trials - hits) as f64 + 1.0);
    beta.map_or(0.0, |beta| beta.inverse_cdf((1.0 - confidence).clamp(LEAST, 1.0 - LEAST)))
}

/// The probability of at most `hits` of `trials` where each has probability `p` (0 to 1): the
/// p-value of "the probability is above `p`".
pub fn binomial_tail(hits: u64, trials: u64, p: f64) -> f64 {
    Binomial::new(p.clamp(0.0, 1.0), trials).map_or(1.0, |binomial| binomial.cdf(hits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, expected: f64) {
        assert!((got - expected).abs() < 1e-6, "{got} is not {expected}");
    }

    #[test]
    fn bounds_are_those_of_closed_forms() {
        // Without a miss the lower bound is the root of 1 - confidence.
        close(lower_bound(115, 115, 0.95), 0.05f64.powf(1.0 / 115.0));
        close(upper_bound(0, 59, 0.95), 1.0 - 0.05f64.powf(1.0 / 59.0));
        close(upper_bound(1, 2, 0.95), 0.95f64.sqrt());
        assert_eq!((upper_bound(5, 5, 0.95), lower_bound(0, 5, 0.95)), (1.0, 0.0));
        assert_eq!((upper_bound(0, 0, 0.95), lower_bound(0, 0, 0.95)), (1.0, 0.0));
    }

    #[test]
    fn tails_sum_the_binomial() {
        close(binomial_tail(0, 10, 0.1), 0.9f64.powi(10));
        close(binomial_tail(1, 3, 0.5), 0.5);
        close(binomial_tail(3, 3, 0.5), 1.0);
        close(binomial_tail(0, 3, 0.0), 1.0);
    }

    #[test]
    fn the_bound_is_where_the_tail_is_one_minus_the_confidence() {
        for (hits, trials) in [(0, 20), (7, 500), (50, 5000)] {
            let bound = upper_bound(hits, trials, 0.95);
            assert!((binomial_tail(hits, trials, bound) - 0.05).abs() < 1e-6);
        }
    }
}
