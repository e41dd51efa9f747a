//! A head as an ONNX model in the operators of its stage: features of the cut's tensor, then one
//! layer, or two with a ReLU between. It uses operators that mean the same from version 7 on, and
//! names that nothing else in the stage has. It must not train.

use midspan_runtime::TensorSpec;
use midspan_runtime::{Dim, ElementType};
use ndarray::Array2;

use super::fit::Layers;
use super::form::{Form, bin};
use crate::onnx::pb::attribute_proto::AttributeType;
use crate::onnx::pb::tensor_shape_proto::{Dimension, dimension::Value};
use crate::onnx::pb::{
    AttributeProto, GraphProto, NodeProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto, type_proto,
};
use crate::onnx::{ModelProto, pb};

/// The oldest version of ONNX's operators that heads are written in: from it on, `Gemm` takes a
/// bias of one row.
pub(super) const LEAST_OPSET: i64 = 7;

/// What stands in a head.
pub(super) struct Plan<'a> {
    /// First part of all its names.
    pub(super) prefix: &'a str,
    /// What it reads.
    pub(super) tensor: &'a TensorSpec,
    pub(super) form: Form,
    pub(super) layers: &'a Layers,
    /// Whether it ends in probabilities instead of logits, as the whole model does.
    pub(super) probabilities: bool,
}

struct Builder<'a> {
    prefix: &'a str,
    graph: GraphProto,
}

impl Plan<'_> {
    /// Name of what the head answers.
    pub(super) fn output(&self) -> String {
        format!("{}/logits", self.prefix)
    }

    /// The head, with the imports and the version of the format of its stage.
    pub(super) fn model(&self, stage: &ModelProto) -> ModelProto {
        let mut build = Builder { prefix: self.prefix, graph: GraphProto::default() };
        let mut at = self.tensor.name.clone();
        if self.tensor.element != ElementType::F32 {
            let float = int("to", i64::from(ElementType::F32.onnx_number()));
            at = build.node("Cast", &[&at], "numbers", vec![float]);
        }
        at = build.features(self.form, at);
        if let Some(hidden) = &self.layers.hidden {
            at = build.layer(&at, "hidden", hidden);
            at = build.node("Relu", &[&at], "relu", vec![]);
        }
        let last = if self.probabilities { "scores" } else { "logits" };
        at = build.layer(&at, last, &self.layers.last);
        if self.probabilities {
            build.node("Softmax", &[&at], "logits", vec![int("axis", 1)]);
        }
        let rows = self.tensor.dims.first().cloned().unwrap_or(Dim::Symbolic(String::new()));
        let answer = TensorSpec {
            name: self.output(),
            element: ElementType::F32,
            dims: vec![rows, Dim::Fixed(self.layers.last.bias.len())],
        };
        build.graph.name = Some(self.prefix.to_owned());
        build.graph.input = vec![value_info(self.tensor)];
        build.graph.output = vec![value_info(&answer)];
        let onnx = |import: &&pb::OperatorSetIdProto| matches!(import.domain(), "" | "ai.onnx");
        ModelProto {
            ir_version: stage.ir_version,
            opset_import: stage.opset_import.iter().filter(onnx).cloned().collect(),
            producer_name: Some("midspan".into()),
            graph: Some(build.graph),
            ..ModelProto::default()
        }
    }
}

impl Builder<'_> {
    fn name(&self, part: &str) -> String {
        format!("{}/{part}", self.prefix)
    }

    /// Adds a node with one output and returns the output's name.
    fn node(
        &mut self,
        op: &str,
        reads: &[&str],
        makes: &str,
        attribute: Vec<AttributeProto>,
    ) -> String {
        let output = self.name(makes);
        self.graph.node.push(NodeProto {
            name: Some(output.clone()),
            op_type: Some(op.to_owned()),
            input: reads.iter().map(|name| (*name).to_owned()).collect(),
            output: vec![output.clone()],
            attribute,
            ..NodeProto::default()
        });
        output
    }

    fn weight(&mut self, part: &str, dims: &[usize], values: impl Iterator<Item = f32>) -> String {
        let name = self.name(part);
        let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        self.graph.initializer.push(TensorProto {
            name: Some(name.clone()),
            data_type: Some(ElementType::F32.onnx_number()),
            dims: dims.iter().map(|size| number(*size)).collect(),
            raw_data: Some(bytes.into()),
            ..TensorProto::default()
        });
        name
    }

    fn matrix(&mut self, part: &str, values: &Array2<f32>) -> String {
        let (rows, columns) = values.dim();
        self.weight(part, &[rows, columns], values.iter().copied())
    }

    /// `[N, features]` of the tensor `at`.
    fn features(&mut self, form: Form, mut at: String) -> String {
        match form {
            Form::Mean { .. } => at = self.node("GlobalAveragePool", &[&at], "pooled", vec![]),
            Form::Sequence { .. } => {
                at = self.node("Transpose", &[&at], "turned", vec![ints("perm", &[0, 2, 1])]);
                at = self.node("GlobalAveragePool", &[&at], "pooled", vec![]);
            }
            Form::Grid { height, width, grid, .. } => {
                let divides = height.is_multiple_of(grid) && width.is_multiple_of(grid);
                if divides && (height, width) != (grid, grid) {
                    let size = [number(height / grid), number(width / grid)];
                    let sizes = vec![ints("kernel_shape", &size), ints("strides", &size)];
                    at = self.node("AveragePool", &[&at], "pooled", sizes);
                } else if !divides {
                    let columns = self.matrix("columns", &pooling(width, grid).reversed_axes());
                    let rows = self.matrix("rows", &pooling(height, grid));
                    at = self.node("MatMul", &[&at, &columns], "narrow", vec![]);
                    at = self.node("MatMul", &[&rows, &at], "pooled", vec![]);
                }
            }
            Form::Flat { .. } => {}
        }
        self.node("Flatten", &[&at], "features", vec![int("axis", 1)])
    }

    fn layer(&mut self, at: &str, makes: &str, layer: &super::fit::Layer) -> String {
        let weights = self.matrix(&format!("{makes}_weights"), &layer.weights);
        let count = layer.bias.len();
        let bias = self.weight(&format!("{makes}_bias"), &[count], layer.bias.iter().copied());
        self.node("Gemm", &[at, &weights, &bias], makes, vec![int("transB", 1)])
    }
}

/// The matrix `[bins, size]` that averages an axis over its bins.
fn pooling(size: usize, bins: usize) -> Array2<f32> {
    Array2::from_shape_fn((bins, size), |(row, place)| {
        let places = bin(row, bins, size);
        if places.contains(&place) { 1.0 / places.len() as f32 } else { 0.0 }
    })
}

fn number(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(AttributeType::Int as i32),
        i: Some(value),
        ..AttributeProto::default()
    }
}

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(AttributeType::Ints as i32),
        ints: values.to_vec(),
        ..AttributeProto::default()
    }
}

fn value_info(spec: &TensorSpec) -> ValueInfoProto {
    let dim = |dim: &Dim| Dimension {
        value: match dim {
            Dim::Fixed(size) => Some(Value::DimValue(number(*size))),
            Dim::Symbolic(name) if name.is_empty() => None,
            Dim::Symbolic(name) => Some(Value::DimParam(name.clone())),
        },
        ..Dimension::default()
    };
    let tensor = type_proto::Tensor {
        elem_type: Some(spec.element.onnx_number()),
        shape: Some(TensorShapeProto { dim: spec.dims.iter().map(dim).collect() }),
    };
    let value = Some(type_proto::Value::TensorType(tensor));
    ValueInfoProto {
        name: Some(spec.name.clone()),
        r#type: Some(TypeProto { value, ..TypeProto::default() }),
        ..ValueInfoProto::default()
    }
}

#[cfg(test)]
mod tests {
    use midspan_runtime::{Executor, Session, SessionOptions, Tensor, test_support};
    use ndarray::Array1;

    use super::super::fit::{Layer, Shape};
    use super::*;
    use crate::onnx::encode;

    fn stage(opset: i64) -> ModelProto {
        let import = pb::OperatorSetIdProto { domain: None, version: Some(opset) };
        ModelProto { ir_version: Some(4), opset_import: vec![import], ..ModelProto::default() }
    }

    fn layer(outputs: usize, inputs: usize) -> Layer {
        let value = |at: usize| ((at * 37 % 23) as f32 - 11.0) / 11.0;
        Layer {
            weights: Array2::from_shape_fn((outputs, inputs), |(row, at)| value(row * inputs + at)),
            bias: Array1::from_shape_fn(outputs, value),
        }
    }

    /// Runs the head on a tensor of two rows and compares with the forms and layers in Rust.
    fn check(dims: &[usize], grid: usize, hidden: usize, element: ElementType, opset: i64) {
        test_support::library();
        let mut open: Vec<Dim> = dims.iter().map(|size| Dim::Fixed(*size)).collect();
        open[0] = Dim::Symbolic("N".into());
        let tensor = TensorSpec { name: "z".into(), element, dims: open };
        let form = Form::of(&tensor, grid).unwrap().unwrap();
        let shape = Shape { features: form.features(), hidden, classes: 3 };
        let layers = match hidden {
            0 => Layers { hidden: None, last: layer(3, shape.features) },
            _ => Layers { hidden: Some(layer(hidden, shape.features)), last: layer(3, hidden) },
        };
        let plan =
            Plan { prefix: "p", tensor: &tensor, form, layers: &layers, probabilities: false };
        let model = encode(&plan.model(&stage(opset)));
        let mut session = Session::load(&model, &SessionOptions::default(), None).unwrap();
        let count: usize = dims.iter().product();
        let values: Vec<f32> = (0..count).map(|at| ((at * 31) % 17) as f32 - 8.0).collect();
        let bytes = match element {
            ElementType::I8 => values.iter().map(|value| (*value as i8).cast_unsigned()).collect(),
            _ => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        };
        let input = Tensor::new(element, dims.to_vec(), bytes).unwrap();
        let output = session.run(&[("z", input.view())]).unwrap().swap_remove(0);
        assert_eq!(output.shape(), [2, 3]);
        let mut row = vec![1];
        row.extend(&dims[1..]);
        for (values, got) in
            values.chunks_exact(count / 2).zip(output.f32s().unwrap().chunks_exact(3))
        {
            let mut features = vec![];
            assert!(form.read(&row, values, &mut features));
            let features = Array2::from_shape_vec((1, shape.features), features).unwrap();
            let expected = layers.logits(features.view());
            for (got, expected) in got.iter().zip(&expected) {
                let bound = 1e-4 * expected.abs().max(1.0);
                assert!((got - expected).abs() < bound, "{dims:?} {grid}: {got} {expected}");
            }
        }
    }

    #[test]
    fn heads_compute_what_they_were_trained_as() {
        use ElementType::{F32, I8};
        for (grid, hidden) in [(1, 0), (2, 0), (3, 4), (4, 0), (5, 0)] {
            // Bins that overlap, that divide one axis, and that are single places.
            check(&[2, 3, 5, 8], grid, hidden, F32, 17);
        }
        check(&[2, 3, 6, 4], 2, 0, F32, 13); // AveragePool
        check(&[2, 3, 7, 7], 7, 4, F32, 17); // nothing to pool
        check(&[2, 6, 5], 1, 3, F32, 7);
        check(&[2, 9], 1, 0, F32, 21);
        check(&[2, 2, 3, 2, 2], 1, 0, F32, 17);
        check(&[2, 3, 5, 5], 2, 0, I8, 17);
    }

    #[test]
    fn a_head_may_answer_probabilities() {
        test_support::library();
        let dims = vec![Dim::Fixed(1), Dim::Fixed(2)];
        let tensor = TensorSpec { name: "z".into(), element: ElementType::F32, dims };
        let layers = Layers { hidden: None, last: layer(3, 2) };
        let form = Form::of(&tensor, 1).unwrap().unwrap();
        let plan =
            Plan { prefix: "p", tensor: &tensor, form, layers: &layers, probabilities: true };
        let model = encode(&plan.model(&stage(12)));
        let mut session = Session::load(&model, &SessionOptions::default(), None).unwrap();
        let input = Tensor::from_f32s(vec![1, 2], &[0.5, -1.0]).unwrap();
        let output = session.run(&[("z", input.view())]).unwrap().swap_remove(0);
        assert_eq!(session.outputs()[0].name, plan.output());
        assert!((output.f32s().unwrap().iter().sum::<f32>() - 1.0).abs() < 1e-6);
    }
}
