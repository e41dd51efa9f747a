//! Frame version 1: the 64-byte header, its limits and its checksum. All numbers little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | magic `MSF1` |
//! | 4 | version, 1 |
//! | 5 | entropy coder: 0 none; 1 zstd and 2 order-0 are reserved |
//! | 6 | mode: 0 raw, 1 half precision, 2 affine bit planes |
//! | 7 | bits per element: 1 to 8 in mode 2, else 0 |
//! | 8 | element type, as numbered by ONNX |
//! | 9..12 | zero |
//! | 12..16 | rows, at least 1 |
//! | 16..20 | elements of a row, at least 1 |
//! | 20..52 | split id |
//! | 52..56 | payload bytes |
//! | 56..60 | rows that travel raw behind the planes (mode 2) |
//! | 60..64 | CRC-32C of bytes 0..60 and the payload |
//!
//! One tensor per frame: a cut that several tensors cross needs another version.

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
}

/// How elements are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As they are.
    Raw,
    /// As half precision.
    Half,
    /// As bit planes of their quantised values.
    Affine,
}

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// How the payload is compressed.
    pub coder: Coder,
    /// How elements are written.
    pub mode: Mode,
    /// Bits per element in [`Mode::Affine`], else 0.
    pub bits: u8,
    /// Type of the elements of the tensor.
    pub element: ElementType,
    /// Rows, at least 1.
    pub rows: u32,
    /// Elements of a row, at least 1.
    pub elements: u32,
    /// The split that the frame is meant for.
    pub split_id: SplitId,
    /// Rows that travel raw behind the planes.
    pub raw_rows: u32,
}

fn u32_at(bytes: &[u8; HEADER_LEN], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn coder(number: u8) -> Result<Coder, CodecError> {
    match number {
        0 => Ok(Coder::None),
        1 => Err(CodecError::Coder("zstd".into())),
        2 => Err(CodecError::Coder("order-0".into())),
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
            _ => return Err(CodecError::Header("unknown mode")),
        };
        let element = ElementType::from_onnx(i32::from(bytes[8]))
            .filter(|element| element.size().is_some())
            .ok_or(CodecError::Header("unknown element type"))?;
        if bytes[9..12] != [0; 3] {
            return Err(CodecError::Header("reserved bytes are not zero"));
        }
        let mut split_id = SplitId([0; 32]);
        split_id.0.copy_from_slice(&bytes[20..52]);
        let (rows, elements) = (u32_at(bytes, 12), u32_at(bytes, 16));
        let (bits, raw_rows) = (bytes[7], u32_at(bytes, 56));
        let header = Self { coder, mode, bits, element, rows, elements, split_id, raw_rows };
        header.check()?;
        let promised = u64::from(u32_at(bytes, 52));
        let expected = header.payload_len().ok_or(CodecError::Header("payload is too long"))?;
        if promised != expected {
            return Err(CodecError::Length { expected, got: promised });
        }
        Ok((header, expected))
    }

    fn check(&self) -> Result<(), CodecError> {
        let fail = |reason| Err(CodecError::Header(reason));
        if self.rows == 0 || self.elements == 0 {
            return fail("no rows, or rows without elements");
        }
        if (self.mode == Mode::Affine) != (1..=8).contains(&self.bits) {
            return fail("bits do not suit the mode");
        }
        if self.mode != Mode::Affine && (self.bits != 0 || self.raw_rows != 0) {
            return fail("bits or raw rows outside of affine mode");
        }
        if self.mode != Mode::Raw && self.element != ElementType::F32 {
            return fail("only FP32 elements are quantised");
        }
        if self.raw_rows > self.rows {
            return fail("more raw rows than rows");
        }
        Ok(())
    }

    /// Bytes of one row of planes.
    pub(super) fn plane_row_len(&self) -> u64 {
        u64::from(self.elements).div_ceil(8) * u64::from(self.bits)
    }

    /// Bytes of one raw row behind the planes: its index and its elements.
    pub(super) fn raw_row_len(&self) -> u64 {
        4 + 4 * u64::from(self.elements)
    }

    /// Bytes of the payload; none when they do not fit the header's field.
    fn payload_len(&self) -> Option<u64> {
        let (rows, elements) = (u64::from(self.rows), u64::from(self.elements));
        let size = self.element.size()? as u64;
        let len = match self.mode {
            Mode::Raw => rows.checked_mul(elements)?.checked_mul(size)?,
            Mode::Half => rows.checked_mul(elements)?.checked_mul(2)?,
            Mode::Affine => {
                let raw = u64::from(self.raw_rows).checked_mul(self.raw_row_len())?;
                rows.checked_mul(self.plane_row_len())?.checked_add(raw)?
            }
        };
        u32::try_from(len).ok().map(u64::from)
    }
}

/// Fills the header, for which `out` starts with room, and the checksum over all of `out`.
pub(super) fn seal(header: &FrameHeader, out: &mut [u8]) -> Result<(), CodecError> {
    let expected = header.payload_len().ok_or(CodecError::Header("payload is too long"))?;
    let Some((head, payload)) = out.split_first_chunk_mut::<HEADER_LEN>() else {
        return Err(CodecError::Short(out.len()));
    };
    let got = payload.len() as u64;
    let Some(len) = u32::try_from(got).ok().filter(|_| got == expected) else {
        return Err(CodecError::Length { expected, got });
    };
    head[..4].copy_from_slice(&MAGIC);
    head[4] = VERSION;
    head[5] = match header.coder {
        Coder::None => 0,
    };
    head[6] = match header.mode {
        Mode::Raw => 0,
        Mode::Half => 1,
        Mode::Affine => 2,
    };
    head[7] = header.bits;
    // All the numbers of ONNX element types are below 256.
    head[8] = header.element.onnx_number() as u8;
    head[12..16].copy_from_slice(&header.rows.to_le_bytes());
    head[16..20].copy_from_slice(&header.elements.to_le_bytes());
    head[20..52].copy_from_slice(&header.split_id.0);
    head[52..56].copy_from_slice(&len.to_le_bytes());
    head[56..60].copy_from_slice(&header.raw_rows.to_le_bytes());
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

    /// The bytes after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}
