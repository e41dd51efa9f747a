//! Where halves first differ from their whole model: reads out the inner tensors of both and
//! compares them in the order of the graph, first with ONNX Runtime's rewriting of graphs off, then
//! on. Reading a tensor out keeps what makes it from being fused with its neighbours, so that a
//! difference which only fusing makes may be gone then: it is looked for with one tensor read out
//! at a time.

use std::collections::{HashMap, HashSet};

use midspan_runtime::session::Optimisation;
use midspan_runtime::{Executor, RunError, Session, SessionOptions, Tensor};
use serde::Serialize;

use super::compare::Difference;
use super::halves::{self, Halves};
use super::model::{CheckError, views};
use crate::cut::Types;
use crate::onnx::{self, ModelProto, pb};
use crate::samples::Sample;

/// Most tensors that are read out one by one; in larger models the first is looked for by halving.
const MOST_SCANNED: usize = 64;

/// Where the difference begins: what the node reads is still the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Divergence {
    /// Name of the node; empty where it has none.
    pub node: String,
    /// Its operator.
    pub op: String,
    /// The tensor that differs.
    pub tensor: String,
    /// The part that makes it.
    pub half: Half,
    /// By how much it differs.
    pub difference: Difference,
    /// What ONNX Runtime was allowed to rewrite then.
    pub rewriting: Rewriting,
}

/// A part of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Half {
    /// Before the cut.
    Front,
    /// After it.
    Tail,
}

/// How graphs were rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rewriting {
    /// Not at all, all inner tensors read out.
    Off,
    /// As in production, all inner tensors read out.
    On,
    /// As in production, no other tensor read out: only fusing across the cut makes the
    /// difference.
    Alone,
}

/// Finds the first tensor of `sample` that differs beyond `tolerance`, in the terms of
/// [`Difference::within`]; none when nothing does.
///
/// # Errors
/// When a model with its inner tensors read out does not load or run.
pub fn first(
    model: &ModelProto,
    types: &Types,
    halves: &Halves,
    sample: &Sample,
    tolerance: f64,
) -> Result<Option<Divergence>, CheckError> {
    let search = Search { model, halves, sample, tolerance, shared: shared(model, types, halves) };
    for (optimisation, rewriting) in
        [(Optimisation::Disabled, Rewriting::Off), (Optimisation::Level3, Rewriting::On)]
    {
        let found = search.at_once(optimisation, rewriting)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    search.one_by_one()
}

/// A tensor that the whole model and a half make.
struct Shared {
    tensor: String,
    node: usize,
    half: Half,
}

/// In the order of the whole graph.
fn shared(model: &ModelProto, types: &Types, halves: &Halves) -> Vec<Shared> {
    let made = |model: &ModelProto| -> HashSet<String> {
        let nodes = model.graph.iter().flat_map(|graph| &graph.node);
        nodes.flat_map(|node| node.output.iter().cloned()).collect()
    };
    let (front, tail) = (made(&halves.front), made(&halves.tail));
    let nodes = model.graph.iter().flat_map(|graph| graph.node.iter().enumerate());
    let named = nodes.flat_map(|(index, node)| node.output.iter().map(move |name| (index, name)));
    let typed = named.filter(|(_, name)| !name.is_empty() && types.get(name).is_ok());
    let half = |name: &String| match (front.contains(name), tail.contains(name)) {
        (true, _) => Some(Half::Front),
        (false, true) => Some(Half::Tail),
        (false, false) => None,
    };
    typed
        .filter_map(|(node, name)| Some(Shared { tensor: name.clone(), node, half: half(name)? }))
        .collect()
}

struct Search<'a> {
    model: &'a ModelProto,
    halves: &'a Halves,
    sample: &'a Sample,
    tolerance: f64,
    shared: Vec<Shared>,
}

type Tensors = HashMap<String, Tensor>;

impl Search<'_> {
    fn at_once(
        &self,
        optimisation: Optimisation,
        rewriting: Rewriting,
    ) -> Result<Option<Divergence>, CheckError> {
        let all: Vec<&str> = self.shared.iter().map(|shared| shared.tensor.as_str()).collect();
        let (whole, halves) = self.run(&all, optimisation)?;
        let differs = |shared: &&Shared| self.differs(shared, &whole, &halves);
        let found = self.shared.iter().find_map(|shared| Some((shared, differs(&shared)?)));
        Ok(found.map(|(shared, difference)| self.layer(shared, difference, rewriting)))
    }

    fn one_by_one(&self) -> Result<Option<Divergence>, CheckError> {
        let alone = |shared: &Shared| -> Result<Option<Difference>, CheckError> {
            let (whole, halves) = self.run(&[&shared.tensor], Optimisation::Level3)?;
            Ok(self.differs(shared, &whole, &halves))
        };
        let found = |shared, difference| Some(self.layer(shared, difference, Rewriting::Alone));
        if self.shared.len() <= MOST_SCANNED {
            for shared in &self.shared {
                if let Some(difference) = alone(shared)? {
                    return Ok(found(shared, difference));
                }
            }
            return Ok(None);
        }
        let (mut same, mut differing) = (0, self.shared.len());
        let mut last = None;
        while same < differing {
            let middle = (same + differing) / 2;
            match alone(&self.shared[middle])? {
                Some(difference) => (differing, last) = (middle, Some(difference)),
                None => same = middle + 1,
            }
        }
        Ok(last.and_then(|difference| found(self.shared.get(differing)?, difference)))
    }

    fn differs(&self, shared: &Shared, whole: &Tensors, halves: &Tensors) -> Option<Difference> {
        let (whole, halves) = (whole.get(&shared.tensor)?, halves.get(&shared.tensor)?);
        let difference = Difference::between(whole, halves);
        (!difference.within(self.tolerance)).then_some(difference)
    }

    fn layer(&self, shared: &Shared, difference: Difference, rewriting: Rewriting) -> Divergence {
        let node = self.model.graph.as_ref().and_then(|graph| graph.node.get(shared.node));
        Divergence {
            node: node.map_or(String::new(), |node| node.name().to_owned()),
            op: node.map_or(String::new(), |node| node.op_type().to_owned()),
            tensor: shared.tensor.clone(),
            half: shared.half,
            difference,
            rewriting,
        }
    }

    /// What the whole model, and both halves together, make of the sample.
    fn run(
        &self,
        read_out: &[&str],
        optimisation: Optimisation,
    ) -> Result<(Tensors, Tensors), CheckError> {
        let options = SessionOptions { optimisation, ..Default::default() };
        let load = |model| Session::load(&onnx::encode(&exposed(model, read_out)), &options, None);
        let mut session = load(self.model).map_err(CheckError::WholeLoad)?;
        let inputs = self.sample.inputs.as_slice();
        let whole = tensors(&mut session, inputs)
            .map_err(|source| CheckError::WholeRun { sample: 0, source })?;
        session = load(&self.halves.front).map_err(CheckError::FrontLoad)?;
        let mut halves = tensors(&mut session, inputs)
            .map_err(|source| CheckError::FrontRun { sample: 0, source })?;
        session = load(&self.halves.tail).map_err(CheckError::TailLoad)?;
        let given = halves::input_names(&self.halves.tail).into_iter().filter_map(|name| {
            let direct =
                || inputs.iter().find(|(input, _)| *input == name).map(|(_, tensor)| tensor);
            let tensor = halves.get(&name).or_else(direct)?.clone();
            Some((name, tensor))
        });
        let given: Vec<(String, Tensor)> = given.collect();
        let tail = tensors(&mut session, &given)
            .map_err(|source| CheckError::TailRun { sample: 0, source })?;
        // What both halves compute of constants is the front's.
        for (name, tensor) in tail {
            halves.entry(name).or_insert(tensor);
        }
        Ok((whole, halves))
    }
}

fn tensors(session: &mut Session, inputs: &[(String, Tensor)]) -> Result<Tensors, RunError> {
    let outputs = session.run(&views(inputs))?;
    let names = session.outputs().iter().map(|output| output.name.clone());
    Ok(names.zip(outputs).collect())
}

/// The model with those of these tensors that it makes among its outputs.
fn exposed(model: &ModelProto, read_out: &[&str]) -> ModelProto {
    let mut exposed = model.clone();
    let Some(graph) = exposed.graph.as_mut() else { return exposed };
    let nodes = graph.node.iter().flat_map(|node| node.output.iter());
    let mut made: HashSet<String> = nodes.cloned().collect();
    for output in &graph.output {
        made.remove(output.name());
    }
    for name in read_out.iter().filter(|name| made.remove(**name)) {
        let info = pb::ValueInfoProto { name: Some((*name).to_owned()), ..Default::default() };
        graph.output.push(info);
    }
    graph.value_info.clear();
    exposed
}

#[cfg(test)]
mod tests;
