//! The path through the thresholds of all exits, and what happens on it. Its steps are the
//! thresholds 1.000, 0.999, ... 0.000, the same for every exit at once, because confidences at
//! fitted temperatures mean the same at each. A row is answered by the first exit that is sure.
//! It must not judge whether a step is good enough.

use crate::answers::{Answers, Logits};
use crate::exit::{ExitRule, classify};
use crate::manifest::{Exit, Loss, Manifest};

/// The strictest threshold that a manifest can state, in thousandths: the first step.
pub const STRICTEST: u32 = 1000;

/// What an exit makes of a row at all thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The class it answers.
    pub class: usize,
    /// The strictest threshold, in thousandths, at which it is still sure; none when it never is.
    pub until: Option<u32>,
}

/// A sample as the exits and the whole model see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The exits in their order.
    pub exits: Vec<Word>,
    /// The whole model's class; none when one of its logits is no number, so that no exit agrees.
    pub whole: Option<usize>,
    /// The class that is right, where it is known.
    pub label: Option<usize>,
}

/// Counts at one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Rows that an exit answered.
    pub answered: u64,
    /// Of them, rows with [`Loss::Disagreement`] 1.
    pub disagreements: u64,
    /// Of them, rows with [`Loss::Label`] 1; rows without a label have none.
    pub label_losses: u64,
}

/// Counts at all steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Number of rows.
    pub samples: u64,
    /// By the threshold in thousandths.
    steps: Vec<Step>,
}

impl Row {
    /// Whether an answer of `class` counts, by both losses.
    fn losses(&self, class: usize) -> (bool, bool) {
        let differs = self.whole != Some(class);
        let right = self.label.is_some() && self.whole == self.label;
        (differs, differs && right)
    }
}

impl Step {
    /// Rows with this loss 1.
    pub fn losses(&self, loss: Loss) -> u64 {
        match loss {
            Loss::Disagreement => self.disagreements,
            Loss::Label => self.label_losses,
        }
    }

    fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.disagreements += other.disagreements;
        self.label_losses += other.label_losses;
    }
}

impl Path {
    /// Counts over all rows.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let mut path = Self { samples: 0, steps: vec![Step::default(); STRICTEST as usize + 1] };
        // First what begins at each step on the way down to 0, then the sums.
        let mut ends = path.steps.clone();
        for row in rows {
            path.samples += 1;
            // The exits before have answered from their strictest threshold downwards.
            let mut taken = None;
            for word in &row.exits {
                if word.until <= taken {
                    continue;
                }
                let (differs, wrong) = row.losses(word.class);
                let counts = Step {
                    answered: 1,
                    disagreements: u64::from(differs),
                    label_losses: u64::from(wrong),
                };
                if let Some(from) = word.until {
                    path.steps[from.min(STRICTEST) as usize].add(counts);
                }
                if let Some(end) = taken {
                    ends[end.min(STRICTEST) as usize].add(counts);
                }
                taken = word.until;
            }
        }
        let mut sum = Step::default();
        for (step, ends) in path.steps.iter_mut().zip(&ends).rev() {
            sum.add(*step);
            sum.answered -= ends.answered;
            sum.disagreements -= ends.disagreements;
            sum.label_losses -= ends.label_losses;
            *step = sum;
        }
        path
    }

    /// The counts at a threshold in thousandths.
    pub fn at(&self, threshold_milli: u32) -> Step {
        self.steps[threshold_milli.min(STRICTEST) as usize]
    }

    /// The steps from the strictest on, each with its threshold in thousandths.
    pub fn steps(&self) -> impl Iterator<Item = (u32, Step)> {
        (0..=STRICTEST).rev().zip(self.steps.iter().rev().copied())
    }
}

/// The rules of an exit at all thresholds, from 0 on.
fn rules(exit: &Exit) -> Vec<ExitRule> {
    let at = |milli| Exit { threshold_milli: Some(milli), ..exit.clone() }.rule();
    (0..=STRICTEST).filter_map(at).collect()
}

/// What the exits of a manifest make of what was answered: asked of the very rules by which a node
/// decides, so that no rounding stands between the two.
pub fn rows(manifest: &Manifest, answers: &Answers) -> Vec<Row> {
    let exits: Vec<(Vec<ExitRule>, f32, &Logits)> = answers
        .exits
        .iter()
        .filter_map(|found| {
            let exit = manifest.stages.get(found.stage)?.exit.as_ref()?;
            Some((rules(exit), exit.temperature(), &found.logits))
        })
        .collect();
    let words = |index: usize| {
        let word = |(rules, temperature, logits): &(Vec<ExitRule>, f32, &Logits)| {
            let logits = logits.row(index)?;
            let sure = rules.partition_point(|rule| rule.decide(logits).sure);
            let (class, _) = classify(logits, *temperature);
            Some(Word { class, until: sure.checked_sub(1).map(|at| at as u32) })
        };
        exits.iter().filter_map(word).collect()
    };
    let whole = |logits: &[f32]| {
        (!logits.iter().any(|logit| logit.is_nan())).then(|| classify(logits, 1.0).0)
    };
    let all = answers.whole.rows().zip(&answers.labels).enumerate();
    all.map(|(index, (logits, label))| Row {
        exits: words(index),
        whole: whole(logits),
        label: *label,
    })
    .collect()
}
