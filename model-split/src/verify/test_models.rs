//! Small graphs for tests, written node by node.

#![allow(clippy::expect_used, reason = "helpers of tests may fail as tests do")]

use midspan_runtime::{ElementType, Tensor, test_support};

use crate::cut::Types;
use crate::onnx::{ModelProto, pb};
use crate::samples::Sample;

pub(super) fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

pub(super) fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> pb::NodeProto {
    pb::NodeProto {
        name: Some(format!("{op}_{}", outputs[0])),
        op_type: Some(op.to_owned()),
        input: names(inputs),
        output: names(outputs),
        ..Default::default()
    }
}

pub(super) fn weight(name: &str, dims: &[i64], values: &[f32]) -> pb::TensorProto {
    pb::TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(ElementType::F32.onnx_number()),
        dims: dims.to_vec(),
        float_data: values.to_vec(),
        ..Default::default()
    }
}

/// An input or output; sizes of 0 are open.
pub(super) fn info(name: &str, element: ElementType, dims: &[i64]) -> pb::ValueInfoProto {
    use pb::tensor_shape_proto::{Dimension, dimension::Value};
    let dim = dims.iter().map(|size| Dimension {
        denotation: None,
        value: Some(match size {
            0 => Value::DimParam("N".into()),
            size => Value::DimValue(*size),
        }),
    });
    let shape = Some(pb::TensorShapeProto { dim: dim.collect() });
    let tensor = pb::type_proto::Tensor { elem_type: Some(element.onnx_number()), shape };
    pb::ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(pb::TypeProto {
            denotation: None,
            value: Some(pb::type_proto::Value::TensorType(tensor)),
        }),
        ..Default::default()
    }
}

pub(super) fn model(
    node: Vec<pb::NodeProto>,
    initializer: Vec<pb::TensorProto>,
    input: Vec<pb::ValueInfoProto>,
    output: Vec<pb::ValueInfoProto>,
) -> ModelProto {
    let graph = pb::GraphProto {
        name: Some("g".into()),
        node,
        initializer,
        input,
        output,
        ..Default::default()
    };
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![pb::OperatorSetIdProto { domain: None, version: Some(17) }],
        graph: Some(graph),
        ..Default::default()
    }
}

/// `logits = relu(x w1) w2`, with classes, and the hidden layer's sum as an output before the cut.
pub(super) fn classifier() -> ModelProto {
    let w1: Vec<f32> = (0..12).map(|index| (index as f32 * 0.7).sin()).collect();
    let w2: Vec<f32> = (0..12).map(|index| (index as f32 * 1.3).cos()).collect();
    model(
        vec![
            node("MatMul", &["x", "w1"], &["h"]),
            node("Neg", &["h"], &["early"]),
            node("Relu", &["h"], &["r"]),
            node("MatMul", &["r", "w2"], &["logits"]),
        ],
        vec![weight("w1", &[3, 4], &w1), weight("w2", &[4, 3], &w2)],
        vec![info("x", ElementType::F32, &[0, 3])],
        vec![info("early", ElementType::F32, &[0, 4]), info("logits", ElementType::F32, &[0, 3])],
    )
}

pub(super) fn infer(model: &ModelProto) -> Types {
    test_support::library();
    Types::infer(model).expect("types of a test model")
}

pub(super) fn sample(inputs: &[(&str, &[usize], &[f32])]) -> Sample {
    let tensor = |(name, shape, values): &(&str, &[usize], &[f32])| {
        ((*name).to_owned(), Tensor::from_f32s(shape.to_vec(), values).expect("a tensor"))
    };
    Sample { inputs: inputs.iter().map(tensor).collect(), label: None, picture: None }
}
