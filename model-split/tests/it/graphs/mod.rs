//! Random graphs, cut wherever they can be: front and tail together are the whole. `PROPTEST_CASES`
//! sets the number of graphs.

pub(crate) mod build;

use std::collections::HashMap;

use build::{Built, FLOAT, Step, build};
use midspan_runtime::{
    ElementType, Executor, Optimisation, Session, SessionOptions, Tensor, test_support,
};
use midspan_split::cut::{Cut, Options, Types, cuts, halves, single_tensor_cuts};
use midspan_split::onnx::{self, ModelProto, pb};
use proptest::prelude::*;

/// Cuts that are run of each graph, and of those with everything optimised.
const RUN: (usize, usize) = (8, 2);

type Named = HashMap<String, Tensor>;

fn load(model: &ModelProto, optimisation: Optimisation) -> Session {
    let options = SessionOptions { optimisation, ..Default::default() };
    Session::load(&onnx::encode(model), &options, None).unwrap()
}

/// Runs a model on those of the given tensors that it reads.
fn run(model: &ModelProto, optimisation: Optimisation, given: &Named) -> Named {
    let mut session = load(model, optimisation);
    let names: Vec<String> = session.inputs().iter().map(|spec| spec.name.clone()).collect();
    let inputs: Vec<_> = names.iter().map(|name| (name.as_str(), given[name].view())).collect();
    let answers = session.run(&inputs).unwrap();
    let names = session.outputs().iter().map(|spec| spec.name.clone());
    names.zip(answers).collect()
}

fn inputs(built: &Built) -> Named {
    let tensor = |(at, value): (usize, &build::Value)| {
        let count = value.shape.iter().product::<usize>();
        let number = |index: usize| ((index * 5 + at * 3) % 11) as f32 / 4.0 - 1.2;
        let tensor = if value.element == FLOAT {
            let values: Vec<f32> = (0..count).map(number).collect();
            Tensor::from_f32s(value.shape.clone(), &values)
        } else {
            let bytes = (0..count as i64).flat_map(|index| (index - 3).to_le_bytes()).collect();
            Tensor::new(ElementType::I64, value.shape.clone(), bytes)
        };
        (value.name.clone(), tensor.unwrap())
    };
    built.inputs.iter().enumerate().map(tensor).collect()
}

/// Front, then tail.
fn through(model: &ModelProto, types: &Types, cut: &Cut, level: Optimisation, x: &Named) -> Named {
    let (front, tail) = halves(model, types, cut).unwrap();
    let mut all = run(&front, level, x);
    let crossing = x.clone().into_iter().chain(all.clone()).collect();
    all.extend(run(&tail, level, &crossing));
    all
}

fn close(one: &Tensor, other: &Tensor) -> bool {
    let (Ok(one_values), Ok(other_values)) = (one.f32s(), other.f32s()) else {
        return one == other;
    };
    one.shape() == other.shape()
        && one_values
            .iter()
            .zip(&*other_values)
            .all(|(one, other)| !one.is_finite() || (one - other).abs() <= 1e-4 * (1.0 + one.abs()))
}

/// What a tensor follows from.
#[derive(Clone, Copy, PartialEq)]
enum Origin {
    Constants,
    /// The cut, and constants.
    Cut,
    Inputs,
}

/// Walks the graph by names alone: a second opinion on what is a cut.
fn follows(
    graph: &pb::GraphProto,
    cut: &str,
    name: &str,
    known: &mut HashMap<String, Origin>,
) -> Origin {
    if name == cut {
        return Origin::Cut;
    }
    if let Some(known) = known.get(name) {
        return *known;
    }
    let weight = graph.initializer.iter().any(|weight| weight.name() == name);
    let producer = graph.node.iter().find(|node| node.output.iter().any(|made| made == name));
    let found = match producer {
        None if weight => Origin::Constants,
        None => Origin::Inputs,
        Some(node) => {
            let mut reads = node.input.clone();
            let mut open: Vec<&pb::NodeProto> = vec![node];
            while let Some(node) = open.pop() {
                for body in node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()) {
                    let inner = body.node.iter().flat_map(|node| &node.input);
                    reads.extend(inner.cloned());
                    open.extend(&body.node);
                }
            }
            let from: Vec<Origin> =
                reads.iter().map(|read| follows(graph, cut, read, known)).collect();
            if from.contains(&Origin::Inputs) {
                Origin::Inputs
            } else if from.contains(&Origin::Cut) {
                Origin::Cut
            } else {
                Origin::Constants
            }
        }
    };
    known.insert(name.to_owned(), found);
    found
}

fn by_hand(model: &ModelProto) -> Vec<String> {
    let graph = model.graph.as_ref().unwrap();
    let made = graph.node.iter().flat_map(|node| &node.output);
    let is_cut = |tensor: &&String| {
        let alone = follows(graph, "", tensor, &mut HashMap::new()) == Origin::Inputs;
        let mut known = HashMap::new();
        alone
            && graph.output.iter().any(|output| {
                output.name() != tensor.as_str()
                    && follows(graph, tensor, output.name(), &mut known) == Origin::Cut
            })
    };
    made.filter(is_cut).cloned().collect()
}

fn check(steps: &[Step], shape: u8) -> Result<(), TestCaseError> {
    test_support::library();
    let built = build(steps, shape);
    let (model, x) = (&built.model, inputs(&built));
    prop_assert_eq!(single_tensor_cuts(model).unwrap(), by_hand(model));
    let types = Types::infer(model).unwrap();
    let found = cuts(model, &types, &Options { tensors: 4 }).unwrap().found;
    let whole = run(model, Optimisation::Disabled, &x);
    let fast = run(model, Optimisation::Level3, &x);
    let stride = found.len().div_ceil(RUN.0).max(1);
    for (index, found) in found.iter().step_by(stride).enumerate() {
        let cut = &found.cut;
        let parts = through(model, &types, cut, Optimisation::Disabled, &x);
        for (name, tensor) in &whole {
            prop_assert_eq!(parts.get(name), Some(tensor), "{} cut at {:?}", name, cut);
        }
        if built.discrete || index >= RUN.1 {
            continue;
        }
        let parts = through(model, &types, cut, Optimisation::Level3, &x);
        for (name, tensor) in &fast {
            prop_assert!(close(tensor, &parts[name]), "{} cut at {:?}, optimised", name, cut);
        }
    }
    Ok(())
}

fn step() -> impl Strategy<Value = Step> {
    let numbers = (any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>());
    numbers.prop_map(|(kind, first, second, variant)| Step { kind, first, second, variant })
}

fn config() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    if asked { config } else { ProptestConfig { cases: 64, ..config } }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn halves_of_any_cut_are_the_whole(
        steps in prop::collection::vec(step(), 1..16),
        shape in any::<u8>(),
    ) {
        check(&steps, shape)?;
    }
}

#[test]
fn the_generator_makes_graphs_with_cuts_of_every_size() {
    test_support::library();
    let (mut sizes, mut operators) = (HashMap::new(), HashMap::new());
    for seed in 0..60u8 {
        let mut state = u64::from(seed);
        let steps: Vec<Step> = (0..12)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                let [kind, first, second, variant, ..] = state.to_be_bytes();
                Step { kind, first, second, variant }
            })
            .collect();
        let built = build(&steps, seed);
        for node in &built.model.graph.as_ref().unwrap().node {
            *operators.entry(node.op_type().to_owned()).or_insert(0) += 1;
        }
        let types = Types::infer(&built.model).unwrap();
        for found in cuts(&built.model, &types, &Options { tensors: 4 }).unwrap().found {
            *sizes.entry(found.cut.tensors.len()).or_insert(0) += 1;
        }
    }
    assert!((1..=4).all(|size| sizes.get(&size).is_some_and(|count| *count > 10)), "{sizes:?}");
    for op in ["If", "Conv", "Gemm", "MatMul", "Split", "Concat", "TopK", "QuantizeLinear"] {
        assert!(operators.contains_key(op), "{op}: {operators:?}");
    }
}
