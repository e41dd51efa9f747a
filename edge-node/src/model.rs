//! A loaded model: the stages that this node runs, what apps see of it, and which splits it can
//! resume. Immutable once loaded.

use std::{path::Path, sync::Arc};

use metrics::Histogram;
use midspan_net::telemetry::Metric;
use midspan_runtime::{
    Dim, Executor, Prepacked, Session, SessionOptions, SessionPool, TensorSpec, session::describe,
};
use midspan_split::{
    Bundle, Codec, ExitRule, Precision, SplitId,
    manifest::{AppTensor, Manifest, PLAIN},
    preprocess::Preprocess,
};

use crate::{
    config::{Role, Run},
    statistics::Counters,
};

/// Platform name of ONNX models in the protocol.
pub(crate) const PLATFORM: &str = "onnx_onnxv1";

/// A model that can be inferred.
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Inputs under the names apps use, and the names inside the model.
    pub(crate) inputs: Vec<Port>,
    /// Outputs likewise; an exit's logits stand in for the first.
    pub(crate) outputs: Vec<Port>,
    /// The stages that this node holds, from the first on.
    pub(crate) stages: Vec<Arc<Stage>>,
    /// In which variant they run.
    pub(crate) variant: String,
    /// Whether the last of them is the model's last.
    pub(crate) complete: bool,
    pub(crate) preprocess: Option<Preprocess>,
    /// Temperature of the last exit, wherever it runs; none for a model that is no classifier.
    pub(crate) final_temperature: Option<f32>,
    /// Whether a certificate holds for the exits that may answer here, as they are run.
    pub(crate) certified: bool,
    /// Whether exits may answer here.
    pub(crate) exits: bool,
    /// Names of the classes of the first output, by index; may be empty.
    pub(crate) labels: Vec<String>,
    /// What was counted since it was loaded.
    pub(crate) counters: Arc<Counters>,
}

/// An input or output as apps see it.
pub(crate) struct Port {
    /// Under the app's name.
    pub(crate) spec: TensorSpec,
    /// Name inside the model.
    pub(crate) inner: String,
}

/// One stage, with a session per worker.
pub(crate) struct Stage {
    pub(crate) pool: SessionPool,
    /// The model takes one row at a time.
    pub(crate) row_by_row: bool,
    pub(crate) exit: Option<StageExit>,
    pub(crate) cut: Option<StageCut>,
    pub(crate) seconds: Histogram,
}

/// An exit that a stage computes.
pub(crate) struct StageExit {
    /// Name of its logits inside the model.
    pub(crate) output: String,
    pub(crate) temperature: f32,
    /// None for the last exit, which always answers.
    pub(crate) rule: Option<ExitRule>,
}

/// What leaves a stage for the next.
pub(crate) struct StageCut {
    /// Name of the tensor inside the model.
    pub(crate) tensor: String,
    pub(crate) codec: Codec,
    pub(crate) precision: Precision,
    pub(crate) split_id: SplitId,
}

impl Model {
    /// Loads a bundle: all stages on a cloud, on an edge only those that it runs itself.
    ///
    /// # Errors
    /// A message that names the bundle's part that cannot be used.
    pub(crate) fn from_bundle(
        bundle: &Bundle,
        role: Role,
        run: &Run,
        workers: usize,
    ) -> Result<Self, String> {
        let manifest = bundle.manifest();
        let total = manifest.stages.len();
        let variant = run.variant.as_deref().unwrap_or(PLAIN);
        let held = match role {
            Role::Cloud => total,
            Role::Edge => run.local_stages.unwrap_or(manifest.local_stages),
        };
        if held > total {
            return Err(format!("local_stages is {held} but the bundle has {total} stages"));
        }
        let has_exits = manifest.stages.iter().take(total - 1).any(|stage| stage.exit.is_some());
        if has_exits && manifest.outputs.len() != 1 {
            return Err("a model with early exits must have one output".into());
        }
        if has_exits && manifest.stages.last().is_none_or(|stage| stage.exit.is_none()) {
            return Err("a model with early exits must name its last exit too".into());
        }
        bundle.check_variant(0..held, variant).map_err(|error| error.to_string())?;
        let stages = (0..held)
            .map(|index| Stage::from_bundle(bundle, index, variant, workers).map(Arc::new))
            .collect::<Result<_, String>>()?;
        Ok(Self {
            name: manifest.name.clone(),
            version: manifest.version.clone(),
            inputs: ports(&manifest.inputs)?,
            outputs: ports(&manifest.outputs)?,
            stages,
            variant: variant.to_owned(),
            complete: held == total,
            preprocess: manifest.preprocess.clone(),
            final_temperature: manifest
                .stages
                .last()
                .and_then(|stage| stage.exit.as_ref())
                .map(|exit| exit.temperature()),
            certified: certified(manifest, variant, held),
            exits: role == Role::Edge,
            labels: manifest.labels.clone(),
            counters: Arc::default(),
        })
    }

    /// Loads a plain ONNX file, served whole.
    ///
    /// # Errors
    /// A message with the path and the cause.
    pub(crate) fn from_onnx(
        path: &Path,
        name: &str,
        version: &str,
        workers: usize,
    ) -> Result<Self, String> {
        let fail = |error: String| format!("{}: {error}", path.display());
        let bytes = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
        let described = describe(&bytes).map_err(|error| fail(error.to_string()))?;
        let stage = Stage::load(&bytes, name, 0, workers).map_err(fail)?;
        let port = |spec: TensorSpec| Port { inner: spec.name.clone(), spec };
        Ok(Self {
            name: name.to_owned(),
            version: version.to_owned(),
            inputs: described.inputs.into_iter().map(port).collect(),
            outputs: described.outputs.into_iter().map(port).collect(),
            stages: vec![Arc::new(stage)],
            variant: PLAIN.to_owned(),
            complete: true,
            preprocess: None,
            final_temperature: None,
            certified: false,
            exits: false,
            labels: Vec::new(),
            counters: Arc::default(),
        })
    }

    /// Whether an app may send batches: the first dimension of every input is open.
    pub(crate) fn batched(&self) -> bool {
        let open = |port: &Port| matches!(port.spec.dims.first(), Some(Dim::Symbolic(_)));
        !self.inputs.is_empty() && self.inputs.iter().all(open)
    }

    /// Whether the first dimension of every input and output is a batch as clients understand it:
    /// open, and followed by the dimensions of a row.
    pub(crate) fn batch_first(&self) -> bool {
        let open = |port: &Port| {
            let dims = &port.spec.dims;
            dims.len() > 1 && matches!(dims.first(), Some(Dim::Symbolic(_)))
        };
        !self.inputs.is_empty() && self.inputs.iter().chain(&self.outputs).all(open)
    }

    /// Whether the model itself calls the first dimension of all its inputs by one name, so that
    /// inputs of different lengths cannot be one batch.
    pub(crate) fn one_batch(&self) -> bool {
        let mut firsts = self.inputs.iter().map(|port| port.spec.dims.first());
        let first = firsts.next();
        firsts.all(|other| Some(other) == first)
    }

    /// Whether rows of a batch may part ways, or are run one by one.
    pub(crate) fn keeps_rows(&self) -> bool {
        let [only] = self.stages.as_slice() else { return true };
        !self.complete || self.final_temperature.is_some() || only.row_by_row
    }

    /// The stage after which a frame of this split goes on.
    pub(crate) fn resume_after(&self, split_id: SplitId) -> Option<(usize, &StageCut)> {
        let cut = |(index, stage): (usize, &'_ Arc<Stage>)| -> Option<usize> {
            (stage.cut.as_ref()?.split_id == split_id).then_some(index)
        };
        let index = self.stages.iter().enumerate().find_map(cut)?;
        let resumable = self.complete && index + 1 < self.stages.len();
        Some((index, self.stages.get(index)?.cut.as_ref().filter(|_| resumable)?))
    }

    /// The splits that can be resumed here.
    pub(crate) fn live_splits(&self) -> Vec<SplitId> {
        let ids = self.stages.iter().filter_map(|stage| Some(stage.cut.as_ref()?.split_id));
        ids.filter(|id| self.resume_after(*id).is_some()).collect()
    }
}

/// Whether a certificate holds for the exits of the first `held` stages, all of them together, at
/// their thresholds in this variant. Where the last stage is not held, the bits on the wire must be
/// those of the certificate, too; where it is, nothing crosses.
fn certified(manifest: &Manifest, variant: &str, held: usize) -> bool {
    let Some(cut) = manifest.last_cut(held) else { return false };
    let holds = |bits| manifest.certified(cut, variant, bits).next().is_some();
    if held == manifest.stages.len() {
        return (0..=8).any(holds);
    }
    match manifest.precision(cut) {
        Some(Precision::Bits(bits)) => holds(bits),
        _ => holds(0),
    }
}

fn ports(tensors: &[AppTensor]) -> Result<Vec<Port>, String> {
    let port = |tensor: &AppTensor| {
        let spec = tensor.spec().ok_or_else(|| format!("'{}' has no OIP datatype", tensor.name))?;
        Ok(Port { spec, inner: tensor.tensor.clone() })
    };
    tensors.iter().map(port).collect()
}

impl Stage {
    fn from_bundle(
        bundle: &Bundle,
        index: usize,
        variant: &str,
        workers: usize,
    ) -> Result<Self, String> {
        let manifest = bundle.manifest();
        let described = manifest.stages.get(index).ok_or("no such stage")?;
        let model = bundle.stage_variant(index, variant).map_err(|error| error.to_string())?;
        let mut stage = Self::load(&model, &manifest.name, index, workers)?;
        stage.exit = described.exit.as_ref().map(|exit| StageExit {
            output: exit.output.clone(),
            temperature: exit.temperature(),
            rule: exit.rule(),
        });
        if let Some(cut) = &described.cut {
            let parts = (|| {
                let tensor = cut.tensors.first()?.name.clone();
                let (codec, precision) = (bundle.codec(index)?, bundle.precision(index)?);
                Some(StageCut { tensor, codec, precision, split_id: bundle.split_id_at(index)? })
            })();
            let unusable =
                || format!("stages[{index}].cut: only one tensor of fixed row shape can cross");
            stage.cut = Some(parts.ok_or_else(unusable)?);
        }
        Ok(stage)
    }

    fn load(model: &[u8], name: &str, index: usize, workers: usize) -> Result<Self, String> {
        let prepacked = Prepacked::new().map_err(|error| error.to_string())?;
        let pool = SessionPool::new(workers, || {
            Session::load(model, &SessionOptions::default(), Some(&prepacked))
                .map(|session| Box::new(session) as Box<dyn Executor>)
        });
        let pool = pool.map_err(|error| format!("stage {index}: {error}"))?;
        Ok(Self::new(pool, name, index))
    }

    pub(crate) fn new(pool: SessionPool, name: &str, index: usize) -> Self {
        let one = |spec: &TensorSpec| spec.dims.first() == Some(&Dim::Fixed(1));
        let row_by_row = !pool.inputs().is_empty() && pool.inputs().iter().all(one);
        let seconds = Metric::NodeRunSeconds.histogram(&[name, &index.to_string()]);
        Self { pool, row_by_row, exit: None, cut: None, seconds }
    }

    /// Where the pool puts the output called `tensor`.
    pub(crate) fn output(&self, tensor: &str) -> Option<usize> {
        self.pool.outputs().iter().position(|spec| spec.name == tensor)
    }
}

#[cfg(test)]
pub(crate) mod tests;
