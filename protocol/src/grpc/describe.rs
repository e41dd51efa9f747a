//! What a server says of itself and its models, as gRPC messages: the same content as over REST.

use super::inference::{
    DataType, InferBatchStatistics, InferStatistics, ModelConfig, ModelConfigResponse, ModelInput,
    ModelMetadataResponse, ModelOutput, ModelStatistics, ModelStatisticsResponse,
    RepositoryIndexResponse, ServerMetadataResponse, StatisticDuration,
    model_metadata_response::TensorMetadata, repository_index_response::ModelIndex,
};
use crate::{metadata, statistics};

impl From<metadata::ServerMetadata> for ServerMetadataResponse {
    fn from(server: metadata::ServerMetadata) -> Self {
        Self { name: server.name, version: server.version, extensions: server.extensions }
    }
}

impl From<metadata::ModelMetadata> for ModelMetadataResponse {
    fn from(model: metadata::ModelMetadata) -> Self {
        let tensor = |tensor: metadata::TensorMetadata| TensorMetadata {
            name: tensor.name,
            datatype: tensor.datatype,
            shape: tensor.shape,
        };
        Self {
            name: model.name,
            versions: model.versions,
            platform: model.platform,
            inputs: model.inputs.into_iter().map(tensor).collect(),
            outputs: model.outputs.into_iter().map(tensor).collect(),
        }
    }
}

impl From<Vec<metadata::RepositoryEntry>> for RepositoryIndexResponse {
    fn from(entries: Vec<metadata::RepositoryEntry>) -> Self {
        let entry = |entry: metadata::RepositoryEntry| ModelIndex {
            name: entry.name,
            version: entry.version,
            state: entry.state,
            reason: entry.reason,
        };
        Self { models: entries.into_iter().map(entry).collect() }
    }
}

impl From<metadata::ModelConfig> for ModelConfigResponse {
    fn from(config: metadata::ModelConfig) -> Self {
        let data_type = |name: &str| DataType::from_str_name(name).unwrap_or_default().into();
        let input = config.input.into_iter().map(|tensor| ModelInput {
            data_type: data_type(&tensor.data_type),
            name: tensor.name,
            dims: tensor.dims,
        });
        let output = config.output.into_iter().map(|tensor| ModelOutput {
            data_type: data_type(&tensor.data_type),
            name: tensor.name,
            dims: tensor.dims,
        });
        let config = ModelConfig {
            name: config.name,
            platform: config.platform,
            backend: config.backend,
            max_batch_size: i32::try_from(config.max_batch_size).unwrap_or(i32::MAX),
            input: input.collect(),
            output: output.collect(),
        };
        Self { config: Some(config) }
    }
}

impl From<statistics::Statistics> for ModelStatisticsResponse {
    fn from(counts: statistics::Statistics) -> Self {
        Self { model_stats: counts.model_stats.into_iter().map(Into::into).collect() }
    }
}

impl From<statistics::ModelStatistics> for ModelStatistics {
    fn from(model: statistics::ModelStatistics) -> Self {
        let stats = model.inference_stats;
        let batch = |batch: statistics::BatchStatistics| InferBatchStatistics {
            batch_size: batch.batch_size,
            compute_input: spent(batch.compute_input),
            compute_infer: spent(batch.compute_infer),
            compute_output: spent(batch.compute_output),
        };
        Self {
            name: model.name,
            version: model.version,
            last_inference: model.last_inference,
            inference_count: model.inference_count,
            execution_count: model.execution_count,
            inference_stats: Some(InferStatistics {
                success: spent(stats.success),
                fail: spent(stats.fail),
                queue: spent(stats.queue),
                compute_input: spent(stats.compute_input),
                compute_infer: spent(stats.compute_infer),
                compute_output: spent(stats.compute_output),
                cache_hit: spent(stats.cache_hit),
                cache_miss: spent(stats.cache_miss),
            }),
            batch_stats: model.batch_stats.into_iter().map(batch).collect(),
        }
    }
}

/// Always there, also when zero: clients read the members without asking whether they are set.
fn spent(duration: statistics::DurationStatistics) -> Option<StatisticDuration> {
    Some(StatisticDuration { count: duration.count, ns: duration.ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_names_its_types() {
        let tensor = |data_type: &str| metadata::TensorConfig {
            name: data_type.to_lowercase(),
            data_type: data_type.into(),
            dims: vec![-1, 3],
        };
        let config = metadata::ModelConfig {
            name: "m".into(),
            platform: "onnx_onnxv1".into(),
            backend: "onnxruntime".into(),
            max_batch_size: u32::MAX,
            input: vec![tensor("TYPE_BF16"), tensor("TYPE_STRING")],
            output: vec![tensor("TYPE_ODD")],
        };
        let config = ModelConfigResponse::from(config).config.unwrap();
        assert_eq!((config.max_batch_size, config.backend.as_str()), (i32::MAX, "onnxruntime"));
        let types: Vec<_> = config.input.iter().map(ModelInput::data_type).collect();
        assert_eq!(types, [DataType::TypeBf16, DataType::TypeString]);
        assert_eq!(config.output[0].data_type(), DataType::TypeInvalid);
        assert_eq!(config.output[0].dims, [-1, 3]);
    }

    #[test]
    fn counts_keep_their_places() {
        let mut model = statistics::ModelStatistics {
            name: "m".into(),
            version: "7".into(),
            last_inference: 1,
            inference_count: 2,
            execution_count: 3,
            ..Default::default()
        };
        let steps = &mut model.inference_stats;
        for (nanos, step) in (10..).zip([
            &mut steps.success,
            &mut steps.fail,
            &mut steps.queue,
            &mut steps.compute_input,
            &mut steps.compute_infer,
            &mut steps.compute_output,
            &mut steps.cache_hit,
            &mut steps.cache_miss,
        ]) {
            step.add(nanos);
        }
        let mut batch = statistics::BatchStatistics { batch_size: 4, ..Default::default() };
        batch.compute_input.add(20);
        batch.compute_infer.add(21);
        batch.compute_output.add(22);
        model.batch_stats.push(batch);
        let counts = statistics::Statistics { model_stats: vec![model] };
        let [model] = ModelStatisticsResponse::from(counts).model_stats.try_into().unwrap();
        assert_eq!((model.name.as_str(), model.version.as_str()), ("m", "7"));
        assert_eq!((model.last_inference, model.inference_count, model.execution_count), (1, 2, 3));
        let stats = model.inference_stats.unwrap();
        let steps = [
            stats.success,
            stats.fail,
            stats.queue,
            stats.compute_input,
            stats.compute_infer,
            stats.compute_output,
            stats.cache_hit,
            stats.cache_miss,
        ];
        assert_eq!(steps.map(|step| step.unwrap().ns), [10, 11, 12, 13, 14, 15, 16, 17]);
        let batch = model.batch_stats[0];
        let steps = [batch.compute_input, batch.compute_infer, batch.compute_output];
        assert_eq!(batch.batch_size, 4);
        assert_eq!(steps.map(|step| step.unwrap().ns), [20, 21, 22]);
    }
}
