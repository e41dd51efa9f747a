//! What an operator writes to have a bundle made: a TOML file that names the model's inputs and
//! outputs, its cuts and exits. Paths in it are relative to the file. It is checked against the
//! model when the bundle is made, not here.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::preprocess::Preprocess;

/// The largest spec file that is read.
const LARGEST: u64 = 1 << 20;

/// A bundle to be made.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Model name, as in request paths.
    pub name: String,
    /// Model version, as in request paths.
    pub version: String,
    /// Stages that an edge node runs before it offloads.
    #[serde(default = "one")]
    pub local_stages: usize,
    /// Whether requests of one sequence must reach the same node.
    #[serde(default)]
    pub stateful: bool,
    /// The model's inputs and their names for apps.
    pub inputs: Vec<Named>,
    /// The model's outputs and their names for apps. With exits, the first is the logits.
    pub outputs: Vec<Named>,
    /// The stages in order; all but the last have a cut.
    pub stages: Vec<StageSpec>,
    /// How an encoded picture becomes the first input.
    pub preprocess: Option<Preprocess>,
    /// Names of the classes.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Files of labelled samples.
    pub labelled: Option<LabelledFiles>,
}

fn one() -> usize {
    1
}

/// A tensor of the model and its name for apps.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// Name for apps.
    pub name: String,
    /// Name inside the model.
    pub tensor: String,
}

/// One stage.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageSpec {
    /// Where the stage ends.
    pub cut: Option<CutSpec>,
    /// The exit that it computes.
    pub exit: Option<ExitSpec>,
}

/// A cut and its codec.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CutSpec {
    /// The tensor that crosses.
    pub tensor: String,
    /// Bits per element on the wire.
    pub bits: u8,
    /// All numbers of bits that may be asked for; `bits` must be one of them.
    pub allowed: Vec<u8>,
    /// Least value of the tensor; measured on samples where neither it nor `hi` is given.
    pub lo: Option<f32>,
    /// Largest value of the tensor.
    pub hi: Option<f32>,
}

/// An exit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExitSpec {
    /// Name of the logits inside the model.
    pub output: String,
    /// Divides the logits before the softmax; kept to three decimals.
    pub temperature: f64,
    /// Least confidence that answers, kept to three decimals; none for the last exit.
    pub threshold: Option<f64>,
}

/// Files of labelled samples.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelledFiles {
    /// Images, gzipped idx3 of u8.
    pub images: PathBuf,
    /// Labels, gzipped idx1 of u8.
    pub labels: PathBuf,
}

/// Why a spec cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The file system said no.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// Not TOML, or not of this form.
    #[error("{}: {source}", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// Cause, with line and key.
        source: toml::de::Error,
    },
}

impl Spec {
    /// Reads a spec file.
    ///
    /// # Errors
    /// When it cannot be read or is no spec, naming the file.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        let text = crate::bundle::read_bounded(path, LARGEST)
            .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other))
            .map_err(|source| SpecError::Read { path: path.to_owned(), source })?;
        toml::from_str(&text).map_err(|source| SpecError::Form { path: path.to_owned(), source })
    }
}
