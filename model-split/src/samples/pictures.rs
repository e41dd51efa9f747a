//! Samples of pictures: a folder of files, or idx images, made into tensors by a preprocessing.
//! Which pictures a folder holds, and their order, depend on its names alone.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use image::{GrayImage, ImageFormat};
use midspan_runtime::{Tensor, TensorSpec};

use super::{Sample, SamplesError, is_taken};
use crate::bundle::read_bounded;
use crate::labelled::read_idx;
use crate::preprocess::Preprocess;

/// Largest file of one picture.
const LARGEST_PICTURE: u64 = 64 << 20;
/// Largest file of a preprocessing.
const LARGEST_TOML: u64 = 1 << 20;
/// Most files and folders that one folder may hold.
const MOST_ENTRIES: usize = 1 << 20;
/// Most bytes of unpacked idx images.
const LARGEST_IDX: u64 = 1 << 30;
/// Ends of names of pictures.
const PICTURES: [&str; 4] = ["png", "jpg", "jpeg", "webp"];

/// A picture's file, and its class where the folder that it lies in is named by a number.
pub(super) struct Picture {
    pub(super) path: PathBuf,
    pub(super) class: Option<usize>,
}

pub(super) fn is_picture(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|known| PICTURES.contains(&known.to_ascii_lowercase().as_str()))
}

/// Entries of a folder, sorted by name.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, SamplesError> {
    let failed = |source| SamplesError::Read { path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        if paths.len() == MOST_ENTRIES {
            return Err(SamplesError::file(folder, format!("more than {MOST_ENTRIES} entries")));
        }
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// The pictures of a folder, then of its sub-folders.
pub(super) fn find(folder: &Path) -> Result<Vec<Picture>, SamplesError> {
    let (folders, files): (Vec<_>, Vec<_>) =
        entries(folder)?.into_iter().partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| is_picture(path));
    let mut pictures: Vec<Picture> = files.map(|path| Picture { path, class: None }).collect();
    for folder in folders {
        let class = folder.file_name().and_then(|name| name.to_str()?.parse().ok());
        let files = entries(&folder)?.into_iter().filter(|path| is_picture(path));
        pictures.extend(files.map(|path| Picture { path, class }));
    }
    Ok(pictures)
}

/// Reads a preprocessing from a TOML file that has its keys, by themselves or as `[preprocess]` the
/// way a bundle's spec has them.
///
/// # Errors
/// When the file cannot be read or is no preprocessing; the error names it.
pub fn read_preprocess(path: &Path) -> Result<Preprocess, SamplesError> {
    let refuse = |reason: String| SamplesError::file(path, reason);
    let bytes = read_bounded(path, LARGEST_TOML)
        .map_err(|source| SamplesError::Read { path: path.to_owned(), source })?;
    let text = String::from_utf8(bytes).map_err(|error| refuse(error.to_string()))?;
    let mut table: toml::Table = toml::from_str(&text).map_err(|e| refuse(e.to_string()))?;
    let inner = table.remove("preprocess").unwrap_or(toml::Value::Table(table));
    let preprocess: Preprocess = inner.try_into().map_err(|e| refuse(e.to_string()))?;
    preprocess.validate().map_err(refuse)?;
    Ok(preprocess)
}

/// The one input that a picture can be.
pub(super) fn input_of<'a>(
    inputs: &'a [TensorSpec],
    path: &Path,
) -> Result<&'a TensorSpec, SamplesError> {
    match inputs {
        [input] => Ok(input),
        _ => {
            let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
            let reason = format!(
                "the model reads {names:?}; samples for several inputs come from an .npz whose arrays have these names"
            );
            Err(SamplesError::file(path, reason))
        }
    }
}

/// Reads a picture.
pub(super) fn read(
    picture: &Picture,
    input: &TensorSpec,
    preprocess: Option<&Preprocess>,
) -> Result<Sample, SamplesError> {
    let path = &picture.path;
    let Some(preprocess) = preprocess else {
        let reason = "a picture needs a preprocessing to become an input";
        return Err(SamplesError::file(path, reason));
    };
    let encoded = read_bounded(path, LARGEST_PICTURE)
        .map_err(|source| SamplesError::Read { path: path.clone(), source })?;
    sample(&encoded, input, preprocess, picture.class)
        .map_err(|reason| SamplesError::file(path, reason))
}

fn sample(
    encoded: &[u8],
    input: &TensorSpec,
    preprocess: &Preprocess,
    label: Option<usize>,
) -> Result<Sample, String> {
    let tensor = preprocess.picture(encoded).map_err(|error| error.to_string())?;
    admitted(&tensor, input)?;
    let inputs = vec![(input.name.clone(), tensor)];
    Ok(Sample { inputs, label, picture: Some(encoded.into()) })
}

fn admitted(tensor: &Tensor, input: &TensorSpec) -> Result<(), String> {
    if input.element == tensor.element() && input.admits(tensor.shape()) {
        return Ok(());
    }
    Err(format!(
        "it becomes {} {:?}, but input \"{}\" is {} {}",
        tensor.element(),
        tensor.shape(),
        input.name,
        input.element,
        input.dims_text()
    ))
}

/// Reads `count` of idx images, evenly taken: through a preprocessing, as if each were a PNG, or
/// divided by 255 as `[1,1,rows,columns]`. Says also how many there were.
pub(super) fn idx(
    bytes: &[u8],
    input: &TensorSpec,
    preprocess: Option<&Preprocess>,
    count: usize,
) -> Result<(usize, Vec<Sample>), String> {
    let (sizes, pixels) = read_idx("images", bytes, 3, LARGEST_IDX).map_err(|e| e.to_string())?;
    let [_, rows, columns] = sizes.as_slice() else { return Err("no idx images".into()) };
    let (rows, columns) = (*rows as usize, *columns as usize);
    let all = pixels.len() / (rows * columns).max(1);
    let taken = pixels.chunks_exact((rows * columns).max(1)).enumerate();
    let samples = taken.filter(|(index, _)| is_taken(*index, all, count)).map(|(_, image)| {
        if let Some(preprocess) = preprocess {
            return sample(&png(image, rows, columns)?, input, preprocess, None);
        }
        let values: Vec<f32> = image.iter().map(|pixel| f32::from(*pixel) / 255.0).collect();
        let tensor = Tensor::from_f32s(vec![1, 1, rows, columns], &values);
        let tensor = tensor.map_err(|error| error.to_string())?;
        admitted(&tensor, input)?;
        Ok(Sample { inputs: vec![(input.name.clone(), tensor)], label: None, picture: None })
    });
    Ok((all, samples.collect::<Result<_, String>>()?))
}

fn png(pixels: &[u8], rows: usize, columns: usize) -> Result<Arc<[u8]>, String> {
    let mut out = Cursor::new(Vec::new());
    let (Ok(width), Ok(height)) = (u32::try_from(columns), u32::try_from(rows)) else {
        return Err(format!("images of {columns} x {rows} are too large"));
    };
    let image = GrayImage::from_raw(width, height, pixels.to_vec()).ok_or("an image cut short")?;
    image.write_to(&mut out, ImageFormat::Png).map_err(|error| error.to_string())?;
    Ok(out.into_inner().into())
}
