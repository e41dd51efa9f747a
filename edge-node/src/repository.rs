//! The models of this node, by name and version: a fixed list of sources, and what became of each.
//! A model is replaced whole; requests under way keep the one that they started with. Who may ask
//! for a change is not decided here.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use midspan_protocol::{
    ModelName,
    metadata::{ModelMetadata, RepositoryEntry},
};
use midspan_runtime::library;
use midspan_split::{Bundle, manifest::PLAIN, sign::TrustedKey};
use tokio::sync::Mutex;

use crate::{
    config::{Config, ModelSource, Role},
    describe,
    error::NodeError,
    model::Model,
};

/// Why a model that was unloaded is unavailable.
const UNLOADED: &str = "unloaded";

/// The configured models, in configuration order.
pub(crate) struct Repository {
    places: Vec<Arc<Place>>,
}

/// One configured model.
pub(crate) struct Place {
    source: Source,
    name: String,
    current: RwLock<Current>,
    /// Held while the model is loaded or unloaded: one change at a time.
    changing: Mutex<()>,
}

/// Where a model comes from and how it is loaded.
#[derive(Clone)]
struct Source {
    model: ModelSource,
    role: Role,
    workers: usize,
    trusted: Arc<[TrustedKey]>,
}

struct Current {
    version: String,
    state: State,
}

#[derive(Clone)]
enum State {
    Ready(Arc<Model>),
    Loading,
    Unavailable(String),
}

impl Repository {
    /// Opens ONNX Runtime and loads every configured model.
    ///
    /// # Errors
    /// A message that names the model and the cause.
    pub(crate) fn load(config: &Config) -> Result<Self, String> {
        let path = library::find().map_err(|error| error.to_string())?;
        library::open(&path).map_err(|error| error.to_string())?;
        let trusted: Arc<[TrustedKey]> = config.trusted_keys.as_slice().into();
        let mut places: Vec<Arc<Place>> = Vec::new();
        for source in &config.models {
            let source = Source {
                model: source.clone(),
                role: config.role,
                workers: config.workers,
                trusted: Arc::clone(&trusted),
            };
            let model = source.load()?;
            if places.iter().any(|other| other.is(&model.name, &model.version)) {
                return Err(format!(
                    "model '{}' version {} is listed twice",
                    model.name, model.version
                ));
            }
            tracing::info!(
                model = model.name,
                version = model.version,
                stages = model.stages.len(),
                variant = model.variant,
                "loaded"
            );
            places.push(Arc::new(Place::new(source, model)));
        }
        Ok(Self { places })
    }

    /// The model that an app names; without a version the one listed last of those in service.
    ///
    /// # Errors
    /// [`NodeError::UnknownModel`], or [`NodeError::NotLoaded`] for one that is out of service.
    pub(crate) fn get(&self, name: &ModelName) -> Result<Arc<Model>, NodeError> {
        let mut reason = None;
        for place in self.places.iter().rev().filter(|place| place.name == name.name) {
            let current = place.read();
            if name.version.as_ref().is_some_and(|version| *version != current.version) {
                continue;
            }
            match &current.state {
                State::Ready(model) => return Ok(Arc::clone(model)),
                other => reason = reason.or_else(|| Some(other.reason())),
            }
        }
        Err(match reason {
            Some(reason) => NodeError::NotLoaded { name: name.to_string(), reason },
            None => NodeError::UnknownModel(name.to_string()),
        })
    }

    /// Every version of a model, for a change of all of them.
    ///
    /// # Errors
    /// [`NodeError::UnknownModel`].
    pub(crate) fn places(&self, name: &str) -> Result<Vec<Arc<Place>>, NodeError> {
        let places = self.places.iter().filter(|place| place.name == name);
        let places: Vec<_> = places.cloned().collect();
        if places.is_empty() {
            return Err(NodeError::UnknownModel(name.to_owned()));
        }
        Ok(places)
    }

    /// The models in service, in configuration order.
    pub(crate) fn loaded(&self) -> Vec<Arc<Model>> {
        self.places.iter().filter_map(|place| place.model()).collect()
    }

    /// The versions of a model that are in service, in configuration order.
    ///
    /// # Errors
    /// As [`Repository::get`].
    pub(crate) fn versions(&self, name: &ModelName) -> Result<Vec<Arc<Model>>, NodeError> {
        if name.version.is_some() {
            return Ok(vec![self.get(name)?]);
        }
        let mut models = self.loaded();
        models.retain(|model| model.name == name.name);
        if models.is_empty() { self.get(name).map(|model| vec![model]) } else { Ok(models) }
    }

    /// Whether a model is on its way into service.
    pub(crate) fn is_loading(&self) -> bool {
        self.places.iter().any(|place| matches!(place.read().state, State::Loading))
    }

    /// The repository index, in order of name and version.
    pub(crate) fn index(&self) -> Vec<RepositoryEntry> {
        let mut entries: Vec<RepositoryEntry> =
            self.places.iter().map(|place| place.entry()).collect();
        entries.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        entries
    }

    /// The variants that models in service run in, by name and version; not those that run as they
    /// were cut.
    pub(crate) fn variants(&self) -> BTreeMap<String, String> {
        let varied = self.loaded().into_iter().filter(|model| model.variant != PLAIN);
        let named = |model: Arc<Model>| {
            (format!("{}/{}", model.name, model.version), model.variant.clone())
        };
        varied.map(named).collect()
    }

    /// A model's metadata.
    pub(crate) fn metadata(&self, model: &Model) -> ModelMetadata {
        let same = self.loaded().into_iter().filter(|other| other.name == model.name);
        describe::metadata(model, same.map(|other| other.version.clone()).collect())
    }
}

impl Place {
    fn new(source: Source, model: Model) -> Self {
        let (name, version) = (model.name.clone(), model.version.clone());
        let state = State::Ready(Arc::new(model));
        let current = RwLock::new(Current { version, state });
        Self { source, name, current, changing: Mutex::default() }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a state in place of the last, which is returned.
    fn set(&self, state: State) -> State {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if let State::Ready(model) = &state {
            current.version.clone_from(&model.version);
        }
        std::mem::replace(&mut current.state, state)
    }

    fn is(&self, name: &str, version: &str) -> bool {
        self.name == name && self.read().version == version
    }

    fn model(&self) -> Option<Arc<Model>> {
        if let State::Ready(model) = &self.read().state { Some(Arc::clone(model)) } else { None }
    }

    fn entry(&self) -> RepositoryEntry {
        let current = self.read();
        RepositoryEntry {
            name: self.name.clone(),
            version: current.version.clone(),
            state: current.state.to_string(),
            reason: match &current.state {
                State::Ready(_) => String::new(),
                other => other.reason(),
            },
        }
    }

    /// Loads the model from its source, anew when it is in service: the old one serves until the
    /// new one is ready, and goes on when that fails. `same` are all places of this name. Must be
    /// run to its end.
    ///
    /// # Errors
    /// Why the model cannot be loaded.
    pub(crate) async fn load(self: &Arc<Self>, same: &[Arc<Self>]) -> Result<(), NodeError> {
        let _alone = self.changing.lock().await;
        let serving = self.model().is_some();
        if !serving {
            self.set(State::Loading);
        }
        let place = Arc::clone(self);
        let loading = tokio::task::spawn_blocking(move || place.load_now());
        let loaded = loading.await.unwrap_or_else(|error| Err(error.to_string()));
        let others = || same.iter().filter(|other| !Arc::ptr_eq(other, self));
        let loaded = loaded.and_then(|model| {
            // A bundle may come in a new version, but not in one that is served beside it.
            if others().any(|other| other.is(&model.name, &model.version)) {
                return Err(format!("version {} is listed already", model.version));
            }
            Ok(model)
        });
        match loaded {
            Ok(model) => {
                tracing::info!(model = self.name, version = model.version, "loaded");
                discard(self.set(State::Ready(Arc::new(model))));
                Ok(())
            }
            Err(problem) => {
                tracing::error!(model = self.name, problem, serving, "cannot be loaded");
                if !serving {
                    self.set(State::Unavailable(problem.clone()));
                }
                Err(NodeError::Load(problem))
            }
        }
    }

    /// The name is what requests, routers and rings know the model by: it stays.
    fn load_now(&self) -> Result<Model, String> {
        let model = self.source.load()?;
        if model.name != self.name {
            return Err(format!(
                "model '{}': its bundle is called '{}' now; restart the node to serve it",
                self.name, model.name
            ));
        }
        Ok(model)
    }

    /// Takes the model out of service; its memory is given back when the last request that uses it
    /// ends.
    pub(crate) async fn unload(&self) {
        let _alone = self.changing.lock().await;
        discard(self.set(State::Unavailable(UNLOADED.into())));
        tracing::info!(model = self.name, "unloaded");
    }
}

/// Giving back sessions takes milliseconds: off the thread that serves connections.
fn discard(state: State) {
    if let State::Ready(model) = state {
        tokio::task::spawn_blocking(move || drop(model));
    }
}

impl State {
    fn reason(&self) -> String {
        match self {
            Self::Ready(_) => "ready".into(),
            Self::Loading => "loading".into(),
            Self::Unavailable(reason) => reason.clone(),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "READY",
            Self::Loading => "LOADING",
            Self::Unavailable(_) => "UNAVAILABLE",
        })
    }
}

impl Source {
    fn load(&self) -> Result<Model, String> {
        let (bundle, run) = match &self.model {
            ModelSource::Embedded { run } => (Bundle::embedded(), run),
            ModelSource::Bundle { path, run } if self.trusted.is_empty() => {
                (Bundle::open(path), run)
            }
            ModelSource::Bundle { path, run } => (Bundle::open_signed(path, &self.trusted), run),
            ModelSource::Onnx { path, name, version } => {
                return Model::from_onnx(path, name, version, self.workers);
            }
        };
        let bundle = bundle.map_err(|error| error.to_string())?;
        Model::from_bundle(&bundle, self.role, run, self.workers)
            .map_err(|error| format!("model '{}': {error}", bundle.manifest().name))
    }
}
