//! A slower device than the one at hand: after a run its worker is held until the run has taken
//! `k` times as long. It is held by a busy loop: sleeping is late by more than a small model's
//! run takes, and a slow core is a busy one, so that neighbours on the machine feel the same.

use std::time::{Duration, Instant};

use midspan_runtime::{Executor, RunError, Tensor, TensorRef, TensorSpec};

/// How many times slower, 1 to 1000.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowdown(f64);

impl Slowdown {
    /// As the device is.
    pub const NONE: Self = Self(1.0);

    /// `times` slower; none when that is not 1 to 1000.
    pub fn new(times: f64) -> Option<Self> {
        (1.0..=1000.0).contains(&times).then_some(Self(times))
    }

    /// How many times.
    pub fn times(self) -> f64 {
        self.0
    }

    /// Does something and holds this thread for as long as a slower device would need in addition.
    /// Gives the result and the time of both.
    pub fn take<T>(self, work: impl FnOnce() -> T) -> (T, Duration) {
        let start = Instant::now();
        let result = work();
        let until = start.elapsed().mul_f64(self.0);
        while start.elapsed() < until {
            std::hint::spin_loop();
        }
        (result, start.elapsed())
    }
}

/// An executor on a slower device.
pub struct Slow<E> {
    inner: E,
    slowdown: Slowdown,
}

impl<E: Executor> Slow<E> {
    /// Runs `inner` so many times slower.
    pub fn new(inner: E, slowdown: Slowdown) -> Self {
        Self { inner, slowdown }
    }
}

impl<E: Executor> Executor for Slow<E> {
    fn inputs(&self) -> &[TensorSpec] {
        self.inner.inputs()
    }

    fn outputs(&self) -> &[TensorSpec] {
        self.inner.outputs()
    }

    fn run(&mut self, inputs: &[(&str, TensorRef<'_>)]) -> Result<Vec<Tensor>, RunError> {
        self.slowdown.take(|| self.inner.run(inputs)).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_executor_takes_so_many_times_as_long() {
        let mut inner = Duration::ZERO;
        let (answer, whole) = Slowdown::new(5.0).unwrap().take(|| {
            let start = Instant::now();
            let sum: u64 = std::hint::black_box((0..200_000_u64).sum());
            inner = start.elapsed();
            sum
        });
        assert_eq!(answer, 19_999_900_000);
        assert!(whole >= inner * 5, "{whole:?} against {inner:?}");
        assert_eq!(Slowdown::new(0.5), None);
        assert_eq!(Slowdown::new(f64::NAN), None);
    }
}
