//! Where graphs can be cut, where not, and why.

use super::forms::{floats, same};
use super::*;

fn look(model: &ModelProto, tensors: usize) -> Cuts {
    cuts(model, &infer(model), &Options { tensors }).unwrap()
}

fn at(cuts: &Cuts) -> Vec<String> {
    cuts.found.iter().map(|found| found.cut.tensors.join("+")).collect()
}

fn why(cuts: &Cuts) -> Vec<(String, &'static str, String)> {
    let regions = cuts.regions.iter();
    regions
        .map(|r| (format!("{}..{}", r.first, r.last), r.why.reason(), r.why.to_string()))
        .collect()
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
fn every_reason_is_listed_once() {
    let name = || "n".to_owned();
    let all = [
        Uncuttable::Live { live: 3, limit: 1, beside: name() },
        Uncuttable::Captured { node: name(), beside: name() },
        Uncuttable::Body { node: name() },
        Uncuttable::Function { name: name() },
        Uncuttable::NotTensor { found: name() },
        Uncuttable::Element { found: name() },
        Uncuttable::UnknownRank,
        Uncuttable::Untyped,
        Uncuttable::Random { node: name() },
    ];
    assert_eq!(all.each_ref().map(Uncuttable::reason), Uncuttable::REASONS);
}

/// Two residual blocks: `c = s(r(x)) + r(x)`, `y = neg(s(c) + c)`.
fn blocks() -> ModelProto {
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("Sigmoid", &["a"], &["b"]),
        node("Add", &["a", "b"], &["c"]),
        node("Sigmoid", &["c"], &["d"]),
        node("Add", &["c", "d"], &["e"]),
        node("Neg", &["e"], &["y"]),
    ];
    model(graph(nodes, &["y"]))
}

#[test]
fn inside_of_a_residual_block_two_tensors_cross() {
    let model = blocks();
    let single = look(&model, 1);
    assert_eq!(at(&single), ["a", "c", "e"]);
    let live = |beside: &str| {
        format!("2 tensors are needed behind it, \"{beside}\" among them; a cut may have 1")
    };
    assert_eq!(
        why(&single),
        [("b..b".into(), "live", live("a")), ("d..d".into(), "live", live("c"))]
    );
    let pairs = look(&model, 2);
    assert_eq!(at(&pairs), ["a", "a+b", "c", "c+d", "e"]);
    assert_eq!(pairs.regions, []);
    same(&model, &["a", "b"], &vec![floats("x", &[1.0, -2.0])]);
    let error = halves(&model, &infer(&model), &Cut::at(["b"])).unwrap_err().to_string();
    assert_eq!(error, "output needs tensor \"a\", which does not follow from the inputs [\"b\"]");
}

#[test]
fn branches_side_by_side_are_cut_in_several_orders() {
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("Sigmoid", &["a"], &["l1"]),
        node("Neg", &["l1"], &["l2"]),
        node("Tanh", &["a"], &["r1"]),
        node("Neg", &["r1"], &["r2"]),
        node("Add", &["l2", "r2"], &["y"]),
    ];
    let pairs = at(&look(&model(graph(nodes, &["y"])), 2));
    for wanted in ["a", "a+l1", "a+l2", "l2+r1", "l2+r2", "l1+r1"] {
        assert!(pairs.iter().any(|pair| pair == wanted), "{wanted} in {pairs:?}");
    }
}

#[test]
fn cuts_around_a_quantised_tensor_point_to_it() {
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("QuantizeLinear", &["a", "scale", "zero"], &["q"]),
        node("DequantizeLinear", &["q", "scale", "zero"], &["d"]),
        node("Neg", &["d"], &["y"]),
    ];
    let mut inner = graph(nodes, &["y"]);
    let mut scale = scalar("scale", 0.1);
    scale.dims = vec![];
    let zero = pb::TensorProto {
        name: Some("zero".into()),
        data_type: Some(3),
        raw_data: Some(vec![0].into()),
        ..Default::default()
    };
    inner.initializer = vec![scale, zero];
    let model = model(inner);
    let found = look(&model, 1).found;
    let instead: Vec<(&str, Option<&str>)> = found
        .iter()
        .map(|found| (found.cut.tensors[0].as_str(), found.instead.as_deref()))
        .collect();
    assert_eq!(instead, [("a", Some("q")), ("q", None), ("d", Some("q"))]);
    assert_eq!(infer(&model).get("q").unwrap().element, ElementType::I8);
    same(&model, &["q"], &vec![floats("x", &[1.0, -2.0, 0.37])]);
}

#[test]
fn what_is_drawn_at_random_is_drawn_once() {
    // Nothing leads to the noise, and yet it is no constant.
    let mut noise = node("RandomNormal", &[], &["noise"]);
    noise.attribute = vec![pb::AttributeProto {
        name: Some("shape".into()),
        r#type: Some(pb::attribute_proto::AttributeType::Ints as i32),
        ints: vec![1],
        ..Default::default()
    }];
    let nodes = vec![noise, node("Relu", &["x"], &["a"]), node("Add", &["a", "noise"], &["y"])];
    let noisy = model(graph(nodes, &["y"]));
    assert_eq!(single_tensor_cuts(&noisy).unwrap(), [""; 0]);
    assert_eq!(at(&look(&noisy, 2)), ["x+noise", "noise+a"]);
    // Both outputs follow from one draw, but only one of them from "a" alone.
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("RandomNormalLike", &["a"], &["r"]),
        node("Add", &["r", "x"], &["y"]),
        node("Neg", &["r"], &["z"]),
    ];
    let twice = model(graph(nodes, &["y", "z"]));
    let found = look(&twice, 1);
    assert_eq!(at(&found), ["r"]);
    assert_eq!(
        why(&found),
        [(
            "a..a".into(),
            "random",
            "both parts would need what RandomNormalLike \"r\" draws at random".into()
        )]
    );
    let error = halves(&twice, &infer(&twice), &Cut::at(["a"])).unwrap_err().to_string();
    assert!(error.starts_with("the model cannot be cut at \"a\": both parts"), "{error}");
}

#[test]
fn bodies_and_what_they_capture_are_told() {
    let open = branch();
    assert_eq!(at(&look(&open, 3)), ["x+flag+a"]);
    let mut decided = branch();
    let inner = decided.graph.as_mut().unwrap();
    inner.input.pop();
    inner.initializer.push(pb::TensorProto {
        name: Some("flag".into()),
        data_type: Some(9),
        raw_data: Some(vec![1].into()),
        ..Default::default()
    });
    let found = look(&decided, 1);
    assert_eq!(at(&found), [""; 0]);
    let why = why(&found);
    assert_eq!((why[0].1, why[0].2.as_str()), ("captured", "the body of If \"y\" reads \"x\" too"));
    assert_eq!((why[1].1, why[1].2.as_str()), ("body", "inside of If \"y\""));
    assert_eq!(at(&look(&decided, 2)), ["x+a"]);
    same(&decided, &["x", "a"], &vec![floats("x", &[1.0, -2.0])]);
}

#[test]
fn what_is_no_plain_tensor_does_not_cross() {
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("SequenceConstruct", &["a", "a"], &["list"]),
        node("ConcatFromSequence", &["list"], &["c"]),
        node("Reshape", &["c", "sizes"], &["free"]),
        node("Softmax", &["free"], &["y"]),
    ];
    let mut inner = graph(nodes, &[]);
    inner.node[2].attribute = vec![pb::AttributeProto {
        name: Some("axis".into()),
        r#type: Some(pb::attribute_proto::AttributeType::Int as i32),
        i: Some(0),
        ..Default::default()
    }];
    let dims = vec![Dim::Symbolic("K".into())];
    let sizes = TensorSpec { name: "sizes".into(), element: ElementType::I64, dims };
    let free = TensorSpec { name: "y".into(), element: ElementType::F32, dims: vec![] };
    inner.input.push(value_info(&sizes, true));
    inner.output = vec![value_info(&free, false)];
    let model = model(inner);
    let found = look(&model, 2);
    assert_eq!(at(&found), ["sizes+a"]);
    let reasons: Vec<&str> = found.regions.iter().map(|region| region.why.reason()).collect();
    assert_eq!(reasons, ["not_tensor", "unknown_rank"]);
    let free = &found.regions[1];
    assert_eq!((free.first.as_str(), free.last.as_str(), free.tensors), ("c", "free", 2));
    let types = infer(&model);
    let error = halves(&model, &types, &Cut::at(["list", "sizes"])).unwrap_err().to_string();
    assert!(error.starts_with("the model cannot be cut at \"list\": it is a Sequence"), "{error}");
    // Asked for by name, what has no fixed number of dimensions is cut all the same.
    halves(&model, &types, &Cut::at(["free"])).unwrap();
}

#[test]
fn what_is_no_cut_is_refused_by_name() {
    let model = blocks();
    let types = infer(&model);
    let refused = |tensors: &[&str]| {
        halves(&model, &types, &Cut::at(tensors.iter().copied())).unwrap_err().to_string()
    };
    assert_eq!(refused(&["no"]), "the model has no tensor \"no\" of a supported type");
    let nothing = "a cut needs a tensor that the model makes from its inputs, got ";
    assert_eq!(refused(&[]), format!("{nothing}[]"));
    assert_eq!(refused(&["x"]), format!("{nothing}[\"x\"]"));
    let behind = "tensor \"a\" is not read behind a cut at [\"a\", \"c\"]";
    assert_eq!(refused(&["a", "c"]), behind);
    assert_eq!(refused(&["y"]), "tensor \"y\" is not read behind a cut at [\"y\"]");
    let constant = chain();
    let error = halves(&constant, &infer(&constant), &Cut::at(["k"])).unwrap_err().to_string();
    assert_eq!(error, "tensor \"k\" depends on no input: there is nothing to cut");
    let mut turning = blocks();
    turning.graph.as_mut().unwrap().node[0].input = names(&["e"]);
    let error = single_tensor_cuts(&turning).unwrap_err().to_string();
    assert!(error.ends_with("reads what follows from it"), "{error}");
}
