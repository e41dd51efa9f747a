//! What clients are told of a loaded model: its metadata and the part of a configuration that they
//! read.

use midspan_protocol::metadata::{ModelConfig, ModelMetadata, TensorConfig, TensorMetadata};
use midspan_runtime::{Dim, ElementType};

use crate::model::{Model, PLATFORM, Port};

/// Largest `max_batch_size` that is told. Nothing but the body limits a request's rows; clients
/// take the number for how far they may go.
const MAX_BATCH: usize = 1024;

/// A model's metadata; `versions` are those that can be asked for.
pub(crate) fn metadata(model: &Model, versions: Vec<String>) -> ModelMetadata {
    let tensor = |port: &Port| TensorMetadata {
        name: port.spec.name.clone(),
        datatype: port.spec.element.oip_name().to_owned(),
        shape: port.spec.dims.iter().map(Dim::as_oip).collect(),
    };
    ModelMetadata {
        name: model.name.clone(),
        versions,
        platform: PLATFORM.into(),
        inputs: model.inputs.iter().map(tensor).collect(),
        outputs: model.outputs.iter().map(tensor).collect(),
    }
}

/// A model's configuration. `max_batch_size` is above 0 only where the first dimension of every
/// input and output is open and others follow; the dimensions told then lack it.
pub(crate) fn config(model: &Model, body_limit: usize) -> ModelConfig {
    let batch = model.batch_first();
    let tensor = |port: &Port| TensorConfig {
        name: port.spec.name.clone(),
        data_type: data_type(port.spec.element),
        dims: port.spec.dims.iter().skip(usize::from(batch)).map(Dim::as_oip).collect(),
    };
    ModelConfig {
        name: model.name.clone(),
        platform: PLATFORM.into(),
        backend: "onnxruntime".into(),
        max_batch_size: if batch { rows_that_fit(model, body_limit) } else { 0 },
        input: model.inputs.iter().map(tensor).collect(),
        output: model.outputs.iter().map(tensor).collect(),
    }
}

/// Rows whose binary inputs fit in a body, at least 1 and at most [`MAX_BATCH`]. An open dimension
/// counts as 1, a string as its length's four bytes.
fn rows_that_fit(model: &Model, body_limit: usize) -> u32 {
    let row = |port: &Port| {
        let dims = port.spec.dims.iter().skip(1);
        let sizes = dims.map(|dim| if let Dim::Fixed(size) = dim { *size } else { 1 });
        sizes.fold(port.spec.element.size().unwrap_or(4), usize::saturating_mul)
    };
    let bytes = model.inputs.iter().map(row).fold(0, usize::saturating_add);
    let rows = (body_limit / bytes.max(1)).clamp(1, MAX_BATCH);
    u32::try_from(rows).unwrap_or(1)
}

fn data_type(element: ElementType) -> String {
    match element {
        ElementType::String => "TYPE_STRING".into(),
        other => format!("TYPE_{}", other.oip_name()),
    }
}
