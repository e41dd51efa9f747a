//! How an activation is written on the wire. A frame is a 64-byte header and a payload: rows of a
//! batch, each quantised by itself, so that the values of a row do not depend on its neighbours.
//! Pure: bytes in, bytes out; no length is believed before it is checked against the data or
//! against what the reader has room for.
//!
//! **Units.** A unit is a channel, the second dimension of a batch, where rows have at least two
//! dimensions and no more than 65535 channels; else it is a row. A cut has no scale, one for all
//! elements, or one for each unit.
//!
//! **Levels.** Quantising to `b` bits: `step = (hi - lo) / (2^b - 1)`,
//! `q = round_half_even((clamp(x, lo, hi) - lo) / step)`, and back `x = lo + q * step`, all in
//! `f32`. Where the cut has no scale, `lo` and `hi` are the least and the largest value of the
//! unit (equal for a unit of one value, whose levels are 0), and travel. A unit with a NaN or an
//! infinity, or with a range that makes no scale, travels as raw `f32`; its levels are 0.
//!
//! **Payload of levels**, coder none: for each row `b` bit planes of the Gray code of its `q`, the
//! most significant plane first; element `i` is bit `i % 8` of byte `i / 8` of each plane. Behind
//! all planes, in mode 3, `lo` and `hi` of every unit of every row, as `f32`. Behind those, of every
//! unit that travels raw its index (row times units of a row, plus unit; `u32`, ascending) and its
//! elements. The header counts the units of a row only where the payload depends on them. Raw and
//! half-precision payloads are the elements one after the other; what is no `f32` is never
//! quantised.
//!
//! **Coder zstd**: one zstd frame of the payload as it is for coder none.
//!
//! **Coder order-0.** Of levels: a byte, 0 when they are coded as they are, 1 when each is coded
//! less the centre of its unit, modulo `2^b`, and then the centres of all units of all rows, `b`
//! bits each, the least significant first, padded with zeros to a byte; a table of an alphabet of
//! `2^b` (form in `order0.rs`); the symbols of all rows (form in `rans.rs`); and what stands behind
//! the planes, as it is. Of other elements: for each byte of an element, the least significant
//! first, a byte, 0 and then that byte of each element, or 1 and then a table of an alphabet of 256
//! and the symbols.
//!
//! Who writes chooses the coder: the smallest, or none for readers of which that is not known that
//! they know others. Who reads takes all.

mod bits;
mod coder;
mod error;
mod frame;
mod levels;
mod order0;
mod planes;
mod rans;

use std::borrow::Cow;

use midspan_runtime::{ElementType, Tensor, TensorRef};

use coder::Symbols;
pub use error::CodecError;
pub use frame::{Coder, Frame, FrameHeader, HEADER_LEN, MAGIC, Mode, VERSION};
use levels::Scales;

use crate::digest::SplitId;

/// Media type of a frame.
pub const MEDIA_TYPE: &str = "application/vnd.midspan.frame";
/// Largest tensor, in bytes, that [`Frame::decode`] makes of a frame.
pub const LARGEST_TENSOR: u64 = 1 << 30;

/// Precision of the elements on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Quantised to this many bits, 1 to 8, `f32` elements only; made by [`Precision::bits`].
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

    /// A range that travels: as [`Scale::new`], or of a single finite value.
    fn own(lo: f32, hi: f32) -> Option<Self> {
        if lo == hi && lo.is_finite() { Some(Self { lo, hi }) } else { Self::new(lo, hi) }
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
    scales: Vec<Scale>,
}

impl Codec {
    /// A codec for rows of this shape, with one scale for all elements or none. None when a row
    /// has no element or too many for a frame, or when the elements are strings.
    pub fn new(element: ElementType, row_shape: Vec<usize>, scale: Option<Scale>) -> Option<Self> {
        Self::with_scales(element, row_shape, scale.into_iter().collect())
    }

    /// As [`Codec::new`], with no scale, one, or one for each of [`Codec::units`]; none for any
    /// other number.
    pub fn with_scales(
        element: ElementType,
        row_shape: Vec<usize>,
        scales: Vec<Scale>,
    ) -> Option<Self> {
        element.size()?;
        let elements = midspan_runtime::tensor::element_count(&row_shape)?;
        let elements = u32::try_from(elements).ok().filter(|count| *count > 0)?;
        let fits = scales.len() < 2 || scales.len() == usize::from(units(&row_shape));
        fits.then_some(Self { element, row_shape, elements, scales })
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

    /// Units of a row: its channels, or 1.
    pub fn units(&self) -> u16 {
        units(&self.row_shape)
    }

    /// The ranges of the values, where they are known: one, or one for each unit.
    pub fn scales(&self) -> &[Scale] {
        &self.scales
    }
}

/// Units of a row of this shape.
pub(crate) fn units(row_shape: &[usize]) -> u16 {
    match row_shape {
        [channels, _, ..] => u16::try_from(*channels).unwrap_or(1).max(1),
        _ => 1,
    }
}

/// Which entropy coder a writer may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coding {
    /// The one that makes the payload smallest, or none.
    #[default]
    Smallest,
    /// None: for readers of which it is not known that they know coders.
    Plain,
}

/// Writes a batch of at least one row as the smallest frame for `split_id`.
///
/// # Errors
/// As [`encode_as`].
pub fn encode(
    rows: &TensorRef<'_>,
    codec: &Codec,
    precision: Precision,
    split_id: SplitId,
) -> Result<Vec<u8>, CodecError> {
    encode_as(rows, codec, precision, split_id, Coding::Smallest)
}

/// Writes a batch of at least one row as a frame for `split_id`, coded as asked.
///
/// # Errors
/// When the tensor is no batch of rows of the cut, the precision does not suit its elements, or
/// the payload is longer than a frame can say.
pub fn encode_as(
    rows: &TensorRef<'_>,
    codec: &Codec,
    precision: Precision,
    split_id: SplitId,
    coding: Coding,
) -> Result<Vec<u8>, CodecError> {
    let count = batch_rows(rows, codec)?;
    let refuse = |reason| CodecError::Precision { element: codec.element, precision, reason };
    let float = codec.element == ElementType::F32;
    let mut header = FrameHeader {
        coder: Coder::None,
        mode: Mode::Raw,
        bits: 0,
        element: codec.element,
        rows: count,
        elements: codec.elements,
        units: 1,
        split_id,
        raw_units: 0,
    };
    let mut out = vec![0; HEADER_LEN];
    match precision {
        Precision::Raw => {
            out.extend_from_slice(rows.bytes());
            let size = codec.element.size().unwrap_or(1);
            let symbols = Symbols::Bytes { bytes: rows.bytes(), size };
            header.coder = coder::pack(&mut out, symbols, coding);
        }
        _ if !float => return Err(refuse(": only raw suits them")),
        Precision::Half => {
            let values = rows.f32s().map_err(|_| refuse(""))?;
            let halves = values.iter().map(|value| half::f16::from_f32(*value));
            let halves: Vec<u8> = halves.flat_map(half::f16::to_le_bytes).collect();
            out.extend_from_slice(&halves);
            header.mode = Mode::Half;
            let symbols = Symbols::Bytes { bytes: &halves, size: 2 };
            header.coder = coder::pack(&mut out, symbols, coding);
        }
        Precision::Bits(bits) if !(1..=8).contains(&bits) => {
            return Err(refuse(": bits must be 1 to 8"));
        }
        Precision::Bits(bits) => {
            let values = rows.f32s().map_err(|_| refuse(""))?;
            header.bits = bits;
            write_levels(&values, codec, coding, &mut header, &mut out);
        }
    }
    frame::seal(&header, &mut out)?;
    Ok(out)
}

/// Fills the header's mode, coder and units, and appends the payload of levels.
fn write_levels(
    values: &[f32],
    codec: &Codec,
    coding: Coding,
    header: &mut FrameHeader,
    out: &mut Vec<u8>,
) {
    let (units, bits) = (codec.units(), header.bits);
    let unit = codec.elements as usize / usize::from(units);
    let scales = if codec.scales.is_empty() { Scales::Own } else { Scales::Static(&codec.scales) };
    let found = levels::quantise(values, unit, usize::from(units), scales, bits);
    planes::write(&found.levels, codec.elements as usize, bits, out);
    out.extend_from_slice(&found.behind);
    let symbols = Symbols::Levels { levels: &found.levels, bits, unit, behind: &found.behind };
    header.coder = coder::pack(out, symbols, coding);
    header.raw_units = found.raw_units;
    header.mode = if codec.scales.is_empty() { Mode::Own } else { Mode::Affine };
    if header.mode == Mode::Own || header.coder == Coder::Order0 || found.raw_units > 0 {
        header.units = units;
    }
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
    /// The rows as a tensor of shape `[rows, row...]` of at most [`LARGEST_TENSOR`] bytes. Check
    /// [`FrameHeader::split_id`] first: a frame of another split decodes to nonsense.
    ///
    /// # Errors
    /// When the rows are not those of the cut or too many, or the frame is damaged inside.
    pub fn decode(&self, codec: &Codec) -> Result<Tensor, CodecError> {
        self.decode_within(codec, LARGEST_TENSOR)
    }

    /// As [`Frame::decode`], of at most `most` bytes: some coded frames of a few bytes stand for
    /// many rows.
    ///
    /// # Errors
    /// As [`Frame::decode`].
    pub fn decode_within(&self, codec: &Codec, most: u64) -> Result<Tensor, CodecError> {
        let header = self.header();
        if header.element != codec.element || header.elements != codec.elements {
            return Err(CodecError::Rows {
                expected: format!("{} {}", codec.elements, codec.element),
                got: format!("{} {}", header.elements, header.element),
            });
        }
        let bytes = header.tensor_len();
        if bytes > most {
            return Err(CodecError::Large { bytes, most });
        }
        let bytes = match header.mode {
            Mode::Raw => self.plain_bytes(codec.element.size().unwrap_or(1))?.into_owned(),
            Mode::Half => {
                let halves = self.plain_bytes(2)?;
                let (pairs, _) = halves.as_chunks::<2>();
                let values = pairs.iter().map(|pair| half::f16::from_le_bytes(*pair).to_f32());
                values.flat_map(f32::to_le_bytes).collect()
            }
            Mode::Affine | Mode::Own => self.restored(codec)?,
        };
        let mut shape = vec![header.rows as usize];
        shape.extend_from_slice(&codec.row_shape);
        Tensor::new(codec.element, shape, bytes)
            .map_err(|_| CodecError::Header("rows do not fill the payload"))
    }

    /// The payload as it is without a coder, for elements of that many bytes.
    fn plain_bytes(&self, size: usize) -> Result<Cow<'_, [u8]>, CodecError> {
        let header = self.header();
        let (len, _) = self.lengths()?;
        Ok(match header.coder {
            Coder::None => self.payload().into(),
            Coder::Zstd => coder::unzstd(self.payload(), len)?.into(),
            Coder::Order0 => coder::read_bytes(self.payload(), len / size, size)?.into(),
        })
    }

    /// Bytes of the payload as it is without a coder, and of the planes in it.
    fn lengths(&self) -> Result<(usize, usize), CodecError> {
        let whole = self.header().payload_len();
        let planes = self.header().levels_len().map(|(planes, _)| planes);
        let len = |len: Option<u64>| len.and_then(|len| usize::try_from(len).ok());
        len(whole).zip(len(planes)).ok_or(CodecError::Header("payload is too long"))
    }

    /// The values of a frame of levels.
    fn restored(&self, codec: &Codec) -> Result<Vec<u8>, CodecError> {
        let header = self.header();
        let (bits, elements) = (header.bits, header.elements as usize);
        let unit = header.unit() as usize;
        let (len, planes) = self.lengths()?;
        let plain: Cow<'_, [u8]> = match header.coder {
            Coder::Zstd => coder::unzstd(self.payload(), len)?.into(),
            Coder::None | Coder::Order0 => self.payload().into(),
        };
        let (levels, behind) = if header.coder == Coder::Order0 {
            let count = header.rows as usize * elements;
            let (levels, behind) = coder::read_levels(&plain, count, bits, unit)?;
            if behind.len() != len - planes {
                let reason = "scales and raw units behind it have another length";
                return Err(CodecError::Coded { coder: "order-0", reason });
            }
            (levels, behind)
        } else {
            let (planes, behind) = plain.split_at(planes);
            (planes::read(planes, elements, bits), behind)
        };
        let own = if header.mode == Mode::Own { levels.len() / unit * 8 } else { 0 };
        let (own, raw) = behind.split_at(own);
        let mut values = match (header.mode, codec.scales.as_slice()) {
            (Mode::Own, _) => levels::restore(&levels, unit, bits, levels::own_scales(own))?,
            (_, []) => {
                return Err(CodecError::Precision {
                    element: codec.element,
                    precision: Precision::Bits(bits),
                    reason: ": the cut has no scale",
                });
            }
            (_, [scale]) => levels::restore(&levels, elements, bits, |_| Some(*scale))?,
            (_, scales) => {
                let at = |index: usize| scales.get(index % scales.len()).copied();
                levels::restore(&levels, elements / scales.len(), bits, at)?
            }
        };
        levels::restore_raw(raw, unit, &mut values)?;
        Ok(values)
    }
}

#[cfg(test)]
mod tests;
