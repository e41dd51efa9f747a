//! When bytes leave a line of limited bandwidth, and when they arrive. Formula: departure =
//! max(now, line free) + bytes / rate; arrival = departure + rtt / 2 + uniform(0..jitter). Order is
//! the queue's business, in [`super::pump`]. Time comes in as an argument; no IO.

use std::time::Duration;

use tokio::time::Instant;

use super::{BitsPerSecond, LinkSpec};
use crate::rng::Rng;

/// One direction's line, shared by all connections: first come, first served.
#[derive(Debug)]
pub(super) struct Shaper {
    free: Instant,
}

impl Shaper {
    pub(super) fn new(now: Instant) -> Self {
        Self { free: now }
    }

    /// Forgets what occupies the line: an outage lost it and it is sent again.
    pub(super) fn restart(&mut self, now: Instant) {
        self.free = now;
    }

    /// Puts `bytes` on the line at `now` or when it is free; returns when the last bit has left.
    pub(super) fn reserve(
        &mut self,
        now: Instant,
        bytes: usize,
        rate: Option<BitsPerSecond>,
    ) -> Instant {
        self.free = self.free.max(now) + rate.map_or(Duration::ZERO, |rate| rate.time_for(bytes));
        self.free
    }
}

/// A draw of the one-way delay.
pub(super) fn one_way(spec: &LinkSpec, rng: &mut Rng) -> Duration {
    let jitter = u64::try_from(spec.jitter.as_nanos()).unwrap_or(u64::MAX);
    let extra = if jitter == 0 { 0 } else { rng.below(jitter) };
    spec.rtt / 2 + Duration::from_nanos(extra)
}

/// Most bytes that are put on the line at once: one millisecond's worth, so that connections take
/// turns, but no less than a packet.
pub(super) fn quantum(rate: Option<BitsPerSecond>) -> usize {
    const PACKET: usize = 1460;
    const MAX: usize = 64 << 10;
    rate.map_or(MAX, |rate| {
        usize::try_from(rate.bytes_in(Duration::from_millis(1))).unwrap_or(MAX).clamp(PACKET, MAX)
    })
}

/// Bytes of one connection that one direction holds before its sender is held back: twice the
/// bandwidth-delay product, so that the delay costs no throughput.
pub(super) fn window(rate: Option<BitsPerSecond>, spec: &LinkSpec) -> usize {
    const MIN: usize = 64 << 10;
    const MAX: usize = 4 << 20;
    rate.map_or(MAX, |rate| {
        let product = rate.bytes_in(spec.rtt + spec.jitter).saturating_mul(2);
        usize::try_from(product).unwrap_or(MAX).clamp(MIN, MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_one_queue() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let rate = BitsPerSecond::new(8_000); // one byte per millisecond
        let mut line = Shaper::new(start);
        assert_eq!(line.reserve(start, 10, rate), start + ms(10));
        assert_eq!(line.reserve(start + ms(4), 10, rate), start + ms(20), "waits for the first");
        assert_eq!(line.reserve(start + ms(50), 10, rate), start + ms(60), "idle time is lost");
        assert_eq!(line.reserve(start, 10, None), start + ms(60), "unlimited, yet behind");
        line.restart(start + ms(5));
        assert_eq!(line.reserve(start + ms(5), 1, rate), start + ms(6));
    }

    #[test]
    fn delay_is_half_the_round_trip_plus_bounded_seeded_jitter() {
        let ms = Duration::from_millis;
        let spec = LinkSpec { rtt: ms(50), jitter: ms(10), ..LinkSpec::default() };
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            (0..200).map(|_| one_way(&spec, &mut rng)).collect::<Vec<_>>()
        };
        let delays = draw(7);
        assert_eq!(delays, draw(7));
        assert_ne!(delays, draw(8));
        assert!(delays.iter().all(|delay| (ms(25)..ms(35)).contains(delay)));
        assert!(delays.iter().any(|delay| *delay > ms(33)) && delays.iter().min() < Some(&ms(27)));
    }

    #[test]
    fn quantum_and_window_are_bounded() {
        let mbps = |n: u64| BitsPerSecond::new(n * 1_000_000);
        let spec = LinkSpec { rtt: Duration::from_millis(100), ..LinkSpec::default() };
        assert_eq!((quantum(mbps(1)), quantum(mbps(80)), quantum(None)), (1460, 10_000, 65_536));
        assert_eq!(window(mbps(1), &spec), 65_536);
        assert_eq!(window(mbps(80), &spec), 2_000_000);
        assert_eq!(window(BitsPerSecond::new(BitsPerSecond::MAX.get()), &spec), 4 << 20);
    }
}
