//! Weights that a model keeps outside of its file: where they are, whether they are really there,
//! and reading them. A model must not reach files outside of its own folder, and nothing is read or
//! allocated before its offset and length were checked against the file.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use super::{ModelProto, pb};

/// Why a weight outside of a model's file cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ExternalError {
    /// No file is named, or one outside of the model's folder.
    #[error("weight \"{tensor}\": location \"{location}\" is no file in the model's folder")]
    Location {
        /// Name of the weight.
        tensor: String,
        /// The location that it states.
        location: String,
    },
    /// An offset or length that is no number.
    #[error("weight \"{tensor}\": {key} \"{value}\" is no number of bytes")]
    Number {
        /// Name of the weight.
        tensor: String,
        /// `offset` or `length`.
        key: &'static str,
        /// What is stated.
        value: String,
    },
    /// A length that is not that of its type and shape.
    #[error("weight \"{tensor}\": its type and shape need {expected} bytes, {stated} are stated")]
    Length {
        /// Name of the weight.
        tensor: String,
        /// Bytes that type and shape need.
        expected: u64,
        /// Bytes stated.
        stated: u64,
    },
    /// A range that the file does not have.
    #[error(
        "weight \"{tensor}\": bytes {offset}..+{length} are not in {}, which has {size}",
        .path.display()
    )]
    Range {
        /// Name of the weight.
        tensor: String,
        /// The file.
        path: PathBuf,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// The file system said no.
    #[error("weight \"{tensor}\": cannot read {}: {source}", .path.display())]
    Io {
        /// Name of the weight.
        tensor: String,
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

/// Where a tensor is in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// An initialiser of a graph or of a body inside of it.
    Weight,
    /// The value of an attribute, or a part of a sparse tensor.
    Attribute,
}

/// Bytes of a file, which were there when they were looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Whether a tensor's data is in a file of its own.
pub(crate) fn is_external(tensor: &pb::TensorProto) -> bool {
    tensor.data_location == Some(pb::tensor_proto::DataLocation::External as i32)
}

fn entry<'t>(tensor: &'t pb::TensorProto, key: &str) -> Option<&'t str> {
    tensor.external_data.iter().find(|entry| entry.key() == key).map(|entry| entry.value())
}

/// A number that an external tensor states.
pub(crate) fn stated(tensor: &pb::TensorProto, key: &str) -> Option<u64> {
    entry(tensor, key)?.parse().ok()
}

/// Number of elements of a tensor; none where a dimension is negative or there are too many.
pub fn elements(tensor: &pb::TensorProto) -> Option<u64> {
    tensor.dims.iter().try_fold(1u64, |product, dim| product.checked_mul(u64::try_from(*dim).ok()?))
}

/// Bytes of a tensor as raw data; none for strings and unknown types.
pub fn raw_length(tensor: &pb::TensorProto) -> Option<u64> {
    use pb::tensor_proto::DataType as T;
    let bits = match T::try_from(tensor.data_type()).ok()? {
        T::Undefined | T::String => return None,
        T::Uint2 | T::Int2 => 2,
        T::Uint4 | T::Int4 | T::Float4e2m1 => 4,
        T::Float6e2m3 | T::Float6e3m2 => 6,
        T::Uint16 | T::Int16 | T::Float16 | T::Bfloat16 => 16,
        T::Float | T::Int32 | T::Uint32 => 32,
        T::Int64 | T::Double | T::Uint64 | T::Complex64 => 64,
        T::Complex128 => 128,
        _ => 8,
    };
    Some(elements(tensor)?.checked_mul(bits)?.div_ceil(8))
}

/// Finds an external tensor's bytes in a file in `folder`.
pub(crate) fn locate(tensor: &pb::TensorProto, folder: &Path) -> Result<Span, ExternalError> {
    let name = || tensor.name().to_owned();
    let location = entry(tensor, "location").unwrap_or_default();
    let outside = || ExternalError::Location { tensor: name(), location: location.to_owned() };
    let inner = Path::new(location).components();
    let plain = inner.clone().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !plain || inner.count() == 0 {
        return Err(outside());
    }
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let path = folder.join(location);
    let read = |source| ExternalError::Io { tensor: name(), path: path.clone(), source };
    let real = path.canonicalize().map_err(read)?;
    let metadata = fs::metadata(&real).map_err(read)?;
    if !real.starts_with(folder.canonicalize().map_err(read)?) || !metadata.is_file() {
        return Err(outside());
    }
    let number = |key| match entry(tensor, key) {
        None | Some("") => Ok(None),
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| ExternalError::Number {
            tensor: name(),
            key,
            value: text.to_owned(),
        }),
    };
    let (offset, size) = (number("offset")?.unwrap_or(0), metadata.len());
    let expected = raw_length(tensor);
    let length = match (number("length")?, expected) {
        (Some(stated), Some(expected)) if stated != expected => {
            return Err(ExternalError::Length { tensor: name(), expected, stated });
        }
        (stated, expected) => stated.or(expected).unwrap_or_else(|| size.saturating_sub(offset)),
    };
    if offset.checked_add(length).is_none_or(|end| end > size) {
        return Err(ExternalError::Range { tensor: name(), path, offset, length, size });
    }
    Ok(Span { path: real, offset, length })
}

impl Span {
    /// Opens the file at the first byte.
    pub(crate) fn open(&self, tensor: &str) -> Result<io::Take<File>, ExternalError> {
        let mut file = File::open(&self.path).map_err(|source| self.failed(tensor, source))?;
        file.seek(SeekFrom::Start(self.offset)).map_err(|source| self.failed(tensor, source))?;
        Ok(file.take(self.length))
    }

    pub(crate) fn failed(&self, tensor: &str, source: io::Error) -> ExternalError {
        ExternalError::Io { tensor: tensor.to_owned(), path: self.path.clone(), source }
    }
}

/// Reads a tensor's data into it.
pub(crate) fn inline(tensor: &mut pb::TensorProto, span: &Span) -> Result<(), ExternalError> {
    let mut data = Vec::new();
    let length = span.length;
    let mut file = span.open(tensor.name())?;
    file.read_to_end(&mut data).map_err(|source| span.failed(tensor.name(), source))?;
    if data.len() as u64 != length {
        let source = io::Error::from(io::ErrorKind::UnexpectedEof);
        return Err(span.failed(tensor.name(), source));
    }
    tensor.raw_data = Some(data.into());
    tensor.external_data.clear();
    tensor.data_location = None;
    Ok(())
}

/// Has a tensor say that its data is in a file.
pub(crate) fn point(tensor: &mut pb::TensorProto, location: &str, offset: u64, length: u64) {
    let entry = |key: &str, value: String| pb::StringStringEntryProto {
        key: Some(key.to_owned()),
        value: Some(value),
    };
    tensor.raw_data = None;
    tensor.external_data = vec![
        entry("location", location.to_owned()),
        entry("offset", offset.to_string()),
        entry("length", length.to_string()),
    ];
    tensor.data_location = Some(pb::tensor_proto::DataLocation::External as i32);
}

/// Reads everything that a model keeps outside of its file in `folder` into it.
///
/// # Errors
/// When something is not where the model says.
pub fn inline_all(model: &mut ModelProto, folder: &Path) -> Result<(), ExternalError> {
    visit_mut(model, &mut |tensor, _| {
        if !is_external(tensor) {
            return Ok(());
        }
        let span = locate(tensor, folder)?;
        inline(tensor, &span)
    })
}

/// Whether a model keeps something outside of its file, and the name of the first such weight.
pub fn first_external(model: &ModelProto) -> Option<String> {
    let mut found = None;
    visit(model, &mut |tensor| {
        if is_external(tensor) && found.is_none() {
            found = Some(tensor.name().to_owned());
        }
    });
    found
}

/// Shows every tensor of a model, also those inside of bodies, attributes and functions.
pub(crate) fn visit<'m>(model: &'m ModelProto, see: &mut dyn FnMut(&'m pb::TensorProto)) {
    for node in model.functions.iter().flat_map(|function| &function.node) {
        visit_node(node, see);
    }
    model.graph.iter().for_each(|graph| visit_graph(graph, see));
}

fn visit_graph<'m>(graph: &'m pb::GraphProto, see: &mut dyn FnMut(&'m pb::TensorProto)) {
    graph.initializer.iter().for_each(&mut *see);
    for sparse in &graph.sparse_initializer {
        sparse.values.iter().chain(&sparse.indices).for_each(&mut *see);
    }
    graph.node.iter().for_each(|node| visit_node(node, see));
}

fn visit_node<'m>(node: &'m pb::NodeProto, see: &mut dyn FnMut(&'m pb::TensorProto)) {
    for attribute in &node.attribute {
        attribute.t.iter().chain(&attribute.tensors).for_each(&mut *see);
        for sparse in attribute.sparse_tensor.iter().chain(&attribute.sparse_tensors) {
            sparse.values.iter().chain(&sparse.indices).for_each(&mut *see);
        }
        attribute.g.iter().chain(&attribute.graphs).for_each(|body| visit_graph(body, see));
    }
}

type Change<'c> = dyn FnMut(&mut pb::TensorProto, Place) -> Result<(), ExternalError> + 'c;

/// As [`visit`], to change them; ends at the first error.
pub(crate) fn visit_mut(
    model: &mut ModelProto,
    change: &mut Change<'_>,
) -> Result<(), ExternalError> {
    let mut inner = model.functions.iter_mut().flat_map(|function| &mut function.node);
    inner.try_for_each(|node| change_node(node, change))?;
    model.graph.iter_mut().try_for_each(|graph| change_graph(graph, change))
}

fn change_graph(graph: &mut pb::GraphProto, change: &mut Change<'_>) -> Result<(), ExternalError> {
    graph.initializer.iter_mut().try_for_each(|weight| change(weight, Place::Weight))?;
    for sparse in &mut graph.sparse_initializer {
        change_sparse(sparse, change)?;
    }
    graph.node.iter_mut().try_for_each(|node| change_node(node, change))
}

fn change_sparse(
    sparse: &mut pb::SparseTensorProto,
    change: &mut Change<'_>,
) -> Result<(), ExternalError> {
    let mut parts = sparse.values.iter_mut().chain(&mut sparse.indices);
    parts.try_for_each(|tensor| change(tensor, Place::Attribute))
}

fn change_node(node: &mut pb::NodeProto, change: &mut Change<'_>) -> Result<(), ExternalError> {
    for attribute in &mut node.attribute {
        let mut tensors = attribute.t.iter_mut().chain(&mut attribute.tensors);
        tensors.try_for_each(|tensor| change(tensor, Place::Attribute))?;
        let mut sparse = attribute.sparse_tensor.iter_mut().chain(&mut attribute.sparse_tensors);
        sparse.try_for_each(|sparse| change_sparse(sparse, change))?;
        let mut graphs = attribute.g.iter_mut().chain(&mut attribute.graphs);
        graphs.try_for_each(|body| change_graph(body, change))?;
    }
    Ok(())
}
