//! Graphs of unusual but legal forms: what is written must run, and answer as the whole does.

use super::*;

type Named = Vec<(String, Tensor)>;

pub(super) fn run_all(model: &ModelProto, given: &[(String, Tensor)]) -> Named {
    test_support::library();
    let mut session =
        Session::load(&onnx::encode(model), &SessionOptions::default(), None).unwrap();
    let wanted: Vec<String> = session.inputs().iter().map(|spec| spec.name.clone()).collect();
    let inputs: Vec<_> = wanted
        .iter()
        .map(|name| {
            let (_, tensor) = given.iter().find(|(known, _)| known == name).unwrap();
            (name.as_str(), tensor.view())
        })
        .collect();
    let answers = session.run(&inputs).unwrap();
    let names = session.outputs().iter().map(|spec| spec.name.clone());
    names.zip(answers).collect()
}

pub(super) fn floats(name: &str, values: &[f32]) -> (String, Tensor) {
    (name.to_owned(), Tensor::from_f32s(vec![values.len()], values).unwrap())
}

/// Cuts, runs both halves and the whole, and expects the same bits.
pub(super) fn same(
    model: &ModelProto,
    tensors: &[&str],
    given: &Named,
) -> (ModelProto, ModelProto) {
    let types = infer(model);
    let (front, tail) = halves(model, &types, &Cut::at(tensors.iter().copied())).unwrap();
    let mut all = given.clone();
    all.extend(run_all(&front, given));
    all.extend(run_all(&tail, &all));
    for (name, expected) in run_all(model, given) {
        let (_, got) = all.iter().find(|(known, _)| *known == name).unwrap();
        assert_eq!(*got, expected, "{name} cut at {tensors:?}");
    }
    (front, tail)
}

fn ends(model: &ModelProto) -> (Vec<&str>, Vec<&str>) {
    let graph = model.graph.as_ref().unwrap();
    (
        graph.input.iter().map(|info| info.name()).collect(),
        graph.output.iter().map(|info| info.name()).collect(),
    )
}

fn graph(nodes: Vec<pb::NodeProto>, outputs: &[&str]) -> pb::GraphProto {
    pb::GraphProto {
        name: Some("g".into()),
        node: nodes,
        input: vec![float("x")],
        output: outputs.iter().map(|name| float(name)).collect(),
        ..Default::default()
    }
}

#[test]
fn inputs_may_cross_and_outputs_may_be_read_inside() {
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("Neg", &["a"], &["early"]),
        node("Add", &["early", "mask"], &["late"]),
    ];
    let mut inner = graph(nodes, &["early", "late"]);
    inner.input.extend([float("mask"), float("idle")]);
    let model = model(inner);
    let given =
        vec![floats("x", &[1.0, -2.0]), floats("mask", &[0.5, 0.5]), floats("idle", &[0.0, 0.0])];
    let (front, tail) = same(&model, &["early", "mask"], &given);
    assert_eq!(ends(&front), (vec!["x", "idle"], vec!["early"]));
    assert_eq!(ends(&tail), (vec!["early", "mask"], vec!["late"]));
    let (front, tail) = same(&model, &["a", "mask"], &given);
    assert_eq!(ends(&front).1, ["a"]);
    assert_eq!(ends(&tail).1, ["early", "late"]);
    // Alone, "a" leads to "early" only: the front answers the rest.
    let (front, tail) = same(&model, &["a"], &given);
    assert_eq!(ends(&front), (vec!["x", "mask", "idle"], vec!["a", "late"]));
    assert_eq!(ends(&tail), (vec!["a"], vec!["early"]));
}

#[test]
fn a_part_that_is_given_one_output_of_a_node_makes_only_the_others() {
    let mut split = node("Split", &["h"], &["l", "r"]);
    split.attribute = vec![pb::AttributeProto {
        name: Some("axis".into()),
        r#type: Some(pb::attribute_proto::AttributeType::Int as i32),
        i: Some(0),
        ..Default::default()
    }];
    let nodes = vec![
        node("Relu", &["x"], &["h"]),
        split,
        node("Neg", &["r"], &["n"]),
        node("Add", &["l", "n"], &["y"]),
    ];
    let model = model(graph(nodes, &["y"]));
    let given = vec![floats("x", &[1.0, 2.0, 3.0, 4.0])];
    let (_, tail) = same(&model, &["l", "h"], &given);
    let split = &tail.graph.as_ref().unwrap().node[0];
    assert_eq!(split.output, ["l_unused", "r"]);
    same(&model, &["l", "r"], &given);
}

#[test]
fn a_graph_out_of_order_is_written_in_order() {
    let nodes = vec![
        node("Neg", &["b"], &["y"]),
        node("Relu", &["x"], &["a"]),
        node("Sigmoid", &["a"], &["b"]),
    ];
    let model = model(graph(nodes, &["y"]));
    let (front, _) = same(&model, &["b"], &vec![floats("x", &[1.0, -2.0])]);
    let ops: Vec<&str> = front.graph.as_ref().unwrap().node.iter().map(|n| n.op_type()).collect();
    assert_eq!(ops, ["Relu", "Sigmoid"]);
}

#[test]
fn weights_listed_as_inputs_stay_listed() {
    let mut old = chain();
    old.ir_version = Some(3);
    let inner = old.graph.as_mut().unwrap();
    let fixed =
        TensorSpec { name: "one".into(), element: ElementType::F32, dims: vec![Dim::Fixed(1)] };
    let unused = TensorSpec { name: "unused".into(), ..fixed.clone() };
    inner.input.extend([value_info(&fixed, true), value_info(&unused, true)]);
    assert_eq!(single_tensor_cuts(&old).unwrap(), ["a", "b"]);
    let (front, tail) = same(&old, &["a"], &vec![floats("x", &[1.0, -2.0])]);
    assert_eq!(ends(&front).0, ["x", "one"]);
    assert_eq!(ends(&tail).0, ["a", "one"]);
}

#[test]
fn functions_sparse_weights_metadata_and_annotations_are_kept() {
    let opset = |domain: &str, version| pb::OperatorSetIdProto {
        domain: Some(domain.to_owned()),
        version: Some(version),
    };
    let twice = pb::FunctionProto {
        name: Some("Twice".into()),
        domain: Some("own".into()),
        input: names(&["v"]),
        output: names(&["w"]),
        node: vec![node("Add", &["v", "v"], &["w"])],
        opset_import: vec![opset("", 17)],
        ..Default::default()
    };
    let entry = |key: &str, value: &str| pb::StringStringEntryProto {
        key: Some(key.to_owned()),
        value: Some(value.to_owned()),
    };
    let mut call = node("Twice", &["a"], &["b"]);
    call.domain = Some("own".into());
    call.name = Some("call".into());
    call.doc_string = Some("doubles".into());
    let mut inner = graph(
        vec![node("Relu", &["x"], &["a"]), call, node("Add", &["b", "thin"], &["y"])],
        &["y"],
    );
    inner.input = vec![value_info(
        &TensorSpec { name: "x".into(), element: ElementType::F32, dims: vec![Dim::Fixed(3)] },
        true,
    )];
    inner.initializer = vec![scalar("scale", 0.5), scalar("zero", 0.0)];
    let mut values = scalar("thin", 4.0);
    values.dims = vec![1];
    let indices = pb::TensorProto {
        data_type: Some(7),
        dims: vec![1],
        raw_data: Some(2i64.to_le_bytes().to_vec().into()),
        ..Default::default()
    };
    let (values, indices) = (Some(values), Some(indices));
    inner.sparse_initializer = vec![pb::SparseTensorProto { values, indices, dims: vec![3] }];
    inner.quantization_annotation = vec![pb::TensorAnnotation {
        tensor_name: Some("b".into()),
        quant_parameter_tensor_names: vec![
            entry("SCALE_TENSOR", "scale"),
            entry("ZERO_POINT_TENSOR", "zero"),
        ],
    }];
    let mut model = model(inner);
    model.opset_import.push(opset("own", 1));
    model.functions = vec![twice];
    model.metadata_props = vec![entry("author", "us")];
    let (front, tail) = same(&model, &["b"], &vec![floats("x", &[1.0, -2.0, 3.0])]);
    for part in [&front, &tail] {
        let graph = part.graph.as_ref().unwrap();
        assert_eq!(part.metadata_props, model.metadata_props);
        assert_eq!((part.functions.len(), part.opset_import.len()), (1, 2));
        assert_eq!(graph.quantization_annotation[0].tensor_name(), "b");
        assert_eq!(graph.initializer.len(), 2, "what the annotation names is there");
    }
    assert_eq!(front.graph.as_ref().unwrap().node[1].doc_string(), "doubles");
    assert_eq!(tail.graph.as_ref().unwrap().sparse_initializer.len(), 1);
}

#[test]
fn scalars_cross_as_scalars() {
    let mut mean = node("ReduceMean", &["x"], &["m"]);
    mean.attribute = vec![pb::AttributeProto {
        name: Some("keepdims".into()),
        r#type: Some(pb::attribute_proto::AttributeType::Int as i32),
        i: Some(0),
        ..Default::default()
    }];
    let scalar = TensorSpec { name: "y".into(), element: ElementType::F32, dims: vec![] };
    let mut inner = graph(vec![mean, node("Neg", &["m"], &["y"])], &[]);
    inner.output = vec![value_info(&scalar, true)];
    let model = model(inner);
    let types = infer(&model);
    assert!(types.is_ranked("m") && types.get("m").unwrap().dims.is_empty());
    let (front, tail) = same(&model, &["m"], &vec![floats("x", &[1.0, 4.0])]);
    for info in [&front.graph.unwrap().output[0], &tail.graph.unwrap().input[0]] {
        let Some(pb::type_proto::Value::TensorType(tensor)) =
            info.r#type.as_ref().and_then(|known| known.value.as_ref())
        else {
            panic!("no tensor");
        };
        assert_eq!(tensor.shape, Some(pb::TensorShapeProto { dim: vec![] }));
    }
}

#[test]
fn weights_beside_the_model_are_found_and_types_need_only_the_small() {
    let folder = tempfile::tempdir().unwrap();
    let values = 6 << 20;
    // Zeros but for the first: the file is a hole, and reading types touches none of it.
    let file = std::fs::File::create(folder.path().join("w")).unwrap();
    file.set_len(16 + 4 * values).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, &(-1i64).to_le_bytes(), 0).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, &2.5f32.to_le_bytes(), 16).unwrap();
    let outside = |name: &str, element, dims: Vec<i64>, offset, length| {
        let mut tensor = pb::TensorProto {
            name: Some(name.to_owned()),
            data_type: Some(element),
            dims,
            ..Default::default()
        };
        crate::onnx::external::point(&mut tensor, "w", offset, length);
        tensor
    };
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("Reshape", &["big", "flat"], &["row"]),
        node("Mul", &["a", "row"], &["b"]),
        node("ReduceSum", &["b"], &["y"]),
    ];
    let mut inner = graph(nodes, &["y"]);
    inner.input = vec![value_info(
        &TensorSpec { name: "x".into(), element: ElementType::F32, dims: vec![Dim::Fixed(1)] },
        true,
    )];
    inner.initializer = vec![
        outside("big", 1, vec![2, values as i64 / 2], 16, 4 * values),
        outside("flat", 7, vec![1], 0, 8),
    ];
    let model = model(inner);
    let types = Types::infer_in(&model, folder.path(), &[]).unwrap();
    // The value of the small weight says that the reshaped weight has one dimension.
    assert_eq!(types.get("b").unwrap().dims, [Dim::Fixed(values as usize)]);
    let (front, tail) = halves(&model, &types, &Cut::at(["a"])).unwrap();
    let path = folder.path().join("tail.onnx");
    let written = onnx::write(&tail, folder.path(), &path, false).unwrap();
    assert_eq!(written.data, None);
    assert!(onnx::external::first_external(&front).is_none());
    let mut session = Session::load_path(&path, &SessionOptions::default(), None).unwrap();
    let (_, a) = floats("a", &[2.0]);
    let sum = session.run(&[("a", a.view())]).unwrap().swap_remove(0);
    assert_eq!(*sum.f32s().unwrap(), [5.0]);
    let mut wrong = model.clone();
    wrong.graph.as_mut().unwrap().initializer[0].dims = vec![7];
    let error = Types::infer_in(&wrong, folder.path(), &[]).unwrap_err().to_string();
    assert!(error.starts_with("weight \"big\": its type and shape need 28 bytes"), "{error}");
}

#[test]
fn a_large_model_is_typed_without_its_weights() {
    let side = 2200;
    let mut big = scalar("w", 0.0);
    big.dims = vec![side, side];
    big.raw_data = Some(vec![0; 4 * (side * side) as usize].into());
    let mut inner =
        graph(vec![node("MatMul", &["x", "w"], &["m"]), node("Relu", &["m"], &["y"])], &[]);
    let square = |name: &str| {
        let dims = vec![Dim::Symbolic("N".into()), Dim::Fixed(side as usize)];
        value_info(&TensorSpec { name: name.into(), element: ElementType::F32, dims }, true)
    };
    (inner.input, inner.output) = (vec![square("x")], vec![square("y")]);
    inner.initializer = vec![big];
    let types = infer(&model(inner));
    assert_eq!(types.get("m").unwrap().dims_text(), "[N,2200]");
}

/// `h = relu(x)`, `b = neg(h)`, and a Loop that twice adds `h`, which it captures, to `b`.
fn looping() -> ModelProto {
    let bare = |name: &str, element| {
        value_info(&TensorSpec { name: name.into(), element, dims: vec![] }, true)
    };
    let body = pb::GraphProto {
        name: Some("body".into()),
        node: vec![node("Identity", &["c"], &["more"]), node("Add", &["v", "h"], &["next"])],
        input: vec![bare("i", ElementType::I64), bare("c", ElementType::Bool), float("v")],
        output: vec![bare("more", ElementType::Bool), float("next")],
        ..Default::default()
    };
    let mut repeat = node("Loop", &["two", "", "b"], &["y"]);
    repeat.attribute = vec![pb::AttributeProto {
        name: Some("body".into()),
        r#type: Some(pb::attribute_proto::AttributeType::Graph as i32),
        g: Some(body),
        ..Default::default()
    }];
    let mut inner =
        graph(vec![node("Relu", &["x"], &["h"]), node("Neg", &["h"], &["b"]), repeat], &["y"]);
    inner.initializer = vec![pb::TensorProto {
        name: Some("two".into()),
        data_type: Some(7),
        raw_data: Some(2i64.to_le_bytes().to_vec().into()),
        ..Default::default()
    }];
    model(inner)
}

#[test]
fn what_a_loop_captures_crosses() {
    let model = looping();
    assert_eq!(single_tensor_cuts(&model).unwrap(), ["h"]);
    let given = vec![floats("x", &[1.0, -2.0])];
    same(&model, &["h"], &given);
    let (_, tail) = same(&model, &["h", "b"], &given);
    assert_eq!(ends(&tail).0, ["h", "b"]);
    assert_eq!(tail.graph.unwrap().node.len(), 1);
}
