//! What a cut makes of a graph: which nodes and outputs belong to the front and which to the tail.
//! An output is the tail's when it follows from the tensors of the cut alone; the front answers
//! all others. It must not know types or write anything.

use std::collections::HashSet;

use super::flow::{Flow, Node, Tensor};

pub(crate) struct Division {
    /// For every place whether the front needs the node.
    pub(crate) front: Vec<bool>,
    /// For every place whether the tail needs the node; what is constant may be in both.
    pub(crate) tail: Vec<bool>,
    /// Outputs of the model that the front answers.
    pub(crate) answers: Vec<Tensor>,
    /// Outputs of the model that the tail answers.
    pub(crate) finals: Vec<Tensor>,
}

pub(crate) enum Undivided {
    /// Behind the cut, the node at this place reads this tensor, which does not follow from it.
    Open { place: usize, tensor: Tensor },
    /// Nothing behind the cut reads this tensor.
    NotRead(Tensor),
    /// Both parts need the random node at this place.
    Random(usize),
}

/// Divides at these tensors, which are live.
pub(crate) fn divide(flow: &Flow<'_>, cut: &[Tensor]) -> Result<Division, Undivided> {
    let inside: HashSet<Tensor> = cut.iter().copied().collect();
    let mut closed = inside.clone();
    let mut blocked = None;
    for (place, node) in flow.nodes.iter().enumerate().filter(|(_, node)| node.useful) {
        if !node.reads.iter().any(|read| closed.contains(read)) {
            continue;
        }
        match first_open(flow, node, &closed) {
            Some(tensor) => {
                blocked.get_or_insert((place, tensor));
            }
            None => closed.extend(&node.writes),
        }
    }
    let (finals, answers): (Vec<Tensor>, Vec<Tensor>) =
        flow.outputs.iter().partition(|output| closed.contains(output) && !inside.contains(output));
    if finals.is_empty() {
        return Err(match (blocked, cut.first()) {
            (Some((place, tensor)), _) => Undivided::Open { place, tensor },
            (None, Some(tensor)) => Undivided::NotRead(*tensor),
            (None, None) => Undivided::NotRead(0),
        });
    }
    let tail = needed(flow, &finals, &inside);
    let read = |tensor: &Tensor| {
        let mut nodes = flow.nodes.iter().zip(&tail).filter(|(_, needed)| **needed);
        nodes.any(|(node, _)| node.reads.contains(tensor))
    };
    if let Some(unread) = cut.iter().find(|tensor| !read(tensor)) {
        return Err(Undivided::NotRead(*unread));
    }
    let wanted: Vec<Tensor> = cut.iter().chain(&answers).copied().collect();
    let front = needed(flow, &wanted, &HashSet::new());
    let twice = (0..flow.nodes.len())
        .find(|place| front[*place] && tail[*place] && flow.nodes[*place].random);
    match twice {
        Some(place) => Err(Undivided::Random(place)),
        None => Ok(Division { front, tail, answers, finals }),
    }
}

/// A live tensor that a node reads besides those that are closed.
fn first_open(flow: &Flow<'_>, node: &Node, closed: &HashSet<Tensor>) -> Option<Tensor> {
    let open = |read: &&Tensor| flow.tensors[**read].live && !closed.contains(*read);
    node.reads.iter().find(open).copied()
}

/// For every place whether some of `wanted` needs the node when `given` is there.
pub(crate) fn needed(flow: &Flow<'_>, wanted: &[Tensor], given: &HashSet<Tensor>) -> Vec<bool> {
    let mut open: HashSet<Tensor> =
        wanted.iter().copied().filter(|tensor| !given.contains(tensor)).collect();
    let mut nodes = vec![false; flow.nodes.len()];
    for (place, node) in flow.nodes.iter().enumerate().rev() {
        if node.writes.iter().any(|written| open.contains(written)) {
            nodes[place] = true;
            open.extend(node.reads.iter().filter(|read| !given.contains(*read)));
        }
    }
    nodes
}
