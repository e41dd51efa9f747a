//! What the router knows of its nodes, shared by all threads: names, cells, the current topology,
//! the numbering of models. It holds knowledge; probes bring it, decisions read it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use midspan_protocol::{
    ModelName,
    metadata::{NodeInfo, RepositoryEntry},
};
use midspan_router_core::{
    Cells, Event, Held, ModelId, NodeKey, NodeSpec, Served, Slot, Timestamp, Topology,
    TopologyBuilder, TopologyError, Tuning, Workers, hash_bytes, observe, sweep,
};

use crate::{
    config::{Config, Node},
    ring,
};

/// Different models and versions that may be numbered; a node that lists more is believed up to
/// here.
const MAX_MODELS: usize = 4096;

/// The fleet as this router knows it.
pub struct Fleet {
    /// The nodes, in configuration order.
    pub nodes: Vec<Node>,
    /// Live state of every slot.
    pub cells: Arc<Cells>,
    topology: ArcSwap<Topology>,
    models: ArcSwap<Models>,
    by_key: HashMap<NodeKey, usize>,
    /// What each node last said of itself; the lock also serialises topology changes.
    infos: Mutex<Vec<Option<NodeInfo>>>,
    started: Instant,
    here: Option<midspan_router_core::Place>,
}

/// Every model that was ever listed, with its number, which it keeps, and whether a node lists it
/// now.
type Models = HashMap<ModelName, (ModelId, bool)>;

impl Fleet {
    /// A fleet of configured nodes, none of which has been heard of yet.
    ///
    /// # Errors
    /// When the nodes make no topology (for example too many).
    pub fn new(config: &Config) -> Result<Self, TopologyError> {
        let capacity = u16::try_from(config.nodes.len().max(64)).unwrap_or(u16::MAX);
        let cells = Cells::new(capacity, Tuning::default())
            .map_err(|_| TopologyError::TooManyNodes { nodes: config.nodes.len(), capacity: 0 })?;
        let fleet = Self {
            nodes: config.nodes.clone(),
            by_key: config
                .nodes
                .iter()
                .enumerate()
                .map(|(index, node)| (key(node), index))
                .collect(),
            topology: ArcSwap::from_pointee(TopologyBuilder::new().build(None, &cells)?),
            cells: Arc::new(cells),
            models: ArcSwap::default(),
            infos: Mutex::new(vec![None; config.nodes.len()]),
            started: Instant::now(),
            here: config.place,
        };
        {
            let infos = fleet.infos.lock().unwrap_or_else(PoisonError::into_inner);
            fleet.rebuild(&infos)?;
        }
        Ok(fleet)
    }

    /// Time since this fleet was made.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }

    /// A moment as the core counts it.
    #[must_use]
    pub fn at(&self, instant: Instant) -> Timestamp {
        let micros = instant.saturating_duration_since(self.started).as_micros();
        Timestamp(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// The current topology.
    #[must_use]
    pub fn topology(&self) -> Arc<Topology> {
        self.topology.load_full()
    }

    /// The number of a model that some node lists, ready or not.
    #[must_use]
    pub fn model(&self, name: &ModelName) -> Option<ModelId> {
        self.models.load().get(name).filter(|(_, listed)| *listed).map(|(id, _)| *id)
    }

    /// The nodes that list a model, or those that were heard of, in configuration order.
    #[must_use]
    pub fn listing(&self, model: Option<&ModelName>) -> Vec<usize> {
        let lists = |info: &NodeInfo| {
            model.is_none_or(|model| info.models.iter().any(|entry| is_named(entry, model)))
        };
        let infos = self.infos.lock().unwrap_or_else(PoisonError::into_inner);
        let infos = infos.iter().enumerate();
        infos.filter(|(_, info)| info.as_ref().is_some_and(lists)).map(|(at, _)| at).collect()
    }

    /// Whether a configured node may be given requests.
    #[must_use]
    pub fn is_usable(&self, index: usize) -> bool {
        let view = self.slot(index).and_then(|slot| self.cells.view(slot, self.now()));
        view.is_some_and(|view| view.health.usable())
    }

    /// The name behind a model's number.
    #[must_use]
    pub fn model_name(&self, id: ModelId) -> Option<ModelName> {
        self.models.load().iter().find(|entry| entry.1.0 == id).map(|entry| entry.0.clone())
    }

    /// Which configured node a key belongs to.
    #[must_use]
    pub fn index_of(&self, key: NodeKey) -> Option<usize> {
        self.by_key.get(&key).copied()
    }

    /// The slot of a configured node.
    #[must_use]
    pub fn slot(&self, index: usize) -> Option<Slot> {
        self.nodes.get(index).and_then(|node| self.topology.load().slot_of(key(node)))
    }

    /// Takes note of what happened at a node.
    pub fn observe(&self, event: Event) {
        observe(&self.cells, self.now(), event);
    }

    /// The core's periodic view over the whole fleet.
    pub fn sweep(&self) {
        let swept = sweep(self.now(), &self.topology.load(), &self.cells);
        if swept.ejected > 0 || swept.half_opened > 0 || swept.recovered > 0 {
            tracing::info!(
                ejected = swept.ejected,
                half_opened = swept.half_opened,
                recovered = swept.recovered,
                "health changed"
            );
        }
    }

    /// Whether a model that is not known may still turn up: some node has not been heard of, and
    /// the router has only just started.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        const START: Duration = Duration::from_secs(5);
        let infos = self.infos.lock().unwrap_or_else(PoisonError::into_inner);
        infos.iter().any(Option::is_none) && self.started.elapsed() < START
    }

    /// What a node last said of itself.
    #[must_use]
    pub fn info(&self, index: usize) -> Option<NodeInfo> {
        self.infos.lock().unwrap_or_else(PoisonError::into_inner).get(index)?.clone()
    }

    /// Models that some node lists, without duplicates, in order of name and version; each in the
    /// best state that it has anywhere.
    #[must_use]
    pub fn repository(&self) -> Vec<RepositoryEntry> {
        let infos = self.infos.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<RepositoryEntry> =
            infos.iter().flatten().flat_map(|info| info.models.iter().cloned()).collect();
        let rank = |entry: &RepositoryEntry| match entry.state.as_str() {
            "READY" => 0,
            "LOADING" => 1,
            _ => 2,
        };
        let key =
            |entry: &RepositoryEntry| (entry.name.clone(), entry.version.clone(), rank(entry));
        all.sort_by_cached_key(key);
        all.dedup_by(|a, b| a.name == b.name && a.version == b.version);
        all
    }

    /// Takes what a node says of itself; a change of models or workers makes a new topology.
    ///
    /// # Errors
    /// When the changed fleet makes no topology; the old one stays.
    pub fn learn(&self, index: usize, info: NodeInfo) -> Result<(), TopologyError> {
        let mut infos = self.infos.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = infos.get_mut(index) else { return Ok(()) };
        let changed = place
            .as_ref()
            .is_none_or(|old| old.models != info.models || old.workers != info.workers);
        *place = Some(info);
        if changed { self.rebuild(&infos) } else { Ok(()) }
    }

    /// Callers hold the lock on `infos`.
    fn rebuild(&self, infos: &[Option<NodeInfo>]) -> Result<(), TopologyError> {
        let mut models = Models::clone(&self.models.load());
        models.values_mut().for_each(|entry| entry.1 = false);
        let mut builder = TopologyBuilder::new().here(self.here);
        let all: Vec<&RepositoryEntry> =
            infos.iter().flatten().flat_map(|info| &info.models).collect();
        // A model that is ready nowhere is left with the nodes that list it: their word on it is
        // better than the router's.
        let served_by = |entry: &RepositoryEntry, name: &ModelName| {
            entry.state == "READY"
                || !all.iter().any(|other| other.state == "READY" && is_named(other, name))
        };
        for (node, info) in self.nodes.iter().zip(infos) {
            let mut spec = NodeSpec::new(key(node), node.region);
            spec.place = node.place;
            spec.weight = node.weight;
            if let Some(info) = info {
                let workers = u16::try_from(info.workers).ok().and_then(|n| Workers::new(n).ok());
                spec.workers = workers.unwrap_or(spec.workers);
                spec.models = served(info, &mut models, served_by);
            }
            builder = builder.node(spec);
        }
        let previous = self.topology.load_full();
        let built = builder.build(Some(&previous), &self.cells)?;
        let ring = ring::freeze(&built);
        self.models.store(Arc::new(models));
        self.topology.store(Arc::new(built.with_ring(ring)));
        Ok(())
    }
}

/// A node's identity: the hash of its name.
fn key(node: &Node) -> NodeKey {
    NodeKey(hash_bytes(node.name.as_bytes()))
}

/// Whether an entry is what `model` names.
fn is_named(entry: &RepositoryEntry, model: &ModelName) -> bool {
    entry.name == model.name
        && model.version.as_ref().is_none_or(|version| *version == entry.version)
}

/// The models of a node, numbered; each once by its version and once without. Those that it lists
/// but does not serve are numbered too: they are known.
fn served(
    info: &NodeInfo,
    models: &mut Models,
    is_served: impl Fn(&RepositoryEntry, &ModelName) -> bool,
) -> Vec<Served> {
    let mut out: Vec<Served> = Vec::new();
    for entry in &info.models {
        let versions = [None, Some(entry.version.clone())];
        for version in versions.into_iter().filter(|version| version.as_deref() != Some("")) {
            let name = ModelName { name: entry.name.clone(), version };
            let serves = is_served(entry, &name);
            let next = ModelId(u32::try_from(models.len()).unwrap_or(u32::MAX));
            if models.len() >= MAX_MODELS && !models.contains_key(&name) {
                tracing::warn!(node = info.name, model = entry.name, "too many models; ignored");
                continue;
            }
            let (model, listed) = models.entry(name).or_insert((next, true));
            *listed = true;
            if serves && !out.iter().any(|served| served.model == *model) {
                out.push(Served { model: *model, held: Held::Resident, service: None });
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
