//! Samples out of files: what a path holds is told by its first bytes, and everything is bounded:
//! files by their bytes, sets by the number of their samples. Samples are taken evenly over a set
//! when fewer than all are wanted.

use std::collections::BTreeMap;
use std::path::Path;

use midspan_runtime::{Tensor, TensorSpec};

use super::rows::{Rows, classes};
use super::{Sample, SamplesError, is_taken, npy, pictures, proto};
use crate::bundle::read_bounded;
use crate::labelled::read_idx;
use crate::preprocess::Preprocess;

/// Largest file, and most bytes of all samples together.
pub const LARGEST: u64 = 4 << 30;
/// Most samples of one set.
pub const MOST_SAMPLES: usize = 1 << 20;

/// What goes with the samples of a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions<'a> {
    /// Classes, one a sample in the order of the set: a `.npy` of integers, or idx labels. They
    /// come before those that the set itself has.
    pub labels: Option<&'a Path>,
    /// How a picture becomes the model's input.
    pub preprocess: Option<&'a Preprocess>,
    /// Most samples to take; all without it.
    pub limit: Option<usize>,
}

/// Reads samples for a model with these inputs. `path` is one of
/// - a folder of PNG, JPEG and WebP pictures, by name, then those of its sub-folders; a sub-folder
///   that is named by a number holds pictures of this class; or one such picture,
/// - an `.npy` whose first axis counts samples, for a model with one input,
/// - an `.npz` with an array for each input by its name, and `label` or `labels` if there are any,
/// - idx images, gzipped or not, through the preprocessing or divided by 255,
/// - a folder of `test_data_set_N` with `input_N.pb`, as the ONNX project has them.
///
/// `progress` is called with the number of pictures read and in all.
///
/// # Errors
/// When a file cannot be read, is too large or does not suit the model; the error names it.
pub fn load(
    path: &Path,
    inputs: &[TensorSpec],
    options: &LoadOptions<'_>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Sample>, SamplesError> {
    let limit = options.limit.unwrap_or(MOST_SAMPLES).min(MOST_SAMPLES);
    let (all, mut samples) = if path.is_dir() {
        folder(path, inputs, options, limit, progress)?
    } else if pictures::is_picture(path) {
        let picture = pictures::Picture { path: path.to_owned(), class: None };
        let input = pictures::input_of(inputs, path)?;
        (1, vec![pictures::read(&picture, input, options.preprocess)?])
    } else {
        file(path, inputs, options, limit)?
    };
    if samples.is_empty() {
        return Err(SamplesError::file(path, "it holds no samples"));
    }
    if options.limit.is_none() && all > samples.len() {
        let reason = format!("{all} samples; at most {MOST_SAMPLES} are read: say which number");
        return Err(SamplesError::file(path, reason));
    }
    if let Some(labels) = options.labels {
        label(&mut samples, labels, all, limit)?;
    }
    Ok(samples)
}

fn folder(
    path: &Path,
    inputs: &[TensorSpec],
    options: &LoadOptions<'_>,
    limit: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(usize, Vec<Sample>), SamplesError> {
    let sets = proto::data_sets(path)?;
    if !sets.is_empty() {
        return Ok((sets.len(), proto::read(&sets, inputs, limit)?));
    }
    let input = pictures::input_of(inputs, path)?;
    let found = pictures::find(path)?;
    let (all, wanted) = (found.len(), found.len().min(limit));
    let taken = found.into_iter().enumerate().filter(|(index, _)| is_taken(*index, all, limit));
    let (mut samples, mut bytes) = (Vec::with_capacity(wanted), 0u64);
    for (_, picture) in taken {
        let sample = pictures::read(&picture, input, options.preprocess)?;
        let tensors = sample.inputs.iter().map(|(_, tensor)| tensor.bytes().len());
        let encoded = sample.picture.as_ref().map_or(0, |picture| picture.len());
        bytes += (tensors.sum::<usize>() + encoded) as u64;
        if bytes > LARGEST {
            let reason = format!("its pictures become more than {LARGEST} bytes: take fewer");
            return Err(SamplesError::file(path, reason));
        }
        samples.push(sample);
        progress(samples.len(), wanted);
    }
    Ok((all, samples))
}

fn file(
    path: &Path,
    inputs: &[TensorSpec],
    options: &LoadOptions<'_>,
    limit: usize,
) -> Result<(usize, Vec<Sample>), SamplesError> {
    let bytes = read(path)?;
    let refuse = |reason: String| SamplesError::file(path, reason);
    if bytes.starts_with(npy::NPY) {
        let input = pictures::input_of(inputs, path)?;
        let array = npy::array(&bytes).map_err(refuse)?;
        drop(bytes);
        let rows = Rows::of(&array, input).map_err(refuse)?;
        return taken(&[(input, rows)], None, limit).map_err(refuse);
    }
    if bytes.starts_with(npy::ZIP) {
        let arrays = npy::archive(&bytes, LARGEST).map_err(refuse)?;
        drop(bytes);
        return archive(&arrays, inputs, limit).map_err(refuse);
    }
    if bytes.starts_with(&GZIP) || bytes.starts_with(&IDX) {
        let input = pictures::input_of(inputs, path)?;
        return pictures::idx(&bytes, input, options.preprocess, limit).map_err(refuse);
    }
    Err(refuse("neither a folder, a picture, an .npy or .npz, nor idx images".into()))
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
const IDX: [u8; 3] = [0, 0, 8];

fn read(path: &Path) -> Result<Vec<u8>, SamplesError> {
    read_bounded(path, LARGEST)
        .map_err(|source| SamplesError::Read { path: path.to_owned(), source })
}

fn archive(
    arrays: &BTreeMap<String, Tensor>,
    inputs: &[TensorSpec],
    limit: usize,
) -> Result<(usize, Vec<Sample>), String> {
    let labels = ["label", "labels"].iter().find_map(|name| {
        let is_input = inputs.iter().any(|input| input.name == *name);
        arrays.get(*name).filter(|_| !is_input)
    });
    let labels = labels.map(classes).transpose()?;
    let rows = inputs.iter().map(|input| {
        let array = arrays.get(&input.name).ok_or_else(|| {
            let there: Vec<&String> = arrays.keys().collect();
            format!("no array for input \"{}\" among {there:?}", input.name)
        })?;
        let rows = Rows::of(array, input);
        Ok((input, rows.map_err(|reason| format!("array \"{}\": {reason}", input.name))?))
    });
    taken(&rows.collect::<Result<Vec<_>, String>>()?, labels, limit)
}

/// The samples that are taken of these inputs' rows, and how many there were.
fn taken(
    inputs: &[(&TensorSpec, Rows<'_>)],
    labels: Option<Vec<usize>>,
    limit: usize,
) -> Result<(usize, Vec<Sample>), String> {
    let all = inputs.first().map_or(0, |(_, rows)| rows.len());
    let mut counts = inputs.iter().map(|(input, rows)| (input.name.as_str(), rows.len()));
    if let Some((name, count)) = counts.find(|(_, count)| *count != all) {
        return Err(format!("{count} samples for input \"{name}\", {all} for the first one"));
    }
    if labels.as_ref().is_some_and(|labels| labels.len() != all) {
        return Err(format!("{} labels for {all} samples", labels.map_or(0, |all| all.len())));
    }
    let sample = |index| {
        let tensor = |(input, rows): &(&TensorSpec, Rows<'_>)| -> Result<_, String> {
            Ok((input.name.clone(), rows.sample(index)?))
        };
        let label = labels.as_ref().and_then(|labels| labels.get(index).copied());
        Ok(Sample {
            inputs: inputs.iter().map(tensor).collect::<Result<_, _>>()?,
            label,
            picture: None,
        })
    };
    let samples = (0..all).filter(|index| is_taken(*index, all, limit)).map(sample);
    Ok((all, samples.collect::<Result<_, String>>()?))
}

/// Gives the samples taken of `all` their classes out of a file.
fn label(
    samples: &mut [Sample],
    path: &Path,
    all: usize,
    limit: usize,
) -> Result<(), SamplesError> {
    let bytes = read(path)?;
    let labels = if bytes.starts_with(npy::NPY) {
        npy::array(&bytes).and_then(|array| classes(&array))
    } else {
        let labels = read_idx("labels", &bytes, 1, MOST_SAMPLES as u64);
        labels
            .map(|(_, labels)| labels.iter().map(|label| usize::from(*label)).collect())
            .map_err(|error| format!("labels are an .npy of integers or idx labels: {error}"))
    };
    let labels = labels.map_err(|reason| SamplesError::file(path, reason))?;
    if labels.len() != all {
        let reason = format!("{} labels for {all} samples", labels.len());
        return Err(SamplesError::file(path, reason));
    }
    let labels = labels.iter().enumerate().filter(|(index, _)| is_taken(*index, all, limit));
    for (sample, (_, label)) in samples.iter_mut().zip(labels) {
        sample.label = Some(*label);
    }
    Ok(())
}
