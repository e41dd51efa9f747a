//! The whole model and its halves: writing them, loading them for one thread, running a sample
//! through all candidates. Halves run as they are cut out, as on nodes.

use std::collections::BTreeMap;

use midspan_runtime::{
    Dim, ElementType, Executor as _, Prepacked, RunError, Session, SessionOptions, Tensor,
    TensorRef, TensorSpec,
};

use super::answer::{Rule, agree, unsuitable};
use super::forms::Forms;
use super::tally::{Crossed, Outcome};
use super::{FidelityError, MeasuredScale};
use crate::candidate::{InputForm, WirePrecision};
use crate::codec::{self, Codec, Frame, Precision, Scale};
use crate::cut::{CutError, Types, extract};
use crate::digest::SplitId;
use crate::onnx::{self, ModelProto};
use crate::samples::Sample;
use crate::scale::{Observed, observe};

/// Frames that are only measured belong to no split.
const NO_SPLIT: SplitId = SplitId([0; 32]);

/// The whole model's file, and the front and tail of each cut.
pub(super) struct Models {
    whole: Vec<u8>,
    halves: Vec<(String, Vec<u8>, Vec<u8>)>,
    model: ModelProto,
    types: Types,
    inputs: Vec<String>,
}

impl Models {
    pub(super) fn divide(whole: &[u8], cuts: &[String]) -> Result<Self, FidelityError> {
        let model = onnx::decode(whole.to_vec().into())?;
        let types = Types::infer(&model).map_err(FidelityError::Types)?;
        let graph = model.graph.as_ref().ok_or(FidelityError::Types(CutError::NoGraph))?;
        let weights: Vec<&str> = graph.initializer.iter().map(|weight| weight.name()).collect();
        let inputs = graph.input.iter().map(|input| input.name());
        let inputs: Vec<String> =
            inputs.filter(|name| !weights.contains(name)).map(str::to_owned).collect();
        let answer: Vec<String> =
            graph.output.last().map(|output| output.name().to_owned()).into_iter().collect();
        let mut halves = Vec::new();
        for cut in cuts {
            let tensor = std::slice::from_ref(cut);
            let part = |from: &[String], to: &[String]| {
                let part = extract(&model, &types, from, to);
                part.map(|part| onnx::encode(&part))
                    .map_err(|source| FidelityError::Cut { cut: cut.clone(), source })
            };
            halves.push((cut.clone(), part(&inputs, tensor)?, part(tensor, &answer)?));
        }
        Ok(Self { whole: whole.to_vec(), halves, model, types, inputs })
    }

    /// Number of models in all.
    pub(super) fn count(&self) -> usize {
        1 + 2 * self.halves.len()
    }

    pub(super) fn is_float(&self, cut: &str) -> bool {
        self.types.get(cut).is_ok_and(|spec| spec.element == ElementType::F32)
    }

    pub(super) fn observe(
        &self,
        cut: &str,
        samples: &[Sample],
        step: &mut dyn FnMut(),
    ) -> Result<Observed, FidelityError> {
        observe(&self.model, &self.types, &self.inputs, cut, samples, step)
            .map_err(|source| FidelityError::Observe { cut: cut.to_owned(), source })
    }

    /// How a cut's frames are written.
    pub(super) fn split(
        &self,
        cut: &str,
        precisions: &[WirePrecision],
        scales: &BTreeMap<u8, Vec<Scale>>,
    ) -> Result<Split, FidelityError> {
        let spec = self.types.get(cut);
        let spec = spec.map_err(|source| FidelityError::Cut { cut: cut.to_owned(), source })?;
        let suit = |precision: &&WirePrecision| {
            **precision == WirePrecision::Raw || spec.element == ElementType::F32
        };
        let wire = |precision: &WirePrecision| -> Result<Written, FidelityError> {
            let (wire, scales) = match *precision {
                WirePrecision::Raw => (Precision::Raw, vec![]),
                WirePrecision::Half => (Precision::Half, vec![]),
                WirePrecision::Bits(bits) => {
                    (Precision::Bits(bits), scales.get(&bits).cloned().unwrap_or_default())
                }
            };
            let codec = codec_of(spec, &scales).ok_or_else(|| FidelityError::Rows {
                cut: cut.to_owned(),
                dims: spec.dims_text(),
            })?;
            Ok(Written { precision: *precision, wire, codec, scales })
        };
        let written = precisions.iter().filter(suit).map(wire).collect::<Result<Vec<_>, _>>()?;
        Ok(Split { cut: cut.to_owned(), written })
    }
}

fn codec_of(spec: &TensorSpec, scales: &[Scale]) -> Option<Codec> {
    let row = spec.dims.get(1..)?.iter().map(|dim| match dim {
        Dim::Fixed(size) => Some(*size),
        Dim::Symbolic(_) => None,
    });
    Codec::with_scales(spec.element, row.collect::<Option<_>>()?, scales.to_vec())
}

/// A cut and the ways in which it is written.
pub(super) struct Split {
    cut: String,
    written: Vec<Written>,
}

struct Written {
    precision: WirePrecision,
    wire: Precision,
    codec: Codec,
    scales: Vec<Scale>,
}

impl Split {
    pub(super) fn cut(&self) -> &str {
        &self.cut
    }

    pub(super) fn precisions(&self) -> impl Iterator<Item = WirePrecision> {
        self.written.iter().map(|written| written.precision)
    }

    pub(super) fn measured(&self) -> impl Iterator<Item = MeasuredScale> {
        self.written.iter().filter_map(|written| {
            let WirePrecision::Bits(bits) = written.precision else { return None };
            (!written.scales.is_empty())
                .then(|| MeasuredScale::new(&self.cut, bits, &written.scales))
        })
    }
}

/// All models, loaded for one thread.
pub(super) struct Loaded {
    whole: Session,
    halves: Vec<(Session, Session)>,
    rule: Rule,
}

fn run(session: &mut Session, inputs: &[(&str, TensorRef<'_>)]) -> Result<Tensor, RunError> {
    session.run(inputs)?.pop().ok_or_else(|| RunError::Execution("the model has no output".into()))
}

impl Loaded {
    pub(super) fn load(
        models: &Models,
        packed: &[Prepacked],
        rule: Rule,
    ) -> Result<Self, FidelityError> {
        let mut packed = packed.iter();
        let mut load =
            |model: &[u8]| Session::load(model, &SessionOptions::default(), packed.next());
        let whole = load(&models.whole)?;
        let answer = whole.outputs().last();
        let answer =
            answer.ok_or_else(|| FidelityError::Answer("the model has no output".into()))?;
        if let Some(reason) = unsuitable(rule, answer) {
            return Err(FidelityError::Answer(reason));
        }
        let mut halves = Vec::new();
        for (_, front, tail) in &models.halves {
            halves.push((load(front)?, load(tail)?));
        }
        Ok(Self { whole, halves, rule })
    }

    /// What every candidate does with a sample.
    pub(super) fn row(
        &mut self,
        index: usize,
        sample: &Sample,
        splits: &[Split],
        forms: &Forms<'_>,
    ) -> Result<Vec<Outcome>, FidelityError> {
        let failed = |source| FidelityError::Run { sample: index, source };
        let given: Vec<(&str, TensorRef<'_>)> =
            sample.inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
        let expected = run(&mut self.whole, &given).map_err(failed)?;
        let mut row = Vec::new();
        let needs_pixels = |form| matches!(form, InputForm::WebpLossless | InputForm::Jpeg(_));
        let pixels = if forms.forms().any(needs_pixels) {
            forms.pixels(sample)
        } else {
            Err("no form needs pixels".into())
        };
        for form in forms.forms() {
            row.push(match forms.cross(form, sample, &pixels) {
                Err(reason) => Err(reason),
                // The same input gives the same answer.
                Ok((bytes, None)) => Ok(Crossed { bytes, agrees: true }),
                Ok((bytes, Some(input))) => {
                    let name = sample.inputs.first().map_or("", |(name, _)| name.as_str());
                    let got = run(&mut self.whole, &[(name, input.view())]).map_err(failed)?;
                    Ok(Crossed { bytes, agrees: agree(self.rule, &expected, &got) })
                }
            });
        }
        for (split, (front, tail)) in splits.iter().zip(&mut self.halves) {
            let activation = run(front, &given).map_err(failed)?;
            for written in &split.written {
                let cut_error =
                    |source| FidelityError::Codec { sample: index, cut: split.cut.clone(), source };
                let frame =
                    codec::encode(&activation.view(), &written.codec, written.wire, NO_SPLIT)
                        .map_err(cut_error)?;
                let arrived = Frame::parse(&frame).and_then(|frame| frame.decode(&written.codec));
                let arrived = arrived.map_err(cut_error)?;
                let got = run(tail, &[(split.cut.as_str(), arrived.view())]).map_err(failed)?;
                let agrees = agree(self.rule, &expected, &got);
                row.push(Ok(Crossed { bytes: frame.len() as u64, agrees }));
            }
        }
        Ok(row)
    }
}
