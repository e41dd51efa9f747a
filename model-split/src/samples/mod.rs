//! Model inputs to measure on: of a bundle's labelled set, of files, or made of random numbers.
//! Everything that runs a model on samples takes them from here, so that a measurement can name
//! its data by one digest. It must not run models.

mod files;
mod npy;
mod pictures;
mod proto;
mod rows;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use midspan_runtime::{Dim, ElementType, Tensor, TensorSpec};
use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::labelled::Labelled;

pub use files::{LARGEST, LoadOptions, MOST_SAMPLES, load};
pub use pictures::read_preprocess;
pub use proto::tensor_of;

/// One row for a model, with its class where that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The inputs by their names inside the model, each with a first dimension of 1 where the
    /// model has a batch.
    pub inputs: Vec<(String, Tensor)>,
    /// The class.
    pub label: Option<usize>,
    /// The encoded picture that the input was made of, where it was one.
    pub picture: Option<Arc<[u8]>>,
}

/// Why there are no samples.
#[derive(Debug, thiserror::Error)]
pub enum SamplesError {
    /// More random numbers than are held in memory.
    #[error("{count} random samples are more than {LARGEST} bytes: take fewer, or smaller shapes")]
    Large {
        /// Samples asked for.
        count: usize,
    },
    /// Random numbers cannot stand in for an input.
    #[error("input \"{name}\" is {element}: no random values can stand in for it")]
    NotRandom {
        /// Name of the input.
        name: String,
        /// Its type.
        element: ElementType,
    },
    /// A file that cannot be read.
    #[error("{}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file that holds no samples for this model.
    #[error("{}: {reason}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

impl SamplesError {
    fn file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), reason: reason.into() }
    }
}

impl Sample {
    /// The one input of a model that has one.
    pub fn single(&self) -> Option<&Tensor> {
        match self.inputs.as_slice() {
            [(_, tensor)] => Some(tensor),
            _ => None,
        }
    }
}

/// All samples of a labelled set, for the model input of this name.
pub fn of_labelled(labelled: &Labelled, input: &str) -> Vec<Sample> {
    let sample = |index| {
        let inputs = vec![(input.to_owned(), labelled.tensor(index)?)];
        Some(Sample { inputs, label: labelled.label(index), picture: None })
    };
    (0..labelled.len()).filter_map(sample).collect()
}

/// `count` samples of random values: floats evenly in -1..1, integers in 0..8, so that they suit
/// indices; open dimensions have size 1. The same seed gives the same samples.
///
/// # Errors
/// When an input is of strings, or all would be larger than [`LARGEST`] bytes.
pub fn random(inputs: &[TensorSpec], count: usize, seed: u64) -> Result<Vec<Sample>, SamplesError> {
    let shape_of = |spec: &TensorSpec| -> Vec<usize> {
        let size = |dim: &Dim| if let Dim::Fixed(size) = dim { *size } else { 1 };
        spec.dims.iter().map(size).collect()
    };
    let bytes = |spec: &TensorSpec| {
        let elements = midspan_runtime::tensor::element_count(&shape_of(spec))? as u64;
        elements.checked_mul(spec.element.size().unwrap_or(1) as u64)
    };
    let row = inputs.iter().map(bytes).try_fold(0u64, |sum, more| sum.checked_add(more?));
    if row.and_then(|row| row.checked_mul(count as u64)).is_none_or(|all| all > LARGEST) {
        return Err(SamplesError::Large { count });
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut tensor = |spec: &TensorSpec| {
        let refuse = || SamplesError::NotRandom { name: spec.name.clone(), element: spec.element };
        let shape = shape_of(spec);
        let elements = midspan_runtime::tensor::element_count(&shape).ok_or_else(refuse)?;
        let mut bytes = Vec::new();
        for _ in 0..elements {
            push_random(spec.element, rng.next_u32(), &mut bytes).ok_or_else(refuse)?;
        }
        let tensor = Tensor::new(spec.element, shape, bytes).map_err(|_| refuse())?;
        Ok((spec.name.clone(), tensor))
    };
    (0..count)
        .map(|_| {
            let inputs = inputs.iter().map(&mut tensor).collect::<Result<_, SamplesError>>()?;
            Ok(Sample { inputs, label: None, picture: None })
        })
        .collect()
}

/// Appends one element made of 32 random bits; none for strings.
fn push_random(element: ElementType, bits: u32, bytes: &mut Vec<u8>) -> Option<()> {
    let float = f64::from(bits) / f64::from(u32::MAX) * 2.0 - 1.0;
    let small = (bits >> 29) as u8;
    match element {
        ElementType::Bool => bytes.push(small & 1),
        ElementType::F64 => bytes.extend(float.to_le_bytes()),
        ElementType::F32 => bytes.extend((float as f32).to_le_bytes()),
        ElementType::F16 => bytes.extend(half::f16::from_f64(float).to_le_bytes()),
        ElementType::BF16 => bytes.extend(half::bf16::from_f64(float).to_le_bytes()),
        ElementType::String => return None,
        _ => {
            let start = bytes.len();
            bytes.resize(start + element.size()?, 0);
            bytes[start] = small;
        }
    }
    Some(())
}

/// SHA-256 over all inputs (name, type, shape, bytes) and labels, in their order.
pub fn digest(samples: &[Sample]) -> Digest {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for sample in samples {
        for (name, tensor) in &sample.inputs {
            part(name.as_bytes());
            part(tensor.element().oip_name().as_bytes());
            let shape: Vec<u8> =
                tensor.shape().iter().flat_map(|size| (*size as u64).to_le_bytes()).collect();
            part(&shape);
            part(tensor.bytes());
        }
        part(sample.label.map_or(String::new(), |label| label.to_string()).as_bytes());
    }
    Digest(hash.finalize().into())
}

/// `count` of the samples, evenly over the set: the first of a set are often its easiest.
pub fn spread(samples: Vec<Sample>, count: usize) -> Vec<Sample> {
    let all = samples.len();
    let indexed = samples.into_iter().enumerate();
    indexed.filter(|(index, _)| is_taken(*index, all, count)).map(|(_, sample)| sample).collect()
}

/// Whether `index` is among `count` of `all` that are taken evenly.
fn is_taken(index: usize, all: usize, count: usize) -> bool {
    let (all, count) = (all.max(1), count.min(all));
    (index + 1) * count / all > index * count / all
}

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod tests;
