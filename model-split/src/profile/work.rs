//! How much of a model's work lies in front of a cut: multiply-accumulates of convolutions and
//! matrix products, and one per element that any node writes. It orders cuts so that times can be
//! interpolated between those measured; it is no time itself. Pure.

use std::collections::HashMap;

use midspan_runtime::Dim;

use crate::cut::{CutError, Types, extract};
use crate::onnx::{ModelProto, pb};

/// The share of the model's work in front of each of `cuts`, 0 to 1.
///
/// # Errors
/// When the model has no graph, or a cut is no tensor of it.
pub(super) fn front_shares(
    model: &ModelProto,
    types: &Types,
    inputs: &[String],
    cuts: &[String],
) -> Result<Vec<f64>, CutError> {
    let graph = model.graph.as_ref().ok_or(CutError::NoGraph)?;
    let weights: HashMap<&str, Vec<f64>> = graph
        .initializer
        .iter()
        .map(|weight| (weight.name(), weight.dims.iter().map(|size| *size as f64).collect()))
        .collect();
    let shape = |name: &str| -> Vec<f64> {
        weights.get(name).cloned().unwrap_or_else(|| {
            let dims = types.get(name).map(|spec| spec.dims.as_slice()).unwrap_or_default();
            dims.iter().map(size).collect()
        })
    };
    let of = |graph: &pb::GraphProto| -> f64 {
        graph.node.iter().map(|node| node_work(node, &shape)).sum()
    };
    let all = of(graph).max(1.0);
    let share = |cut: &String| {
        let front = extract(model, types, inputs, std::slice::from_ref(cut))?;
        Ok((front.graph.as_ref().map_or(0.0, of) / all).clamp(0.0, 1.0))
    };
    cuts.iter().map(share).collect()
}

fn size(dim: &Dim) -> f64 {
    match dim {
        Dim::Fixed(size) => *size as f64,
        Dim::Symbolic(_) => 1.0,
    }
}

fn node_work(node: &pb::NodeProto, shape: &impl Fn(&str) -> Vec<f64>) -> f64 {
    let product = |dims: &[f64]| dims.iter().product::<f64>();
    let input = |index: usize| node.input.get(index).map_or_else(Vec::new, |name| shape(name));
    let output = node.output.first().map_or(1.0, |name| product(&shape(name)));
    let depth = match node.op_type() {
        "Conv" | "ConvInteger" => input(1).get(1..).map_or(0.0, product),
        // Inputs of the quantised forms: x, its scale, its zero point, then the weights.
        "QLinearConv" => input(3).get(1..).map_or(0.0, product),
        "ConvTranspose" => {
            return output + product(&input(0)) * input(1).get(1..).map_or(0.0, product);
        }
        "Gemm" => {
            let transposed = node.attribute.iter().any(|a| a.name() == "transA" && a.i() == 1);
            input(0).get(usize::from(!transposed)).copied().unwrap_or(0.0)
        }
        "MatMul" | "MatMulInteger" | "QLinearMatMul" => input(0).last().copied().unwrap_or(0.0),
        _ => 0.0,
    };
    output * (1.0 + depth)
}
