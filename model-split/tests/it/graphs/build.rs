//! Builds small valid ONNX graphs from lists of numbers, so that shrinking a list shrinks a graph.
//! Every number has a meaning in every place: there are no invalid lists.

use midspan_split::onnx::{ModelProto, pb};

pub(crate) const FLOAT: i32 = 1;
pub(crate) const INT: i32 = 7;
const BOOL: i32 = 9;
/// More elements than this are not made.
const LARGEST: usize = 96;

/// One step of building: an operator and what chooses its operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) kind: u8,
    pub(crate) first: u8,
    pub(crate) second: u8,
    pub(crate) variant: u8,
}

#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) name: String,
    pub(crate) element: i32,
    pub(crate) shape: Vec<usize>,
}

/// A model, and what a test has to know of it.
pub(crate) struct Built {
    pub(crate) model: ModelProto,
    pub(crate) inputs: Vec<Value>,
    /// A rounding error can become a different answer: it sorts, compares or rounds.
    pub(crate) discrete: bool,
}

struct Builder {
    graph: pb::GraphProto,
    values: Vec<Value>,
    count: usize,
    discrete: bool,
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

pub(crate) fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> pb::NodeProto {
    pb::NodeProto {
        op_type: Some(op.to_owned()),
        input: names(inputs),
        output: names(outputs),
        ..Default::default()
    }
}

pub(crate) fn declare(value: &Value, symbolic: bool) -> pb::ValueInfoProto {
    use pb::tensor_shape_proto::{Dimension, dimension::Value as Size};
    let dim = value.shape.iter().enumerate().map(|(axis, size)| Dimension {
        denotation: None,
        value: Some(match axis {
            0 if symbolic => Size::DimParam("N".into()),
            _ => Size::DimValue(*size as i64),
        }),
    });
    let tensor = pb::type_proto::Tensor {
        elem_type: Some(value.element),
        shape: Some(pb::TensorShapeProto { dim: dim.collect() }),
    };
    let value_type = pb::type_proto::Value::TensorType(tensor);
    pb::ValueInfoProto {
        name: Some(value.name.clone()),
        r#type: Some(pb::TypeProto { denotation: None, value: Some(value_type) }),
        ..Default::default()
    }
}

fn int(name: &str, value: i64) -> pb::AttributeProto {
    pb::AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(pb::attribute_proto::AttributeType::Int as i32),
        i: Some(value),
        ..Default::default()
    }
}

fn ints(name: &str, values: &[i64]) -> pb::AttributeProto {
    pb::AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(pb::attribute_proto::AttributeType::Ints as i32),
        ints: values.to_vec(),
        ..Default::default()
    }
}

fn body(name: &str, nodes: Vec<pb::NodeProto>, output: &Value) -> pb::AttributeProto {
    pb::AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(pb::attribute_proto::AttributeType::Graph as i32),
        g: Some(pb::GraphProto {
            name: Some(name.to_owned()),
            node: nodes,
            output: vec![declare(output, false)],
            ..Default::default()
        }),
        ..Default::default()
    }
}

impl Builder {
    fn fresh(&mut self, element: i32, shape: &[usize]) -> Value {
        // Names that a careless reader would take apart.
        let prefix = ["t", "/a/b/", "x y", "a,b:", "\u{e9}"][self.count % 5];
        self.count += 1;
        Value { name: format!("{prefix}{}", self.count), element, shape: shape.to_vec() }
    }

    fn add(&mut self, op: &str, inputs: &[&str], element: i32, shape: &[usize]) -> Value {
        self.add_with(op, inputs, vec![], element, shape)
    }

    fn add_with(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: Vec<pb::AttributeProto>,
        element: i32,
        shape: &[usize],
    ) -> Value {
        let value = self.fresh(element, shape);
        let mut made = node(op, inputs, &[&value.name]);
        made.attribute = attributes;
        self.graph.node.push(made);
        self.values.push(value.clone());
        value
    }

    fn floats(&mut self, shape: &[usize], seed: u8) -> String {
        let count = shape.iter().product::<usize>();
        let values = (0..count).map(|at| ((at * 7 + usize::from(seed)) % 13) as f32 / 13.0 - 0.5);
        let data = values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
        self.weight(FLOAT, shape, data)
    }

    fn whole(&mut self, values: &[i64]) -> String {
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.weight(INT, &[values.len()], data)
    }

    fn weight(&mut self, element: i32, shape: &[usize], data: Vec<u8>) -> String {
        let name = self.fresh(element, shape).name;
        self.graph.initializer.push(pb::TensorProto {
            name: Some(name.clone()),
            data_type: Some(element),
            dims: shape.iter().map(|size| *size as i64).collect(),
            raw_data: Some(data.into()),
            ..Default::default()
        });
        name
    }

    fn pick(&self, number: u8, fits: impl Fn(&Value) -> bool) -> Option<Value> {
        let fitting: Vec<&Value> = self.values.iter().filter(|value| fits(value)).collect();
        // Late values more often: chains are deeper than they are wide.
        let at = fitting.len().checked_sub(1 + usize::from(number) % fitting.len().clamp(1, 6))?;
        fitting.get(at).map(|value| (*value).clone())
    }

    fn matrix(&self, number: u8) -> Option<Value> {
        self.pick(number, |value| value.element == FLOAT && value.shape.len() == 2)
    }

    /// None where no value fits the step.
    fn step(&mut self, step: Step) -> Option<()> {
        let Step { kind, first, second, variant } = step;
        let float = self.pick(first, |value| value.element == FLOAT)?;
        match kind % 15 {
            0 | 1 => drop(self.unary(&float, variant)),
            2 | 3 => self.binary(&float, second, variant),
            4 => drop(self.dense(&self.matrix(first)?, variant)),
            5 => self.join(first, second)?,
            6 => self.split(first)?,
            7 => self.convolve(&self.matrix(first)?, variant),
            8 => self.integers(first, second, variant)?,
            9 => {
                let matrix = self.matrix(first)?;
                let hidden = self.unary(&matrix, variant);
                self.add("Add", &[&matrix.name, &hidden.name], FLOAT, &matrix.shape);
            }
            10 => self.choose(&float, second, variant),
            11 => self.constant(&float, variant),
            12 => self.quantise(&float),
            13 => {
                let mean = vec![int("keepdims", 0)];
                let mean = self.add_with("ReduceMean", &[&float.name], mean, FLOAT, &[]);
                self.add("Sub", &[&float.name, &mean.name], FLOAT, &float.shape);
            }
            _ => {
                let sizes = self.add("Shape", &[&float.name], INT, &[float.shape.len()]);
                let hidden = self.unary(&float, variant);
                self.add("Reshape", &[&hidden.name, &sizes.name], FLOAT, &float.shape);
            }
        }
        Some(())
    }

    fn unary(&mut self, value: &Value, variant: u8) -> Value {
        let op = ["Relu", "Neg", "Sigmoid", "Abs", "Tanh", "Identity"][usize::from(variant) % 6];
        self.add(op, &[&value.name], FLOAT, &value.shape)
    }

    fn binary(&mut self, value: &Value, second: u8, variant: u8) {
        let op = ["Add", "Sub", "Mul", "Max"][usize::from(variant) % 4];
        let same = |other: &Value| other.element == FLOAT && other.shape == value.shape;
        let other = match self.pick(second, same).filter(|_| !second.is_multiple_of(5)) {
            Some(other) => other.name,
            None => self.floats(&value.shape, variant),
        };
        self.add(op, &[&value.name, &other], FLOAT, &value.shape);
    }

    fn dense(&mut self, value: &Value, variant: u8) -> Value {
        let (rows, inner, columns) = (value.shape[0], value.shape[1], 2 + usize::from(variant) % 3);
        let weights = self.floats(&[inner, columns], variant);
        if variant.is_multiple_of(2) {
            return self.add("MatMul", &[&value.name, &weights], FLOAT, &[rows, columns]);
        }
        let bias = self.floats(&[columns], variant);
        self.add("Gemm", &[&value.name, &weights, &bias], FLOAT, &[rows, columns])
    }

    fn join(&mut self, first: u8, second: u8) -> Option<()> {
        let left = self.matrix(first)?;
        let right = self.pick(second, |value| {
            value.element == FLOAT && value.shape.len() == 2 && value.shape[0] == left.shape[0]
        })?;
        let columns = left.shape[1] + right.shape[1];
        if columns * left.shape[0] <= LARGEST {
            let shape = [left.shape[0], columns];
            let parts = [left.name.as_str(), right.name.as_str()];
            self.add_with("Concat", &parts, vec![int("axis", 1)], FLOAT, &shape);
        }
        Some(())
    }

    fn split(&mut self, first: u8) -> Option<()> {
        let whole = self.pick(first, |value| {
            value.element == FLOAT && value.shape.len() == 2 && value.shape[1] % 2 == 0
        })?;
        let half = [whole.shape[0], whole.shape[1] / 2];
        let (left, right) = (self.fresh(FLOAT, &half), self.fresh(FLOAT, &half));
        let mut split = node("Split", &[&whole.name], &[&left.name, &right.name]);
        split.attribute = vec![int("axis", 1)];
        self.graph.node.push(split);
        self.values.extend([left, right]);
        Some(())
    }

    fn convolve(&mut self, value: &Value, variant: u8) {
        let (rows, columns) = (value.shape[0], value.shape[1]);
        if 2 * rows * columns > LARGEST {
            return;
        }
        let to = self.whole(&[1, 1, rows as i64, columns as i64]);
        let image = self.add("Reshape", &[&value.name, &to], FLOAT, &[1, 1, rows, columns]);
        let kernel = self.floats(&[2, 1, 3, 3], variant);
        let pads = vec![ints("pads", &[1, 1, 1, 1])];
        let inputs = [image.name.as_str(), kernel.as_str()];
        let made = self.add_with("Conv", &inputs, pads, FLOAT, &[1, 2, rows, columns]);
        let back = self.whole(&[2 * rows as i64, columns as i64]);
        self.add("Reshape", &[&made.name, &back], FLOAT, &[2 * rows, columns]);
    }

    fn integers(&mut self, first: u8, second: u8, variant: u8) -> Option<()> {
        if let Some(whole) = self.pick(first, |value| value.element == INT).filter(|_| second > 99)
        {
            let to = vec![int("to", i64::from(FLOAT))];
            self.add_with("Cast", &[&whole.name], to, FLOAT, &whole.shape);
            return Some(());
        }
        self.discrete = true;
        let value = self.matrix(first)?;
        let shape = [value.shape[0], 1];
        if variant.is_multiple_of(2) {
            self.add_with("ArgMax", &[&value.name], vec![int("axis", 1)], INT, &shape);
            return Some(());
        }
        let count = self.whole(&[1]);
        let (best, place) = (self.fresh(FLOAT, &shape), self.fresh(INT, &shape));
        self.graph.node.push(node("TopK", &[&value.name, &count], &[&best.name, &place.name]));
        self.values.extend([best, place]);
        Some(())
    }

    /// An If whose bodies capture, one of them inside of another If.
    fn choose(&mut self, value: &Value, second: u8, variant: u8) {
        self.discrete = true;
        let same = |other: &Value| other.element == FLOAT && other.shape == value.shape;
        let other = self.pick(second, same).unwrap_or_else(|| value.clone());
        let sum = vec![int("keepdims", 0)];
        let sum = self.add_with("ReduceMean", &[&value.name], sum, FLOAT, &[]);
        let limit = self.weight(FLOAT, &[], 0.1f32.to_le_bytes().to_vec());
        let sure = self.fresh(BOOL, &[]);
        self.graph.node.push(node("Greater", &[&sum.name, &limit], &[&sure.name]));
        let inner = self.fresh(FLOAT, &value.shape);
        let deeper = self.fresh(FLOAT, &value.shape);
        let sum =
            |made: &Value, op: &str| vec![node(op, &[&value.name, &other.name], &[&made.name])];
        let mut otherwise = sum(&inner, "Mul");
        if variant.is_multiple_of(2) {
            let mut nested = node("If", &[&sure.name], &[&inner.name]);
            nested.attribute = vec![
                body("then_branch", sum(&deeper, "Sub"), &deeper),
                body("else_branch", sum(&deeper, "Max"), &deeper),
            ];
            otherwise = vec![nested];
        }
        let branches = vec![
            body("then_branch", sum(&inner, "Add"), &inner),
            body("else_branch", otherwise, &inner),
        ];
        self.add_with("If", &[&sure.name], branches, FLOAT, &value.shape);
    }

    /// A sum with something that a chain of nodes makes of a Constant.
    fn constant(&mut self, value: &Value, variant: u8) {
        let (source, made) = (self.fresh(FLOAT, &[]), self.fresh(FLOAT, &[]));
        let mut constant = node("Constant", &[], &[&source.name]);
        constant.attribute = vec![pb::AttributeProto {
            name: Some("value_float".into()),
            r#type: Some(pb::attribute_proto::AttributeType::Float as i32),
            f: Some(f32::from(variant) / 100.0),
            ..Default::default()
        }];
        self.graph.node.extend([constant, node("Neg", &[&source.name], &[&made.name])]);
        self.add("Add", &[&value.name, &made.name], FLOAT, &value.shape);
    }

    fn quantise(&mut self, value: &Value) {
        self.discrete = true;
        let scale = self.weight(FLOAT, &[], 0.02f32.to_le_bytes().to_vec());
        let zero = self.weight(3, &[], vec![5]);
        let small = self.fresh(3, &value.shape);
        let quantise = node("QuantizeLinear", &[&value.name, &scale, &zero], &[&small.name]);
        self.graph.node.push(quantise);
        let back = [small.name.as_str(), &scale, &zero];
        self.add("DequantizeLinear", &back, FLOAT, &value.shape);
    }
}

/// The model of a list of steps. `shape` says how inputs and outputs are declared.
pub(crate) fn build(steps: &[Step], shape: u8) -> Built {
    let value = |name: &str, element| Value { name: name.into(), element, shape: vec![2, 4] };
    let inputs = vec![value("x", FLOAT), value("y", FLOAT), value("k", INT)];
    let mut builder = Builder {
        graph: pb::GraphProto { name: Some("g".into()), ..Default::default() },
        values: inputs.clone(),
        count: 0,
        discrete: false,
    };
    let first = node("Relu", &["x"], &["h"]);
    builder.graph.node.push(first);
    builder.values.push(value("h", FLOAT));
    for step in steps {
        builder.step(*step).unwrap_or_default();
    }
    let Builder { mut graph, values, discrete, .. } = builder;
    graph.input = inputs.iter().map(|input| declare(input, shape & 1 == 1)).collect();
    if shape & 2 == 2 {
        // As old versions of the format ask for.
        let listed = graph.initializer.iter().map(|weight| {
            let shape = weight.dims.iter().map(|size| *size as usize).collect();
            let element = weight.data_type.unwrap_or_default();
            declare(&Value { name: weight.name().to_owned(), element, shape }, false)
        });
        graph.input.extend(listed.collect::<Vec<_>>());
    }
    // The last value, and one or two from the middle, which may be read inside too.
    let mut picked = vec![values.len() - 1];
    picked.extend((0..usize::from(shape >> 2) % 3).map(|at| 3 + (values.len() - 3) * at / 3));
    picked.sort_unstable();
    picked.dedup();
    graph.output = picked.iter().map(|at| declare(&values[*at], shape & 1 == 1)).collect();
    let opset = pb::OperatorSetIdProto { domain: None, version: Some(17) };
    let model = ModelProto {
        ir_version: Some(8),
        opset_import: vec![opset],
        graph: Some(graph),
        ..Default::default()
    };
    Built { model, inputs, discrete }
}
