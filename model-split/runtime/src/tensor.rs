//! Tensors as plain bytes: element types, shapes with symbolic dimensions, and checked owned and
//! borrowed tensors. Data is row-major and little-endian; strings are length-prefixed as in the
//! Open Inference Protocol (u32 little-endian length, then the bytes, per element). Nothing here
//! allocates from a length that was not checked against the data.

use std::borrow::Cow;
use std::fmt;

/// The element types that cross this crate's boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned 8 bit.
    U8,
    /// Unsigned 16 bit.
    U16,
    /// Unsigned 32 bit.
    U32,
    /// Unsigned 64 bit.
    U64,
    /// Signed 8 bit.
    I8,
    /// Signed 16 bit.
    I16,
    /// Signed 32 bit.
    I32,
    /// Signed 64 bit.
    I64,
    /// IEEE 754 half precision.
    F16,
    /// The upper half of an `F32`.
    BF16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
    /// Byte strings of any length, each with a u32 length before it.
    String,
}

/// Each type with its OIP name, its number in ONNX `TensorProto.DataType` and its size in bytes
/// (0 for strings).
const TYPES: [(ElementType, &str, i32, usize); 14] = [
    (ElementType::Bool, "BOOL", 9, 1),
    (ElementType::U8, "UINT8", 2, 1),
    (ElementType::U16, "UINT16", 4, 2),
    (ElementType::U32, "UINT32", 12, 4),
    (ElementType::U64, "UINT64", 13, 8),
    (ElementType::I8, "INT8", 3, 1),
    (ElementType::I16, "INT16", 5, 2),
    (ElementType::I32, "INT32", 6, 4),
    (ElementType::I64, "INT64", 7, 8),
    (ElementType::F16, "FP16", 10, 2),
    (ElementType::BF16, "BF16", 16, 2),
    (ElementType::F32, "FP32", 1, 4),
    (ElementType::F64, "FP64", 11, 8),
    (ElementType::String, "BYTES", 8, 0),
];

impl ElementType {
    fn row(self) -> &'static (ElementType, &'static str, i32, usize) {
        &TYPES[self as usize]
    }

    /// The datatype string of the Open Inference Protocol, such as `FP32`.
    pub fn oip_name(self) -> &'static str {
        self.row().1
    }

    /// The type with this OIP datatype string, which is matched exactly.
    pub fn from_oip(name: &str) -> Option<Self> {
        TYPES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// The number of this type in ONNX's `TensorProto.DataType`.
    pub fn onnx_number(self) -> i32 {
        self.row().2
    }

    /// The type with this number in ONNX's `TensorProto.DataType`, if it is one of ours.
    pub fn from_onnx(number: i32) -> Option<Self> {
        TYPES.iter().find(|row| row.2 == number).map(|row| row.0)
    }

    /// Bytes of one element; `None` for strings, whose elements differ in length.
    pub fn size(self) -> Option<usize> {
        match self.row().3 {
            0 => None,
            size => Some(size),
        }
    }

    /// Whether the elements are floating point numbers.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.oip_name())
    }
}

/// One dimension of a model's input or output.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// Always this many.
    Fixed(usize),
    /// Any number; the name says which dimensions agree (empty when the model gives none).
    Symbolic(String),
}

impl Dim {
    /// The size as OIP metadata writes it: -1 when it may vary.
    pub fn as_oip(&self) -> i64 {
        match self {
            Self::Fixed(size) => i64::try_from(*size).unwrap_or(i64::MAX),
            Self::Symbolic(_) => -1,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Symbolic(name) if name.is_empty() => f.write_str("?"),
            Self::Symbolic(name) => f.write_str(name),
        }
    }
}

/// What a model says of one of its inputs or outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name in the model.
    pub name: String,
    /// Type of the elements.
    pub element: ElementType,
    /// Dimensions, outermost first. None at all means a scalar or a tensor of unknown rank: ONNX
    /// Runtime does not tell them apart.
    pub dims: Vec<Dim>,
}

impl TensorSpec {
    /// Whether a tensor of this shape may be given for this spec; any may where the rank is not
    /// known, and is left for the model to judge.
    pub fn admits(&self, shape: &[usize]) -> bool {
        if self.dims.is_empty() {
            return true;
        }
        shape.len() == self.dims.len()
            && self.dims.iter().zip(shape).all(|(dim, size)| match dim {
                Dim::Fixed(fixed) => fixed == size,
                Dim::Symbolic(_) => true,
            })
    }

    /// The dimensions as text, such as `[N,1,28,28]`.
    pub fn dims_text(&self) -> String {
        let dims: Vec<String> = self.dims.iter().map(Dim::to_string).collect();
        format!("[{}]", dims.join(","))
    }
}

/// Why bytes are no tensor of the stated type and shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The product of the dimensions does not fit in the address space.
    #[error("shape {0:?} has more elements than memory can hold")]
    TooLarge(Vec<usize>),
    /// The data is shorter or longer than the shape asks for.
    #[error("{element} tensor of shape {shape:?} needs {expected} bytes, got {got}")]
    Length {
        /// Type of the elements.
        element: ElementType,
        /// The stated shape.
        shape: Vec<usize>,
        /// Bytes that the shape needs.
        expected: usize,
        /// Bytes given.
        got: usize,
    },
    /// String data whose length prefixes do not add up.
    #[error("BYTES tensor of shape {shape:?}: {reason} at byte {at}")]
    Strings {
        /// The stated shape.
        shape: Vec<usize>,
        /// What does not add up.
        reason: &'static str,
        /// Offset in the data.
        at: usize,
    },
    /// The accessor of another type was used.
    #[error("tensor holds {got}, not {wanted}")]
    Element {
        /// Type that was asked for.
        wanted: ElementType,
        /// Type that the tensor has.
        got: ElementType,
    },
}

/// Number of elements of a shape, or `None` if it overflows.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    // A zero anywhere makes the tensor empty, even beside dimensions whose product overflows.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |count, dim| count.checked_mul(*dim))
}

fn check(element: ElementType, shape: &[usize], bytes: &[u8]) -> Result<(), TensorError> {
    let count = element_count(shape).ok_or_else(|| TensorError::TooLarge(shape.to_vec()))?;
    let Some(size) = element.size() else {
        return check_strings(shape, count, bytes);
    };
    let expected = count.checked_mul(size).ok_or_else(|| TensorError::TooLarge(shape.to_vec()))?;
    if expected != bytes.len() {
        return Err(TensorError::Length {
            element,
            shape: shape.to_vec(),
            expected,
            got: bytes.len(),
        });
    }
    Ok(())
}

fn check_strings(shape: &[usize], count: usize, bytes: &[u8]) -> Result<(), TensorError> {
    let fail = |reason, at| TensorError::Strings { shape: shape.to_vec(), reason, at };
    let mut at = 0;
    for _ in 0..count {
        let Some((_, used)) = split_string(&bytes[at..]) else {
            return Err(fail("an element is cut short", at));
        };
        at += used;
    }
    if at == bytes.len() { Ok(()) } else { Err(fail("bytes after the last element", at)) }
}

/// The first length-prefixed string and the bytes it takes with its prefix.
fn split_string(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (prefix, rest) = bytes.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*prefix)).ok()?;
    Some((rest.get(..len)?, len + 4))
}

/// A borrowed tensor whose length was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorRef<'a> {
    element: ElementType,
    shape: &'a [usize],
    bytes: &'a [u8],
}

impl<'a> TensorRef<'a> {
    /// Checks that `bytes` is exactly what `element` and `shape` ask for.
    ///
    /// # Errors
    /// When the shape overflows or the length of the data differs.
    pub fn new(
        element: ElementType,
        shape: &'a [usize],
        bytes: &'a [u8],
    ) -> Result<Self, TensorError> {
        check(element, shape, bytes)?;
        Ok(Self { element, shape, bytes })
    }

    /// Type of the elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// Dimensions, outermost first.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// The data, row-major and little-endian.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The elements as `f32`: borrowed when the bytes are aligned, copied otherwise.
    ///
    /// # Errors
    /// When the tensor holds another type.
    pub fn f32s(&self) -> Result<Cow<'a, [f32]>, TensorError> {
        if self.element != ElementType::F32 {
            return Err(TensorError::Element { wanted: ElementType::F32, got: self.element });
        }
        Ok(f32s(self.bytes))
    }

    /// The elements of a string tensor, in order; nothing for other types.
    pub fn strings(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = if self.element == ElementType::String { self.bytes } else { &[] };
        std::iter::from_fn(move || {
            let (text, used) = split_string(rest)?;
            rest = &rest[used..];
            Some(text)
        })
    }

    /// An owned copy.
    pub fn to_tensor(&self) -> Tensor {
        Tensor { element: self.element, shape: self.shape.to_vec(), bytes: self.bytes.to_vec() }
    }
}

fn f32s(bytes: &[u8]) -> Cow<'_, [f32]> {
    if cfg!(target_endian = "little")
        && let Ok(aligned) = bytemuck::try_cast_slice::<u8, f32>(bytes)
    {
        return Cow::Borrowed(aligned);
    }
    let (chunks, _) = bytes.as_chunks::<4>();
    Cow::Owned(chunks.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect())
}

/// An owned tensor whose length was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    element: ElementType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Tensor {
    /// Checks that `bytes` is exactly what `element` and `shape` ask for.
    ///
    /// # Errors
    /// When the shape overflows or the length of the data differs.
    pub fn new(
        element: ElementType,
        shape: Vec<usize>,
        bytes: Vec<u8>,
    ) -> Result<Self, TensorError> {
        check(element, &shape, &bytes)?;
        Ok(Self { element, shape, bytes })
    }

    /// An `F32` tensor of these values.
    ///
    /// # Errors
    /// When the number of values is not the product of the shape.
    pub fn from_f32s(shape: Vec<usize>, values: &[f32]) -> Result<Self, TensorError> {
        let bytes = if cfg!(target_endian = "little") {
            bytemuck::cast_slice(values).to_vec()
        } else {
            values.iter().flat_map(|value| value.to_le_bytes()).collect()
        };
        Self::new(ElementType::F32, shape, bytes)
    }

    /// A string tensor of these elements.
    ///
    /// # Errors
    /// When the number of elements is not the product of the shape, or one is 4 GiB or longer.
    pub fn from_strings<S: AsRef<[u8]>>(
        shape: Vec<usize>,
        elements: &[S],
    ) -> Result<Self, TensorError> {
        let mut bytes = Vec::new();
        for element in elements {
            let element = element.as_ref();
            let Ok(len) = u32::try_from(element.len()) else {
                let reason = "an element is 4 GiB or longer";
                return Err(TensorError::Strings { shape, reason, at: bytes.len() });
            };
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(element);
        }
        Self::new(ElementType::String, shape, bytes)
    }

    /// Type of the elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// Dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The data, row-major and little-endian.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The data, giving up the rest.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// A borrowed view.
    pub fn view(&self) -> TensorRef<'_> {
        TensorRef { element: self.element, shape: &self.shape, bytes: &self.bytes }
    }

    /// The elements as `f32`: borrowed when the bytes are aligned, copied otherwise.
    ///
    /// # Errors
    /// When the tensor holds another type.
    pub fn f32s(&self) -> Result<Cow<'_, [f32]>, TensorError> {
        self.view().f32s()
    }
}

#[cfg(test)]
mod tests;
