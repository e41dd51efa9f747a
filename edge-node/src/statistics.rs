//! What is counted of one loaded model (the `statistics` extension): requests by outcome, and where
//! the time of the answered ones went. A reload starts anew. Counting takes no lock but for the
//! first request of a batch size.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use midspan_protocol::statistics::{
    BatchStatistics, DurationStatistics, InferenceStatistics, ModelStatistics, Statistics,
};

use crate::{infer::Spent, model::Model, repository::Repository};

/// Batch sizes that are told apart. The format has no place for "others": requests of further
/// sizes count in all but `batch_stats`.
const MAX_BATCH_SIZES: usize = 64;

/// A number of spans and their sum.
#[derive(Debug, Default)]
struct Span {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Span {
    fn add(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    fn read(&self) -> DurationStatistics {
        let (count, ns) = (self.count.load(Ordering::Relaxed), self.nanos.load(Ordering::Relaxed));
        DurationStatistics { count, ns }
    }
}

/// The steps of answered requests, in all or of one batch size.
#[derive(Debug, Default)]
struct Steps {
    input: Span,
    infer: Span,
    output: Span,
}

impl Steps {
    fn add(&self, input: Duration, infer: Duration, output: Duration) {
        self.input.add(input);
        self.infer.add(infer);
        self.output.add(output);
    }
}

/// Everything counted of one model.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    last: AtomicU64,
    rows: AtomicU64,
    success: Span,
    fail: Span,
    queue: Span,
    steps: Steps,
    batches: RwLock<BTreeMap<usize, Arc<Steps>>>,
}

impl Counters {
    /// Begins to measure one request. Unless it is [`Measure::answered`], it ends as a failure.
    pub(crate) fn begin(self: &Arc<Self>) -> Measure {
        let started = Instant::now();
        Measure { counters: Arc::clone(self), started, accepted: started, answer: None }
    }

    fn batch(&self, rows: usize) -> Option<Arc<Steps>> {
        let known = self.batches.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(steps) = known.get(&rows) {
            return Some(Arc::clone(steps));
        }
        drop(known);
        let mut known = self.batches.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_BATCH_SIZES && !known.contains_key(&rows) {
            return None;
        }
        Some(Arc::clone(known.entry(rows).or_default()))
    }

    /// The counts now. Requests that end meanwhile may be in some of them only.
    fn read(&self, name: &str, version: &str) -> ModelStatistics {
        let batches = self.batches.read().unwrap_or_else(PoisonError::into_inner);
        let batch = |(rows, steps): (&usize, &Arc<Steps>)| BatchStatistics {
            batch_size: *rows as u64,
            compute_input: steps.input.read(),
            compute_infer: steps.infer.read(),
            compute_output: steps.output.read(),
        };
        let success = self.success.read();
        ModelStatistics {
            name: name.to_owned(),
            version: version.to_owned(),
            last_inference: self.last.load(Ordering::Relaxed),
            inference_count: self.rows.load(Ordering::Relaxed),
            execution_count: success.count,
            inference_stats: InferenceStatistics {
                success,
                fail: self.fail.read(),
                queue: self.queue.read(),
                compute_input: self.steps.input.read(),
                compute_infer: self.steps.infer.read(),
                compute_output: self.steps.output.read(),
                ..InferenceStatistics::default()
            },
            batch_stats: batches.iter().map(batch).collect(),
        }
    }
}

/// One request under way. Dropped when its answer is written, it counts itself: a success once it
/// was answered, a failure otherwise, also when the asker went away.
#[derive(Debug)]
pub(crate) struct Measure {
    counters: Arc<Counters>,
    started: Instant,
    /// When the inputs were ready.
    accepted: Instant,
    answer: Option<Answered>,
}

#[derive(Clone, Copy, Debug)]
struct Answered {
    rows: usize,
    spent: Spent,
    at: Instant,
}

impl Measure {
    /// The inputs are checked and converted.
    pub(crate) fn accepted(&mut self) {
        self.accepted = Instant::now();
    }

    /// The model has answered; what follows until the drop is the writing of outputs.
    pub(crate) fn answered(&mut self, rows: usize, spent: Spent) {
        self.answer = Some(Answered { rows, spent, at: Instant::now() });
    }

    /// The answer could not be written after all.
    pub(crate) fn failed(&mut self) {
        self.answer = None;
    }
}

impl Drop for Measure {
    fn drop(&mut self) {
        let counters = &self.counters;
        let Some(Answered { rows, spent, at }) = self.answer else {
            return counters.fail.add(self.started.elapsed());
        };
        counters.success.add(self.started.elapsed());
        counters.rows.fetch_add(rows as u64, Ordering::Relaxed);
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(epoch.as_millis()).unwrap_or(u64::MAX);
        counters.last.fetch_max(millis, Ordering::Relaxed);
        counters.queue.add(spent.waited);
        let input = self.accepted.duration_since(self.started);
        let infer = spent.ran + spent.offload.unwrap_or_default();
        let output = at.elapsed();
        counters.steps.add(input, infer, output);
        if let Some(batch) = counters.batch(rows) {
            batch.add(input, infer, output);
        }
    }
}

/// The statistics of these models, in order of name and version.
pub(crate) fn of(models: &[Arc<Model>]) -> Statistics {
    let entries = models.iter().map(|model| model.counters.read(&model.name, &model.version));
    let mut statistics = Statistics::default();
    statistics.merge(Statistics { model_stats: entries.collect() });
    statistics
}

/// The statistics of every model that is loaded.
pub(crate) fn all(repository: &Repository) -> Statistics {
    of(&repository.loaded())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(millis: u64) -> Spent {
        let span = Duration::from_millis(millis);
        Spent { waited: span, ran: 2 * span, offload: Some(span) }
    }

    #[test]
    fn requests_count_by_outcome_and_batch_size() {
        let counters = Arc::new(Counters::default());
        for rows in [4, 1, 4] {
            let mut measure = counters.begin();
            measure.accepted();
            measure.answered(rows, spent(1));
        }
        drop(counters.begin());
        let mut unwritten = counters.begin();
        unwritten.answered(1, spent(1));
        unwritten.failed();
        drop(unwritten);
        let read = counters.read("m", "1");
        assert_eq!((read.inference_count, read.execution_count), (9, 3));
        let stats = &read.inference_stats;
        assert_eq!((stats.success.count, stats.fail.count), (3, 2));
        assert_eq!(stats.queue, DurationStatistics { count: 3, ns: 3_000_000 });
        assert_eq!(stats.compute_infer, DurationStatistics { count: 3, ns: 9_000_000 });
        assert!(read.last_inference > 1_600_000_000_000, "milliseconds since 1970");
        let sizes = read.batch_stats.iter().map(|b| (b.batch_size, b.compute_infer.count));
        assert_eq!(sizes.collect::<Vec<_>>(), [(1, 1), (4, 2)]);
    }

    #[test]
    fn batch_sizes_are_bounded_and_the_rest_still_counts() {
        let counters = Arc::new(Counters::default());
        for rows in 1..=100 {
            counters.begin().answered(rows, spent(1));
        }
        counters.begin().answered(1, spent(1));
        let read = counters.read("m", "1");
        assert_eq!((read.execution_count, read.inference_count), (101, 5051));
        assert_eq!(read.batch_stats.len(), MAX_BATCH_SIZES);
        assert_eq!(read.batch_stats[0].compute_output.count, 2);
    }
}
