//! The models of this node, by name and version.

use midspan_protocol::{
    ModelName,
    metadata::{ModelMetadata, RepositoryEntry, TensorMetadata},
};
use midspan_runtime::{Dim, library};
use midspan_split::Bundle;

use crate::{
    config::{Config, ModelSource},
    error::NodeError,
    model::{Model, PLATFORM, Port},
};

/// Loaded models, in configuration order.
pub(crate) struct Repository {
    models: Vec<std::sync::Arc<Model>>,
}

impl Repository {
    /// Opens ONNX Runtime and loads every configured model.
    ///
    /// # Errors
    /// A message that names the model and the cause.
    pub(crate) fn load(config: &Config) -> Result<Self, String> {
        let path = library::find().map_err(|error| error.to_string())?;
        library::open(&path).map_err(|error| error.to_string())?;
        let mut models: Vec<std::sync::Arc<Model>> = Vec::new();
        for source in &config.models {
            let model = load(source, config)?;
            if models.iter().any(|other| other.name == model.name && other.version == model.version)
            {
                return Err(format!(
                    "model '{}' version {} is listed twice",
                    model.name, model.version
                ));
            }
            tracing::info!(
                model = model.name,
                version = model.version,
                stages = model.stages.len(),
                "loaded"
            );
            models.push(std::sync::Arc::new(model));
        }
        Ok(Self { models })
    }

    /// The model that an app names; without a version the one listed last.
    ///
    /// # Errors
    /// [`NodeError::UnknownModel`].
    pub(crate) fn get(&self, name: &ModelName) -> Result<&std::sync::Arc<Model>, NodeError> {
        let fits = |model: &Model| {
            model.name == name.name && name.version.as_ref().is_none_or(|v| *v == model.version)
        };
        let found = self.models.iter().rev().find(|model| fits(model));
        found.ok_or_else(|| NodeError::UnknownModel(name.to_string()))
    }

    /// The repository index.
    pub(crate) fn index(&self) -> Vec<RepositoryEntry> {
        let entry = |model: &std::sync::Arc<Model>| RepositoryEntry {
            name: model.name.clone(),
            version: model.version.clone(),
            state: "READY".into(),
            reason: String::new(),
        };
        self.models.iter().map(entry).collect()
    }

    /// A model's metadata.
    pub(crate) fn metadata(&self, model: &Model) -> ModelMetadata {
        let same = self.models.iter().filter(|other| other.name == model.name);
        ModelMetadata {
            name: model.name.clone(),
            versions: same.map(|other| other.version.clone()).collect(),
            platform: PLATFORM.into(),
            inputs: model.inputs.iter().map(tensor).collect(),
            outputs: model.outputs.iter().map(tensor).collect(),
        }
    }
}

fn tensor(port: &Port) -> TensorMetadata {
    TensorMetadata {
        name: port.spec.name.clone(),
        datatype: port.spec.element.oip_name().to_owned(),
        shape: port.spec.dims.iter().map(Dim::as_oip).collect(),
    }
}

fn load(source: &ModelSource, config: &Config) -> Result<Model, String> {
    let (bundle, local_stages) = match source {
        ModelSource::Embedded { local_stages } => (Bundle::embedded(), local_stages),
        ModelSource::Bundle { path, local_stages } => (Bundle::open(path), local_stages),
        ModelSource::Onnx { path, name } => return Model::from_onnx(path, name, config.workers),
    };
    let bundle = bundle.map_err(|error| error.to_string())?;
    Model::from_bundle(&bundle, config.role, *local_stages, config.workers)
        .map_err(|error| format!("model '{}': {error}", bundle.manifest().name))
}
