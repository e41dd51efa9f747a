//! The profile of a device: how long the halves of a model, the codec and pictures take there. It
//! is a file of its own, with what it was measured of and on, so that it can be copied from an edge
//! box to where a split is planned. This file holds its form and checks it; [`measure`] makes one.
//! It must not plan.

mod bench;
mod device;
pub mod measure;
pub mod pictures;
mod slow;
mod timing;
mod wire;
mod work;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use midspan_runtime::ElementType;
use serde::{Deserialize, Serialize};

use crate::bundle::read_bounded;
use crate::candidate::{InputForm, WirePrecision};
use crate::digest::Digest;

pub use device::Device;
pub use slow::{Slow, Slowdown};
pub use timing::Timing;

/// The format that this version reads and writes.
pub const FORMAT: u32 = 1;
/// Runs of an idle device differ by a few hundredths.
const DISTURBED: f64 = 0.2;
/// The largest profile that is read.
const LARGEST: u64 = 64 << 20;

/// How long the parts of one model take on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`FORMAT`].
    pub format: u32,
    /// What was measured.
    pub model: ModelNotes,
    /// Where.
    pub device: Device,
    /// Day of the measurement, `YYYY-MM-DD`.
    pub date: String,
    /// How many times slower than itself the device was made; 1 for as it is.
    pub slowdown: f64,
    /// The variants with the digest of their file; the first is the model itself.
    pub variants: Vec<VariantNotes>,
    /// All cuts of the model in the order of its graph, timed or not.
    pub cuts: Vec<CutNotes>,
    /// Times of the whole model and of halves.
    pub parts: Vec<PartTime>,
    /// Times of the codec at the cuts that were timed.
    pub codec: Vec<CodecTime>,
    /// Times of writing and reading a picture of the model's size; none when it reads none.
    pub pictures: Vec<PictureTime>,
}

/// The model that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelNotes {
    /// SHA-256 of its file.
    pub sha256: Digest,
    /// Bytes of one row of all inputs as tensors.
    pub input_bytes: u64,
    /// Bytes of one row of all outputs as tensors.
    pub output_bytes: u64,
}

/// A way to run the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantNotes {
    /// Its name; [`crate::manifest::PLAIN`] for the model itself.
    pub name: String,
    /// SHA-256 of its file.
    pub sha256: Digest,
}

/// A tensor at which the model can be divided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CutNotes {
    /// Its name.
    pub tensor: String,
    /// OIP datatype.
    pub datatype: String,
    /// Dimensions of one row, its first dimension included.
    pub shape: Vec<usize>,
    /// Share of the model's work that lies in front of it, 0 to 1.
    pub front_share: f64,
}

/// How long one part took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartTime {
    /// Which part.
    pub part: Part,
    /// Variant that ran.
    pub variant: String,
    /// Rows of a run.
    pub batch: usize,
    /// Time of a run.
    pub time: Timing,
}

/// A part of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Part {
    /// All of it.
    Whole,
    /// From the inputs to a cut.
    Front {
        /// Tensor of the cut.
        cut: String,
    },
    /// From a cut to the outputs.
    Tail {
        /// Tensor of the cut.
        cut: String,
    },
}

/// How long the codec took for one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecTime {
    /// Tensor of the cut.
    pub cut: String,
    /// How its elements were written.
    pub precision: WirePrecision,
    /// Time to write a frame.
    pub encode: Timing,
    /// Time to read it.
    pub decode: Timing,
}

/// How long a picture took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PictureTime {
    /// How it was written.
    pub form: InputForm,
    /// Time to write it.
    pub encode: Timing,
    /// Time to read it into a tensor.
    pub decode: Timing,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file system said no.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Not JSON, or not of this form.
    #[error("{}: {source}", .path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Cause, with its place.
        source: serde_json::Error,
    },
    /// A value that makes no sense.
    #[error("{}: {key}: {reason}", .path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key, as a path.
        key: String,
        /// What is wrong.
        reason: String,
    },
}

impl CutNotes {
    /// Elements of one row.
    pub fn elements(&self) -> u64 {
        self.shape.iter().map(|size| *size as u64).product()
    }

    /// Type of its elements; none only in notes that were not validated.
    pub fn element(&self) -> Option<ElementType> {
        ElementType::from_oip(&self.datatype)
    }

    /// Bytes of one row as they are.
    pub fn bytes(&self) -> u64 {
        let size = self.element().and_then(ElementType::size).unwrap_or(0);
        self.elements().saturating_mul(size as u64)
    }
}

impl Profile {
    /// Reads and validates a profile.
    ///
    /// # Errors
    /// When it cannot be read or makes no sense; the file and the key are named.
    pub fn read(path: &Path) -> Result<Self, ProfileError> {
        let io = |source| ProfileError::Io { doing: "read", path: path.to_owned(), source };
        let json = read_bounded(path, LARGEST).map_err(io)?;
        let profile: Self = serde_json::from_slice(&json)
            .map_err(|source| ProfileError::Json { path: path.to_owned(), source })?;
        profile.validate().map_err(|(key, reason)| ProfileError::Value {
            path: path.to_owned(),
            key,
            reason,
        })?;
        Ok(profile)
    }

    /// Writes the profile; a file that is there is replaced when all of the new one is on the disk.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ProfileError> {
        let io = |source| ProfileError::Io { doing: "write", path: path.to_owned(), source };
        let json = serde_json::to_vec_pretty(self)
            .map_err(|source| ProfileError::Json { path: path.to_owned(), source })?;
        write_whole(path, &json).map_err(io)
    }

    /// What makes no sense, as key and reason.
    fn validate(&self) -> Result<(), (String, String)> {
        let fault = |key: String, reason: &str| Err((key, reason.to_owned()));
        if self.format != FORMAT {
            let reason = format!("format {} is not supported, only {FORMAT}", self.format);
            return Err(("format".into(), reason));
        }
        if !(1.0..=1000.0).contains(&self.slowdown) {
            return fault("slowdown".into(), "must be 1 to 1000");
        }
        let variants: BTreeSet<&str> = self.variants.iter().map(|v| v.name.as_str()).collect();
        if variants.len() != self.variants.len() {
            return fault("variants".into(), "a name comes twice");
        }
        for (index, cut) in self.cuts.iter().enumerate() {
            let sized = cut.element().is_some_and(|element| element.size().is_some());
            if !sized {
                return fault(format!("cuts[{index}].datatype"), "not a type that can cross");
            }
            if midspan_runtime::tensor::element_count(&cut.shape).is_none() {
                return fault(format!("cuts[{index}].shape"), "too large");
            }
            if !(0.0..=1.0).contains(&cut.front_share) {
                return fault(format!("cuts[{index}].front_share"), "must be 0 to 1");
            }
        }
        let cuts: BTreeSet<&str> = self.cuts.iter().map(|cut| cut.tensor.as_str()).collect();
        for (index, part) in self.parts.iter().enumerate() {
            let key = |rest: &str| format!("parts[{index}].{rest}");
            if let Part::Front { cut } | Part::Tail { cut } = &part.part
                && !cuts.contains(cut.as_str())
            {
                return fault(key("part.cut"), "not one of cuts");
            }
            if !variants.contains(part.variant.as_str()) {
                return fault(key("variant"), "not one of variants");
            }
            if part.batch == 0 || !part.time.is_sound() {
                return fault(key("time"), "no rows, or times that are not in order");
            }
        }
        let codec = self.codec.iter().map(|codec| (&codec.encode, &codec.decode));
        let pictures = self.pictures.iter().map(|picture| (&picture.encode, &picture.decode));
        for (index, (encode, decode)) in codec.chain(pictures).enumerate() {
            if !encode.is_sound() || !decode.is_sound() {
                return fault(format!("codec or pictures[{index}]"), "times are not in order");
            }
        }
        Ok(())
    }

    /// The share of parts whose runs differ by more than a fifth in their middle half: the device
    /// was doing something else.
    pub fn disturbed(&self) -> f64 {
        let spread = self.parts.iter().filter(|part| part.time.spread() > DISTURBED);
        spread.count() as f64 / self.parts.len().max(1) as f64
    }

    /// The median time of a part, microseconds.
    pub fn part_us(&self, part: &Part, variant: &str, batch: usize) -> Option<f64> {
        let found = self
            .parts
            .iter()
            .find(|timed| timed.part == *part && timed.variant == variant && timed.batch == batch);
        found.map(|timed| timed.time.median_us)
    }
}

/// Writes a file so that it is there whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(parent.unwrap_or(Path::new(".")))?;
    file.write_all(bytes)?;
    // A temporary file is its owner's alone; what takes its place is for all to read.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644))?;
    }
    file.as_file().sync_all()?;
    file.persist(path).map(|_| ()).map_err(|error| error.error)
}
