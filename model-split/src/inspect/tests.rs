//! Hand-made models whose numbers can be reckoned, and the default model.

use midspan_runtime::test_support;

use super::*;
use crate::cut::Types;
use crate::onnx::{self, ModelProto, pb};

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn node(op: &str, inputs: &[&str], output: &str) -> pb::NodeProto {
    pb::NodeProto {
        op_type: Some(op.to_owned()),
        input: names(inputs),
        output: names(&[output]),
        ..Default::default()
    }
}

fn weight(name: &str, dims: &[i64]) -> pb::TensorProto {
    let count = dims.iter().product::<i64>() as usize;
    pb::TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(1),
        dims: dims.to_vec(),
        raw_data: Some(vec![0; 4 * count].into()),
        ..Default::default()
    }
}

/// Negative sizes are the dimension "N", sizes of 0 the dimension "W".
fn value(name: &str, dims: &[i64]) -> pb::ValueInfoProto {
    use pb::tensor_shape_proto::{Dimension, dimension::Value};
    let dim = dims.iter().map(|size| Dimension {
        denotation: None,
        value: Some(match size {
            ..0 => Value::DimParam("N".into()),
            0 => Value::DimParam("W".into()),
            _ => Value::DimValue(*size),
        }),
    });
    let tensor = pb::type_proto::Tensor {
        elem_type: Some(1),
        shape: Some(pb::TensorShapeProto { dim: dim.collect() }),
    };
    let value = pb::type_proto::Value::TensorType(tensor);
    pb::ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(pb::TypeProto { denotation: None, value: Some(value) }),
        ..Default::default()
    }
}

fn model(
    nodes: Vec<pb::NodeProto>,
    weights: Vec<pb::TensorProto>,
    input: pb::ValueInfoProto,
    output: pb::ValueInfoProto,
) -> ModelProto {
    let graph = pb::GraphProto {
        name: Some("g".into()),
        node: nodes,
        initializer: weights,
        input: vec![input],
        output: vec![output],
        ..Default::default()
    };
    let opset = |domain: &str, version| pb::OperatorSetIdProto {
        domain: Some(domain.to_owned()),
        version: Some(version),
    };
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![opset("", 17), opset("com.microsoft", 1)],
        graph: Some(graph),
        ..Default::default()
    }
}

fn look(model: &ModelProto, sizes: &[(String, i64)]) -> Inspection {
    test_support::library();
    inspect(model, Path::new("."), sizes, &Options::default()).unwrap()
}

/// `[N,3,8,W]` through a convolution to 4 channels, a flattening mean and a matrix.
fn picture() -> ModelProto {
    let nodes = vec![
        node("Conv", &["x", "kernel"], "c"),
        node("GlobalAveragePool", &["c"], "p"),
        node("Flatten", &["p"], "f"),
        node("Gemm", &["f", "matrix", "bias"], "y"),
    ];
    let weights =
        vec![weight("kernel", &[4, 3, 3, 3]), weight("matrix", &[4, 10]), weight("bias", &[10])];
    model(nodes, weights, value("x", &[-1, 3, 8, 0]), value("y", &[-1, 10]))
}

#[test]
fn work_and_bytes_are_those_of_a_row() {
    let wide = look(&picture(), &[("W".to_owned(), 10)]);
    // 4 channels of 6x8, each element of 3x3x3; then 4x10.
    assert_eq!(wide.work, Work { macs: 4 * 6 * 8 * 27 + 40, uncounted: BTreeMap::new() });
    assert_eq!((wide.parameters, wide.weight_bytes), (108 + 40 + 10, 4 * 158));
    let first = &wide.cuts[0];
    assert_eq!(first.found.cut.tensors, ["c"]);
    assert_eq!(first.tensors[0].dims_text().split(',').next(), Some("[N"));
    assert_eq!((first.row_bytes, first.front_macs), (Some(4 * 4 * 6 * 8), 4 * 6 * 8 * 27));
    assert_eq!(first.front_parameters, 108);
    let last = wide.cuts.last().unwrap();
    assert_eq!((last.found.cut.tensors[0].as_str(), last.row_bytes), ("f", Some(16)));
    let unknown = look(&picture(), &[]);
    assert_eq!(unknown.cuts[0].row_bytes, None);
    assert_eq!(unknown.work.uncounted, BTreeMap::from([("Conv".to_owned(), 1)]));
    assert_eq!(unknown.operators[&(String::new(), "Conv".to_owned())], 1);
}

/// The formula of an operator over `[2,6]` and its weights.
fn macs_of(node: pb::NodeProto, weights: Vec<pb::TensorProto>, input: &[i64]) -> Macs {
    let output = node.output[0].clone();
    let unknown = pb::ValueInfoProto { name: Some(output), ..Default::default() };
    let model = model(vec![node], weights, value("x", input), unknown);
    let inspection = look(&model, &[]);
    let uncounted = inspection.work.uncounted.values().sum();
    Macs { counted: inspection.work.macs, uncounted }
}

#[derive(Debug, PartialEq)]
struct Macs {
    counted: u64,
    uncounted: usize,
}

fn text(name: &str, value: &str) -> pb::AttributeProto {
    pb::AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(pb::attribute_proto::AttributeType::String as i32),
        s: Some(value.as_bytes().to_vec().into()),
        ..Default::default()
    }
}

fn number(name: &str, value: i64) -> pb::AttributeProto {
    pb::AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(pb::attribute_proto::AttributeType::Int as i32),
        i: Some(value),
        ..Default::default()
    }
}

#[test]
fn operators_that_multiply_have_a_formula_or_are_reported() {
    let counted = |counted| Macs { counted, uncounted: 0 };
    let matmul = node("MatMul", &["x", "w"], "y");
    assert_eq!(macs_of(matmul, vec![weight("w", &[6, 5])], &[3, 2, 6]), counted(3 * 2 * 6 * 5));
    let mut turned = node("Gemm", &["x", "w"], "y");
    turned.attribute = vec![number("transA", 1)];
    assert_eq!(macs_of(turned, vec![weight("w", &[2, 5])], &[2, 6]), counted(6 * 2 * 5));
    let mut up = node("ConvTranspose", &["x", "w"], "y");
    up.attribute = vec![number("group", 2)];
    let kernel = vec![weight("w", &[4, 3, 2, 2])];
    assert_eq!(macs_of(up, kernel, &[1, 4, 5, 5]), counted(100 * 3 * 4));
    let mut sum = node("Einsum", &["x", "w"], "y");
    sum.attribute = vec![text("equation", "bi,ij->bj")];
    assert_eq!(macs_of(sum, vec![weight("w", &[6, 5])], &[2, 6]), counted(2 * 6 * 5));
    let mut recurrent = node("GRU", &["x", "w", "r"], "y");
    recurrent.attribute = vec![number("hidden_size", 5)];
    let weights = vec![weight("w", &[1, 15, 6]), weight("r", &[1, 15, 5])];
    assert_eq!(macs_of(recurrent, weights, &[7, 2, 6]), counted(14 * (90 + 75)));
    assert_eq!(macs_of(node("Relu", &["x"], "y"), vec![], &[2, 6]), counted(0));
    let mut attention = node("Attention", &["x", "w", "b"], "y");
    attention.domain = Some("com.microsoft".into());
    attention.attribute = vec![number("num_heads", 2)];
    let weights = vec![weight("w", &[4, 12]), weight("b", &[12])];
    assert_eq!(macs_of(attention, weights, &[1, 3, 4]), Macs { counted: 0, uncounted: 1 });
}

#[test]
fn the_default_model_is_mostly_behind_its_first_cut() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fashion.onnx");
    let opened = onnx::open(Path::new(path)).unwrap();
    let types = Types::infer(&opened.model).unwrap();
    assert!(types.is_ranked("image"));
    let inspection = look(&opened.model, &[]);
    assert!(inspection.work.macs > 100_000 && inspection.work.uncounted.is_empty());
    let z0 = inspection
        .cuts
        .iter()
        .find(|cut| cut.found.cut.tensors == ["/seg0/bott/Clip_output_0"])
        .unwrap();
    assert_eq!(z0.row_bytes, Some(8 * 7 * 7 * 4));
    assert_eq!(z0.found.answers, ["logits1"], "the first exit does not follow from it");
    assert!(z0.front_macs * 2 < inspection.work.macs && z0.front_parameters > 0);
    let in_front: Vec<u64> = inspection.cuts.iter().map(|cut| cut.front_parameters).collect();
    assert!(in_front.iter().all(|front| *front <= inspection.parameters));
}
