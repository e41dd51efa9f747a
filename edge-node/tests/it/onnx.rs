//! Small ONNX files, written as protobuf.

use std::path::Path;

use midspan_split::onnx::{
    encode,
    pb::{
        AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
        TensorShapeProto, TypeProto, ValueInfoProto, attribute_proto::AttributeType,
        tensor_shape_proto::Dimension, tensor_shape_proto::dimension, type_proto,
    },
};

/// Numbers of element types in ONNX.
pub(crate) const FP32: i32 = 1;
pub(crate) const INT32: i32 = 6;
const INT64: i32 = 7;
pub(crate) const STRING: i32 = 8;
const BOOL: i32 = 9;
pub(crate) const FP16: i32 = 10;

/// `y = op(x)`, both of this type and shape; -1 is an open dimension.
pub(crate) fn unary(op: &str, element: i32, dims: &[i64]) -> Vec<u8> {
    model(op, &["x"], element, dims)
}

/// `y = op(inputs)`.
pub(crate) fn model(op: &str, inputs: &[&str], element: i32, dims: &[i64]) -> Vec<u8> {
    finished(GraphProto {
        node: vec![node(op, inputs, "y")],
        input: inputs.iter().map(|name| value(name, element, dims)).collect(),
        output: vec![value("y", element, dims)],
        ..GraphProto::default()
    })
}

/// Multiplies two matrices `x` times, `x` being INT64 `[1]`: as slow as it is asked to be.
pub(crate) fn slow() -> Vec<u8> {
    const SIDE: i64 = 256;
    let square = [SIDE, SIDE];
    let body = GraphProto {
        name: Some("body".into()),
        node: vec![node("Identity", &["on"], "goes_on"), node("MatMul", &["m", "w"], "product")],
        input: vec![value("at", INT64, &[]), value("on", BOOL, &[]), value("m", FP32, &square)],
        output: vec![value("goes_on", BOOL, &[]), value("product", FP32, &square)],
        ..GraphProto::default()
    };
    let mut repeat = node("Loop", &["x", "", "w"], "last");
    repeat.attribute.push(AttributeProto {
        name: Some("body".into()),
        r#type: Some(AttributeType::Graph as i32),
        g: Some(body),
        ..AttributeProto::default()
    });
    let weights = TensorProto {
        name: Some("w".into()),
        dims: square.to_vec(),
        data_type: Some(FP32),
        float_data: vec![1.0 / SIDE as f32; (SIDE * SIDE) as usize],
        ..TensorProto::default()
    };
    finished(GraphProto {
        node: vec![repeat, node("ReduceMax", &["last"], "y")],
        initializer: vec![weights],
        input: vec![value("x", INT64, &[1])],
        output: vec![value("y", FP32, &[1, 1])],
        ..GraphProto::default()
    })
}

fn node(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: Some(op.into()),
        input: inputs.iter().map(|name| (*name).to_owned()).collect(),
        output: vec![output.into()],
        ..NodeProto::default()
    }
}

fn finished(graph: GraphProto) -> Vec<u8> {
    encode(&ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(17) }],
        graph: Some(GraphProto { name: Some("g".into()), ..graph }),
        ..ModelProto::default()
    })
}

fn value(name: &str, element: i32, dims: &[i64]) -> ValueInfoProto {
    let dim = |(at, dim): (usize, &i64)| Dimension {
        value: Some(match dim {
            -1 => dimension::Value::DimParam(format!("d{at}")),
            fixed => dimension::Value::DimValue(*fixed),
        }),
        ..Dimension::default()
    };
    let shape = TensorShapeProto { dim: dims.iter().enumerate().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: Some(element), shape: Some(shape) };
    let value = Some(type_proto::Value::TensorType(tensor));
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto { value, ..TypeProto::default() }),
        ..ValueInfoProto::default()
    }
}

/// Writes a model's file and returns its `[[model]]`.
pub(crate) fn write(folder: &Path, name: &str, model: &[u8]) -> String {
    let path = folder.join(format!("{name}.onnx"));
    std::fs::write(&path, model).unwrap();
    format!("[[model]]\nonnx = \"{}\"\n", path.display())
}

/// The first of several `[[model]]` without its head, which [`crate::fixture::Setup`] writes.
pub(crate) fn headless(models: &[String]) -> String {
    models.concat().trim_start_matches("[[model]]\n").to_owned()
}

/// A JSON request with the one input `x`.
pub(crate) fn ask(datatype: &str, shape: &[u64], data: &str) -> String {
    format!(
        "{{\"inputs\":[{{\"name\":\"x\",\"shape\":{shape:?},\"datatype\":\"{datatype}\",\
         \"data\":{data}}}]}}"
    )
}
