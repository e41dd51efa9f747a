//! Small ONNX models for tests, built as protobuf: identities of every element type, the sum and
//! difference of two tensors, values that no JSON number can hold, and a loop that takes as long
//! as it is asked to. Files only; nothing here runs a model.

use std::{fs, io, path::Path};

use midspan_split::onnx::{
    encode,
    pb::{
        AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
        TensorShapeProto, TypeProto, ValueInfoProto, attribute_proto::AttributeType,
        tensor_shape_proto, type_proto,
    },
};

/// Names of the protocol's datatypes, each with its number in ONNX.
pub const ELEMENTS: [(&str, i32); 14] = [
    ("FP32", 1),
    ("UINT8", 2),
    ("INT8", 3),
    ("UINT16", 4),
    ("INT16", 5),
    ("INT32", 6),
    ("INT64", 7),
    ("BYTES", 8),
    ("BOOL", 9),
    ("FP16", 10),
    ("FP64", 11),
    ("UINT32", 12),
    ("UINT64", 13),
    ("BF16", 16),
];

const FP32: i32 = 1;
const INT32: i32 = 6;
const INT64: i32 = 7;
const BOOL: i32 = 9;

/// Side of the square matrices that [`slow`] multiplies.
const SIDE: i64 = 128;

/// A model file and the name and version that it is served under.
#[derive(Clone, Debug)]
pub struct TestModel {
    /// Name of the model.
    pub name: String,
    /// Its version, as the protocol's string.
    pub version: &'static str,
    /// The ONNX file.
    pub onnx: Vec<u8>,
}

impl TestModel {
    /// Version 1 of a model.
    pub fn new(name: impl Into<String>, onnx: Vec<u8>) -> Self {
        Self { name: name.into(), version: "1", onnx }
    }

    /// The same in another version.
    #[must_use]
    pub fn version(mut self, version: &'static str) -> Self {
        self.version = version;
        self
    }
}

/// Writes the models into `folder`; returns the `[[model]]` tables of a node's configuration file
/// in that folder.
///
/// # Errors
/// A file that cannot be written.
pub fn write(folder: &Path, models: &[TestModel]) -> io::Result<String> {
    let mut tables = String::new();
    for (index, model) in models.iter().enumerate() {
        let file = format!("{index}.onnx");
        fs::write(folder.join(&file), &model.onnx)?;
        let TestModel { name, version, .. } = model;
        tables.push_str(&format!("[[model]]\nonnx = \"{file}\"\nname = \"{name}\"\n"));
        if *version != "1" {
            tables.push_str(&format!("version = \"{version}\"\n"));
        }
    }
    Ok(tables)
}

/// `y = x`; a dimension of -1 is variable.
pub fn identity(element: i32, dims: &[i64]) -> Vec<u8> {
    unary("Identity", element, dims)
}

/// `y = op(x)` of one form.
pub fn unary(op: &str, element: i32, dims: &[i64]) -> Vec<u8> {
    let graph = GraphProto {
        node: vec![node(op, &["x"], &["y"])],
        input: vec![value("x", element, dims)],
        output: vec![value("y", element, dims)],
        ..named_graph()
    };
    model(graph)
}

/// Triton's `simple`: INPUT0 and INPUT1, INT32 `[-1,16]`, to their sum OUTPUT0 and their
/// difference OUTPUT1.
pub fn add_sub() -> Vec<u8> {
    let tensor = |name| value(name, INT32, &[-1, 16]);
    let inputs = ["INPUT0", "INPUT1"];
    let graph = GraphProto {
        node: vec![node("Add", &inputs, &["OUTPUT0"]), node("Sub", &inputs, &["OUTPUT1"])],
        input: inputs.map(tensor).to_vec(),
        output: ["OUTPUT0", "OUTPUT1"].map(tensor).to_vec(),
        ..named_graph()
    };
    model(graph)
}

/// `log` and `inverse` of `x`, `[-1]`: NaN and infinities for what has neither.
pub fn nonfinite(element: i32) -> Vec<u8> {
    let graph = GraphProto {
        node: vec![node("Log", &["x"], &["log"]), node("Reciprocal", &["x"], &["inverse"])],
        input: vec![value("x", element, &[-1])],
        output: ["log", "inverse"].map(|name| value(name, element, &[-1])).to_vec(),
        ..named_graph()
    };
    model(graph)
}

/// Multiplies two square matrices `n` times, `n` being INT64 `[1]`; `y` is `n` again, and `x`, FP32
/// `[1,1]`, keeps the work from being left out.
pub fn slow() -> Vec<u8> {
    let square = [SIDE, SIDE];
    let body = GraphProto {
        node: vec![
            node("Identity", &["cond"], &["cond_out"]),
            node("MatMul", &["state", "weights"], &["state_out"]),
        ],
        input: vec![
            value("at", INT64, &[]),
            value("cond", BOOL, &[]),
            value("state", FP32, &square),
        ],
        output: vec![value("cond_out", BOOL, &[]), value("state_out", FP32, &square)],
        ..named_graph()
    };
    let mut repeat = node("Loop", &["n", "", "weights"], &["product"]);
    repeat.attribute.push(AttributeProto {
        name: Some("body".into()),
        r#type: Some(AttributeType::Graph as i32),
        g: Some(body),
        ..AttributeProto::default()
    });
    let reduce = node("ReduceMax", &["product"], &["x"]);
    let graph = GraphProto {
        node: vec![repeat, reduce, node("Identity", &["n"], &["y"])],
        initializer: vec![mean("weights", square)],
        input: vec![value("n", INT64, &[1])],
        output: vec![value("x", FP32, &[1, 1]), value("y", INT64, &[1])],
        ..named_graph()
    };
    model(graph)
}

/// A square matrix whose powers are itself.
fn mean(name: &str, dims: [i64; 2]) -> TensorProto {
    let count = dims.iter().product::<i64>();
    let element = 1.0 / dims[0] as f32;
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(FP32),
        float_data: (0..count).map(|_| element).collect(),
        ..TensorProto::default()
    }
}

fn named_graph() -> GraphProto {
    GraphProto { name: Some("g".into()), ..GraphProto::default() }
}

fn model(graph: GraphProto) -> Vec<u8> {
    encode(&ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(17) }],
        graph: Some(graph),
        ..ModelProto::default()
    })
}

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    NodeProto {
        op_type: Some(op.into()),
        input: names(inputs),
        output: names(outputs),
        ..NodeProto::default()
    }
}

fn value(name: &str, element: i32, dims: &[i64]) -> ValueInfoProto {
    use tensor_shape_proto::{Dimension, dimension};
    let dim = |(at, dim): (usize, &i64)| Dimension {
        denotation: None,
        value: Some(match dim {
            -1 => dimension::Value::DimParam(format!("d{at}")),
            fixed => dimension::Value::DimValue(*fixed),
        }),
    };
    let shape = TensorShapeProto { dim: dims.iter().enumerate().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: Some(element), shape: Some(shape) };
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto {
            value: Some(type_proto::Value::TensorType(tensor)),
            ..TypeProto::default()
        }),
        ..ValueInfoProto::default()
    }
}
