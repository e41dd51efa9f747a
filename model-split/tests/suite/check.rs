//! One model of the suite: is it cut at all, does it run whole, and does every cut hold?

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use midspan_runtime::{ElementType, session};
use midspan_split::cut::{Types, single_tensor_cuts};
use midspan_split::onnx::{self, ModelProto, pb};
use midspan_split::samples::{self, LoadOptions, Sample};
use midspan_split::verify::compare::{Difference, Exactness};
use midspan_split::verify::halves::Halves;
use midspan_split::verify::model::{CheckError, CheckOptions, Checker, Refusal};

use crate::cases::Case;

/// Largest difference that is a stated class and not a wrong result: relative where values are
/// above 1, else absolute.
pub(crate) const TOLERANCE: f64 = 1e-5;

/// The same for a cut at elements of this type. ONNX Runtime computes chains in half precision as
/// FP32 and rounds at their end; what crosses is rounded once more, by half a unit in its last
/// place. Four of these are let pass.
fn tolerance(element: ElementType) -> f64 {
    match element {
        ElementType::F16 => 4.0 * f64::from(half::f16::EPSILON) / 2.0,
        ElementType::BF16 => 4.0 * f64::from(half::bf16::EPSILON) / 2.0,
        _ => TOLERANCE,
    }
}

/// Operators that draw random numbers.
const RANDOM: [&str; 7] = [
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Dropout",
];

/// Why a model is none of those whose cuts count. There are no other reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Skip {
    /// No single tensor inside divides it.
    NoInteriorCut,
    /// It reads or answers sequences, optionals, maps, or numbers of types that nodes do not serve.
    NotTensors,
    /// ONNX Runtime does not load it.
    WholeRefused,
    /// ONNX Runtime does not run it on the suite's inputs.
    WholeFails,
    /// It answers differently each time.
    Random,
}

/// What was found of one model.
pub(crate) enum Outcome {
    Skipped(Skip, String),
    Cut {
        /// Whether its answers are those that the suite expects; not known without any.
        as_expected: Option<bool>,
        cuts: Vec<CutOutcome>,
    },
    /// A panic, with its place in the work.
    Panicked(String),
}

/// What was found at one cut.
pub(crate) enum CutOutcome {
    Exact,
    Tolerance(f64),
    Wrong { cut: String, difference: f64 },
    Refused { cut: String, refusal: Refusal, reason: String },
    Panicked { cut: String },
}

pub(crate) fn model(case: &Case) -> Outcome {
    let caught = catch_unwind(AssertUnwindSafe(|| whole(case)));
    caught.unwrap_or_else(|panic| Outcome::Panicked(text_of(panic.as_ref())))
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

fn whole(case: &Case) -> Outcome {
    let skipped = |skip, reason: &dyn std::fmt::Display| Outcome::Skipped(skip, reason.to_string());
    let model = onnx::decode(fs::read(&case.model).unwrap().into()).unwrap();
    let cuts = single_tensor_cuts(&model).unwrap();
    if cuts.is_empty() {
        return skipped(Skip::NoInteriorCut, &"");
    }
    if let Some(name) = not_a_tensor(&model) {
        return skipped(Skip::NotTensors, &name);
    }
    let described = match session::describe(&onnx::encode(&model)) {
        Ok(described) => described,
        Err(error) => return skipped(Skip::WholeRefused, &error),
    };
    let samples = match &case.inputs {
        Some(folder) => {
            let options = LoadOptions::default();
            samples::load(folder, &described.inputs, &options, &mut |_, _| {})
        }
        None => samples::random(&described.inputs, 1, 7),
    };
    let samples = match samples {
        Ok(samples) => samples,
        Err(error) => return skipped(Skip::NotTensors, &error),
    };
    let checker = match Checker::new(&model, &samples, &mut || {}) {
        Ok(checker) => checker,
        Err(error) => {
            let skip = match error.refusal() {
                Refusal::WholeRefused => Skip::WholeRefused,
                Refusal::NotATensor => Skip::NotTensors,
                _ => Skip::WholeFails,
            };
            return skipped(skip, &error);
        }
    };
    if draws(&model) || !repeats(&model, &samples, &checker) {
        return skipped(Skip::Random, &"");
    }
    let types = Types::infer(&model);
    let cut = |cut: &String| one(&model, types.as_ref().ok(), cut, &checker);
    Outcome::Cut {
        as_expected: case.inputs.as_ref().and_then(|folder| expected(folder, &checker)),
        cuts: cuts.iter().map(cut).collect(),
    }
}

/// Name of an input or output that is no tensor of a type that nodes serve.
fn not_a_tensor(model: &ModelProto) -> Option<String> {
    let graph = model.graph.as_ref()?;
    let served = |info: &&pb::ValueInfoProto| match info.r#type.as_ref()?.value.as_ref()? {
        pb::type_proto::Value::TensorType(tensor) => {
            ElementType::from_onnx(tensor.elem_type.unwrap_or_default()).map(|_| ())
        }
        _ => None,
    };
    let mut all = graph.input.iter().chain(&graph.output);
    all.find(|info| served(info).is_none()).map(|info| info.name().to_owned())
}

fn draws(model: &ModelProto) -> bool {
    let mut nodes = model.graph.iter().flat_map(|graph| &graph.node);
    nodes.any(|node| match node.op_type() {
        // Without a third input, or before it had one, it passes everything on.
        "Dropout" => node.input.get(2).is_some_and(|training| !training.is_empty()),
        op => RANDOM.contains(&op),
    })
}

/// Whether a second session gives the same bits.
fn repeats(model: &ModelProto, samples: &[Sample], first: &Checker<'_>) -> bool {
    let second = Checker::new(model, samples, &mut || {});
    second.is_ok_and(|second| second.expected() == first.expected())
}

fn one(model: &ModelProto, types: Option<&Types>, cut: &str, checker: &Checker<'_>) -> CutOutcome {
    let work = || {
        let missing;
        let types = match types {
            Some(types) => types,
            None => {
                missing = Types::infer(model)?;
                &missing
            }
        };
        let halves = Halves::at(model, types, &[cut.to_owned()])?;
        let element = types.get(cut)?.element;
        let report = checker.check(&halves, &CheckOptions::default(), &mut || {})?;
        Ok::<_, CheckError>((report, tolerance(element)))
    };
    let cut = cut.to_owned();
    let Ok(result) = catch_unwind(AssertUnwindSafe(work)) else {
        return CutOutcome::Panicked { cut };
    };
    let refused = |error: CheckError| {
        let (refusal, reason) = (error.refusal(), error.to_string());
        CutOutcome::Refused { cut: cut.clone(), refusal, reason }
    };
    match result {
        Err(error) => refused(error),
        Ok((report, _)) if report.exactness == Exactness::BitExact => CutOutcome::Exact,
        Ok((report, most)) if report.difference.within(most) => {
            CutOutcome::Tolerance(report.difference.scaled)
        }
        Ok((report, _)) => CutOutcome::Wrong { cut, difference: report.difference.scaled },
    }
}

/// Whether the whole model answers what the suite expects, as near as the suite asks.
fn expected(folder: &Path, checker: &Checker<'_>) -> Option<bool> {
    let mut all = true;
    for (set, answers) in checker.expected().iter().enumerate() {
        for (index, got) in answers.iter().enumerate() {
            let file = folder.join(format!("test_data_set_{set}/output_{index}.pb"));
            let proto = prost::Message::decode(fs::read(file).ok()?.as_slice()).ok()?;
            let wanted = samples::tensor_of(&proto).ok()?;
            all &= Difference::between(&wanted, got).within(1e-3);
        }
    }
    Some(all)
}
