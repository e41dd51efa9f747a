//! A place where an exit may stand: what of a cut a head reads, which shapes of it are quick enough,
//! the features of all samples for each, and the best head of them.

use std::collections::HashSet;

use midspan_runtime::{Tensor, TensorSpec};
use ndarray::Array2;

use super::choose::{self, Chosen, Divided, Finished};
use super::fit::{Layers, Rows, Shape, Targets};
use super::form::{self, Form};
use super::graph::{LEAST_OPSET, Plan};
use super::run::{self, Runner};
use super::{ExitsError, Options, Tried, timing};
use crate::bundle::Bundle;
use crate::head;
use crate::onnx::{self, ModelProto};
use crate::samples::Sample;

/// What the samples say, but for their features.
pub(super) struct Gathered {
    pub(super) targets: Targets,
    /// The class that confidence speaks of: the label, or the whole model's.
    pub(super) classes: Vec<usize>,
    /// The whole model's class.
    pub(super) whole: Vec<usize>,
    /// Whether the whole model answers probabilities.
    pub(super) probabilities: bool,
}

/// A place for an exit, and what may stand there.
pub(super) struct Slot {
    pub(super) stage: usize,
    pub(super) tensor: TensorSpec,
    prefix: String,
    /// The graphs that the head must fit, each with its key: the stage and its variants.
    pub(super) graphs: Vec<(String, ModelProto)>,
    pub(super) shapes: Vec<(Form, Shape)>,
    pub(super) tried: Vec<Tried>,
    pub(super) front_us: f64,
    /// For each form of `shapes` the features of all samples, one row after the other.
    pub(super) features: Vec<(Form, Vec<f32>)>,
}

impl Slot {
    pub(super) fn new(
        bundle: &Bundle,
        stage: usize,
        options: &Options,
        classes: usize,
    ) -> Result<Self, ExitsError> {
        let tensor = run::readable(bundle, stage)?;
        let found = &bundle.manifest().stages[stage];
        let mut parts = vec![(format!("stages[{stage}]"), found.graph)];
        for (at, variant) in found.variants.iter().enumerate() {
            parts.push((format!("stages[{stage}].variants[{at}]"), variant.graph));
        }
        let mut graphs = Vec::new();
        for (key, digest) in parts {
            let model = onnx::decode(bundle.blob(digest, &format!("{key}.graph"))?.into())?;
            graphs.push((key, model));
        }
        let opset = |import: &&onnx::pb::OperatorSetIdProto| {
            matches!(import.domain(), "" | "ai.onnx") && import.version() >= LEAST_OPSET
        };
        if !graphs[0].1.opset_import.iter().any(|import| opset(&import)) {
            let reason = format!("heads need version {LEAST_OPSET} or newer of ONNX's operators");
            return Err(ExitsError::Stage { stage, reason });
        }
        let mut shapes = Vec::new();
        for grid in sorted(&options.grids) {
            let Some(form) = Form::of(&tensor, grid)? else { continue };
            for hidden in sorted(&options.hidden) {
                shapes.push((form, Shape { features: form.features(), hidden, classes }));
            }
        }
        if shapes.is_empty() {
            let reason = format!("\"{}\" has none of the grids {:?}", tensor.name, options.grids);
            return Err(ExitsError::Stage { stage, reason });
        }
        let prefix = free_prefix(stage, &graphs);
        Ok(Self {
            stage,
            tensor,
            prefix,
            graphs,
            shapes,
            tried: vec![],
            front_us: 0.0,
            features: vec![],
        })
    }

    pub(super) fn head(
        &self,
        form: Form,
        layers: &Layers,
        probabilities: bool,
    ) -> (ModelProto, String) {
        let (prefix, tensor) = (self.prefix.as_str(), &self.tensor);
        let plan = Plan { prefix, tensor, form, layers, probabilities };
        (plan.model(&self.graphs[0].1), plan.output())
    }

    /// Fits every shape that is left, and finishes the best.
    pub(super) fn fit(
        &mut self,
        gathered: &Gathered,
        (train, held_out): (&[usize], &[usize]),
        seed: u64,
        fitted: &mut dyn FnMut(),
    ) -> Result<(Form, Chosen, Finished), ExitsError> {
        let mut best: Option<(Form, Chosen, Finished)> = None;
        for (form, values) in std::mem::take(&mut self.features) {
            let rows = values.len() / form.features().max(1);
            let features = Array2::from_shape_vec((rows, form.features()), values);
            let rows =
                Rows { features: features.unwrap_or_default(), targets: gathered.targets.clone() };
            let data = Divided::new(&rows, &gathered.classes, train, held_out);
            drop(rows);
            let mut leader: Option<Chosen> = None;
            for (_, shape) in self.shapes.iter().filter(|(other, _)| *other == form) {
                let chosen = choose::choose(&data, *shape, gathered.probabilities, seed);
                let tried = self.tried.iter_mut().find(|tried| tried.of(form, *shape));
                if let Some(tried) = tried {
                    tried.held_out = Some(chosen.held_out);
                }
                if leader.as_ref().is_none_or(|leader| chosen.held_out < leader.held_out) {
                    leader = Some(chosen);
                }
                fitted();
            }
            let Some(leader) = leader else { continue };
            if best.as_ref().is_none_or(|(_, best, _)| leader.held_out < best.held_out) {
                let finished = choose::finish(&data, &leader, gathered.probabilities);
                best = Some((form, leader, finished));
            }
        }
        let reason = "no head of it can be fitted".to_owned();
        best.ok_or(ExitsError::Stage { stage: self.stage, reason })
    }
}

fn sorted(values: &[usize]) -> Vec<usize> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.dedup();
    values
}

impl Tried {
    /// Whether it is what became of this.
    pub(super) fn of(&self, form: Form, shape: Shape) -> bool {
        (self.grid, self.hidden) == (form.grid(), shape.hidden)
    }
}

/// A first part of names that no graph has.
fn free_prefix(stage: usize, graphs: &[(String, ModelProto)]) -> String {
    let names: HashSet<String> =
        graphs.iter().filter_map(|(_, model)| model.graph.as_ref()).flat_map(head::names).collect();
    let mut prefix = format!("midspan/exit{stage}");
    while names.iter().any(|name| name.starts_with(&prefix)) {
        prefix.push('_');
    }
    prefix
}

impl Slot {
    /// Keeps the features of one sample.
    pub(super) fn take(
        &mut self,
        index: usize,
        outputs: &[(String, Tensor)],
    ) -> Result<(), ExitsError> {
        let found = outputs.iter().find(|(name, _)| *name == self.tensor.name);
        let odd = || ExitsError::Stage {
            stage: self.stage,
            reason: format!("sample {index}: \"{}\" is not as declared", self.tensor.name),
        };
        let (_, tensor) = found.ok_or_else(odd)?;
        let values = form::numbers(tensor).ok_or_else(odd)?;
        if !values.iter().all(|value| value.is_finite()) {
            let name = &self.tensor.name;
            return Err(ExitsError::Samples(format!("sample {index}: \"{name}\" is not finite")));
        }
        for (form, features) in &mut self.features {
            if !form.read(tensor.shape(), &values, features) {
                return Err(odd());
            }
        }
        Ok(())
    }
}

/// Times every shape of every slot on one sample, and leaves those that are quick enough.
pub(super) fn time(
    slots: &mut [Slot],
    models: &[Vec<u8>],
    runner: &mut Runner,
    sample: &Sample,
    options: &Options,
) -> Result<(), ExitsError> {
    let passed = runner.run(0, sample)?;
    let given = |stage: usize| -> &[(String, Tensor)] {
        stage.checked_sub(1).map_or(&sample.inputs, |before| &passed.stages[before])
    };
    let failed = |stage| move |source| ExitsError::Timing { stage, source };
    let mut before = 0.0;
    let last = slots.last().map_or(0, |slot| slot.stage);
    for (stage, model) in models.iter().enumerate().take(last + 1) {
        let Some(slot) = slots.iter_mut().find(|slot| slot.stage == stage) else {
            let times = timing::measure(model, &[], given(stage)).map_err(failed(stage))?;
            before += times.plain;
            continue;
        };
        let mut merged = Vec::new();
        for (form, shape) in &slot.shapes {
            let (head, _) = slot.head(*form, &Layers::zeros(*shape), false);
            let mut whole = onnx::decode(model.clone().into())?;
            let key = format!("stages[{stage}]");
            head::merge(&mut whole, head).map_err(|source| ExitsError::Head { key, source })?;
            merged.push(onnx::encode(&whole));
        }
        let times = timing::measure(model, &merged, given(stage)).map_err(failed(stage))?;
        before += times.plain;
        slot.front_us = before;
        let added = times.added.iter().zip(&times.added_alone);
        let tried = slot.shapes.iter().zip(added).map(|((form, shape), (added, alone))| Tried {
            grid: form.grid(),
            hidden: shape.hidden,
            time: (added / before).max(0.0),
            alone_us: *alone,
            held_out: None,
        });
        slot.tried = tried.collect();
        let mut quick = slot.tried.iter().map(|tried| tried.time <= options.most_time);
        slot.shapes.retain(|_| quick.next().unwrap_or(false));
        if slot.shapes.is_empty() {
            let least = slot.tried.iter().map(|tried| tried.time).fold(f64::INFINITY, f64::min);
            let (front_us, most) = (before, options.most_time);
            return Err(ExitsError::TooSlow { stage, front_us, least, most });
        }
    }
    Ok(())
}
