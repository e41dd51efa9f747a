//! N executors of one model, one per worker thread of the caller. A worker always uses its own,
//! so its lock is uncontended; the lock only makes the pool shareable. A panic costs one run. The
//! pool must not own threads or choose workers: that is the batcher's business.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use crate::executor::{Executor, RunError};
use crate::tensor::{Tensor, TensorRef, TensorSpec};

/// Executors of one model, each behind its own lock.
pub struct SessionPool {
    workers: Vec<Mutex<Box<dyn Executor>>>,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
}

impl SessionPool {
    /// Makes `n` executors (at least one) by calling `make` for each.
    ///
    /// # Errors
    /// The first error of `make`.
    pub fn new<E>(
        n: usize,
        mut make: impl FnMut() -> Result<Box<dyn Executor>, E>,
    ) -> Result<Self, E> {
        let first = make()?;
        let (inputs, outputs) = (first.inputs().to_vec(), first.outputs().to_vec());
        let mut workers = vec![Mutex::new(first)];
        for _ in 1..n {
            workers.push(Mutex::new(make()?));
        }
        Ok(Self { workers, inputs, outputs })
    }

    /// Number of workers, at least one.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// What the model reads.
    pub fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    /// What the model answers.
    pub fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    /// Runs the model on the executor of `worker`, counted from 0. Blocks while that worker runs
    /// something else.
    ///
    /// # Errors
    /// As [`Executor::run`]; [`RunError::Panicked`] when it panicked, [`RunError::NoWorker`] when
    /// there is no such worker.
    pub fn run_on(
        &self,
        worker: usize,
        inputs: &[(&str, TensorRef<'_>)],
    ) -> Result<Vec<Tensor>, RunError> {
        let Some(executor) = self.workers.get(worker) else {
            return Err(RunError::NoWorker { worker, workers: self.workers.len() });
        };
        let mut executor = executor.lock().unwrap_or_else(PoisonError::into_inner);
        // An executor keeps nothing of one run for the next, so that one which unwound may go on.
        catch_unwind(AssertUnwindSafe(|| executor.run(inputs)))
            .unwrap_or_else(|panic| Err(RunError::Panicked(panic_text(&*panic))))
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Scripted;

    #[test]
    fn a_panic_costs_one_run_and_one_worker_at_most() {
        let pool = SessionPool::new(2, || {
            let mut first = true;
            let executor = Scripted::new(vec![], vec![], move |_| {
                if std::mem::take(&mut first) {
                    panic!("boom {}", 1);
                }
                Ok(vec![])
            });
            Ok::<_, RunError>(Box::new(executor) as Box<dyn Executor>)
        })
        .unwrap();
        assert_eq!(pool.workers(), 2);
        for worker in 0..2 {
            assert_eq!(pool.run_on(worker, &[]), Err(RunError::Panicked("boom 1".into())));
            assert_eq!(pool.run_on(worker, &[]), Ok(vec![]));
        }
        assert_eq!(pool.run_on(2, &[]), Err(RunError::NoWorker { worker: 2, workers: 2 }));
    }

    #[test]
    fn the_error_of_a_maker_is_passed_on() {
        let mut made = 0;
        let result = SessionPool::new(3, || {
            made += 1;
            if made == 3 {
                return Err("out of memory");
            }
            Ok(Box::new(Scripted::new(vec![], vec![], |_| Ok(vec![]))) as Box<dyn Executor>)
        });
        assert_eq!(result.err(), Some("out of memory"));
    }
}
