//! Runs that wait for a worker: bounded, by priority, the earliest deadline of one priority first.
//! What cannot start before its deadline is not started, and what nobody waits for any more is
//! dropped. A full queue refuses whatever comes, of any priority: what was taken is not put out.

use std::{
    cmp::Ordering,
    collections::BinaryHeap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::{
    batch::{Blob, Named},
    error::NodeError,
    model::Stage,
    schedule::Priority,
};

/// One run of one stage.
pub(crate) struct Job {
    pub(crate) stage: Arc<Stage>,
    pub(crate) inputs: Named,
    /// Not started after this.
    pub(crate) until: Instant,
    pub(crate) priority: Priority,
    pub(crate) queued: Instant,
    pub(crate) reply: oneshot::Sender<Result<Done, NodeError>>,
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) outputs: Vec<Blob>,
    pub(crate) waited: Duration,
    pub(crate) ran: Duration,
}

/// The queue of a node.
pub(crate) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    capacity: usize,
    gauge: metrics::Gauge,
}

#[derive(Default)]
struct State {
    heap: BinaryHeap<Entry>,
    sequence: u64,
    closed: bool,
}

struct Entry {
    sequence: u64,
    job: Job,
}

impl Entry {
    fn key(&self) -> (Priority, Instant, u64) {
        (self.job.priority, self.job.until, self.sequence)
    }
}

impl Ord for Entry {
    /// The heap's greatest is the least priority, then the earliest deadline, then the first come.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl Queue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            state: Mutex::default(),
            arrived: Condvar::new(),
            capacity,
            gauge: midspan_net::telemetry::Metric::NodeQueue.gauge(&[]),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs that wait now.
    pub(crate) fn len(&self) -> usize {
        self.lock().heap.len()
    }

    /// Adds a run.
    ///
    /// # Errors
    /// [`NodeError::QueueFull`] at capacity, [`NodeError::Draining`] after the close.
    pub(crate) fn push(&self, job: Job, workers: usize) -> Result<(), NodeError> {
        let mut state = self.lock();
        if state.closed {
            return Err(NodeError::Draining);
        }
        if state.heap.len() >= self.capacity {
            // Those who gave up hold places that nobody waits in.
            state.heap.retain(|entry| !entry.job.reply.is_closed());
            if state.heap.len() >= self.capacity {
                return Err(NodeError::QueueFull { waiting: state.heap.len(), workers });
            }
        }
        let sequence = state.sequence;
        state.sequence += 1;
        state.heap.push(Entry { sequence, job });
        self.gauge.set(state.heap.len() as f64);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// The next run that somebody waits for; blocks. `None` after the close, once it is empty.
    pub(crate) fn pop(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            while let Some(entry) = state.heap.pop() {
                self.gauge.set(state.heap.len() as f64);
                if entry.job.reply.is_closed() {
                    continue;
                }
                if entry.job.until <= Instant::now() {
                    let _gone = entry.job.reply.send(Err(NodeError::Deadline));
                    continue;
                }
                return Some(entry.job);
            }
            if state.closed {
                return None;
            }
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes no more; workers end when the queue is empty.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::echo_stage;

    fn job(millis: u64) -> (Job, oneshot::Receiver<Result<Done, NodeError>>) {
        let (reply, receiver) = oneshot::channel();
        let now = Instant::now();
        let until = now + Duration::from_millis(millis);
        let (stage, priority) = (echo_stage(), Priority::default());
        (Job { stage, inputs: vec![], until, priority, queued: now, reply }, receiver)
    }

    #[test]
    fn priority_goes_before_the_deadline() {
        let queue = Queue::new(8);
        let mut waiting = Vec::new();
        for (level, millis) in [(3, 10_000), (0, 20_000), (1, 60_000), (2, 15_000), (1, 50_000)] {
            let (mut one, receiver) = job(millis);
            one.priority = Priority::level(level);
            waiting.push(receiver);
            queue.push(one, 1).unwrap();
        }
        queue.close();
        let order = std::iter::from_fn(|| queue.pop());
        let order: Vec<u64> =
            order.map(|job| job.until.duration_since(job.queued).as_millis() as u64).collect();
        assert_eq!(order, [50_000, 60_000, 15_000, 20_000, 10_000]);
    }

    #[test]
    fn earliest_deadline_first_and_bounded() {
        let queue = Queue::new(2);
        let (late, _keep_late) = job(60_000);
        let (early, _keep_early) = job(30_000);
        let (third, _keep_third) = job(10_000);
        let first = early.until;
        queue.push(late, 1).unwrap();
        queue.push(early, 1).unwrap();
        assert!(matches!(
            queue.push(third, 1),
            Err(NodeError::QueueFull { waiting: 2, workers: 1 })
        ));
        assert_eq!(queue.pop().unwrap().until, first);
    }

    #[test]
    fn those_who_gave_up_make_room_and_the_late_are_told() {
        let queue = Queue::new(1);
        let (abandoned, receiver) = job(60_000);
        drop(receiver);
        queue.push(abandoned, 1).unwrap();
        let (late, mut late_reply) = job(0);
        queue.push(late, 1).unwrap();
        queue.close();
        assert!(queue.pop().is_none());
        assert!(matches!(late_reply.try_recv(), Ok(Err(NodeError::Deadline))));
        let (more, _keep) = job(1);
        assert!(matches!(queue.push(more, 1), Err(NodeError::Draining)));
    }
}
