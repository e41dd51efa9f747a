//! What every candidate costs apart from the link.

use std::collections::{BTreeMap, BTreeSet};

use midspan_runtime::ElementType;

use super::curve::Curve;
use super::{Agreement, ExitShare, Inputs, Link, Load, PlanError};
use crate::candidate::{Candidate, Fidelity, InputForm, WirePrecision};
use crate::codec::HEADER_LEN;
use crate::manifest::PLAIN;
use crate::profile::{CutNotes, Part, Profile};

/// Further than any two precisions or qualities of one kind are from each other.
const OTHER: u32 = 1000;

/// The costs of all candidates; a link makes a plan of them.
#[derive(Clone, Debug)]
pub struct Costs {
    pub(super) all: Vec<Cost>,
    pub(super) load: Load,
}

/// One candidate's. Times in microseconds, of a CPU that has nothing else to do.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    pub(super) candidate: Candidate,
    /// Edge time of every request.
    pub(super) edge_us: f64,
    /// Edge time of what is sent.
    pub(super) write_us: f64,
    /// Cloud time of what is sent.
    pub(super) cloud_us: f64,
    /// Bytes of what is sent, towards the cloud and back.
    pub(super) bytes: (f64, f64),
    /// Share of requests that is sent.
    pub(super) sent: f64,
    pub(super) agreement: Agreement,
    /// Whether the halves were measured, and not read off a line.
    pub(super) timed: bool,
}

impl Cost {
    pub(super) fn latency_us(&self, link: &Link, load: &Load) -> f64 {
        let (edge, cloud) = (1.0 / (1.0 - load.edge), 1.0 / (1.0 - load.cloud));
        let sent = self.write_us * edge
            + link.exchange_us(self.bytes.0, self.bytes.1)
            + self.cloud_us * cloud;
        self.edge_us * edge + if self.sent > 0.0 { self.sent * sent } else { 0.0 }
    }

    /// Mean bytes of a request towards the cloud.
    pub(super) fn uplink_bytes(&self) -> f64 {
        self.sent * self.bytes.0
    }

    pub(super) fn edge_work_us(&self) -> f64 {
        self.edge_us + self.sent * self.write_us
    }

    pub(super) fn cloud_work_us(&self) -> f64 {
        self.sent * self.cloud_us
    }
}

/// The times of one device.
struct Side<'a> {
    profile: &'a Profile,
    rows: usize,
    /// Factor of all times.
    factor: f64,
}

impl Side<'_> {
    fn whole(&self, variant: &str) -> Option<f64> {
        Some(self.profile.part_us(&Part::Whole, variant, self.rows)? * self.factor)
    }

    fn points(&self, variant: &str, front: bool) -> Vec<(f64, f64)> {
        let mut points = Vec::new();
        for cut in &self.profile.cuts {
            let name = cut.tensor.clone();
            let part = if front { Part::Front { cut: name } } else { Part::Tail { cut: name } };
            if let Some(us) = self.profile.part_us(&part, variant, self.rows) {
                let done = if front { cut.front_share } else { 1.0 - cut.front_share };
                points.push((done, us * self.factor));
            }
        }
        points
    }

    /// Times over the share of the work: of nothing they are 0, of all those of the whole model.
    fn curve(&self, variant: &str, front: bool) -> Option<Curve> {
        let mut points = self.points(variant, front);
        let whole = self.whole(variant);
        if points.is_empty() && whole.is_none() {
            return None;
        }
        points.push((0.0, 0.0));
        points.extend(whole.map(|us| (1.0, us)));
        Some(Curve::rising(points))
    }

    /// The time of a half and whether it was measured.
    fn half(&self, part: &Part, variant: &str, curve: &Curve, done: f64) -> (f64, bool) {
        match self.profile.part_us(part, variant, self.rows) {
            Some(us) => (us * self.factor, true),
            None => (curve.at(done), false),
        }
    }

    /// Time to write or read the rows of a cut: as measured there, else by the element as
    /// elsewhere, at the nearest precision that was measured.
    fn codec(&self, cut: &CutNotes, precision: WirePrecision, write: bool) -> f64 {
        let scale = self.factor * self.rows as f64;
        let codec = || self.profile.codec.iter();
        let time = |entry: &crate::profile::CodecTime| {
            if write { entry.encode.median_us } else { entry.decode.median_us }
        };
        let here = codec().find(|entry| entry.cut == cut.tensor && entry.precision == precision);
        if let Some(entry) = here {
            return time(entry) * scale;
        }
        let away = |other: WirePrecision| match (precision, other) {
            (WirePrecision::Bits(a), WirePrecision::Bits(b)) => u32::from(a.abs_diff(b)),
            (a, b) if a == b => 0,
            _ => OTHER,
        };
        let nearest = codec().map(|entry| away(entry.precision)).min();
        let Some(nearest) = nearest.filter(|nearest| *nearest < OTHER) else { return 0.0 };
        let elements = |name: &str| {
            let found = self.profile.cuts.iter().find(|known| known.tensor == name);
            found.map_or(0.0, |known| known.elements() as f64)
        };
        let (mut us, mut count) = (0.0, 0.0);
        for entry in codec().filter(|entry| away(entry.precision) == nearest) {
            us += time(entry);
            count += elements(&entry.cut);
        }
        us / f64::max(count, 1.0) * cut.elements() as f64 * scale
    }

    /// Time to write or read a picture; the nearest quality that was measured stands for others.
    fn picture(&self, form: InputForm, write: bool) -> f64 {
        let away = |other: InputForm| match (form, other) {
            (InputForm::Jpeg(a), InputForm::Jpeg(b)) => u32::from(a.abs_diff(b)),
            // Nobody knows how a picture was written that came in; most are JPEG.
            (InputForm::Received, InputForm::Jpeg(quality)) => u32::from(quality.abs_diff(90)),
            (a, b) if a == b => 0,
            _ => OTHER,
        };
        let nearest = self.profile.pictures.iter().min_by_key(|entry| away(entry.form));
        nearest.filter(|entry| away(entry.form) < OTHER).map_or(0.0, |entry| {
            let time = if write { entry.encode } else { entry.decode };
            time.median_us * self.factor * self.rows as f64
        })
    }
}

impl Costs {
    /// Costs every candidate.
    ///
    /// # Errors
    /// When the inputs are of different models, or do not hold what is asked for.
    pub fn of(inputs: &Inputs<'_>) -> Result<Self, PlanError> {
        inputs.check()?;
        let side = |profile, factor| Side { profile, rows: inputs.rows, factor };
        let (edge, cloud) = (side(inputs.edge, inputs.edge_slowdown), side(inputs.cloud, 1.0));
        let batch = |side: &'static str, profile: &Profile| {
            let mut known: Vec<usize> = profile.parts.iter().map(|part| part.batch).collect();
            known.sort_unstable();
            known.dedup();
            PlanError::Batch { side, rows: inputs.rows, known }
        };
        edge.whole(PLAIN).ok_or_else(|| batch("edge", inputs.edge))?;
        let whole = cloud.whole(PLAIN).ok_or_else(|| batch("cloud", inputs.cloud))?;
        let tails = cloud.curve(PLAIN, false).ok_or_else(|| batch("cloud", inputs.cloud))?;
        let variants = inputs.edge.variants.iter().map(|variant| variant.name.as_str());
        let maker = Maker {
            inputs,
            fronts: variants.filter_map(|name| Some((name, edge.curve(name, true)?))).collect(),
            measured: inputs.fidelity.iter().map(|entry| (&entry.candidate, entry)).collect(),
            notes: inputs.edge.cuts.iter().map(|cut| (cut.tensor.as_str(), cut)).collect(),
            edge,
            cloud,
            whole,
            tails,
        };
        let all = maker.candidates().into_iter().filter_map(|candidate| maker.cost(candidate));
        Ok(Self { all: all.collect(), load: inputs.load })
    }
}

struct Maker<'a> {
    inputs: &'a Inputs<'a>,
    edge: Side<'a>,
    cloud: Side<'a>,
    /// Time of the whole model on the cloud.
    whole: f64,
    tails: Curve,
    /// Of each variant.
    fronts: BTreeMap<&'a str, Curve>,
    measured: BTreeMap<&'a Candidate, &'a Fidelity>,
    notes: BTreeMap<&'a str, &'a CutNotes>,
}

impl Maker<'_> {
    /// All that can be done without a measurement of fidelity, and all of which there is one.
    fn candidates(&self) -> BTreeSet<Candidate> {
        let mut all = BTreeSet::new();
        for variant in &self.inputs.edge.variants {
            if self.edge.whole(&variant.name).is_some() {
                all.insert(Candidate::Local { variant: variant.name.clone() });
            }
        }
        all.insert(Candidate::Input { form: InputForm::Tensor });
        for cut in &self.inputs.edge.cuts {
            let half = cut.element() == Some(ElementType::F32);
            let precisions = [Some(WirePrecision::Raw), half.then_some(WirePrecision::Half)];
            all.extend(precisions.into_iter().flatten().map(|precision| Candidate::Activation {
                cut: cut.tensor.clone(),
                precision,
                variant: PLAIN.to_owned(),
            }));
        }
        all.extend(self.inputs.fidelity.iter().map(|entry| entry.candidate.clone()));
        all
    }

    fn measured(&self, candidate: &Candidate) -> Option<&Fidelity> {
        self.measured.get(candidate).copied()
    }

    fn agreement(&self, candidate: &Candidate) -> Agreement {
        let exact = match candidate {
            Candidate::Local { variant } => variant == PLAIN,
            Candidate::Input { form } => {
                matches!(form, InputForm::Tensor | InputForm::Received | InputForm::WebpLossless)
            }
            Candidate::Activation { precision, variant, .. } => {
                variant == PLAIN && *precision == WirePrecision::Raw
            }
            Candidate::Exit { .. } => false,
        };
        match (candidate, self.measured(candidate)) {
            // Samples cannot show that what is the same is the same; they can show that it is not.
            (_, None) if exact => Agreement::Exact,
            (_, Some(entry)) if exact && entry.agreeing == entry.samples => Agreement::Exact,
            (_, Some(entry)) => Agreement::Measured {
                share: entry.agreeing as f64 / entry.samples.max(1) as f64,
                lower: entry.agreement_lower,
                samples: entry.samples,
            },
            (Candidate::Activation { precision: WirePrecision::Half, variant, .. }, None)
                if variant == PLAIN =>
            {
                Agreement::Assumed
            }
            _ => Agreement::Unknown,
        }
    }

    /// None for a candidate that the profiles have no times for.
    fn cost(&self, candidate: Candidate) -> Option<Cost> {
        let rows = self.inputs.rows as f64;
        let (model, heads) = (&self.inputs.edge.model, &self.inputs.heads);
        let measured = self.measured(&candidate).map(|entry| entry.bytes * rows + heads.up);
        let mut cost = Cost {
            edge_us: self.reading(),
            write_us: 0.0,
            cloud_us: 0.0,
            bytes: (0.0, model.output_bytes as f64 * rows + heads.down),
            sent: 1.0,
            agreement: self.agreement(&candidate),
            timed: true,
            candidate: candidate.clone(),
        };
        match candidate {
            Candidate::Local { variant } => {
                cost.edge_us += self.edge.whole(&variant)?;
                cost.sent = 0.0;
            }
            Candidate::Exit { cut, variant } => {
                let (front, timed) = self.front(&cut, &variant)?;
                cost.edge_us += front;
                (cost.sent, cost.timed) = (0.0, timed);
            }
            Candidate::Input { form } => {
                let tensor = model.input_bytes as f64 * rows + heads.up;
                cost.bytes.0 = if form == InputForm::Tensor { tensor } else { measured? };
                cost.cloud_us = self.whole;
                if form == InputForm::Received {
                    cost.edge_us = 0.0;
                }
                if form != InputForm::Tensor {
                    cost.write_us = self.edge.picture(form, true);
                    cost.cloud_us += self.cloud.picture(form, false);
                }
                if form == InputForm::Received {
                    cost.write_us = 0.0;
                }
            }
            Candidate::Activation { cut, precision, variant } => {
                let notes = self.notes(&cut)?;
                let (front, here) = self.front(&cut, &variant)?;
                let part = Part::Tail { cut: cut.clone() };
                let (tail, there) =
                    self.cloud.half(&part, PLAIN, &self.tails, 1.0 - notes.front_share);
                let frame = |bytes: u64| (HEADER_LEN as u64 + bytes) as f64;
                let rows = self.inputs.rows as u64;
                cost.bytes.0 = match (precision, measured) {
                    (_, Some(bytes)) => bytes,
                    (WirePrecision::Raw, None) => frame(notes.bytes() * rows) + heads.up,
                    (WirePrecision::Half, None) => frame(notes.elements() * 2 * rows) + heads.up,
                    (WirePrecision::Bits(_), None) => return None,
                };
                cost.edge_us += front;
                cost.write_us = self.edge.codec(notes, precision, true);
                cost.cloud_us = tail + self.cloud.codec(notes, precision, false);
                cost.timed = here && there;
                self.take_exit(&cut, &mut cost);
            }
        }
        Some(cost)
    }

    /// An exit at the cut answers its share; what it may answer otherwise is taken off.
    fn take_exit(&self, cut: &str, cost: &mut Cost) {
        let at = |exit: &&ExitShare| exit.cut.as_deref() == Some(cut);
        let everywhere = |exit: &&ExitShare| exit.cut.is_none();
        let exits = self.inputs.exits;
        let Some(exit) = exits.iter().find(at).or_else(|| exits.iter().find(everywhere)) else {
            return;
        };
        cost.sent = 1.0 - exit.share;
        // The exit's loss is bounded over all requests; those sent lose as the wire does.
        let with = |value: f64| (1.0 - exit.loss - (1.0 - value)).clamp(0.0, 1.0);
        cost.agreement = match cost.agreement {
            Agreement::Exact | Agreement::Assumed if exit.loss == 0.0 => cost.agreement,
            Agreement::Exact | Agreement::Assumed => {
                Agreement::Measured { share: with(1.0), lower: with(1.0), samples: 0 }
            }
            Agreement::Measured { share, lower, samples } => {
                Agreement::Measured { share: with(share), lower: with(lower), samples }
            }
            Agreement::Unknown => Agreement::Unknown,
        };
    }

    /// Where apps send pictures, whoever runs the model's first operator reads the picture first.
    fn reading(&self) -> f64 {
        let received = Candidate::Input { form: InputForm::Received };
        if self.measured(&received).is_none() {
            return 0.0;
        }
        self.edge.picture(InputForm::Received, false)
    }

    fn notes(&self, cut: &str) -> Option<&CutNotes> {
        self.notes.get(cut).copied()
    }

    fn front(&self, cut: &str, variant: &str) -> Option<(f64, bool)> {
        let notes = self.notes(cut)?;
        let curve = self.fronts.get(variant)?;
        let part = Part::Front { cut: cut.to_owned() };
        Some(self.edge.half(&part, variant, curve, notes.front_share))
    }
}
