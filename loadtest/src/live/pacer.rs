//! Releases the requests of an open loop at their times. It runs on a thread of its own, because
//! the runtime's timer is only good to a millisecond, which is more than an edge answer takes.

use std::{
    thread::park_timeout,
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Longest wait before cancellation is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Adds one permit to `turns` at each of `times` after `start`, ascending, until `stop`.
pub(super) fn run(start: Instant, times: &[Duration], turns: &Semaphore, stop: &CancellationToken) {
    for time in times {
        let due = start + *time;
        loop {
            if stop.is_cancelled() {
                return;
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            park_timeout(left.min(LOOK));
        }
        turns.add_permits(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_each_turn_at_its_time_and_stops_when_told() {
        let turns = Semaphore::new(0);
        let times = [0, 2, 2, 5].map(Duration::from_millis);
        let start = Instant::now();
        run(start, &times, &turns, &CancellationToken::new());
        assert!(start.elapsed() >= times[3]);
        assert_eq!(turns.available_permits(), 4);

        let stop = CancellationToken::new();
        stop.cancel();
        run(start, &[Duration::from_secs(3600)], &turns, &stop);
        assert_eq!(turns.available_permits(), 4);
    }
}
