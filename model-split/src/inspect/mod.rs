//! What a model is made of: operators, parameters, multiply-accumulates, inputs and outputs, and
//! for each place where it can be cut how much lies in front of it and how much crosses. It must
//! not recommend anything: fewer operations are not always less time.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use midspan_runtime::{Dim, ElementType, TensorSpec};

use crate::cut::divide::divide;
use crate::cut::flow::{Flow, Tensor, domain};
use crate::cut::{CutError, Found, Options, Region, Types, cuts};
use crate::onnx::{ModelProto, external, pb};

mod work;

/// What is known of a model.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Version of the file format.
    pub ir_version: i64,
    /// Operator sets: domain (empty for the standard one) and version.
    pub opsets: Vec<(String, i64)>,
    /// What the model reads.
    pub inputs: Vec<TensorSpec>,
    /// What the model answers.
    pub outputs: Vec<TensorSpec>,
    /// Number of nodes by domain and operator, bodies and functions included.
    pub operators: BTreeMap<(String, String), usize>,
    /// Elements of the weights that outputs need.
    pub parameters: u64,
    /// Bytes of those weights.
    pub weight_bytes: u64,
    /// Multiply-accumulates of a row.
    pub work: Work,
    /// Where the model can be cut.
    pub cuts: Vec<Costed>,
    /// Where it cannot.
    pub regions: Vec<Region>,
}

/// Multiply-accumulates of the nodes that have a formula and known shapes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Multiply-accumulates of a row.
    pub macs: u64,
    /// Nodes that are not counted in `macs` though they multiply or may multiply, by operator.
    pub uncounted: BTreeMap<String, usize>,
}

/// A cut, and what it costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Costed {
    /// The cut.
    pub found: Found,
    /// Its tensors; sizes that are not fixed are the model's names for them.
    pub tensors: Vec<TensorSpec>,
    /// Bytes that cross for a row, unquantised; none where a size is not known.
    pub row_bytes: Option<u64>,
    /// Multiply-accumulates of the front.
    pub front_macs: u64,
    /// Elements of the weights of the front.
    pub front_parameters: u64,
}

/// Inspects a model whose outside weights are in `folder`. A row is what has 1 in place of the
/// first dimension of an input that is not fixed; other symbolic dimensions have the sizes given.
///
/// # Errors
/// When ONNX Runtime refuses the model, or it cannot run.
pub fn inspect(
    model: &ModelProto,
    folder: &Path,
    sizes: &[(String, i64)],
    options: &Options,
) -> Result<Inspection, CutError> {
    let graph = model.graph.as_ref().ok_or(CutError::NoGraph)?;
    let types = Types::infer_in(model, folder, &[])?;
    let row = Types::infer_in(model, folder, &of_a_row(graph, sizes))?;
    let flow = Flow::new(graph, &model.functions)?;
    let found = cuts(model, &types, options)?;
    let costs = Costs::new(&flow, &row, model);
    let spec = |name: &str| types.get(name).ok().cloned();
    Ok(Inspection {
        ir_version: model.ir_version(),
        opsets: model
            .opset_import
            .iter()
            .map(|set| (domain(set.domain()).to_owned(), set.version()))
            .collect(),
        inputs: flow.inputs.iter().filter_map(|input| spec(flow.name(*input))).collect(),
        outputs: flow.outputs.iter().filter_map(|output| spec(flow.name(*output))).collect(),
        operators: operators(model),
        parameters: costs.parameters_of(|_| true),
        weight_bytes: costs.weight_bytes,
        work: costs.work.clone(),
        cuts: found.found.into_iter().filter_map(|found| costs.of(found, &types)).collect(),
        regions: found.regions,
    })
}

/// The sizes given, and 1 for the first dimension of every input where it has another name.
fn of_a_row(graph: &pb::GraphProto, sizes: &[(String, i64)]) -> Vec<(String, i64)> {
    use pb::{tensor_shape_proto::dimension::Value, type_proto};
    let mut all = sizes.to_vec();
    for input in &graph.input {
        let value = input.r#type.as_ref().and_then(|known| known.value.as_ref());
        let Some(type_proto::Value::TensorType(tensor)) = value else { continue };
        let first = tensor.shape.as_ref().and_then(|shape| shape.dim.first());
        if let Some(Value::DimParam(name)) = first.and_then(|dim| dim.value.as_ref())
            && all.iter().all(|(known, _)| known != name)
        {
            all.push((name.clone(), 1));
        }
    }
    all
}

fn operators(model: &ModelProto) -> BTreeMap<(String, String), usize> {
    fn count(nodes: &[pb::NodeProto], into: &mut BTreeMap<(String, String), usize>) {
        for node in nodes {
            let key = (domain(node.domain()).to_owned(), node.op_type().to_owned());
            *into.entry(key).or_default() += 1;
            for body in crate::cut::flow::bodies(node) {
                count(&body.node, into);
            }
        }
    }
    let mut operators = BTreeMap::new();
    model.graph.iter().for_each(|graph| count(&graph.node, &mut operators));
    model.functions.iter().for_each(|function| count(&function.node, &mut operators));
    operators
}

/// Bytes of a tensor whose sizes are all fixed.
fn bytes(spec: &TensorSpec) -> Option<u64> {
    let size = spec.element.size()? as u64;
    spec.dims.iter().try_fold(size, |product, dim| match dim {
        Dim::Fixed(dim) => product.checked_mul(*dim as u64),
        Dim::Symbolic(_) => None,
    })
}

/// What each node of a graph costs.
struct Costs<'f, 'g> {
    flow: &'f Flow<'g>,
    row: &'f Types,
    work: Work,
    /// By place.
    macs: Vec<u64>,
    /// Elements by weight; a Constant's by its output.
    parameters: HashMap<Tensor, u64>,
    weight_bytes: u64,
}

impl<'f, 'g> Costs<'f, 'g> {
    fn new(flow: &'f Flow<'g>, row: &'f Types, model: &ModelProto) -> Self {
        let mut costs = Self {
            flow,
            row,
            work: Work::default(),
            macs: vec![0; flow.nodes.len()],
            parameters: HashMap::new(),
            weight_bytes: 0,
        };
        costs.weigh();
        let shapes = work::Shapes::new(flow, row);
        for (place, node) in flow.nodes.iter().enumerate() {
            if !node.useful || !flow.is_live(node) {
                continue;
            }
            match shapes.macs(flow.proto(place), model) {
                work::Macs::Counted(macs) => {
                    costs.macs[place] = macs;
                    costs.work.macs = costs.work.macs.saturating_add(macs);
                }
                work::Macs::Unknown => {
                    let operator = flow.proto(place).op_type().to_owned();
                    *costs.work.uncounted.entry(operator).or_default() += 1;
                }
            }
        }
        costs
    }

    fn weigh(&mut self) {
        let graph = self.flow.graph;
        let used: HashSet<Tensor> = {
            let nodes = self.flow.nodes.iter().filter(|node| node.useful);
            nodes.flat_map(|node| node.reads.iter().copied()).collect()
        };
        let constants = graph.node.iter().filter(|node| node.op_type() == "Constant");
        let constants = constants.flat_map(|node| {
            let values = node.attribute.iter().filter_map(|attribute| attribute.t.as_ref());
            values.filter_map(|value| Some((node.output.first()?.as_str(), value)))
        });
        let dense = graph.initializer.iter().map(|weight| (weight.name(), weight));
        let sparse = graph.sparse_initializer.iter().filter_map(|weight| weight.values.as_ref());
        let all = dense.chain(sparse.map(|values| (values.name(), values))).chain(constants);
        for (name, weight) in all {
            let Some(tensor) = self.flow.find(name).filter(|tensor| used.contains(tensor)) else {
                continue;
            };
            let elements = external::elements(weight).unwrap_or(0);
            self.parameters.insert(tensor, elements);
            let bytes = external::raw_length(weight).unwrap_or(0);
            self.weight_bytes = self.weight_bytes.saturating_add(bytes);
        }
    }

    /// Elements of the weights that the nodes at these places read.
    fn parameters_of(&self, part: impl Fn(usize) -> bool) -> u64 {
        let nodes = self.flow.nodes.iter().enumerate();
        let nodes = nodes.filter(|(place, node)| node.useful && part(*place));
        let read: BTreeSet<Tensor> =
            nodes.flat_map(|(_, node)| node.reads.iter().copied()).collect();
        read.iter().filter_map(|tensor| self.parameters.get(tensor)).sum()
    }

    fn of(&self, found: Found, types: &Types) -> Option<Costed> {
        let names = &found.cut.tensors;
        let tensors: Vec<Tensor> =
            names.iter().map(|name| self.flow.find(name)).collect::<Option<_>>()?;
        let division = divide(self.flow, &tensors).ok()?;
        let in_front = self.macs.iter().zip(&division.front).filter(|(_, front)| **front);
        let row_bytes = names.iter().try_fold(0u64, |sum, name| {
            let spec = self.row.get(name).ok()?;
            if !self.row.is_ranked(name) || spec.element == ElementType::String {
                return None;
            }
            sum.checked_add(bytes(spec)?)
        });
        Some(Costed {
            tensors: names
                .iter()
                .map(|name| types.get(name).ok().cloned())
                .collect::<Option<_>>()?,
            row_bytes,
            front_macs: in_front.map(|(macs, _)| macs).sum(),
            front_parameters: self.parameters_of(|place| division.front[place]),
            found,
        })
    }
}

#[cfg(test)]
mod tests;
