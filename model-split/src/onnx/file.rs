//! Models as files: opening one with what it keeps beside itself, and writing one so that it can
//! be read anywhere. What is too much for one file goes into a second beside it; both are written
//! under other names first, so that no half of a file is ever seen under its own.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use prost::Message;
use tempfile::NamedTempFile;

use super::external::{self, ExternalError, Place};
use super::{ModelProto, OnnxError, decode, encode};

/// Protobuf cannot read a file of more bytes.
const LARGEST_FILE: usize = i32::MAX as usize;
/// Up to this many bytes, what a model keeps beside itself is written into the file.
const INLINE: u64 = 256 << 20;
/// Smaller tensors stay in the file: readers look at them to infer shapes.
const SMALL: u64 = 1024;
/// Where weights begin in a file of their own, so that it can be mapped.
const PAGE: u64 = 4096;
const CHUNK: usize = 1 << 20;

/// A model and the folder of its file, where its other files are.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The model; weights that it keeps outside of its file are not read.
    pub model: ModelProto,
    /// The folder.
    pub folder: PathBuf,
}

/// Why a model's file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is no model.
    #[error("{}: {source}", .path.display())]
    Onnx {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: OnnxError,
    },
    /// What is outside of it cannot be had.
    #[error(transparent)]
    External(#[from] ExternalError),
    /// A file of this name is there.
    #[error("{} exists: it is not overwritten without --force", .0.display())]
    Exists(PathBuf),
    /// The model that is read would be overwritten.
    #[error("{} belongs to the model that is read", .0.display())]
    Source(PathBuf),
    /// Even without its weights the model is too large for a file.
    #[error("the graph alone has {0} bytes, more than an ONNX file can have")]
    TooLarge(usize),
    /// The file system said no.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

fn io_error<'a>(doing: &'static str, path: &'a Path) -> impl Fn(io::Error) -> FileError + 'a {
    move |source| FileError::Io { doing, path: path.to_owned(), source }
}

/// Opens a model's file.
///
/// # Errors
/// When it cannot be read or is no model.
pub fn open(path: &Path) -> Result<Opened, FileError> {
    let bytes = fs::read(path).map_err(io_error("read", path))?;
    let model =
        decode(bytes.into()).map_err(|source| FileError::Onnx { path: path.to_owned(), source })?;
    Ok(Opened { model, folder: folder_of(path).to_owned() })
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether a model can be one file with all that is in it.
pub fn fits_one_file(model: &ModelProto) -> bool {
    model.encoded_len() <= LARGEST_FILE
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the model's file.
    pub bytes: u64,
    /// The file of weights beside it and its bytes, where there is one.
    pub data: Option<(PathBuf, u64)>,
}

/// Writes a model whose outside weights are in `folder` to `path`. Outside weights go inside when
/// they are small in all, else, and when the model is too large for one file, into a file beside
/// `path` of the same name with `.data` after it. With `force`, files of these names are replaced.
///
/// # Errors
/// When a file is there or belongs to the model itself, an outside weight is not where it should
/// be, or the file system says no.
pub fn write(
    model: &ModelProto,
    folder: &Path,
    path: &Path,
    force: bool,
) -> Result<Written, FileError> {
    let mut outside = 0u64;
    let mut spans = Ok(Vec::new());
    external::visit(model, &mut |tensor| {
        if external::is_external(tensor)
            && let Ok(found) = &mut spans
        {
            match external::locate(tensor, folder) {
                Ok(span) => {
                    outside = outside.saturating_add(span.length);
                    found.push(span.path);
                }
                Err(error) => spans = Err(error),
            }
        }
    });
    let sources = spans?;
    let data = {
        let mut name = path.as_os_str().to_owned();
        name.push(".data");
        PathBuf::from(name)
    };
    let inside = model.encoded_len() as u64;
    let apart = outside > INLINE || inside.saturating_add(outside) > LARGEST_FILE as u64;
    for file in std::iter::once(path).chain(apart.then_some(data.as_path())) {
        refuse(file, &sources, force)?;
    }
    let mut model = model.clone();
    if !apart {
        external::inline_all(&mut model, folder)?;
        return Ok(Written { bytes: write_graph(&model, path)?, data: None });
    }
    let mut beside = Beside::new(&data)?;
    let mut failed = None;
    let moved = external::visit_mut(&mut model, &mut |tensor, place| {
        if failed.is_none() {
            failed = beside.take(tensor, place, folder)?.err();
        }
        Ok(())
    });
    moved?;
    match failed {
        Some(source) => return Err(io_error("write", &data)(source)),
        None if model.encoded_len() > LARGEST_FILE => {
            return Err(FileError::TooLarge(model.encoded_len()));
        }
        None => {}
    }
    let size = beside.finish(&data)?;
    Ok(Written { bytes: write_graph(&model, path)?, data: Some((data, size)) })
}

fn refuse(file: &Path, sources: &[PathBuf], force: bool) -> Result<(), FileError> {
    let Ok(real) = file.canonicalize() else { return Ok(()) };
    if sources.contains(&real) {
        return Err(FileError::Source(file.to_owned()));
    }
    if force { Ok(()) } else { Err(FileError::Exists(file.to_owned())) }
}

fn temporary(path: &Path) -> Result<NamedTempFile, FileError> {
    let folder = folder_of(path);
    tempfile::Builder::new()
        .prefix(".onnx-")
        .permissions(readable())
        .tempfile_in(folder)
        .map_err(io_error("create a file in", folder))
}

/// As any new file: temporary ones are private otherwise.
fn readable() -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    fs::Permissions::from_mode(0o666)
}

fn write_graph(model: &ModelProto, path: &Path) -> Result<u64, FileError> {
    let bytes = encode(model);
    let mut file = temporary(path)?;
    file.write_all(&bytes).map_err(io_error("write", path))?;
    file.persist(path).map_err(|error| io_error("write", path)(error.error))?;
    Ok(bytes.len() as u64)
}

/// A file of weights while it is written.
struct Beside {
    file: NamedTempFile,
    location: String,
    end: u64,
}

impl Beside {
    fn new(path: &Path) -> Result<Self, FileError> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(Self { file: temporary(path)?, location: name.unwrap_or_default(), end: 0 })
    }

    /// Moves a weight's data here, or into the graph's file where it belongs there. The outer error
    /// is one of reading, the inner one of writing.
    fn take(
        &mut self,
        tensor: &mut super::pb::TensorProto,
        place: Place,
        folder: &Path,
    ) -> Result<io::Result<()>, ExternalError> {
        if external::is_external(tensor) {
            let span = external::locate(tensor, folder)?;
            if span.length < SMALL || place == Place::Attribute {
                external::inline(tensor, &span)?;
                return Ok(Ok(()));
            }
            let mut source = span.open(tensor.name())?;
            return Ok(self.append(tensor, span.length, &mut source));
        }
        match tensor.raw_data.clone() {
            Some(data) if data.len() as u64 >= SMALL && place == Place::Weight => {
                Ok(self.append(tensor, data.len() as u64, &mut &data[..]))
            }
            _ => Ok(Ok(())),
        }
    }

    fn append(
        &mut self,
        tensor: &mut super::pb::TensorProto,
        length: u64,
        source: &mut dyn Read,
    ) -> io::Result<()> {
        let start = self.end.next_multiple_of(PAGE);
        self.file.seek(SeekFrom::Start(start))?;
        let copied = copy(source, self.file.as_file_mut())?;
        if copied != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.end = start + length;
        external::point(tensor, &self.location, start, length);
        Ok(())
    }

    fn finish(self, path: &Path) -> Result<u64, FileError> {
        // What ends in zeros was not written to its end.
        self.file.as_file().set_len(self.end).map_err(io_error("write", path))?;
        self.file.persist(path).map_err(|error| io_error("write", path)(error.error))?;
        Ok(self.end)
    }
}

/// Copies bytes; runs of zeros become holes, which take no room.
fn copy(source: &mut dyn Read, target: &mut File) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let mut copied = 0;
    loop {
        let read = match source.read(&mut chunk) {
            Ok(0) => return Ok(copied),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if chunk[..read].iter().all(|byte| *byte == 0) {
            target.seek(SeekFrom::Current(read as i64))?;
        } else {
            target.write_all(&chunk[..read])?;
        }
        copied += read as u64;
    }
}

#[cfg(test)]
mod tests;
