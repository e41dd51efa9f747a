//! Builds a topology from the nodes there are now. Decides which slot each
//! node gets: one that was there before keeps its slot, and with it all that
//! is known of it; a slot that changes hands gets a new generation first.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;

use super::index::ClassIndex;
use super::{Entry, NodeKey, NodeSpec, Slot, Topology};
use crate::cells::Cells;
use crate::place::{Place, RegionSet};
use crate::request::ModelId;

/// Most sets of regions that are indexed.
const MAX_CLASSES: usize = 64;
/// Most models that one node may serve.
const MAX_MODELS_PER_NODE: usize = 1_024;
/// Most models of a fleet.
const MAX_MODELS: usize = 4_096;

/// Why a topology was not built. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// Two nodes have the same key.
    DuplicateNode(NodeKey),
    /// A node lists a model twice.
    DuplicateModel(NodeKey, ModelId),
    /// More nodes than the cells have room for.
    TooManyNodes {
        /// Nodes given.
        nodes: usize,
        /// Room in the cells.
        capacity: usize,
    },
    /// More sets of regions than are indexed (64).
    TooManyClasses(usize),
    /// A node lists more models than allowed (1,024).
    TooManyModels(NodeKey, usize),
    /// The fleet lists more models than allowed (4,096).
    TooManyModelsInFleet(usize),
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateNode(key) => write!(f, "two nodes have the key {:#018x}", key.0),
            Self::DuplicateModel(key, model) => {
                write!(f, "node {:#018x} lists model {} twice", key.0, model.0)
            }
            Self::TooManyNodes { nodes, capacity } => {
                write!(f, "{nodes} nodes, but room for {capacity}")
            }
            Self::TooManyClasses(got) => {
                write!(f, "{got} sets of regions, at most {MAX_CLASSES}")
            }
            Self::TooManyModels(key, got) => {
                write!(f, "node {:#018x}: {got} models, at most {MAX_MODELS_PER_NODE}", key.0)
            }
            Self::TooManyModelsInFleet(got) => {
                write!(f, "{got} models in the fleet, at most {MAX_MODELS}")
            }
        }
    }
}

impl core::error::Error for TopologyError {}

/// Collects nodes and the sets of regions that requests will ask for.
#[derive(Clone, Debug, Default)]
pub struct TopologyBuilder {
    here: Option<Place>,
    classes: BTreeSet<RegionSet>,
    nodes: Vec<NodeSpec>,
}

impl TopologyBuilder {
    /// No nodes yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the router is: gives unmeasured nodes a round trip to assume.
    #[must_use]
    pub fn here(mut self, place: Option<Place>) -> Self {
        self.here = place;
        self
    }

    /// A set of regions that some tenant is bound to. Requests with a set that
    /// was not announced are served too, from the model's whole index, at most
    /// 1,024 nodes of it.
    #[must_use]
    pub fn class(mut self, allowed: RegionSet) -> Self {
        self.classes.insert(allowed);
        self
    }

    /// One more node.
    #[must_use]
    pub fn node(mut self, spec: NodeSpec) -> Self {
        self.nodes.push(spec);
        self
    }

    /// The topology that follows `previous` (none at the start). Slots of
    /// nodes that are gone are closed in `cells` at once: a decision still
    /// running on `previous` fails to book them. One caller at a time.
    ///
    /// # Errors
    /// See [`TopologyError`].
    pub fn build(
        mut self,
        previous: Option<&Topology>,
        cells: &Cells,
    ) -> Result<Topology, TopologyError> {
        self.check(cells)?;
        let mut entries = self.assign(previous, cells);
        entries.sort_unstable_by_key(|e| e.slot.index);

        let slots = entries.last().map_or(0, |e| e.slot.index as usize + 1);
        let mut by_key: Vec<_> = entries.iter().map(|e| (e.spec.key, e.slot.index)).collect();
        by_key.sort_unstable();
        let models: BTreeSet<ModelId> =
            entries.iter().flat_map(|e| &e.spec.models).map(|s| s.model).collect();
        self.classes.remove(&RegionSet::ALL);
        let classes: Box<[RegionSet]> =
            core::iter::once(RegionSet::ALL).chain(self.classes).collect();
        let index = index(&entries, slots, &models, &classes);

        let mut by_slot: Vec<Option<Entry>> = Vec::new();
        by_slot.resize_with(slots, || None);
        for entry in entries {
            let at = entry.slot.index as usize;
            by_slot[at] = Some(entry);
        }
        let topology = Topology {
            epoch: previous.map_or(1, |p| p.epoch + 1),
            here: self.here,
            entries: by_slot.into_boxed_slice(),
            by_key: by_key.into_boxed_slice(),
            models: models.into_iter().collect(),
            classes,
            index,
            ring: None,
        };
        crate::sweep::refresh(&topology, cells, None);
        Ok(topology)
    }

    fn check(&mut self, cells: &Cells) -> Result<(), TopologyError> {
        let (nodes, capacity) = (self.nodes.len(), cells.capacity());
        if nodes > capacity {
            return Err(TopologyError::TooManyNodes { nodes, capacity });
        }
        if self.classes.len() > MAX_CLASSES {
            return Err(TopologyError::TooManyClasses(self.classes.len()));
        }
        let mut models = BTreeSet::new();
        for node in &mut self.nodes {
            if node.models.len() > MAX_MODELS_PER_NODE {
                return Err(TopologyError::TooManyModels(node.key, node.models.len()));
            }
            node.models.sort_unstable_by_key(|s| s.model);
            if let Some(pair) = node.models.windows(2).find(|p| p[0].model == p[1].model) {
                return Err(TopologyError::DuplicateModel(node.key, pair[0].model));
            }
            models.extend(node.models.iter().map(|s| s.model));
        }
        if models.len() > MAX_MODELS {
            return Err(TopologyError::TooManyModelsInFleet(models.len()));
        }
        self.nodes.sort_by_key(|n| n.key);
        match self.nodes.windows(2).find(|p| p[0].key == p[1].key) {
            Some(pair) => Err(TopologyError::DuplicateNode(pair[0].key)),
            None => Ok(()),
        }
    }

    /// Gives every node its slot: the old one, else the lowest free. An old
    /// slot that the cells no longer know (they are others, or another
    /// topology was built since) counts as lost.
    fn assign(&mut self, previous: Option<&Topology>, cells: &Cells) -> Vec<Entry> {
        let known = |slot: &Slot| cells.cell(*slot).is_some();
        let old = |node: &NodeSpec| previous?.slot_of(node.key).filter(known);
        let mut taken: Vec<bool> = alloc::vec![false; cells.capacity()];
        for slot in self.nodes.iter().filter_map(old) {
            taken[slot.index as usize] = true;
        }
        let before = previous.into_iter().flat_map(Topology::entries).map(|e| e.slot);
        for gone in before.filter(known).filter(|slot| !taken[slot.index as usize]) {
            cells.turn_over(gone.index);
        }
        let mut free = (0..taken.len()).filter(|i| !taken[*i]).map(|i| i as u32);
        let mut entries = Vec::with_capacity(self.nodes.len());
        for spec in self.nodes.drain(..) {
            let slot = old(&spec).or_else(|| {
                let index = free.next()?;
                Some(Slot { index, generation: cells.turn_over(index) })
            });
            let prior = self.here.zip(spec.place).map(|(here, there)| here.rtt_prior(there));
            // `check` has made sure that there is a slot for everyone.
            entries.extend(slot.map(|slot| Entry { slot, spec, prior }));
        }
        entries
    }
}

fn index(
    entries: &[Entry],
    slots: usize,
    models: &BTreeSet<ModelId>,
    classes: &[RegionSet],
) -> Box<[ClassIndex]> {
    let mut index = Vec::with_capacity(models.len() * classes.len());
    for model in models {
        let serving: Vec<&Entry> =
            entries.iter().filter(|e| e.spec.served(*model).is_some()).collect();
        for class in classes {
            let members: Vec<&Entry> =
                serving.iter().copied().filter(|e| class.contains(e.spec.region)).collect();
            index.push(ClassIndex::new(slots, &members));
        }
    }
    index.into_boxed_slice()
}
