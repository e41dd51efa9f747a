//! The way of an inference through this node: local stages with their exits, then the cloud for
//! the rows that are still hard, then the deepest exit of our own for those that no cloud answers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use midspan_protocol::{AnsweredBy, Context, ExitMode};
use tokio::time::timeout_at;

use crate::{
    Node,
    accept::Accepted,
    batch::{Blob, Named},
    error::NodeError,
    exit::{RowAnswer, judge, settle},
    model::{Model, Stage},
    offload::offload,
    queue::{Done, Job},
    schedule::Priority,
};

/// What a request asks beyond its tensors.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) mode: ExitMode,
    /// When the asker stops waiting.
    pub(crate) until: Instant,
    /// Policy that came over a trusted link.
    pub(crate) context: Option<Context>,
    /// Place in the queue.
    pub(crate) priority: Priority,
}

/// Where a request's time went.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) waited: Duration,
    pub(crate) ran: Duration,
    pub(crate) offload: Option<Duration>,
}

/// A model's answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Under the names apps use.
    pub(crate) outputs: Vec<(String, Blob)>,
    /// Row by row; empty for a model that was run whole and is no classifier with exits.
    pub(crate) rows: Vec<RowAnswer>,
    pub(crate) place: AnsweredBy,
    /// Whether a certificate covers the exits that answered.
    pub(crate) certified: bool,
    /// Region of the cloud that answered rows of it.
    pub(crate) region: Option<String>,
    pub(crate) spent: Spent,
}

/// Runs one stage through the queue.
pub(crate) async fn run(
    node: &Node,
    stage: &Arc<Stage>,
    inputs: Named,
    terms: &Terms,
    spent: &mut Spent,
) -> Result<Vec<Blob>, NodeError> {
    let (reply, answer) = tokio::sync::oneshot::channel();
    let Terms { until, priority, .. } = *terms;
    let queued = Instant::now();
    let job = Job { stage: Arc::clone(stage), inputs, until, priority, queued, reply };
    node.queue.push(job, node.config.workers)?;
    // A run is not interrupted, but neither it nor the runs before it are waited for in vain.
    let answer = timeout_at(until.into(), answer).await.map_err(|_elapsed| NodeError::Deadline)?;
    let done: Done = answer.map_err(|_| NodeError::Draining)??;
    spent.waited += done.waited;
    spent.ran += done.ran;
    Ok(done.outputs)
}

/// Infers a whole request.
pub(crate) async fn infer(
    node: &Node,
    model: &Model,
    accepted: Accepted,
    terms: &Terms,
) -> Result<Answer, NodeError> {
    // A model that is run whole answers its rows together, however many they are.
    let mut way = Way::new(if model.keeps_rows() { accepted.rows } else { 0 });
    let mut inputs = accepted.inputs;
    for (index, stage) in model.stages.iter().enumerate() {
        let last = model.complete && index + 1 == model.stages.len();
        let outputs = run(node, stage, inputs, terms, &mut way.spent).await?;
        if last {
            return way.finish_local(model, stage, outputs);
        }
        way.pass_exit(model, stage, index, &outputs, terms.mode)?;
        if way.hard.is_empty() {
            return way.finish(model);
        }
        let crossing = way.crossing(stage, &outputs)?;
        if index + 1 == model.stages.len() {
            return way.finish_away(node, model, stage, crossing, terms).await;
        }
        let name = stage.cut.as_ref().map(|cut| cut.tensor.clone()).unwrap_or_default();
        inputs = vec![(name, crossing)];
    }
    Err(NodeError::Execution("the model has no stages".into()))
}

/// A batch on its way: which rows are answered, which are hard, what to fall back to.
struct Way {
    answers: Vec<Option<RowAnswer>>,
    /// The deepest exit's word on each row, for when nobody else answers.
    fallback: Vec<Option<RowAnswer>>,
    /// Rows not answered yet, in request order.
    hard: Vec<usize>,
    /// Where the hard rows stand in the batch that the last stage ran.
    kept: Vec<usize>,
    /// Form of one row of logits.
    row_shape: Vec<usize>,
    /// Whether a certificate covers what the exits answer.
    certified: bool,
    away_region: Option<String>,
    spent: Spent,
}

impl Way {
    fn new(rows: usize) -> Self {
        Self {
            answers: vec![None; rows],
            fallback: vec![None; rows],
            hard: (0..rows).collect(),
            kept: Vec::new(),
            row_shape: Vec::new(),
            certified: false,
            away_region: None,
            spent: Spent::default(),
        }
    }

    /// Lets the stage's exit answer the rows that it is sure of. `outputs` holds the hard rows.
    fn pass_exit(
        &mut self,
        model: &Model,
        stage: &Stage,
        index: usize,
        outputs: &[Blob],
        mode: ExitMode,
    ) -> Result<(), NodeError> {
        self.kept = (0..self.hard.len()).collect();
        let Some(exit) = stage.exit.as_ref().filter(|_| model.exits) else { return Ok(()) };
        let logits = stage.output(&exit.output).and_then(|at| outputs.get(at));
        let missing = || NodeError::Execution(format!("the stage gave no '{}'", exit.output));
        let logits = logits.ok_or_else(missing)?;
        let number = u8::try_from(index + 1).unwrap_or(u8::MAX);
        self.row_shape = logits.shape.get(1..).unwrap_or(&[]).to_vec();
        self.certified = mode == ExitMode::Auto && model.certified;
        let judged = judge(exit, number, logits, mode)?;
        if judged.len() != self.hard.len() {
            return Err(NodeError::Execution(format!(
                "exit {number} gave {} rows for {}",
                judged.len(),
                self.hard.len()
            )));
        }
        let rows = std::mem::take(&mut self.hard);
        self.kept.clear();
        for (at, (row, judged)) in rows.into_iter().zip(judged).enumerate() {
            let place = if judged.sure { &mut self.answers } else { &mut self.fallback };
            if let Some(place) = place.get_mut(row) {
                *place = Some(judged.answer);
            }
            if !judged.sure {
                self.hard.push(row);
                self.kept.push(at);
            }
        }
        Ok(())
    }

    /// The activation of the rows that are still hard; they alone go on.
    fn crossing(&self, stage: &Stage, outputs: &[Blob]) -> Result<Blob, NodeError> {
        let tensor = stage.cut.as_ref().and_then(|cut| outputs.get(stage.output(&cut.tensor)?));
        let missing = || NodeError::Execution("the stage gave no activation".into());
        let tensor = tensor.ok_or_else(missing)?;
        tensor.select(&self.kept).ok_or_else(missing)
    }

    fn finish_local(
        mut self,
        model: &Model,
        stage: &Stage,
        outputs: Vec<Blob>,
    ) -> Result<Answer, NodeError> {
        let mut named = Vec::with_capacity(model.outputs.len());
        for port in &model.outputs {
            let output = stage.output(&port.inner).and_then(|at| outputs.get(at)).cloned();
            let missing = || NodeError::Execution(format!("the model gave no '{}'", port.inner));
            named.push((port.spec.name.clone(), output.ok_or_else(missing)?));
        }
        self.settle_hard(model, named, AnsweredBy::Local)
    }

    /// The hard rows' answers are here, from the last stage or from a cloud.
    fn settle_hard(
        &mut self,
        model: &Model,
        outputs: Vec<(String, Blob)>,
        place: AnsweredBy,
    ) -> Result<Answer, NodeError> {
        let (Some(temperature), [(_, logits)]) = (model.final_temperature, outputs.as_slice())
        else {
            if self.hard.len() != self.answers.len() {
                return Err(NodeError::Execution("rows of a model that is no classifier".into()));
            }
            let (region, spent) = (self.away_region.take(), self.spent);
            let rows = Vec::new();
            return Ok(Answer { outputs, rows, place, certified: false, region, spent });
        };
        let settled = settle(logits, temperature, place)?;
        if settled.len() != self.hard.len() {
            return Err(NodeError::Execution(format!(
                "{} rows came back for {}",
                settled.len(),
                self.hard.len()
            )));
        }
        self.row_shape = logits.shape.get(1..).unwrap_or(&[]).to_vec();
        for (row, answer) in self.hard.iter().zip(settled) {
            if let Some(slot) = self.answers.get_mut(*row) {
                *slot = Some(answer);
            }
        }
        self.hard.clear();
        self.assemble(model, place)
    }

    /// Sends the hard rows to a cloud; what no cloud answers is answered by our deepest exit.
    async fn finish_away(
        mut self,
        node: &Node,
        model: &Model,
        stage: &Stage,
        crossing: Blob,
        terms: &Terms,
    ) -> Result<Answer, NodeError> {
        let started = Instant::now();
        let away = offload(node, model, stage, &crossing, terms).await;
        self.spent.offload = Some(started.elapsed());
        let reason = match away {
            Ok(away) => {
                self.away_region = away.region;
                match self.settle_hard(model, away.outputs, AnsweredBy::Cloud) {
                    Ok(answer) => return Ok(answer),
                    // An answer of another form than ours is the cloud's fault, not the app's.
                    Err(error) => {
                        tracing::warn!(%error, model = model.name, "the cloud's answer does not fit");
                        "cloud_garbage"
                    }
                }
            }
            Err(reason) => reason,
        };
        self.certified = false;
        self.away_region = None;
        for row in std::mem::take(&mut self.hard) {
            let Some(answer) = self.fallback.get_mut(row).and_then(Option::take) else {
                return Err(NodeError::NoFallback(reason));
            };
            if let Some(slot) = self.answers.get_mut(row) {
                *slot = Some(RowAnswer { degraded: Some(reason), ..answer });
            }
        }
        self.finish(model)
    }

    fn finish(mut self, model: &Model) -> Result<Answer, NodeError> {
        let place = self.answers.iter().flatten().next().map_or(AnsweredBy::Local, |row| row.place);
        self.assemble(model, place)
    }

    /// Every row has its answer: the batch in request order.
    fn assemble(&mut self, model: &Model, place: AnsweredBy) -> Result<Answer, NodeError> {
        let rows: Option<Vec<RowAnswer>> = std::mem::take(&mut self.answers).into_iter().collect();
        let rows = rows.ok_or_else(|| NodeError::Execution("a row was left unanswered".into()))?;
        let port = model.outputs.first();
        let port = port.ok_or_else(|| NodeError::Execution("the model has no output".into()))?;
        let bytes: Vec<Bytes> = rows.iter().map(|row| row.logits.clone()).collect();
        let logits = Blob::of_rows(port.spec.element, &self.row_shape, &bytes);
        let outputs = vec![(port.spec.name.clone(), logits)];
        let (certified, region, spent) = (self.certified, self.away_region.take(), self.spent);
        Ok(Answer { outputs, rows, place, certified, region, spent })
    }
}
