//! Tasks that shutdown awaits. Every spawned task belongs to one tracker; draining is announced
//! first (finish what you have), killing comes only when the grace period is over.

use std::{future::Future, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{listen::Counted, telemetry::Metric};

/// A handle on the process's tasks; cheap to clone. Made after the metrics, it counts in them.
#[derive(Clone, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    draining: CancellationToken,
    killed: CancellationToken,
    running: metrics::Gauge,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            tracker: TaskTracker::default(),
            draining: CancellationToken::default(),
            killed: CancellationToken::default(),
            running: Metric::Tasks.gauge(&[]),
        }
    }
}

impl Tasks {
    /// Tasks that run now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.tracker.len()
    }

    /// Spawns onto the current runtime and tracks the task. It is dropped when the grace period
    /// ends.
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let killed = self.killed.clone();
        let counted = Counted::enter(&self.running);
        self.tracker.spawn(async move {
            let _counted = counted;
            let _ended = killed.run_until_cancelled(task).await;
        });
    }

    /// Spawns a task that stops as soon as draining starts, for example a prober.
    pub fn spawn_until_drain<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let draining = self.draining.clone();
        self.spawn(async move {
            let _ended = draining.run_until_cancelled(task).await;
        });
    }

    /// Whether draining has begun.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Resolves when draining begins.
    pub async fn drain_started(&self) {
        self.draining.cancelled().await;
    }

    /// Announces the drain without waiting.
    pub fn start_drain(&self) {
        self.draining.cancel();
    }

    /// Announces the drain when it is dropped: whatever ends a thread that others rely on, a panic
    /// too, ends them all in order.
    #[must_use]
    pub fn drain_on_drop(&self) -> tokio_util::sync::DropGuard {
        self.draining.clone().drop_guard()
    }

    /// Announces the drain and waits for every task, at most for `grace`; what is left then is
    /// dropped. Returns whether all ended by themselves.
    pub async fn drain(&self, grace: Duration) -> bool {
        self.draining.cancel();
        self.tracker.close();
        let in_time = tokio::time::timeout(grace, self.tracker.wait()).await.is_ok();
        self.killed.cancel();
        self.tracker.wait().await;
        in_time
    }
}

/// Resolves on SIGINT or SIGTERM.
///
/// # Errors
/// When the handlers cannot be installed.
pub async fn stop_signal() -> std::io::Result<&'static str> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        biased;
        _ = terminate.recv() => Ok("SIGTERM"),
        _ = interrupt.recv() => Ok("SIGINT"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn drain_waits_for_tasks_and_drops_the_stubborn() {
        let tasks = Tasks::default();
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let drained = tasks.clone();
        tasks.spawn(async move {
            drained.drain_started().await;
            drop(sender);
        });
        assert_eq!(tasks.running(), 1);
        assert!(tasks.drain(Duration::from_secs(1)).await);
        assert_eq!(tasks.running(), 0);
        assert!(receiver.await.is_err());

        let tasks = Tasks::default();
        tasks.spawn(std::future::pending());
        assert!(!tasks.drain(Duration::from_secs(1)).await);
        assert_eq!(tasks.running(), 0);
    }
}
