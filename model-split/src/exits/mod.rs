//! Early exits for models that have none: a small head at a cut, trained apart from the model on
//! labels or on what the whole model answers, kept in blobs of its own and merged into its stage
//! when that is loaded. Split ids, graphs and weights of the bundle stay as they are.
//!
//! A head averages the cut's tensor over a grid, then has one layer, or two with a ReLU between. It
//! may cost at most a share of the time of everything in front of its cut; what costs more is not
//! tried. The rest is chosen on samples that were held out. It must not promise anything: the
//! thresholds that it sets are provisional, and no certificate is made.

pub mod form;
pub mod score;
pub mod timing;

mod choose;
mod fit;
mod graph;
mod run;
mod slot;
mod train;

use std::collections::BTreeMap;

use midspan_runtime::{LoadError, RunError};

pub use score::{Score, score};
pub use train::train;

use crate::bundle::BundleError;
use crate::digest::Digest;
use crate::head::HeadError;
use crate::manifest::Manifest;
use crate::onnx::OnnxError;

/// What heads learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The labels of the samples, which all must have one.
    Labels,
    /// What the whole model answers: its probabilities, so that doubt is learnt too.
    Model,
}

/// What is to be trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Stages that get an exit, by number.
    pub stages: Vec<usize>,
    /// Grids that are tried, 1 to [`form::MOST_GRID`]; those that a tensor does not have are left
    /// out.
    pub grids: Vec<usize>,
    /// Units of the hidden layer that are tried; 0 for no such layer.
    pub hidden: Vec<usize>,
    /// What heads learn.
    pub against: Against,
    /// Decides which samples are held out and where hidden layers start.
    pub seed: u64,
    /// Most time that a head may add, as a share of the time of all in front of its cut; for a row
    /// among eight, where the model takes several.
    pub most_time: f64,
    /// Share of the samples that may get another answer than the whole model's, for the provisional
    /// thresholds.
    pub budget: f64,
    /// Refuse stages that have an exit instead of replacing it.
    pub keep: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stages: vec![0],
            grids: vec![1, 3, 7],
            hidden: vec![0, 64],
            against: Against::Model,
            seed: 1,
            most_time: 0.1,
            budget: 0.01,
            keep: false,
        }
    }
}

/// What is being done, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Samples run through stages and whole model.
    Running,
    /// Heads of one shape fitted.
    Fitting,
    /// Samples run to score exits.
    Scoring,
}

/// Called with what is being done, how much of it is done, and how much there is.
pub type Progress<'a> = &'a mut dyn FnMut(Step, usize, usize);

/// A bundle's new heads: what [`crate::rewrite::rewrite`] needs, and what was found.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The manifest with the new exits.
    pub manifest: Manifest,
    /// The blobs of the heads.
    pub blobs: BTreeMap<Digest, Vec<u8>>,
    /// The new exits, in the order of their stages.
    pub exits: Vec<NewExit>,
    /// Samples that heads were fitted to.
    pub trained_on: usize,
    /// Samples that everything else was chosen on.
    pub held_out: usize,
}

/// One new exit.
#[derive(Clone, Debug, PartialEq)]
pub struct NewExit {
    /// Its stage.
    pub stage: usize,
    /// The tensor that it reads.
    pub tensor: String,
    /// Bins of the grid along each axis; 1 for a mean, or for a tensor that is no picture.
    pub grid: usize,
    /// Units of the hidden layer; 0 for none.
    pub hidden: usize,
    /// The L2 penalty, before it is divided by the number of samples.
    pub penalty: f64,
    /// Weights and biases.
    pub parameters: usize,
    /// Divides the answers before the softmax, in thousandths.
    pub temperature_milli: u32,
    /// Least confidence that answers, in thousandths; provisional.
    pub threshold_milli: u32,
    /// Median time of everything in front of the cut for a row among eight, in microseconds.
    pub front_us: f64,
    /// What the head adds, as a share of that.
    pub time: f64,
    /// What the head adds to a run of one row, in microseconds.
    pub alone_us: f64,
    /// Share of the held-out samples for which the exit says what the whole model says.
    pub agreement: f64,
    /// Share of the held-out samples that this exit answers, where none before it does.
    pub answered: f64,
    /// Every shape that was looked at.
    pub tried: Vec<Tried>,
}

/// A shape of a head and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// Bins of the grid along each axis.
    pub grid: usize,
    /// Units of the hidden layer; 0 for none.
    pub hidden: usize,
    /// What it adds to the time of the front, as a share, for a row among eight.
    pub time: f64,
    /// What it adds to a run of one row, in microseconds.
    pub alone_us: f64,
    /// Mean negative log-likelihood of the held-out samples; none for one that takes too long.
    pub held_out: Option<f64>,
}

/// Why there are no exits.
#[derive(Debug, thiserror::Error)]
pub enum ExitsError {
    /// The bundle is damaged.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A model cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A stage's graph is none.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// The model answers no classes.
    #[error("{0}")]
    NoClassifier(String),
    /// A stage that can have no exit.
    #[error("stage {stage}: {reason}")]
    Stage {
        /// The stage.
        stage: usize,
        /// Why.
        reason: String,
    },
    /// No head can read the tensor.
    #[error(transparent)]
    Form(#[from] form::FormError),
    /// A head does not suit its stage, or a variant of it.
    #[error("{key}.head: {source}")]
    Head {
        /// The manifest's key of the stage or variant.
        key: String,
        /// Cause.
        source: HeadError,
    },
    /// A model does not run on a sample.
    #[error("sample {sample}: {source}")]
    Run {
        /// Number of the sample.
        sample: usize,
        /// Cause.
        source: RunError,
    },
    /// A stage cannot be timed.
    #[error("stage {stage}: {source}")]
    Timing {
        /// The stage.
        stage: usize,
        /// Cause.
        source: timing::TimingError,
    },
    /// The samples do not do.
    #[error("{0}")]
    Samples(String),
    /// Options that make no sense.
    #[error("{0}")]
    Options(String),
    /// Every shape of a head takes too long.
    #[error(
        "stage {stage}: every head takes too long beside a front of {front_us:.1} us a row: the quickest \
         adds {:.1} %, at most {:.1} % is allowed", .least * 100.0, .most * 100.0
    )]
    TooSlow {
        /// The stage.
        stage: usize,
        /// Median time of all in front of its cut for a row among eight, in microseconds.
        front_us: f64,
        /// What the quickest head adds, as a share of it.
        least: f64,
        /// What it may add.
        most: f64,
    },
}
