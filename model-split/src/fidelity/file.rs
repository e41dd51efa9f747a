//! The file in which measured fidelities travel from where they were measured to the planner.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::bundle::read_bounded;
use crate::candidate::{Candidate, Fidelity};
use crate::codec::Scale;
use crate::digest::Digest;

/// The format that this version reads and writes.
pub const FORMAT: u32 = 1;
/// The largest file that is read.
const LARGEST: u64 = 64 << 20;

/// What was measured of candidates of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FidelityFile {
    /// [`FORMAT`].
    pub format: u32,
    /// SHA-256 of the model's file.
    pub model: Digest,
    /// SHA-256 over the samples that were run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Digest>,
    /// SHA-256 over the samples that scales were measured on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Digest>,
    /// One entry a candidate.
    pub fidelity: Vec<Fidelity>,
    /// The ranges onto which activations were quantised.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scales: Vec<MeasuredScale>,
}

/// The range of a cut at some bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredScale {
    /// The tensor.
    pub cut: String,
    /// Bits per element.
    pub bits: u8,
    /// Least value, of the tensor or of each channel.
    pub lo: Vec<f32>,
    /// Largest value, of the tensor or of each channel.
    pub hi: Vec<f32>,
}

impl MeasuredScale {
    pub(super) fn new(cut: &str, bits: u8, scales: &[Scale]) -> Self {
        let (lo, hi) = scales.iter().map(|scale| (scale.lo(), scale.hi())).unzip();
        Self { cut: cut.to_owned(), bits, lo, hi }
    }
}

/// Why a file of fidelities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FidelityFileError {
    /// The file system said no.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// Not JSON, or not of this form.
    #[error("{}: {source}", .path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: serde_json::Error,
    },
    /// A value that makes no sense.
    #[error("{}: {key}: {reason}", .path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What is wrong.
        reason: String,
    },
}

impl FidelityFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// When it cannot be read or makes no sense.
    pub fn read(path: &Path) -> Result<Self, FidelityFileError> {
        let owned = || path.to_owned();
        let json = read_bounded(path, LARGEST)
            .map_err(|source| FidelityFileError::Read { path: owned(), source })?;
        let file: Self = serde_json::from_slice(&json)
            .map_err(|source| FidelityFileError::Json { path: owned(), source })?;
        let fault = |(key, reason)| FidelityFileError::Value { path: owned(), key, reason };
        file.check().map_err(fault)?;
        Ok(file)
    }

    /// Of the activations whose agreement is at least this at 95 % confidence, the one with the
    /// fewest bytes.
    pub fn smallest(&self, agreement: f64) -> Option<&Fidelity> {
        let activation = |entry: &&Fidelity| {
            matches!(entry.candidate, Candidate::Activation { .. })
                && entry.agreement_lower >= agreement
        };
        let sound = self.fidelity.iter().filter(activation);
        sound.min_by(|one, other| one.bytes.total_cmp(&other.bytes))
    }

    /// The first value that makes no sense: its key, and why.
    fn check(&self) -> Result<(), (String, String)> {
        if self.format != FORMAT {
            let reason = format!("{} is not supported, only {FORMAT}", self.format);
            return Err(("format".into(), reason));
        }
        for (index, entry) in self.fidelity.iter().enumerate() {
            let share = entry.agreeing as f64 / entry.samples.max(1) as f64;
            let sound = entry.samples > 0
                && (0.0..=1.0).contains(&share)
                && (0.0..=share).contains(&entry.agreement_lower)
                && (0.0..1e12).contains(&entry.bytes);
            if !sound {
                let reason = "bytes, samples, agreeing and agreement_lower do not fit together";
                return Err((format!("fidelity[{index}]"), reason.into()));
            }
        }
        for (index, scale) in self.scales.iter().enumerate() {
            let ranges = scale.lo.iter().zip(&scale.hi);
            let sound = scale.lo.len() == scale.hi.len()
                && !scale.lo.is_empty()
                && (1..=8).contains(&scale.bits)
                && ranges.into_iter().all(|(lo, hi)| Scale::new(*lo, *hi).is_some());
            if !sound {
                return Err((format!("scales[{index}]"), "no range at 1 to 8 bits".into()));
            }
        }
        Ok(())
    }
}
