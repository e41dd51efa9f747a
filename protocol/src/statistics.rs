//! Statistics of models (the `statistics` extension): what a node has counted since it loaded a
//! model, and how the counts of several nodes add up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v2/models/{m}/stats` and `GET /v2/models/stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Statistics {
    /// One entry per model and version.
    pub model_stats: Vec<ModelStatistics>,
}

/// What was counted of one model and version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ModelStatistics {
    /// Model name.
    pub name: String,
    /// Model version.
    pub version: String,
    /// When the last inference ended, milliseconds since the Unix epoch; 0 before the first.
    pub last_inference: u64,
    /// Rows of successful requests: a batch of n counts n.
    pub inference_count: u64,
    /// Successful requests.
    pub execution_count: u64,
    /// Where their time went.
    pub inference_stats: InferenceStatistics,
    /// The same by batch size, ascending.
    pub batch_stats: Vec<BatchStatistics>,
}

/// Number and total time of requests, by outcome and by step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct InferenceStatistics {
    /// Requests that were answered.
    pub success: DurationStatistics,
    /// Requests that failed after the model was found.
    pub fail: DurationStatistics,
    /// Waiting for a worker.
    pub queue: DurationStatistics,
    /// Checking and converting inputs.
    pub compute_input: DurationStatistics,
    /// Running the model, offload included.
    pub compute_infer: DurationStatistics,
    /// Writing outputs.
    pub compute_output: DurationStatistics,
    /// Always 0: there is no response cache.
    pub cache_hit: DurationStatistics,
    /// Always 0: there is no response cache.
    pub cache_miss: DurationStatistics,
}

/// Requests of one batch size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BatchStatistics {
    /// Rows per request.
    pub batch_size: u64,
    /// Checking and converting inputs.
    pub compute_input: DurationStatistics,
    /// Running the model, offload included.
    pub compute_infer: DurationStatistics,
    /// Writing outputs.
    pub compute_output: DurationStatistics,
}

/// How often, and how long in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DurationStatistics {
    /// Times.
    pub count: u64,
    /// Nanoseconds in all.
    pub ns: u64,
}

impl DurationStatistics {
    /// Adds one span of `nanos`.
    pub fn add(&mut self, nanos: u64) {
        self.merge(Self { count: 1, ns: nanos });
    }

    fn merge(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.ns = self.ns.saturating_add(other.ns);
    }
}

impl Statistics {
    /// Adds another node's counts; entries end up in order of name and version.
    pub fn merge(&mut self, other: Self) {
        for entry in other.model_stats {
            let same =
                |own: &&mut ModelStatistics| own.name == entry.name && own.version == entry.version;
            match self.model_stats.iter_mut().find(same) {
                Some(own) => own.merge(entry),
                None => self.model_stats.push(entry),
            }
        }
        self.model_stats.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    }
}

impl ModelStatistics {
    fn merge(&mut self, other: Self) {
        self.last_inference = self.last_inference.max(other.last_inference);
        self.inference_count = self.inference_count.saturating_add(other.inference_count);
        self.execution_count = self.execution_count.saturating_add(other.execution_count);
        let (own, others) = (&mut self.inference_stats, other.inference_stats);
        own.success.merge(others.success);
        own.fail.merge(others.fail);
        own.queue.merge(others.queue);
        own.compute_input.merge(others.compute_input);
        own.compute_infer.merge(others.compute_infer);
        own.compute_output.merge(others.compute_output);
        own.cache_hit.merge(others.cache_hit);
        own.cache_miss.merge(others.cache_miss);
        for batch in other.batch_stats {
            match self.batch_stats.iter_mut().find(|own| own.batch_size == batch.batch_size) {
                Some(own) => {
                    own.compute_input.merge(batch.compute_input);
                    own.compute_infer.merge(batch.compute_infer);
                    own.compute_output.merge(batch.compute_output);
                }
                None => self.batch_stats.push(batch),
            }
        }
        self.batch_stats.sort_by_key(|batch| batch.batch_size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, batch_size: u64) -> ModelStatistics {
        let mut entry = ModelStatistics {
            name: name.into(),
            version: "1".into(),
            last_inference: batch_size,
            inference_count: batch_size,
            execution_count: 1,
            ..ModelStatistics::default()
        };
        entry.inference_stats.success.add(100);
        entry.batch_stats.push(BatchStatistics { batch_size, ..BatchStatistics::default() });
        entry.batch_stats[0].compute_infer.add(70);
        entry
    }

    #[test]
    fn counts_of_several_nodes_add_up() {
        let mut sum = Statistics { model_stats: vec![entry("b", 4)] };
        sum.merge(Statistics { model_stats: vec![entry("b", 2), entry("a", 1)] });
        sum.merge(Statistics { model_stats: vec![entry("b", 2)] });
        let names: Vec<_> = sum.model_stats.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let b = &sum.model_stats[1];
        assert_eq!((b.inference_count, b.execution_count, b.last_inference), (8, 3, 4));
        assert_eq!(b.inference_stats.success, DurationStatistics { count: 3, ns: 300 });
        let sizes: Vec<_> =
            b.batch_stats.iter().map(|b| (b.batch_size, b.compute_infer.count)).collect();
        assert_eq!(sizes, [(2, 2), (4, 1)]);
    }
}
