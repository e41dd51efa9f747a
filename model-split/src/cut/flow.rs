//! Who makes and who reads each tensor of a graph, what does not depend on any input, and in which
//! order nodes can run. Tensors that the bodies of If, Loop and Scan capture count as read by the
//! node that holds them. It must not know types or write anything.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};

use super::CutError;
use crate::onnx::pb;

/// Operators whose answers differ from run to run: what they make must be made once.
const RANDOM: [&str; 7] = [
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
];

/// A tensor's number within one [`Flow`].
pub(crate) type Tensor = usize;

pub(crate) struct Flow<'g> {
    pub(crate) graph: &'g pb::GraphProto,
    names: HashMap<&'g str, Tensor>,
    pub(crate) tensors: Vec<Info<'g>>,
    /// In an order in which they can run: that of the graph where it is one.
    pub(crate) nodes: Vec<Node>,
    /// Without repetition.
    pub(crate) outputs: Vec<Tensor>,
    /// Without weights and repetition.
    pub(crate) inputs: Vec<Tensor>,
}

pub(crate) struct Info<'g> {
    pub(crate) name: &'g str,
    /// Place in [`Flow::nodes`].
    pub(crate) producer: Option<usize>,
    /// An initialiser, also one that is listed among the inputs.
    pub(crate) weight: bool,
    /// Depends on an input or on chance, so that a part that reads it must be given it.
    pub(crate) live: bool,
    /// Place of the last useful node that reads it.
    pub(crate) last_read: Option<usize>,
}

pub(crate) struct Node {
    /// Place in the graph.
    pub(crate) index: usize,
    /// Without repetition.
    pub(crate) reads: Vec<Tensor>,
    /// Those of `reads` that only its bodies read.
    pub(crate) captures: Vec<Tensor>,
    pub(crate) writes: Vec<Tensor>,
    /// Some output needs it.
    pub(crate) useful: bool,
    /// It or something inside of it draws random numbers.
    pub(crate) random: bool,
}

impl<'g> Flow<'g> {
    pub(crate) fn new(
        graph: &'g pb::GraphProto,
        functions: &[pb::FunctionProto],
    ) -> Result<Self, CutError> {
        let mut flow = Self {
            graph,
            names: HashMap::new(),
            tensors: vec![],
            nodes: vec![],
            outputs: vec![],
            inputs: vec![],
        };
        for name in weight_names(graph) {
            let weight = flow.tensor(name);
            flow.tensors[weight].weight = true;
        }
        let inputs = graph.input.iter().map(|input| flow.tensor(input.name())).collect::<Vec<_>>();
        flow.inputs = unique(inputs.into_iter().filter(|input| !flow.tensors[*input].weight));
        let chance = random_functions(functions);
        let nodes = graph.node.iter().enumerate();
        let nodes: Vec<Node> = nodes.map(|(index, node)| flow.node(index, node, &chance)).collect();
        flow.nodes = sorted(nodes, flow.tensors.len()).map_err(|index| {
            let node = &graph.node[index];
            CutError::Cycle { node: title(node) }
        })?;
        let outputs = graph.output.iter().map(|output| flow.tensor(output.name()));
        flow.outputs = unique(outputs.collect::<Vec<_>>().into_iter());
        flow.settle();
        Ok(flow)
    }

    fn tensor(&mut self, name: &'g str) -> Tensor {
        *self.names.entry(name).or_insert_with(|| {
            let (producer, last_read) = (None, None);
            self.tensors.push(Info { name, producer, weight: false, live: false, last_read });
            self.tensors.len() - 1
        })
    }

    fn node(&mut self, index: usize, node: &'g pb::NodeProto, chance: &HashSet<Key<'_>>) -> Node {
        let direct = node.input.iter().map(String::as_str).filter(|name| !name.is_empty());
        let direct = unique(direct.map(|name| self.tensor(name)).collect::<Vec<_>>().into_iter());
        let inner = captured(node).into_iter().map(|name| self.tensor(name)).collect::<Vec<_>>();
        let captures = unique(inner.into_iter().filter(|tensor| !direct.contains(tensor)));
        let reads = direct.iter().chain(&captures).copied().collect();
        let made = node.output.iter().filter(|name| !name.is_empty());
        let writes = made.map(|name| self.tensor(name)).collect();
        let random = is_random(node, chance);
        Node { index, reads, captures, writes, useful: false, random }
    }

    /// Fills in what follows from the order of the nodes.
    fn settle(&mut self) {
        for input in &self.inputs {
            self.tensors[*input].live = true;
        }
        for (place, node) in self.nodes.iter().enumerate() {
            let live = node.random || node.reads.iter().any(|read| self.tensors[*read].live);
            for written in &node.writes {
                let info = &mut self.tensors[*written];
                (info.producer, info.live) = (Some(place), live);
            }
        }
        let mut needed: HashSet<Tensor> = self.outputs.iter().copied().collect();
        for (place, node) in self.nodes.iter_mut().enumerate().rev() {
            node.useful = node.writes.iter().any(|written| needed.contains(written));
            if node.useful {
                needed.extend(&node.reads);
                for read in &node.reads {
                    self.tensors[*read].last_read.get_or_insert(place);
                }
            }
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<Tensor> {
        self.names.get(name).copied()
    }

    pub(crate) fn name(&self, tensor: Tensor) -> &'g str {
        self.tensors[tensor].name
    }

    pub(crate) fn names(&self, tensors: &[Tensor]) -> Vec<String> {
        tensors.iter().map(|tensor| self.name(*tensor).to_owned()).collect()
    }

    /// The message of a node.
    pub(crate) fn proto(&self, place: usize) -> &'g pb::NodeProto {
        &self.graph.node[self.nodes[place].index]
    }

    /// Whether a node depends on an input or on chance.
    pub(crate) fn is_live(&self, node: &Node) -> bool {
        node.random || node.reads.iter().any(|read| self.tensors[*read].live)
    }
}

pub(crate) fn unique(items: impl Iterator<Item = Tensor>) -> Vec<Tensor> {
    let mut seen = HashSet::new();
    items.filter(|item| seen.insert(*item)).collect()
}

/// A node in words: its name, or what it makes.
pub(crate) fn title(node: &pb::NodeProto) -> String {
    let made = node.output.iter().find(|name| !name.is_empty()).map_or("", String::as_str);
    let name = if node.name().is_empty() { made } else { node.name() };
    format!("{} \"{name}\"", node.op_type())
}

/// The order of the graph where it is possible, else the nearest to it. The error is the place of
/// a node that waits for itself.
fn sorted(nodes: Vec<Node>, tensors: usize) -> Result<Vec<Node>, usize> {
    let mut maker: Vec<Option<usize>> = vec![None; tensors];
    for node in &nodes {
        for written in &node.writes {
            maker[*written] = Some(node.index);
        }
    }
    let mut waits = vec![0usize; nodes.len()];
    let mut readers: Vec<Vec<usize>> = vec![vec![]; nodes.len()];
    for node in &nodes {
        let makers: BTreeSet<usize> = node.reads.iter().filter_map(|read| maker[*read]).collect();
        waits[node.index] = makers.len();
        for maker in makers {
            readers[maker].push(node.index);
        }
    }
    let idle = waits.iter().enumerate().filter(|(_, waits)| **waits == 0);
    let mut ready: BinaryHeap<Reverse<usize>> = idle.map(|(index, _)| Reverse(index)).collect();
    let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.extend(nodes[index].take());
        for reader in &readers[index] {
            waits[*reader] -= 1;
            if waits[*reader] == 0 {
                ready.push(Reverse(*reader));
            }
        }
    }
    match nodes.iter().position(Option::is_some) {
        Some(stuck) => Err(stuck),
        None => Ok(order),
    }
}

/// The bodies of a node, not those inside of them.
pub(crate) fn bodies(node: &pb::NodeProto) -> impl Iterator<Item = &pb::GraphProto> {
    node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
}

/// The names that the bodies inside a node read from around it.
fn captured(node: &pb::NodeProto) -> Vec<&str> {
    let mut names = Vec::new();
    for body in bodies(node) {
        let made = body.node.iter().flat_map(|node| node.output.iter().map(String::as_str));
        let local: HashSet<&str> = made
            .chain(body.input.iter().map(|input| input.name()))
            .chain(weight_names(body))
            .collect();
        let direct = body.node.iter().flat_map(|node| node.input.iter().map(String::as_str));
        let deeper = body.node.iter().flat_map(captured);
        let passed = body.output.iter().map(|output| output.name());
        let outside = direct.chain(deeper).chain(passed);
        names.extend(outside.filter(|name| !name.is_empty() && !local.contains(name)));
    }
    names
}

pub(crate) fn sparse_name(weight: &pb::SparseTensorProto) -> &str {
    weight.values.as_ref().map_or("", |values| values.name())
}

pub(crate) fn weight_names(graph: &pb::GraphProto) -> impl Iterator<Item = &str> {
    let dense = graph.initializer.iter().map(|weight| weight.name());
    dense.chain(graph.sparse_initializer.iter().map(sparse_name))
}

/// Domain, name and overload: what calls a function.
type Key<'m> = (&'m str, &'m str, &'m str);

pub(crate) fn key(node: &pb::NodeProto) -> Key<'_> {
    (domain(node.domain()), node.op_type(), node.overload())
}

/// The default domain has two names.
pub(crate) fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

/// The functions that draw random numbers, also through others.
fn random_functions(functions: &[pb::FunctionProto]) -> HashSet<Key<'_>> {
    let mut random = HashSet::new();
    loop {
        let before = random.len();
        for function in functions {
            if function.node.iter().any(|node| is_random(node, &random)) {
                random.insert((domain(function.domain()), function.name(), function.overload()));
            }
        }
        if random.len() == before {
            return random;
        }
    }
}

fn is_random(node: &pb::NodeProto, functions: &HashSet<Key<'_>>) -> bool {
    let training = |node: &pb::NodeProto| {
        // Without its third input, or before it had one, Dropout passes its input on.
        node.op_type() != "Dropout" || node.input.get(2).is_some_and(|name| !name.is_empty())
    };
    let own = domain(node.domain()).is_empty() && RANDOM.contains(&node.op_type());
    own && training(node)
        || functions.contains(&key(node))
        || bodies(node).flat_map(|body| &body.node).any(|node| is_random(node, functions))
}
