//! A node's health as one atomic word. Decides how states follow each other
//! for one node; what needs a view of the fleet (how many may be out at once)
//! is decided by `sweep`. Dead, busy and not allowed are different things:
//! load and residency never appear here.

use crate::units::{Micros, Permille, Timestamp};

/// Health of a node as this router sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Nothing is wrong.
    #[default]
    Healthy,
    /// The last probe failed; chosen with a penalty.
    Suspect,
    /// Failed requests too often; gets nothing until then.
    Ejected {
        /// When it may be tried again.
        until: Timestamp,
    },
    /// Was ejected and is tried with one request at a time.
    HalfOpen {
        /// Since when.
        since: Timestamp,
    },
    /// Came back and gets a growing share of the load.
    SlowStart {
        /// Since when.
        from: Timestamp,
    },
    /// Said that it takes nothing new.
    Draining,
    /// Does not answer probes.
    Dead {
        /// Since when.
        since: Timestamp,
    },
}

const TAG_SHIFT: u32 = 61;
const TIME_MASK: u64 = (1 << TAG_SHIFT) - 1;

impl Health {
    /// Its name in renderings and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Suspect => "suspect",
            Self::Ejected { .. } => "ejected",
            Self::HalfOpen { .. } => "half_open",
            Self::SlowStart { .. } => "slow_start",
            Self::Draining => "draining",
            Self::Dead { .. } => "dead",
        }
    }

    /// Whether the node may be given requests.
    pub const fn usable(self) -> bool {
        matches!(
            self,
            Self::Healthy | Self::Suspect | Self::HalfOpen { .. } | Self::SlowStart { .. }
        )
    }

    /// The part of the node's capacity that may be used: from a tenth to all
    /// over a slow start of length `over`.
    pub fn ramp(self, now: Timestamp, over: Micros) -> Permille {
        match self {
            Self::SlowStart { from } if over > Micros::ZERO => {
                let elapsed = now.since(from).0.min(over.0);
                let done = crate::units::mul_div(elapsed, 1_000, over.0) as u32;
                Permille(done.max(100))
            }
            Self::HalfOpen { .. } => Permille(100),
            _ => Permille::ONE,
        }
    }

    pub(crate) fn pack(self) -> u64 {
        let (tag, time) = match self {
            Self::Healthy => (0, 0),
            Self::Suspect => (1, 0),
            Self::Ejected { until } => (2, until.0),
            Self::HalfOpen { since } => (3, since.0),
            Self::SlowStart { from } => (4, from.0),
            Self::Draining => (5, 0),
            Self::Dead { since } => (6, since.0),
        };
        (tag << TAG_SHIFT) | time.min(TIME_MASK)
    }

    /// None for a word that [`Health::pack`] does not make.
    pub(crate) fn unpack(word: u64) -> Option<Self> {
        let time = Timestamp(word & TIME_MASK);
        let health = match word >> TAG_SHIFT {
            0 => Self::Healthy,
            1 => Self::Suspect,
            2 => Self::Ejected { until: time },
            3 => Self::HalfOpen { since: time },
            4 => Self::SlowStart { from: time },
            5 => Self::Draining,
            6 => Self::Dead { since: time },
            _ => return None,
        };
        (health.pack() == word).then_some(health)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_survives_the_word() {
        let t = Timestamp(123_456_789);
        for health in [
            Health::Healthy,
            Health::Suspect,
            Health::Ejected { until: t },
            Health::HalfOpen { since: t },
            Health::SlowStart { from: t },
            Health::Draining,
            Health::Dead { since: t },
        ] {
            assert_eq!(Health::unpack(health.pack()), Some(health));
        }
        assert_eq!(Health::unpack(7 << TAG_SHIFT), None);
        assert_eq!(Health::unpack(1), None, "a healthy node has no time");
    }

    #[test]
    fn slow_start_ramps_from_a_tenth_to_all() {
        let state = Health::SlowStart { from: Timestamp(1_000_000) };
        let at = |t| state.ramp(Timestamp(t), Micros(10_000_000)).0;
        assert_eq!([at(0), at(1_000_000), at(6_000_000), at(99_000_000)], [100, 100, 500, 1_000]);
        assert_eq!(state.ramp(Timestamp(0), Micros::ZERO), Permille::ONE);
    }
}
