//! Cuts of small graphs written here, run by a real library, and of the default model.

use midspan_runtime::{
    Dim, ElementType, Executor, Session, SessionOptions, Tensor, TensorSpec, test_support,
};

use super::types::value_info;
use super::*;
use crate::onnx::{self, ModelProto, pb};

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> pb::NodeProto {
    pb::NodeProto {
        op_type: Some(op.to_owned()),
        input: names(inputs),
        output: names(outputs),
        ..Default::default()
    }
}

fn scalar(name: &str, value: f32) -> pb::TensorProto {
    pb::TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(1),
        dims: vec![1],
        raw_data: Some(value.to_le_bytes().to_vec().into()),
        ..Default::default()
    }
}

fn float(name: &str) -> pb::ValueInfoProto {
    let dims = vec![Dim::Symbolic("N".into())];
    value_info(&TensorSpec { name: name.to_owned(), element: ElementType::F32, dims }, true)
}

fn model(graph: pb::GraphProto) -> ModelProto {
    let opset = pb::OperatorSetIdProto { domain: None, version: Some(17) };
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![opset],
        producer_name: Some("hand".into()),
        graph: Some(graph),
        ..Default::default()
    }
}

/// `y = ((x + one) * k) + k`, where `k = one + one` depends on weights only.
fn chain() -> ModelProto {
    model(pb::GraphProto {
        name: Some("chain".into()),
        node: vec![
            node("Add", &["one", "one"], &["k"]),
            node("Add", &["x", "one"], &["a"]),
            node("Mul", &["a", "k"], &["b"]),
            node("Add", &["b", "k"], &["y"]),
            node("Relu", &["b"], &["side"]),
        ],
        initializer: vec![scalar("one", 1.0), scalar("unused", 9.0)],
        input: vec![float("x")],
        output: vec![float("y")],
        value_info: vec![float("a")],
        ..Default::default()
    })
}

fn run(model: &ModelProto, input: &str, values: &[f32]) -> Vec<f32> {
    test_support::library();
    let mut session =
        Session::load(&onnx::encode(model), &SessionOptions::default(), None).unwrap();
    let tensor = Tensor::from_f32s(vec![values.len()], values).unwrap();
    let answer = session.run(&[(input, tensor.view())]).unwrap().swap_remove(0);
    answer.f32s().unwrap().into_owned()
}

fn infer(model: &ModelProto) -> Types {
    test_support::library();
    Types::infer(model).unwrap()
}

#[test]
fn constants_are_not_live_and_each_part_computes_its_own() {
    let model = chain();
    assert_eq!(single_tensor_cuts(&model).unwrap(), ["a", "b"]);
    let types = infer(&model);
    let front = extract(&model, &types, &names(&["x"]), &names(&["a"])).unwrap();
    let tail = extract(&model, &types, &names(&["a"]), &names(&["y"])).unwrap();
    let graph = tail.graph.as_ref().unwrap();
    let ops: Vec<&str> = graph.node.iter().map(|node| node.output[0].as_str()).collect();
    assert_eq!(ops, ["k", "b", "y"]);
    assert_eq!(graph.initializer.len(), 1, "the unused weight is gone");
    assert!(front.graph.as_ref().unwrap().value_info.is_empty());
    assert_eq!((tail.producer_name.as_deref(), tail.ir_version), (Some("hand"), Some(8)));
    let whole = run(&model, "x", &[1.0, -2.0]);
    assert_eq!(whole, [6.0, 0.0]);
    assert_eq!(run(&tail, "a", &run(&front, "x", &[1.0, -2.0])), whole);
}

#[test]
fn types_of_inner_tensors_come_from_the_library() {
    let types = infer(&chain());
    assert_eq!(types.get("b").unwrap().dims_text(), "[N]");
    assert_eq!(types.get("k").unwrap().dims_text(), "[1]");
    let error = types.get("nothing").unwrap_err().to_string();
    assert_eq!(error, "the model has no tensor \"nothing\" of a supported type");
}

/// `y = if flag { a } else { a * x }`, with `a = x + one` captured by both bodies.
fn branch() -> ModelProto {
    let body = |name: &str, nodes| pb::AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(pb::attribute_proto::AttributeType::Graph as i32),
        g: Some(pb::GraphProto {
            name: Some(name.to_owned()),
            node: nodes,
            output: vec![float("inner")],
            ..Default::default()
        }),
        ..Default::default()
    };
    let mut choice = node("If", &["flag"], &["y"]);
    choice.attribute = vec![
        body("then_branch", vec![node("Identity", &["a"], &["inner"])]),
        body("else_branch", vec![node("Mul", &["a", "x"], &["inner"])]),
    ];
    let flag = TensorSpec { name: "flag".into(), element: ElementType::Bool, dims: vec![] };
    model(pb::GraphProto {
        name: Some("branch".into()),
        node: vec![node("Add", &["x", "one"], &["a"]), choice],
        initializer: vec![scalar("one", 1.0)],
        input: vec![float("x"), value_info(&flag, true)],
        output: vec![float("y")],
        ..Default::default()
    })
}

#[test]
fn captures_of_bodies_are_live() {
    let model = branch();
    // x is read inside of the body, so that a alone is no cut.
    assert!(single_tensor_cuts(&model).unwrap().is_empty());
    let types = infer(&model);
    let error = extract(&model, &types, &names(&["a", "flag"]), &names(&["y"])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "output needs tensor \"x\", which does not follow from the inputs [\"a\", \"flag\"]"
    );
    let tail = extract(&model, &types, &names(&["a", "x", "flag"]), &names(&["y"])).unwrap();
    let graph = tail.graph.as_ref().unwrap();
    assert_eq!((graph.node.len(), graph.initializer.len()), (1, 0));
    Session::load(&onnx::encode(&tail), &SessionOptions::default(), None).unwrap();
}

#[test]
fn tensors_of_unknown_rank_can_cross() {
    let sizes = TensorSpec {
        name: "sizes".into(),
        element: ElementType::I64,
        dims: vec![Dim::Symbolic("K".into())],
    };
    let unknown = TensorSpec { name: "y".into(), element: ElementType::F32, dims: vec![] };
    let model = model(pb::GraphProto {
        name: Some("reshape".into()),
        node: vec![node("Reshape", &["x", "sizes"], &["r"]), node("Softmax", &["r"], &["y"])],
        input: vec![float("x"), value_info(&sizes, true)],
        output: vec![value_info(&unknown, false)],
        ..Default::default()
    });
    assert_eq!(single_tensor_cuts(&model).unwrap(), ["r"]);
    let types = infer(&model);
    assert_eq!(types.get("r").unwrap().dims, []);
    let tail = extract(&model, &types, &names(&["r"]), &names(&["y"])).unwrap();
    let mut session =
        Session::load(&onnx::encode(&tail), &SessionOptions::default(), None).unwrap();
    let rows = Tensor::from_f32s(vec![2, 2], &[1.0, 1.0, 0.0, 0.0]).unwrap();
    let answer = session.run(&[("r", rows.view())]).unwrap().swap_remove(0);
    assert_eq!((answer.shape(), &*answer.f32s().unwrap()), (&[2, 2][..], &[0.5; 4][..]));
}

#[test]
fn data_outside_of_the_model_is_refused_by_name_where_no_folder_is_known() {
    let outside = |tensor: &mut pb::TensorProto| {
        tensor.data_location = Some(pb::tensor_proto::DataLocation::External as i32);
    };
    let mut model = chain();
    outside(&mut model.graph.as_mut().unwrap().initializer[0]);
    let error = Types::infer(&model).unwrap_err().to_string();
    assert!(error.starts_with("weight \"one\" is kept outside the model's file"), "{error}");
    let mut inner = branch();
    let body = inner.graph.as_mut().unwrap().node[1].attribute[0].g.as_mut().unwrap();
    let mut constant = node("Constant", &[], &["c"]);
    let mut hidden = scalar("hidden", 1.0);
    outside(&mut hidden);
    constant.attribute = vec![pb::AttributeProto { t: Some(hidden), ..Default::default() }];
    body.node.push(constant);
    let error = Types::infer(&inner).unwrap_err().to_string();
    assert!(error.starts_with("weight \"hidden\""), "{error}");
}

fn default_model() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fashion.onnx");
    std::fs::read(path).unwrap()
}

#[test]
fn the_default_model_is_read_and_written_unchanged() {
    let bytes = default_model();
    assert!(onnx::encode(&onnx::decode(bytes.clone().into()).unwrap()) == bytes);
}

#[test]
fn the_default_model_is_cut_where_its_segments_meet() {
    let model = onnx::decode(default_model().into()).unwrap();
    let types = infer(&model);
    let cuts = single_tensor_cuts(&model).unwrap();
    let inner = ["/seg0/bott/Clip_output_0", "/seg1/bott/Clip_output_0"];
    assert!(inner.iter().all(|name| cuts.iter().any(|cut| cut == name)), "{cuts:?}");
    let z0 = types.get("/seg0/bott/Clip_output_0").unwrap();
    assert_eq!((z0.element, z0.dims_text().as_str()), (ElementType::F32, "[N,8,7,7]"));
    let tail = extract(&model, &types, std::slice::from_ref(&z0.name), &names(&["logits3"]));
    let graph = tail.unwrap().graph.unwrap();
    let strange = |name: &str| name.contains("seg0") || name.contains("seg1/head");
    assert!(!graph.node.iter().any(|node| strange(node.name())), "other exits are left out");
}

#[test]
fn garbage_is_no_model() {
    assert!(onnx::decode(b"\xff\xff\xff".to_vec().into()).is_err());
    assert!(matches!(onnx::decode(bytes::Bytes::new()), Err(onnx::OnnxError::NoGraph)));
}

mod forms;
mod regions;
