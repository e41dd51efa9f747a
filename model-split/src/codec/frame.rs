//! Frame version 1: the 64-byte header, its limits and its checksum. All numbers little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | magic `MSF1` |
//! | 4 | version, 1 |
//! | 5 | entropy coder: 0 none, 1 zstd, 2 order-0 |
//! | 6 | mode: 0 raw, 1 half precision, 2 levels on the scales of the cut, 3 levels on own scales |
//! | 7 | bits per element: 1 to 8 in modes 2 and 3, else 0 |
//! | 8 | element type, as numbered by ONNX |
//! | 9 | zero |
//! | 10..12 | units of a row: 0 for one, else 2 to 65535 and a divisor of its elements; 0 in modes 0 and 1 |
//! | 12..16 | rows, at least 1 |
//! | 16..20 | elements of a row, at least 1 |
//! | 20..52 | split id |
//! | 52..56 | payload bytes, as they travel |
//! | 56..60 | units that travel raw behind the levels (modes 2 and 3) |
//! | 60..64 | CRC-32C of bytes 0..60 and the payload |
//!
//! What a payload decodes to is known from the header: a coded one must be shorter than that.
//! Whoever decodes it decides how much memory that may take. One tensor per frame: a cut that
//! several tensors cross needs another version.

use midspan_runtime::ElementType;

use super::CodecError;
use crate::digest::SplitId;

/// Bytes of a header; the payload that follows is aligned to them.
pub const HEADER_LEN: usize = 64;
/// First bytes of every frame.
pub const MAGIC: [u8; 4] = *b"MSF1";
/// The frame version that this program speaks.
pub const VERSION: u8 = 1;

/// How the payload is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coder {
    /// Not at all.
    None,
    /// By zstd, as a whole.
    Zstd,
    /// Levels, or each byte of elements, by how often each came.
    Order0,
}

/// How elements are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As they are.
    Raw,
    /// As half precision.
    Half,
    /// As levels on the scales of the cut.
    Affine,
    /// As levels on scales that travel with them.
    Own,
}

impl Mode {
    fn has_levels(self) -> bool {
        matches!(self, Self::Affine | Self::Own)
    }
}

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// How the payload is compressed.
    pub coder: Coder,
    /// How elements are written.
    pub mode: Mode,
    /// Bits per element in [`Mode::Affine`] and [`Mode::Own`], else 0.
    pub bits: u8,
    /// Type of the elements of the tensor.
    pub element: ElementType,
    /// Rows, at least 1.
    pub rows: u32,
    /// Elements of a row, at least 1.
    pub elements: u32,
    /// The split that the frame is meant for.
    pub split_id: SplitId,
    /// Units of a row, at least 1: what has a scale of its own, travels raw or is centred.
    pub units: u16,
    /// Units that travel raw behind the levels.
    pub raw_units: u32,
}

fn u32_at(bytes: &[u8; HEADER_LEN], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn coder(number: u8) -> Result<Coder, CodecError> {
    match number {
        0 => Ok(Coder::None),
        1 => Ok(Coder::Zstd),
        2 => Ok(Coder::Order0),
        other => Err(CodecError::Coder(other.to_string())),
    }
}

impl FrameHeader {
    /// Reads the header alone, so that the split id can be judged before anything else is. The
    /// checksum is not looked at: [`Frame::parse`] does.
    ///
    /// # Errors
    /// When there is no header, or it is of another version or out of range.
    pub fn peek(bytes: &[u8]) -> Result<Self, CodecError> {
        Self::read(bytes).map(|(header, _)| header)
    }

    /// The header and the bytes that it promises after it.
    fn read(bytes: &[u8]) -> Result<(Self, u64), CodecError> {
        let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(CodecError::Short(bytes.len()));
        };
        if bytes[..4] != MAGIC {
            return Err(CodecError::Magic([bytes[0], bytes[1], bytes[2], bytes[3]]));
        }
        if bytes[4] != VERSION {
            return Err(CodecError::Version(bytes[4]));
        }
        let coder = coder(bytes[5])?;
        let mode = match bytes[6] {
            0 => Mode::Raw,
            1 => Mode::Half,
            2 => Mode::Affine,
            3 => Mode::Own,
            _ => return Err(CodecError::Header("unknown mode")),
        };
        let element = ElementType::from_onnx(i32::from(bytes[8]))
            .filter(|element| element.size().is_some())
            .ok_or(CodecError::Header("unknown element type"))?;
        if bytes[9] != 0 {
            return Err(CodecError::Header("a reserved byte is not zero"));
        }
        let units = match u16::from_le_bytes([bytes[10], bytes[11]]) {
            0 => 1,
            1 => return Err(CodecError::Header("one unit of a row is written as 0")),
            units => units,
        };
        let mut split_id = SplitId([0; 32]);
        split_id.0.copy_from_slice(&bytes[20..52]);
        let (rows, elements) = (u32_at(bytes, 12), u32_at(bytes, 16));
        let (bits, raw_units) = (bytes[7], u32_at(bytes, 56));
        let header =
            Self { coder, mode, bits, element, rows, elements, units, split_id, raw_units };
        header.check()?;
        let promised = u64::from(u32_at(bytes, 52));
        header.check_payload(promised)?;
        Ok((header, promised))
    }

    /// Whether a payload of this many bytes can be one.
    fn check_payload(&self, got: u64) -> Result<(), CodecError> {
        let expected = self.payload_len().ok_or(CodecError::Header("payload is too long"))?;
        match self.coder {
            Coder::None if got != expected => Err(CodecError::Length { expected, got }),
            Coder::Zstd | Coder::Order0 if got >= expected => {
                Err(CodecError::Header("coded payload is no shorter than what it decodes to"))
            }
            _ => Ok(()),
        }
    }

    fn check(&self) -> Result<(), CodecError> {
        let fail = |reason| Err(CodecError::Header(reason));
        if self.rows == 0 || self.elements == 0 {
            return fail("no rows, or rows without elements");
        }
        if self.mode.has_levels() != (1..=8).contains(&self.bits) {
            return fail("bits do not suit the mode");
        }
        if !self.mode.has_levels() && (self.bits, self.units, self.raw_units) != (0, 1, 0) {
            return fail("bits, units or raw units in a mode without levels");
        }
        if self.mode != Mode::Raw && self.element != ElementType::F32 {
            return fail("only FP32 elements are quantised");
        }
        if !self.elements.is_multiple_of(u32::from(self.units)) {
            return fail("units do not divide a row");
        }
        if u32::try_from(self.all_units()).is_err() {
            return fail("more units than can be counted");
        }
        if u64::from(self.raw_units) > self.all_units() {
            return fail("more raw units than units");
        }
        Ok(())
    }

    /// Units of all rows.
    fn all_units(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.units)
    }

    /// Elements of a unit.
    pub(super) fn unit(&self) -> u32 {
        self.elements / u32::from(self.units)
    }

    /// Bytes of the tensor that the frame decodes to.
    pub fn tensor_len(&self) -> u64 {
        // No header has elements without a size. Saturated, it is refused by any bound.
        let size = self.element.size().unwrap_or(8) as u64;
        u64::from(self.rows).saturating_mul(u64::from(self.elements)).saturating_mul(size)
    }

    /// Bytes of the planes of all rows, and of the scales and raw units behind them; none when
    /// they overflow.
    pub(super) fn levels_len(&self) -> Option<(u64, u64)> {
        let row = u64::from(self.elements).div_ceil(8) * u64::from(self.bits);
        let planes = u64::from(self.rows).checked_mul(row)?;
        let scales = if self.mode == Mode::Own { self.all_units().checked_mul(8)? } else { 0 };
        let raw = u64::from(self.raw_units).checked_mul(4 + 4 * u64::from(self.unit()))?;
        Some((planes, scales.checked_add(raw)?))
    }

    /// Bytes of the payload without a coder; none when they do not fit the header's field.
    pub(super) fn payload_len(&self) -> Option<u64> {
        let len = match self.mode {
            Mode::Raw => self.tensor_len(),
            Mode::Half => self.tensor_len() / 2,
            Mode::Affine | Mode::Own => {
                let (planes, behind) = self.levels_len()?;
                planes.checked_add(behind)?
            }
        };
        u32::try_from(len).ok().map(u64::from)
    }
}

/// Fills the header, for which `out` starts with room, and the checksum over all of `out`.
pub(super) fn seal(header: &FrameHeader, out: &mut [u8]) -> Result<(), CodecError> {
    let Some((head, payload)) = out.split_first_chunk_mut::<HEADER_LEN>() else {
        return Err(CodecError::Short(out.len()));
    };
    header.check()?;
    let got = payload.len() as u64;
    header.check_payload(got)?;
    let len = u32::try_from(got).map_err(|_| CodecError::Header("payload is too long"))?;
    head[..4].copy_from_slice(&MAGIC);
    head[4] = VERSION;
    head[5] = match header.coder {
        Coder::None => 0,
        Coder::Zstd => 1,
        Coder::Order0 => 2,
    };
    head[6] = match header.mode {
        Mode::Raw => 0,
        Mode::Half => 1,
        Mode::Affine => 2,
        Mode::Own => 3,
    };
    head[7] = header.bits;
    // All the numbers of ONNX element types are below 256.
    head[8] = header.element.onnx_number() as u8;
    let units = if header.units == 1 { 0 } else { header.units };
    head[10..12].copy_from_slice(&units.to_le_bytes());
    head[12..16].copy_from_slice(&header.rows.to_le_bytes());
    head[16..20].copy_from_slice(&header.elements.to_le_bytes());
    head[20..52].copy_from_slice(&header.split_id.0);
    head[52..56].copy_from_slice(&len.to_le_bytes());
    head[56..60].copy_from_slice(&header.raw_units.to_le_bytes());
    let checksum = checksum(head, payload);
    head[60..64].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

fn checksum(head: &[u8; HEADER_LEN], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&head[..60]), payload)
}

/// A frame whose length and checksum are right.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    header: FrameHeader,
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads a whole frame; allocates nothing.
    ///
    /// # Errors
    /// As [`FrameHeader::peek`], or when the payload has another length or was changed.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, CodecError> {
        let (header, expected) = FrameHeader::read(bytes)?;
        let Some((head, payload)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Err(CodecError::Short(bytes.len()));
        };
        let got = payload.len() as u64;
        if got != expected {
            return Err(CodecError::Length { expected, got });
        }
        let (expected, got) = (u32_at(head, 60), checksum(head, payload));
        if expected != got {
            return Err(CodecError::Checksum { expected, got });
        }
        Ok(Self { header, payload })
    }

    /// What the header says.
    pub fn header(&self) -> &FrameHeader {
        &self.header
    }

    /// The bytes after the header, as they travel.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}
