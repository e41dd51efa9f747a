//! The threads that run models. Each has a session of its own of every stage; a run is never
//! interrupted, so what should not start is kept out by the queue.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Instant,
};

use crate::{
    batch::{self, Blob},
    error::NodeError,
    model::Stage,
    queue::{Done, Job, Queue},
};

/// Running worker threads.
pub(crate) struct Workers {
    threads: Vec<thread::JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` threads on `queue`.
    pub(crate) fn start(count: usize, queue: &Arc<Queue>) -> io::Result<Self> {
        let threads = (0..count)
            .map(|worker| {
                let queue = Arc::clone(queue);
                let wait = midspan_net::telemetry::Metric::NodeWaitSeconds.histogram(&[]);
                thread::Builder::new().name(format!("worker-{worker}")).spawn(move || {
                    while let Some(job) = queue.pop() {
                        work(worker, job, &wait);
                    }
                })
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { threads })
    }

    /// Waits until the closed queue is empty.
    pub(crate) fn join(self) {
        for thread in self.threads {
            let _panicked = thread.join();
        }
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
