//! Loads the halves of a model and runs them in turn. What is to be measured, and what is made of
//! the times, is decided elsewhere.

use midspan_runtime::{Dim, Executor as _, Session, Tensor, TensorSpec};

use super::measure::{Inputs, Known, MeasureError, Request, load, run};
use super::slow::Slow;
use super::timing::Timing;
use super::wire::Wire;
use super::{CodecTime, Part, PartTime};
use crate::cut::extract;
use crate::manifest::PLAIN;
use crate::onnx::ModelProto;

/// Rounds before those that count.
const WARM_UP: usize = 5;
/// Bytes of models that are loaded at one time; the cuts are taken in groups of that size.
const LOADED: usize = 1 << 30;

/// One part with its input, and the times of its runs.
pub(super) struct Job {
    part: Part,
    variant: String,
    batch: usize,
    session: usize,
    inputs: Inputs,
    us: Vec<f64>,
}

/// What is loaded and timed.
pub(super) struct Bench<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) plain: &'a Known,
    pub(super) variants: Vec<Known>,
    pub(super) inputs: &'a Inputs,
    pub(super) batches: Vec<usize>,
    pub(super) parts: Vec<Job>,
    pub(super) codec: Vec<CodecTime>,
}

impl Bench<'_> {
    pub(super) fn all(
        &mut self,
        cuts: &[String],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<(), MeasureError> {
        // Weights are there twice: as they were read and as they are packed for running.
        let cost = self.request.model.len() * 2 * (1 + self.variants.len());
        let group = (LOADED / cost.max(1)).clamp(1, 64);
        let groups = cuts.chunks(group).count().max(1);
        let rounds = WARM_UP + self.request.runs;
        for number in 0..groups {
            let cuts = cuts.chunks(group).nth(number).unwrap_or_default();
            self.group(cuts, &mut |round| progress(number * rounds + round, groups * rounds))?;
        }
        Ok(())
    }

    fn group(
        &mut self,
        cuts: &[String],
        progress: &mut dyn FnMut(usize),
    ) -> Result<(), MeasureError> {
        let mut sessions: Vec<Slow<Session>> = Vec::new();
        let mut jobs: Vec<Job> = Vec::new();
        let given: Vec<String> = self.inputs.iter().map(|(name, _)| name.clone()).collect();
        let outputs = outputs_of(&self.plain.model);
        let mut add = |part: Part, variant: &str, session: Session, inputs: &Inputs| {
            let open = |spec: &TensorSpec| matches!(spec.dims.first(), Some(Dim::Symbolic(_)));
            let batched = session.inputs().iter().all(open);
            for batch in self.batches.iter().copied().filter(|batch| batched || *batch == 1) {
                let known: Vec<&String> = session.inputs().iter().map(|spec| &spec.name).collect();
                let inputs = inputs.iter().filter(|(name, _)| known.contains(&name));
                let inputs = inputs.map(|(name, row)| (name.clone(), repeated(row, batch)));
                jobs.push(Job {
                    part: part.clone(),
                    variant: variant.to_owned(),
                    batch,
                    session: sessions.len(),
                    inputs: inputs.collect(),
                    us: vec![],
                });
            }
            sessions.push(Slow::new(session, self.request.slowdown));
        };
        let whole = |known: &Known| known.part(&given, &outputs);
        add(Part::Whole, PLAIN, load(&Part::Whole, &whole(self.plain)?)?, self.inputs);
        for known in &self.variants {
            // A variant may be of fronts alone.
            if let Ok(model) = whole(known) {
                add(Part::Whole, &known.name, load(&Part::Whole, &model)?, self.inputs);
            }
        }
        let mut rows: Vec<(String, Tensor)> = Vec::new();
        for cut in cuts {
            let (before, after) = self.divided(&given, &outputs, cut);
            let part = Part::Front { cut: cut.clone() };
            let mut front = load(&part, &self.plain.part(&given, &before)?)?;
            let needed = self.needed(&front);
            let crossing = run(&mut front, &part, &needed)?.swap_remove(0);
            add(part.clone(), PLAIN, front, self.inputs);
            for known in &self.variants {
                if let Ok(model) = known.part(&given, std::slice::from_ref(cut)) {
                    add(part.clone(), &known.name, load(&part, &model)?, self.inputs);
                }
            }
            let part = Part::Tail { cut: cut.clone() };
            let tail = load(&part, &self.plain.part(std::slice::from_ref(cut), &after)?)?;
            add(part, PLAIN, tail, &vec![(cut.clone(), crossing.clone())]);
            rows.push((cut.clone(), crossing));
        }
        self.rounds(&mut jobs, &mut sessions, &rows, progress)?;
        self.parts.append(&mut jobs);
        Ok(())
    }

    /// The inputs that a part of the model reads.
    fn needed(&self, session: &Session) -> Inputs {
        let reads = |name: &String| session.inputs().iter().any(|spec| spec.name == *name);
        self.inputs.iter().filter(|(name, _)| reads(name)).cloned().collect()
    }

    /// The outputs of the front, the cut first, and of the tail.
    fn divided(
        &self,
        given: &[String],
        outputs: &[String],
        cut: &String,
    ) -> (Vec<String>, Vec<String>) {
        let from = |inputs: &[String], output: &String| {
            let Known { model, types, .. } = self.plain;
            extract(model, types, inputs, std::slice::from_ref(output)).is_ok()
        };
        let crossing = std::slice::from_ref(cut);
        let (after, early): (Vec<String>, Vec<String>) =
            outputs.iter().cloned().partition(|output| from(crossing, output));
        let mut before = vec![cut.clone()];
        before.extend(early.into_iter().filter(|output| from(given, output)));
        (before, after)
    }

    fn rounds(
        &mut self,
        jobs: &mut [Job],
        sessions: &mut [Slow<Session>],
        rows: &[(String, Tensor)],
        progress: &mut dyn FnMut(usize),
    ) -> Result<(), MeasureError> {
        let mut wires: Vec<Wire> = Vec::new();
        for (cut, row) in rows {
            wires.extend(Wire::all(cut, row, self.request.bits));
        }
        let slowdown = self.request.slowdown;
        for round in 0..WARM_UP + self.request.runs {
            let counts = round >= WARM_UP;
            let (order, jobs_there) = (round % jobs.len().max(1), jobs.len());
            for step in 0..jobs_there {
                let job = &mut jobs[(order + step) % jobs_there];
                let start = std::time::Instant::now();
                run(&mut sessions[job.session], &job.part, &job.inputs)?;
                if counts {
                    job.us.push(start.elapsed().as_secs_f64() * 1e6);
                }
            }
            for wire in &mut wires {
                wire.take(slowdown, counts)?;
            }
            progress(round + 1);
        }
        self.codec.extend(wires.into_iter().filter_map(Wire::timed));
        Ok(())
    }
}

fn outputs_of(model: &ModelProto) -> Vec<String> {
    let outputs = model.graph.iter().flat_map(|graph| &graph.output);
    outputs.map(|output| output.name().to_owned()).collect()
}

/// `batch` times the same row.
fn repeated(row: &Tensor, batch: usize) -> Tensor {
    let mut shape = row.shape().to_vec();
    match shape.first_mut() {
        Some(first) if batch > 1 => *first *= batch,
        _ => return row.clone(),
    }
    let bytes = row.bytes().repeat(batch);
    Tensor::new(row.element(), shape, bytes).unwrap_or_else(|_| row.clone())
}

/// The times of a part that was run in several groups are one.
pub(super) fn merged(jobs: Vec<Job>) -> Vec<PartTime> {
    let mut merged: Vec<Job> = Vec::new();
    for job in jobs {
        let same = |other: &&mut Job| {
            (&other.part, &other.variant, other.batch) == (&job.part, &job.variant, job.batch)
        };
        match merged.iter_mut().find(same) {
            Some(other) => other.us.extend(job.us),
            None => merged.push(job),
        }
    }
    let timed = |job: Job| {
        let Job { part, variant, batch, us, .. } = job;
        Some(PartTime { part, variant, batch, time: Timing::of(us)? })
    };
    merged.into_iter().filter_map(timed).collect()
}
