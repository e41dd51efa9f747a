//! Finds the cuts of a graph: all of one tensor, and those of a few that are met when its nodes are
//! run in some plain orders. It must not rate them.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::divide::{Division, Undivided, divide};
use super::flow::{Flow, Tensor, bodies, domain, key, title};
use super::uncuttable::{Region, Uncuttable};
use super::{Cut, CutError, MOST_TENSORS, Types};
use crate::onnx::ModelProto;

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Tensors that a cut may have: 1 to [`MOST_TENSORS`]; more counts as that.
    pub tensors: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { tensors: 1 }
    }
}

/// One cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The cut.
    pub cut: Cut,
    /// Outputs of the model that the front answers.
    pub answers: Vec<String>,
    /// A quantised tensor right beside this one, which crosses in fewer bytes and means the same.
    pub instead: Option<String>,
}

/// The cuts of a model, in the order of its graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    /// Where it can be cut.
    pub found: Vec<Found>,
    /// Where not, and why.
    pub regions: Vec<Region>,
}

/// The tensors at each of which the model can be divided with nothing else crossing, in the order
/// of the graph. The front answers the outputs that do not follow from such a tensor. Inputs of
/// the model are not among them; types are not looked at.
///
/// # Errors
/// When the model has no graph, or one that cannot run.
pub fn single_tensor_cuts(model: &ModelProto) -> Result<Vec<String>, CutError> {
    let graph = model.graph.as_ref().ok_or(CutError::NoGraph)?;
    let flow = Flow::new(graph, &model.functions)?;
    let single = candidates(&flow)
        .filter(|tensor| closes(&flow, *tensor).is_ok() && divide(&flow, &[*tensor]).is_ok());
    Ok(single.map(|tensor| flow.name(tensor).to_owned()).collect())
}

/// Finds the cuts of a model whose tensors have `types`.
///
/// # Errors
/// When the model has no graph, or one that cannot run.
pub fn cuts(model: &ModelProto, types: &Types, options: &Options) -> Result<Cuts, CutError> {
    let graph = model.graph.as_ref().ok_or(CutError::NoGraph)?;
    let flow = Flow::new(graph, &model.functions)?;
    let limit = options.tensors.clamp(1, MOST_TENSORS);
    let mut search = Search { flow: &flow, types, found: vec![], refused: HashMap::new() };
    for tensor in candidates(&flow) {
        let outcome = match closes(&flow, tensor) {
            Ok(()) => divide(&flow, &[tensor]),
            Err(open) => Err(open),
        };
        search.take(vec![tensor], outcome);
    }
    if limit > 1 {
        for set in crossings(&flow, limit) {
            let outcome = divide(&flow, &set);
            search.take(set, outcome);
        }
    }
    Ok(search.report(limit, model))
}

/// The tensors that are made of inputs and read on the way to an output.
fn candidates<'f>(flow: &'f Flow<'_>) -> impl Iterator<Item = Tensor> + 'f {
    let made = flow.nodes.iter().flat_map(|node| node.writes.iter().copied());
    made.filter(|tensor| {
        let info = &flow.tensors[*tensor];
        info.live && info.last_read.is_some()
    })
}

/// Whether an output follows from this tensor alone. Looks only at the nodes between it and the
/// first that proves the contrary, where there is one.
fn closes(flow: &Flow<'_>, tensor: Tensor) -> Result<(), Undivided> {
    let info = &flow.tensors[tensor];
    let (Some(producer), Some(mut reach)) = (info.producer, info.last_read) else {
        return Err(Undivided::NotRead(tensor));
    };
    let mut closed = HashSet::from([tensor]);
    let mut blocked = None;
    let mut place = producer + 1;
    while place <= reach {
        let node = &flow.nodes[place];
        if node.useful && node.reads.iter().any(|read| closed.contains(read)) {
            let open = |read: &&Tensor| flow.tensors[**read].live && !closed.contains(*read);
            if let Some(open) = node.reads.iter().find(open) {
                blocked.get_or_insert((place, *open));
            } else {
                closed.extend(&node.writes);
                if node.writes.iter().any(|written| flow.outputs.contains(written)) {
                    return Ok(());
                }
                let ends =
                    node.writes.iter().filter_map(|written| flow.tensors[*written].last_read);
                reach = ends.fold(reach, usize::max);
            }
        }
        place += 1;
    }
    Err(match blocked {
        Some((place, tensor)) => Undivided::Open { place, tensor },
        None => Undivided::NotRead(tensor),
    })
}

/// Sets of 2 to `limit` tensors that are alive between two nodes, when the nodes are run as the
/// graph lists them, as early as they can, as late as they can, and branch by branch.
fn crossings(flow: &Flow<'_>, limit: usize) -> BTreeSet<Vec<Tensor>> {
    let listed: Vec<usize> = (0..flow.nodes.len())
        .filter(|place| flow.nodes[*place].useful && flow.is_live(&flow.nodes[*place]))
        .collect();
    let by = |level: &[usize]| {
        let mut order = listed.clone();
        order.sort_by_key(|place| level[*place]);
        order
    };
    let orders = [listed.clone(), by(&early(flow)), by(&late(flow)), branches(flow, &listed)];
    let mut sets = BTreeSet::new();
    for order in orders {
        sweep(flow, &order, limit, &mut sets);
    }
    sets
}

fn sweep(flow: &Flow<'_>, order: &[usize], limit: usize, sets: &mut BTreeSet<Vec<Tensor>>) {
    let mut left: HashMap<Tensor, usize> = HashMap::new();
    for place in order {
        for read in &flow.nodes[*place].reads {
            *left.entry(*read).or_default() += 1;
        }
    }
    let mut alive: BTreeSet<Tensor> =
        flow.inputs.iter().copied().filter(|input| left.contains_key(input)).collect();
    for place in order {
        let node = &flow.nodes[*place];
        for read in &node.reads {
            if let Some(left) = left.get_mut(read) {
                *left -= 1;
                if *left == 0 {
                    alive.remove(read);
                }
            }
        }
        alive.extend(node.writes.iter().filter(|written| left.contains_key(*written)));
        let made = alive.iter().any(|tensor| flow.tensors[*tensor].producer.is_some());
        if made && (2..=limit).contains(&alive.len()) {
            sets.insert(alive.iter().copied().collect());
        }
    }
}

/// For every place the length of the longest way to it.
fn early(flow: &Flow<'_>) -> Vec<usize> {
    let mut level = vec![0; flow.nodes.len()];
    for (place, node) in flow.nodes.iter().enumerate() {
        let makers = node.reads.iter().filter_map(|read| flow.tensors[*read].producer);
        level[place] = makers.map(|maker| level[maker] + 1).max().unwrap_or(0);
    }
    level
}

/// For every place the length of the longest way in all less that of the longest way from it.
fn late(flow: &Flow<'_>) -> Vec<usize> {
    let mut after = vec![0; flow.nodes.len()];
    for (place, node) in flow.nodes.iter().enumerate().rev() {
        for maker in node.reads.iter().filter_map(|read| flow.tensors[*read].producer) {
            after[maker] = after[maker].max(after[place] + 1);
        }
    }
    let longest = after.iter().copied().max().unwrap_or(0);
    after.iter().map(|after| longest - after).collect()
}

/// The order in which a walk back from the outputs is done with the nodes.
fn branches(flow: &Flow<'_>, listed: &[usize]) -> Vec<usize> {
    let wanted: HashSet<usize> = listed.iter().copied().collect();
    let mut order = Vec::with_capacity(listed.len());
    let mut begun = HashSet::new();
    let maker = |tensor: &Tensor| flow.tensors[*tensor].producer;
    let mut stack: Vec<(usize, bool)> =
        flow.outputs.iter().rev().filter_map(maker).map(|place| (place, false)).collect();
    while let Some((place, done)) = stack.pop() {
        if done {
            order.push(place);
        } else if wanted.contains(&place) && begun.insert(place) {
            stack.push((place, true));
            let makers = flow.nodes[place].reads.iter().rev().filter_map(maker);
            stack.extend(makers.map(|place| (place, false)));
        }
    }
    order
}

struct Search<'f, 'g> {
    flow: &'f Flow<'g>,
    types: &'f Types,
    found: Vec<(Vec<Tensor>, Vec<Tensor>)>,
    /// Why a tensor alone is no cut.
    refused: HashMap<Tensor, Undivided>,
}

impl Search<'_, '_> {
    fn take(&mut self, cut: Vec<Tensor>, outcome: Result<Division, Undivided>) {
        match outcome {
            Ok(division) => {
                let crosses =
                    |tensor: &Tensor| self.types.uncuttable(self.flow.name(*tensor)).is_none();
                if cut.iter().all(crosses) {
                    self.found.push((cut, division.answers));
                }
            }
            Err(undivided) => {
                if let [tensor] = cut.as_slice() {
                    self.refused.insert(*tensor, undivided);
                }
            }
        }
    }

    fn report(mut self, limit: usize, model: &ModelProto) -> Cuts {
        // By the last tensor that is made: the place of the cut in the graph.
        let place = |cut: &[Tensor]| {
            cut.iter().filter_map(|tensor| self.flow.tensors[*tensor].producer).max()
        };
        self.found.sort_by_key(|(cut, _)| (place(cut), cut.len()));
        let cut: HashSet<Tensor> = self.found.iter().flat_map(|(cut, _)| cut).copied().collect();
        let mut regions: Vec<Region> = Vec::new();
        let mut open = false;
        for tensor in candidates(self.flow) {
            open &= !cut.contains(&tensor);
            if cut.contains(&tensor) {
                continue;
            }
            let (why, name) = (self.why(tensor, limit), self.flow.name(tensor));
            match regions.last_mut() {
                Some(region) if open && region.why.reason() == why.reason() => {
                    name.clone_into(&mut region.last);
                    region.tensors += 1;
                }
                _ => regions.push(Region {
                    first: name.to_owned(),
                    last: name.to_owned(),
                    tensors: 1,
                    why,
                }),
            }
            open = true;
        }
        regions.extend(self.hidden(model));
        let found = self.found.iter().map(|(cut, answers)| Found {
            cut: Cut { tensors: self.flow.names(cut) },
            answers: self.flow.names(answers),
            instead: self.instead(cut),
        });
        Cuts { found: found.collect(), regions }
    }

    fn why(&self, tensor: Tensor, limit: usize) -> Uncuttable {
        let flow = self.flow;
        if let Some(why) = self.types.uncuttable(flow.name(tensor)) {
            return why;
        }
        match self.refused.get(&tensor) {
            Some(Undivided::Random(place)) => {
                Uncuttable::Random { node: title(flow.proto(*place)) }
            }
            Some(Undivided::Open { place, tensor: beside }) => {
                let name = flow.name(*beside).to_owned();
                if flow.nodes[*place].captures.contains(beside) {
                    return Uncuttable::Captured { node: title(flow.proto(*place)), beside: name };
                }
                Uncuttable::Live { live: self.live_after(tensor), limit, beside: name }
            }
            Some(Undivided::NotRead(_)) | None => {
                let (live, beside) = (self.live_after(tensor), flow.name(tensor).to_owned());
                Uncuttable::Live { live, limit, beside }
            }
        }
    }

    /// Tensors that are needed behind the node that makes this one.
    fn live_after(&self, tensor: Tensor) -> usize {
        let Some(here) = self.flow.tensors[tensor].producer else { return 2 };
        let over = self.flow.tensors.iter().filter(|info| {
            let made_before = info.producer.is_none_or(|producer| producer <= here);
            info.live && made_before && info.last_read.is_some_and(|last| last > here)
        });
        over.count().max(2)
    }

    /// What cannot be cut because the graph shows it as one node.
    fn hidden(&self, model: &ModelProto) -> Vec<Region> {
        let mut regions = Vec::new();
        let nodes = self.flow.nodes.iter().filter(|node| node.useful && self.flow.is_live(node));
        for node in nodes.map(|node| &self.flow.graph.node[node.index]) {
            let function = model.functions.iter().find(|function| {
                (domain(function.domain()), function.name(), function.overload()) == key(node)
            });
            let made = bodies(node)
                .flat_map(|body| &body.node)
                .chain(function.iter().flat_map(|function| &function.node));
            let made: Vec<&String> = made.flat_map(|node| &node.output).collect();
            if let (Some(first), Some(last)) = (made.first(), made.last()) {
                let why = match function {
                    Some(function) => Uncuttable::Function { name: function.name().to_owned() },
                    None => Uncuttable::Body { node: title(node) },
                };
                let (first, last) = ((*first).clone(), (*last).clone());
                regions.push(Region { first, last, tensors: made.len(), why });
            }
        }
        regions
    }

    /// The quantised form of a tensor that is quantised right behind, or was right before.
    fn instead(&self, cut: &[Tensor]) -> Option<String> {
        let ([tensor], flow) = (cut, self.flow) else { return None };
        let info = &flow.tensors[*tensor];
        let quantised = |place: usize| flow.nodes[place].writes.first().copied();
        let behind = || {
            let mut readers = (0..flow.nodes.len()).filter(|place| {
                flow.nodes[*place].useful && flow.nodes[*place].reads.contains(tensor)
            });
            let only = readers.next().filter(|_| readers.next().is_none())?;
            let node = flow.proto(only);
            let first = node.input.first().is_some_and(|name| name == info.name);
            (first && node.op_type() == "QuantizeLinear").then(|| quantised(only)).flatten()
        };
        let before = || {
            let node = flow.proto(info.producer?);
            let source = flow.find(node.input.first()?)?;
            (node.op_type() == "DequantizeLinear").then_some(source)
        };
        let other = behind().or_else(before)?;
        let is_cut = self.found.iter().any(|(cut, _)| *cut == [other]);
        is_cut.then(|| flow.name(other).to_owned())
    }
}
