//! `nearest`: the smallest smoothed round trip, as probed.
//!
//! Order: nodes with a measured round trip by it [us]; then those whose round
//! trip follows from their distance; then those of which nothing is known;
//! ties by node key. Bound: only the hard limit of requests per worker, so it
//! overloads a popular place: the baseline to compare with. The seed, the key
//! and the load play no part. Source: the usual practice of latency-based DNS
//! and anycast.

use super::{Common, Eligible, PerCandidate, Rated};
use crate::units::Rif;

/// Parameters of `nearest`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nearest {
    /// What every policy has.
    pub common: Common,
}

impl Nearest {
    pub(super) fn rate(
        &self,
        eligible: &PerCandidate<Eligible<'_>>,
        rated: &mut PerCandidate<Rated>,
    ) {
        for Eligible { at, candidate: c, .. } in eligible.iter().flatten() {
            let order = [c.rtt.source as u64, c.rtt.value.0, c.node.0, 0];
            rated[*at] = Some(Rated { over: false, cap: Rif(u32::MAX), order });
        }
    }
}
