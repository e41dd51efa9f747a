//! One model loaded in ONNX Runtime as an [`Executor`]. Spinning is off and one thread computes:
//! throughput comes from several sessions, which share their prepacked weights. Aligned input is
//! borrowed, other input copied once. It must not keep anything of one run for the next.

use std::path::Path;

use half::{bf16, f16};
use ort::session::Session as OrtSession;
use ort::session::builder::{GraphOptimizationLevel, PrepackedWeights};
use ort::value::{
    DynValue, PrimitiveTensorElementType, TensorElementType, TensorRef as OrtTensorRef, ValueType,
};
use ort::{ErrorCode, session::SessionInputValue};

use crate::executor::{Executor, RunError, check_inputs};
use crate::library::{self, LibraryError, strings};
use crate::tensor::{Dim, ElementType, Tensor, TensorRef, TensorSpec};

mod describe;

pub use describe::{Described, describe, describe_path};

/// How much ONNX Runtime rewrites a graph before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Optimisation {
    /// Everything: what production uses.
    #[default]
    Level3,
    /// Nothing: nodes stay as written, for looking at a graph.
    Disabled,
}

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Threads that compute one run.
    pub intra_threads: usize,
    /// Graph rewriting.
    pub optimisation: Optimisation,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { intra_threads: 1, optimisation: Optimisation::Level3 }
    }
}

/// Weights laid out for the CPU, shared by all sessions of one model.
pub struct Prepacked(PrepackedWeights);

impl Prepacked {
    /// An empty container, filled by the first session that is loaded with it.
    ///
    /// # Errors
    /// When there is no library.
    pub fn new() -> Result<Self, LibraryError> {
        library::environment()?;
        Ok(Self(PrepackedWeights::new()))
    }
}

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There is no ONNX Runtime.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// ONNX Runtime refused the model.
    #[error("ONNX Runtime refused the model: {0}")]
    Model(String),
    /// An input or output that is no tensor of a supported type.
    #[error("\"{name}\" of the model is a {found}, which is not supported")]
    Unsupported {
        /// Name of the input or output.
        name: String,
        /// What it is.
        found: String,
    },
}

/// A loaded model.
pub struct Session {
    session: OrtSession,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
}

impl Session {
    /// Loads a model from the bytes of its ONNX file. Opens the library if nobody did.
    ///
    /// # Errors
    /// When there is no library, or the model is refused or has inputs or outputs that are not
    /// tensors of an [`ElementType`].
    pub fn load(
        model: &[u8],
        options: &SessionOptions,
        prepacked: Option<&Prepacked>,
    ) -> Result<Self, LoadError> {
        Self::commit(Source::Bytes(model), options, prepacked)
    }

    /// Loads a model from its ONNX file; weights that it keeps outside of itself are looked for
    /// beside it, and mapped rather than read where the system can. Opens the library if nobody
    /// did.
    ///
    /// # Errors
    /// As [`Session::load`].
    pub fn load_path(
        model: &Path,
        options: &SessionOptions,
        prepacked: Option<&Prepacked>,
    ) -> Result<Self, LoadError> {
        Self::commit(Source::File(model), options, prepacked)
    }

    fn commit(
        source: Source<'_>,
        options: &SessionOptions,
        prepacked: Option<&Prepacked>,
    ) -> Result<Self, LoadError> {
        let session = commit(source, options, prepacked, true)?;
        let specs = |outlets: &[ort::value::Outlet]| -> Result<Vec<TensorSpec>, LoadError> {
            outlets.iter().map(|outlet| spec(outlet.name(), outlet.dtype())).collect()
        };
        let (inputs, outputs) = (specs(session.inputs())?, specs(session.outputs())?);
        Ok(Self { session, inputs, outputs })
    }
}

fn refused<R>(error: ort::Error<R>) -> LoadError {
    LoadError::Model(error.to_string())
}

/// Where a model is.
enum Source<'a> {
    Bytes(&'a [u8]),
    File(&'a Path),
}

/// `prepacking` lays weights out for the CPU, which only pays for sessions that run.
fn commit(
    source: Source<'_>,
    options: &SessionOptions,
    prepacked: Option<&Prepacked>,
    prepacking: bool,
) -> Result<OrtSession, LoadError> {
    let level = match options.optimisation {
        Optimisation::Level3 => GraphOptimizationLevel::Level3,
        Optimisation::Disabled => GraphOptimizationLevel::Disable,
    };
    let mut builder = OrtSession::builder(library::environment()?)
        .map_err(refused)?
        .with_intra_threads(options.intra_threads.max(1))
        .map_err(refused)?
        .with_inter_threads(1)
        .map_err(refused)?
        .with_intra_op_spinning(false)
        .map_err(refused)?
        .with_inter_op_spinning(false)
        .map_err(refused)?
        // What goes wrong is returned; a client must not be able to fill the log with it.
        .with_log_level(ort::logging::LogLevel::Fatal)
        .map_err(refused)?
        .with_optimization_level(level)
        .map_err(refused)?;
    if let Some(prepacked) = prepacked {
        builder = builder.with_prepacked_weights(&prepacked.0).map_err(refused)?;
    }
    if !prepacking {
        builder = builder.with_prepacking(false).map_err(refused)?;
    }
    match source {
        Source::Bytes(model) => builder.commit_from_memory(model),
        Source::File(path) => builder.commit_from_file(path),
    }
    .map_err(refused)
}

impl Executor for Session {
    fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    fn run(&mut self, inputs: &[(&str, TensorRef<'_>)]) -> Result<Vec<Tensor>, RunError> {
        check_inputs(&self.inputs, inputs)?;
        let aligned: Vec<Aligned<'_>> =
            inputs.iter().map(|(_, tensor)| Aligned::of(tensor)).collect();
        let mut values = Vec::with_capacity(inputs.len());
        for ((name, tensor), data) in inputs.iter().zip(&aligned) {
            values.push((*name, data.value(name, tensor)?));
        }
        let outputs = self.session.run(values).map_err(|error| match error.code() {
            ErrorCode::InvalidArgument => RunError::Refused(error.to_string()),
            _ => not_text(inputs, error.message())
                .unwrap_or_else(|| RunError::Execution(error.to_string())),
        })?;
        outputs.iter().zip(&self.outputs).map(|((_, value), spec)| extract(spec, &value)).collect()
    }
}

fn spec(name: &str, dtype: &ValueType) -> Result<TensorSpec, LoadError> {
    let unsupported = || LoadError::Unsupported { name: name.to_owned(), found: dtype.to_string() };
    let ValueType::Tensor { ty, shape, dimension_symbols } = dtype else {
        return Err(unsupported());
    };
    let element = element_of(*ty).ok_or_else(unsupported)?;
    let dims = shape.iter().enumerate().map(|(axis, size)| match usize::try_from(*size) {
        Ok(size) => Dim::Fixed(size),
        Err(_) => Dim::Symbolic(dimension_symbols.get(axis).cloned().unwrap_or_default()),
    });
    Ok(TensorSpec { name: name.to_owned(), element, dims: dims.collect() })
}

fn element_of(ty: TensorElementType) -> Option<ElementType> {
    Some(match ty {
        TensorElementType::Bool => ElementType::Bool,
        TensorElementType::Uint8 => ElementType::U8,
        TensorElementType::Uint16 => ElementType::U16,
        TensorElementType::Uint32 => ElementType::U32,
        TensorElementType::Uint64 => ElementType::U64,
        TensorElementType::Int8 => ElementType::I8,
        TensorElementType::Int16 => ElementType::I16,
        TensorElementType::Int32 => ElementType::I32,
        TensorElementType::Int64 => ElementType::I64,
        TensorElementType::Float16 => ElementType::F16,
        TensorElementType::Bfloat16 => ElementType::BF16,
        TensorElementType::Float32 => ElementType::F32,
        TensorElementType::Float64 => ElementType::F64,
        TensorElementType::String => ElementType::String,
        _ => return None,
    })
}

/// The bytes of one input at an address that its element type may have.
enum Aligned<'a> {
    Borrowed(&'a [u8]),
    /// Whole u64 words, so that every type is aligned; the number of bytes that count.
    Copied(Vec<u64>, usize),
}

impl<'a> Aligned<'a> {
    fn of(tensor: &TensorRef<'a>) -> Self {
        let (bytes, size) = (tensor.bytes(), tensor.element().size().unwrap_or(1));
        if bytes.as_ptr().addr().is_multiple_of(size) {
            return Self::Borrowed(bytes);
        }
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self::Copied(words, bytes.len())
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Copied(words, len) => &bytemuck::cast_slice::<u64, u8>(words)[..*len],
        }
    }

    fn value<'v>(
        &'v self,
        name: &str,
        tensor: &TensorRef<'_>,
    ) -> Result<SessionInputValue<'v>, RunError> {
        let bytes = self.bytes();
        let invalid = |reason: String| RunError::Value { name: name.to_owned(), reason };
        match tensor.element() {
            ElementType::Bool => {
                let values = bytemuck::checked::try_cast_slice::<u8, bool>(bytes)
                    .map_err(|_| invalid("a BOOL element is neither 0 nor 1".into()))?;
                value(tensor.shape(), values)
            }
            ElementType::U8 => value(tensor.shape(), bytes),
            ElementType::U16 => cast::<u16>(tensor.shape(), bytes),
            ElementType::U32 => cast::<u32>(tensor.shape(), bytes),
            ElementType::U64 => cast::<u64>(tensor.shape(), bytes),
            ElementType::I8 => cast::<i8>(tensor.shape(), bytes),
            ElementType::I16 => cast::<i16>(tensor.shape(), bytes),
            ElementType::I32 => cast::<i32>(tensor.shape(), bytes),
            ElementType::I64 => cast::<i64>(tensor.shape(), bytes),
            ElementType::F16 => cast::<f16>(tensor.shape(), bytes),
            ElementType::BF16 => cast::<bf16>(tensor.shape(), bytes),
            ElementType::F32 => cast::<f32>(tensor.shape(), bytes),
            ElementType::F64 => cast::<f64>(tensor.shape(), bytes),
            ElementType::String => {
                strings::tensor(tensor.shape(), tensor.strings()).map(SessionInputValue::from)
            }
        }
        .map_err(|error| invalid(error.to_string()))
    }
}

fn cast<'v, T>(shape: &[usize], bytes: &'v [u8]) -> ort::Result<SessionInputValue<'v>>
where
    T: bytemuck::AnyBitPattern + PrimitiveTensorElementType + std::fmt::Debug + Clone + 'static,
{
    let values =
        bytemuck::try_cast_slice(bytes).map_err(|error| ort::Error::new(error.to_string()))?;
    value::<T>(shape, values)
}

fn value<'v, T>(shape: &[usize], values: &'v [T]) -> ort::Result<SessionInputValue<'v>>
where
    T: PrimitiveTensorElementType + std::fmt::Debug + Clone + 'static,
{
    Ok(OrtTensorRef::<T>::from_array_view((shape.to_vec(), values))?.into())
}

/// Adds to an error of the runtime which input it cannot have liked. ONNX Runtime hands strings on
/// as bytes; operators that want text (StringNormalizer) fail on others with whatever error their
/// converter gives, so that the code does not tell whose mistake it was.
fn not_text(inputs: &[(&str, TensorRef<'_>)], reason: &str) -> Option<RunError> {
    inputs.iter().find_map(|(name, tensor)| {
        let at = tensor.strings().position(|element| std::str::from_utf8(element).is_err())?;
        let reason = format!("element {at} is not UTF-8, and the model failed: {reason}");
        Some(RunError::Value { name: (*name).to_owned(), reason })
    })
}

fn extract(spec: &TensorSpec, value: &DynValue) -> Result<Tensor, RunError> {
    let fault = |reason: String| RunError::Execution(format!("output \"{}\": {reason}", spec.name));
    let got = match value.dtype() {
        ValueType::Tensor { ty, .. } => element_of(*ty),
        _ => None,
    };
    if got != Some(spec.element) {
        return Err(fault(format!("expected {}, got {}", spec.element, value.dtype())));
    }
    let dims = |shape: &[i64]| -> Vec<usize> {
        shape.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect()
    };
    if spec.element == ElementType::String {
        let (shape, bytes) = strings::extract(value).map_err(|error| fault(error.to_string()))?;
        return Tensor::new(spec.element, dims(&shape), bytes)
            .map_err(|error| fault(error.to_string()));
    }
    let copied = match spec.element {
        ElementType::Bool => copy::<bool>(value),
        ElementType::U8 | ElementType::String => copy::<u8>(value),
        ElementType::U16 => copy::<u16>(value),
        ElementType::U32 => copy::<u32>(value),
        ElementType::U64 => copy::<u64>(value),
        ElementType::I8 => copy::<i8>(value),
        ElementType::I16 => copy::<i16>(value),
        ElementType::I32 => copy::<i32>(value),
        ElementType::I64 => copy::<i64>(value),
        ElementType::F16 => copy::<f16>(value),
        ElementType::BF16 => copy::<bf16>(value),
        ElementType::F32 => copy::<f32>(value),
        ElementType::F64 => copy::<f64>(value),
    };
    let (shape, bytes) = copied.map_err(|error| fault(error.to_string()))?;
    Tensor::new(spec.element, dims(&shape), bytes).map_err(|error| fault(error.to_string()))
}

fn copy<T>(value: &DynValue) -> ort::Result<(Vec<i64>, Vec<u8>)>
where
    T: bytemuck::NoUninit + PrimitiveTensorElementType,
{
    let (shape, values) = value.try_extract_tensor::<T>()?;
    Ok((shape.to_vec(), bytemuck::cast_slice(values).to_vec()))
}

#[cfg(test)]
mod tests;
