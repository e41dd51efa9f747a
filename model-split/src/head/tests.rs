//! Heads merged into small stages, and the stage as it is then.

use super::*;
use crate::onnx::pb::{
    AttributeProto, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto, TensorProto,
    ValueInfoProto,
};

fn node(op: &str, reads: &[&str], makes: &str) -> NodeProto {
    NodeProto {
        op_type: Some(op.into()),
        input: reads.iter().map(|name| (*name).into()).collect(),
        output: vec![makes.into()],
        ..NodeProto::default()
    }
}

fn values(names: &[&str]) -> Vec<ValueInfoProto> {
    let value = |name: &&str| ValueInfoProto { name: Some((*name).into()), ..Default::default() };
    names.iter().map(value).collect()
}

fn weight(name: &str) -> TensorProto {
    TensorProto { name: Some(name.into()), ..TensorProto::default() }
}

fn model(graph: GraphProto, imports: &[(&str, i64)]) -> ModelProto {
    let import = |(domain, version): &(&str, i64)| OperatorSetIdProto {
        domain: Some((*domain).into()),
        version: Some(*version),
    };
    ModelProto {
        ir_version: Some(7),
        opset_import: imports.iter().map(import).collect(),
        graph: Some(graph),
        ..ModelProto::default()
    }
}

/// Reads `x`; makes the tensor `z` of a cut, and `old`, an exit with a weight of its own.
fn stage() -> ModelProto {
    let graph = GraphProto {
        node: vec![node("Relu", &["x"], "z"), node("MatMul", &["z", "w"], "old")],
        initializer: vec![weight("w")],
        input: values(&["x"]),
        output: values(&["z", "old"]),
        ..GraphProto::default()
    };
    model(graph, &[("", 17)])
}

/// Reads `reads`; makes `logits` with a weight of this name.
fn head(reads: &str, own: &str) -> ModelProto {
    let graph = GraphProto {
        node: vec![node("MatMul", &[reads, own], "logits")],
        initializer: vec![weight(own)],
        input: values(&[reads]),
        output: values(&["logits"]),
        ..GraphProto::default()
    };
    model(graph, &[("ai.onnx", 17)])
}

fn outputs(model: &ModelProto) -> Vec<&str> {
    model.graph.as_ref().unwrap().output.iter().map(|output| output.name()).collect()
}

#[test]
fn a_head_takes_the_place_of_an_exit_and_of_what_only_that_needed() {
    let mut merged = stage();
    merge(&mut merged, head("z", "own")).unwrap();
    assert_eq!(outputs(&merged), ["z", "old", "logits"]);
    assert_eq!(merged.opset_import.len(), 1, "both names of ONNX's operators are one");
    keep(&mut merged, &["z", "logits"]).unwrap();
    assert_eq!(outputs(&merged), ["z", "logits"]);
    let graph = merged.graph.unwrap();
    let ops: Vec<_> = graph.node.iter().map(|node| node.output[0].as_str()).collect();
    assert_eq!(ops, ["z", "logits"]);
    assert_eq!(graph.initializer.iter().map(|w| w.name()).collect::<Vec<_>>(), ["own"]);
    assert_eq!(
        keep(&mut stage(), &["z", "absent"]),
        Err(HeadError::Output("absent".into())),
        "nothing is left out in silence"
    );
}

#[test]
fn what_does_not_fit_is_said() {
    let refused = |head| {
        let mut into = stage();
        let error = merge(&mut into, head).unwrap_err();
        assert_eq!(into, stage(), "the stage is as it was");
        error
    };
    assert_eq!(refused(head("y", "own")), HeadError::Input("y".into()));
    assert_eq!(refused(head("z", "w")), HeadError::Name("w".into()));
    assert_eq!(refused(head("z", "x")), HeadError::Name("x".into()));
    assert_eq!(refused(ModelProto::default()), HeadError::NoGraph);
    let mut newer = head("z", "own");
    newer.opset_import[0].version = Some(18);
    assert_eq!(refused(newer), HeadError::Opset { domain: String::new(), head: 18, stage: 17 });
}

#[test]
fn functions_and_other_domains_come_along_once() {
    let function = |name: &str| FunctionProto { name: Some(name.into()), ..Default::default() };
    let mut with = head("z", "own");
    with.functions.push(function("pool"));
    with.opset_import.push(OperatorSetIdProto { domain: Some("mine".into()), version: Some(1) });
    with.ir_version = Some(9);
    let mut merged = stage();
    merge(&mut merged, with.clone()).unwrap();
    assert_eq!((merged.functions.len(), merged.opset_import.len()), (1, 2));
    assert_eq!(merged.ir_version, Some(9));
    let mut clashing = stage();
    clashing.functions.push(function("pool"));
    assert_eq!(merge(&mut clashing, with), Err(HeadError::Function("pool".into())));
}

#[test]
fn bodies_hide_no_name_and_keep_what_they_capture() {
    let body = GraphProto {
        node: vec![node("Add", &["captured", "x"], "inside")],
        output: values(&["inside"]),
        ..GraphProto::default()
    };
    let mut branch = node("If", &["x"], "z");
    branch.attribute.push(AttributeProto { g: Some(body), ..Default::default() });
    let mut with_body = stage();
    let graph = with_body.graph.as_mut().unwrap();
    graph.node[0] = branch;
    graph.node.insert(0, node("Neg", &["x"], "captured"));
    assert_eq!(merge(&mut with_body, head("z", "inside")), Err(HeadError::Name("inside".into())));
    keep(&mut with_body, &["z"]).unwrap();
    let nodes = &with_body.graph.as_ref().unwrap().node;
    assert_eq!(nodes.iter().map(|n| n.output[0].as_str()).collect::<Vec<_>>(), ["captured", "z"]);
}
