//! How an activation is written on the wire. A frame is a 64-byte header and a payload: rows of a
//! batch, each quantised by itself, so that a row's bytes do not depend on its neighbours. Pure:
//! bytes in, bytes out; no length is believed before it is checked against the data.
//!
//! Quantising to `b` bits: `step = (hi - lo) / (2^b - 1)`,
//! `q = round_half_even((clamp(x, lo, hi) - lo) / step)`, and back `x = lo + q * step`, all in
//! `f32`. A row is written as `b` bit planes of the Gray code of its `q`, the most significant
//! plane first; element `i` is bit `i % 8` of byte `i / 8` of each plane. Rows with a NaN or an
//! infinity travel as raw `f32` behind the planes (their planes are zero). Half precision and raw
//! frames are for reference, and for elements that are no `f32`.

mod frame;
mod planes;

use midspan_runtime::{ElementType, Tensor, TensorRef};

pub use frame::{Coder, Frame, FrameHeader, HEADER_LEN, MAGIC, Mode, VERSION};

use crate::digest::SplitId;

/// Media type of a frame.
pub const MEDIA_TYPE: &str = "application/vnd.midspan.frame";

/// Precision of the elements on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Quantised to this many bits, 1 to 8; made by [`Precision::bits`].
    Bits(u8),
    /// IEEE half precision; `f32` elements only.
    Half,
    /// As they are.
    Raw,
}

impl Precision {
    /// Quantised to `bits`, when that is 1 to 8.
    pub fn bits(bits: u8) -> Option<Self> {
        (1..=8).contains(&bits).then_some(Self::Bits(bits))
    }
}

/// The range onto which values are quantised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    lo: f32,
    hi: f32,
}

impl Scale {
    /// A range of finite values, not empty, whose width is finite and whose 255th part is a normal
    /// number.
    pub fn new(lo: f32, hi: f32) -> Option<Self> {
        let step = (hi - lo) / 255.0;
        (lo.is_finite() && hi.is_finite() && step > 0.0 && step.is_normal())
            .then_some(Self { lo, hi })
    }

    /// Least value.
    pub fn lo(&self) -> f32 {
        self.lo
    }

    /// Largest value.
    pub fn hi(&self) -> f32 {
        self.hi
    }

    /// Distance of two neighbouring values at `bits`.
    pub fn step(&self, bits: u8) -> f32 {
        (self.hi - self.lo) / ((1u32 << bits) - 1) as f32
    }
}

/// What both ends know of a cut: the frame itself does not carry it.
#[derive(Clone, Debug, PartialEq)]
pub struct Codec {
    element: ElementType,
    row_shape: Vec<usize>,
    elements: u32,
    scale: Option<Scale>,
}

impl Codec {
    /// A codec for rows of this shape. None when a row has no element or too many for a frame, or
    /// when the elements are strings.
    pub fn new(element: ElementType, row_shape: Vec<usize>, scale: Option<Scale>) -> Option<Self> {
        element.size()?;
        let elements = midspan_runtime::tensor::element_count(&row_shape)?;
        let elements = u32::try_from(elements).ok().filter(|count| *count > 0)?;
        Some(Self { element, row_shape, elements, scale })
    }

    /// Type of the elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// Dimensions of one row.
    pub fn row_shape(&self) -> &[usize] {
        &self.row_shape
    }

    /// Elements of one row.
    pub fn elements(&self) -> u32 {
        self.elements
    }

    /// The range of the values, where one is known.
    pub fn scale(&self) -> Option<Scale> {
        self.scale
    }
}

/// Why something could not be written as a frame, or bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Fewer bytes than a header.
    #[error("{0} bytes are no frame: its header alone has {HEADER_LEN}")]
    Short(usize),
    /// Other first bytes.
    #[error("not a frame: it starts with {0:02x?}")]
    Magic([u8; 4]),
    /// A version that this program does not speak.
    #[error("frame version {0} is not supported, only {VERSION}")]
    Version(u8),
    /// A reserved entropy coder.
    #[error("coder {0} is not supported")]
    Coder(String),
    /// A header field out of range.
    #[error("frame header: {0}")]
    Header(&'static str),
    /// The payload has another length than the header says.
    #[error("frame payload has {got} bytes, its header asks for {expected}")]
    Length {
        /// Bytes that the header asks for.
        expected: u64,
        /// Bytes there.
        got: u64,
    },
    /// The bytes were changed on the way.
    #[error("frame checksum {got:08x} differs from {expected:08x} in its header")]
    Checksum {
        /// As the header says.
        expected: u32,
        /// As computed.
        got: u32,
    },
    /// A frame of another cut.
    #[error("frame has rows of {got}, this cut has rows of {expected}")]
    Rows {
        /// Elements and type of the cut.
        expected: String,
        /// Elements and type of the frame.
        got: String,
    },
    /// A tensor that is no batch of rows of the cut.
    #[error("a tensor of shape {got:?} is no batch of rows {row:?}")]
    Shape {
        /// Dimensions of a row.
        row: Vec<usize>,
        /// Dimensions given.
        got: Vec<usize>,
    },
    /// Quantisation without a range, or of elements that are no `f32`.
    #[error("cannot write {element} elements at {precision:?}{reason}")]
    Precision {
        /// Type of the elements.
        element: ElementType,
        /// Precision asked for.
        precision: Precision,
        /// Why not, as the end of the sentence.
        reason: &'static str,
    },
}

/// Writes a batch of at least one row as a frame for `split_id`.
///
/// # Errors
/// When the tensor is no batch of rows of the cut, or the precision does not suit its elements.
pub fn encode(
    rows: &TensorRef<'_>,
    codec: &Codec,
    precision: Precision,
    split_id: SplitId,
) -> Result<Vec<u8>, CodecError> {
    let count = batch_rows(rows, codec)?;
    let refuse = |reason| CodecError::Precision { element: codec.element, precision, reason };
    let mut out = vec![0; HEADER_LEN];
    let (mode, bits, raw_rows) = match precision {
        Precision::Raw => {
            out.extend_from_slice(rows.bytes());
            (Mode::Raw, 0, 0)
        }
        _ if codec.element != ElementType::F32 => return Err(refuse(": only raw suits them")),
        Precision::Half => {
            let values = rows.f32s().map_err(|_| refuse(""))?;
            let halves = values.iter().map(|value| half::f16::from_f32(*value));
            out.extend(halves.flat_map(half::f16::to_le_bytes));
            (Mode::Half, 0, 0)
        }
        Precision::Bits(bits) if !(1..=8).contains(&bits) => {
            return Err(refuse(": bits must be 1 to 8"));
        }
        Precision::Bits(bits) => {
            let scale = codec.scale.ok_or_else(|| refuse(": the cut has no scale"))?;
            let values = rows.f32s().map_err(|_| refuse(""))?;
            let raw_rows = planes::write(&values, codec.elements as usize, scale, bits, &mut out);
            (Mode::Affine, bits, raw_rows)
        }
    };
    let header = FrameHeader {
        coder: Coder::None,
        mode,
        bits,
        element: codec.element,
        rows: count,
        elements: codec.elements,
        split_id,
        raw_rows,
    };
    frame::seal(&header, &mut out)?;
    Ok(out)
}

fn batch_rows(rows: &TensorRef<'_>, codec: &Codec) -> Result<u32, CodecError> {
    let fits = rows.element() == codec.element && rows.shape().get(1..) == Some(&codec.row_shape);
    let count = rows.shape().first().and_then(|count| u32::try_from(*count).ok());
    count.filter(|count| fits && *count > 0).ok_or_else(|| CodecError::Shape {
        row: codec.row_shape.clone(),
        got: rows.shape().to_vec(),
    })
}

impl Frame<'_> {
    /// The rows as a tensor of shape `[rows, row...]`. Check [`FrameHeader::split_id`] first: a
    /// frame of another split decodes to nonsense.
    ///
    /// # Errors
    /// When the rows are not those of the cut, or the frame is damaged inside.
    pub fn decode(&self, codec: &Codec) -> Result<Tensor, CodecError> {
        let header = self.header();
        if header.element != codec.element || header.elements != codec.elements {
            return Err(CodecError::Rows {
                expected: format!("{} {}", codec.elements, codec.element),
                got: format!("{} {}", header.elements, header.element),
            });
        }
        let mut shape = vec![header.rows as usize];
        shape.extend_from_slice(&codec.row_shape);
        match header.mode {
            Mode::Raw => Tensor::new(codec.element, shape, self.payload().to_vec()),
            Mode::Half => {
                let (pairs, _) = self.payload().as_chunks::<2>();
                let halves = pairs.iter().map(|pair| half::f16::from_le_bytes(*pair).to_f32());
                Tensor::from_f32s(shape, &halves.collect::<Vec<_>>())
            }
            Mode::Affine => {
                let scale = codec.scale.ok_or(CodecError::Precision {
                    element: codec.element,
                    precision: Precision::Bits(header.bits),
                    reason: ": the cut has no scale",
                })?;
                Tensor::from_f32s(shape, &planes::read(header, self.payload(), scale)?)
            }
        }
        .map_err(|_| CodecError::Header("rows do not fill the payload"))
    }
}

#[cfg(test)]
mod tests;
