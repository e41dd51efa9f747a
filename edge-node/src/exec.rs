//! The threads that run models. Each has a session of its own of every stage; a run is never
//! interrupted, so what should not start is kept out by the queue.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use crate::{
    batch::{self, Blob},
    error::NodeError,
    model::Stage,
    queue::{Done, Job, Queue},
};

/// Running worker threads.
pub(crate) struct Workers {
    /// Closed once the last thread has ended.
    ended: mpsc::Receiver<()>,
}

impl Workers {
    /// Starts `count` threads on `queue`.
    pub(crate) fn start(count: usize, queue: &Arc<Queue>) -> io::Result<Self> {
        let (alive, ended) = mpsc::channel();
        for worker in 0..count {
            let (queue, alive) = (Arc::clone(queue), alive.clone());
            let wait = midspan_net::telemetry::Metric::NodeWaitSeconds.histogram(&[]);
            thread::Builder::new().name(format!("worker-{worker}")).spawn(move || {
                let _alive = alive;
                while let Some(job) = queue.pop() {
                    work(worker, job, &wait);
                }
            })?;
        }
        Ok(Self { ended })
    }

    /// Waits until the closed queue is empty and no run is under way, at most for `grace`. Returns
    /// whether that is so: a run cannot be interrupted, and ends with the process.
    pub(crate) fn join(self, grace: Duration) -> bool {
        self.ended.recv_timeout(grace) == Err(mpsc::RecvTimeoutError::Disconnected)
    }
}

fn work(worker: usize, job: Job, wait: &metrics::Histogram) {
    let started = Instant::now();
    let waited = started.duration_since(job.queued);
    wait.record(waited.as_secs_f64());
    // The pool catches a run's panic; one around it must not cost the node a worker either.
    let outputs = catch_unwind(AssertUnwindSafe(|| run(&job.stage, worker, job.inputs)));
    let outputs =
        outputs.unwrap_or_else(|_panic| Err(NodeError::Execution("the worker failed".into())));
    let ran = started.elapsed();
    job.stage.seconds.record(ran.as_secs_f64());
    let _gone = job.reply.send(outputs.map(|outputs| Done { outputs, waited, ran }));
}

fn run(stage: &Stage, worker: usize, inputs: batch::Named) -> Result<Vec<Blob>, NodeError> {
    let runs = batch::split(inputs, stage.row_by_row)?;
    let runs = runs.iter().map(|inputs| {
        let views = inputs.iter().map(|(name, blob)| Ok((name.as_str(), blob.view()?)));
        let views = views.collect::<Result<Vec<_>, NodeError>>()?;
        let outputs = stage.pool.run_on(worker, &views)?;
        Ok(outputs.into_iter().map(Blob::from_tensor).collect())
    });
    batch::join(runs.collect::<Result<Vec<_>, NodeError>>()?)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use midspan_runtime::{RunError, Scripted, SessionPool};

    use super::*;

    #[test]
    fn a_run_that_goes_on_is_not_waited_for() {
        let (go, waits) = mpsc::channel::<()>();
        let (entered, has_entered) = mpsc::channel();
        let waits = Arc::new(Mutex::new(waits));
        let pool = SessionPool::new(1, || {
            let (waits, entered) = (Arc::clone(&waits), entered.clone());
            let fake = Scripted::new(vec![], vec![], move |_| {
                entered.send(()).unwrap();
                let _gone = waits.lock().unwrap().recv();
                Ok(vec![])
            });
            Ok::<_, RunError>(Box::new(fake) as Box<dyn midspan_runtime::Executor>)
        });
        let stage = Arc::new(Stage::new(pool.unwrap(), "slow", 0));
        let queue = Arc::new(Queue::new(1));
        let workers = Workers::start(1, &queue).unwrap();
        let (reply, _answer) = tokio::sync::oneshot::channel();
        let now = Instant::now();
        let until = now + Duration::from_secs(60);
        let priority = crate::schedule::Priority::default();
        let job = Job { stage, inputs: vec![], until, priority, queued: now, reply };
        queue.push(job, 1).unwrap();
        has_entered.recv().unwrap();
        queue.close();
        assert!(!workers.join(Duration::from_millis(1)));
        let none = Workers::start(1, &queue).unwrap();
        assert!(none.join(Duration::from_secs(60)), "an empty queue ends at once");
        go.send(()).unwrap();
    }
}
