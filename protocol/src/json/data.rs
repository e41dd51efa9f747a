//! Tensor data: a JSON array, flat or nested exactly to the shape, straight into element bytes.
//!
//! The bytes start at a multiple of eight, so that a session can read the elements in place.

use bytemuck::{Pod, Zeroable};
use bytes::Bytes;

use super::{
    Fault, Reader,
    number::{NoInteger, Number},
};
use crate::{Datatype, error::clip};

/// Reads the data of a tensor of `count` elements, the product of `shape`.
pub(crate) fn read_data(
    reader: &mut Reader<'_>,
    datatype: Datatype,
    shape: &[u64],
    count: usize,
) -> Result<Bytes, Fault> {
    match datatype {
        Datatype::Bool => fixed::<bool>(reader, shape, count),
        Datatype::Uint8 => fixed::<u8>(reader, shape, count),
        Datatype::Uint16 => fixed::<u16>(reader, shape, count),
        Datatype::Uint32 => fixed::<u32>(reader, shape, count),
        Datatype::Uint64 => fixed::<u64>(reader, shape, count),
        Datatype::Int8 => fixed::<i8>(reader, shape, count),
        Datatype::Int16 => fixed::<i16>(reader, shape, count),
        Datatype::Int32 => fixed::<i32>(reader, shape, count),
        Datatype::Int64 => fixed::<i64>(reader, shape, count),
        Datatype::Fp32 => fixed::<f32>(reader, shape, count),
        Datatype::Fp64 => fixed::<f64>(reader, shape, count),
        Datatype::Bytes => strings(reader, shape, count),
        half @ (Datatype::Fp16 | Datatype::Bf16) => {
            Err(Fault::data(format!("{half} has no JSON form; send it as binary data")))
        }
    }
}

/// Element bytes in whole words, which is what aligns them.
struct Aligned {
    words: Vec<u64>,
    length: usize,
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.length]
    }
}

fn fixed<E: Element>(reader: &mut Reader<'_>, shape: &[u64], count: usize) -> Result<Bytes, Fault> {
    // An element takes at least its digit and a comma.
    let room = count.min(reader.remaining() / 2 + 1);
    let size = size_of::<E::Stored>();
    let mut words = vec![0_u64; room.saturating_mul(size).div_ceil(size_of::<u64>())];
    let slots: &mut [E::Stored] = &mut bytemuck::cast_slice_mut(&mut words)[..room];
    let mut seen = 0_usize;
    walk(reader, shape, count, &mut |reader| {
        let value = E::read(reader).map_err(|fault| fault.at_value(seen))?;
        *slots.get_mut(seen).ok_or_else(|| too_many(count))? = value;
        seen += 1;
        Ok(())
    })?;
    Ok(Bytes::from_owner(Aligned { words, length: seen * size }))
}

fn strings(reader: &mut Reader<'_>, shape: &[u64], count: usize) -> Result<Bytes, Fault> {
    let (mut out, mut seen) = (Vec::<u8>::new(), 0_usize);
    walk(reader, shape, count, &mut |reader| {
        if reader.peek() != Some(b'"') {
            return Err(unfit(reader, Datatype::Bytes).at_value(seen));
        }
        let text = reader.string()?;
        if seen == count {
            return Err(too_many(count));
        }
        let length = u32::try_from(text.len()).map_err(|_| Fault::data("a string over 4 GiB"))?;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(text.as_bytes());
        seen += 1;
        Ok(())
    })?;
    Ok(out.into())
}

/// Walks the arrays; `value` reads one element.
fn walk(
    reader: &mut Reader<'_>,
    shape: &[u64],
    count: usize,
    value: &mut impl FnMut(&mut Reader<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    if !reader.take(b'[') {
        return Err(reader.expected("an array"));
    }
    reader.space();
    if reader.peek() == Some(b'[') {
        return level(reader, shape, 0, value);
    }
    let seen = row(reader, value)?;
    if seen != count as u64 {
        return Err(Fault::data(format!("expected {count} elements for its shape, got {seen}")));
    }
    Ok(())
}

/// The rest of an array at `depth` of nested data. Shapes bound the depth.
fn level(
    reader: &mut Reader<'_>,
    shape: &[u64],
    depth: usize,
    value: &mut impl FnMut(&mut Reader<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let ragged = || Fault::data(format!("nesting does not follow shape {shape:?}"));
    let mut length = 0_u64;
    if depth + 1 >= shape.len() {
        if reader.peek() == Some(b'[') {
            return Err(ragged());
        }
        length = row(reader, value)?;
    } else if !reader.take(b']') {
        loop {
            if !reader.take(b'[') {
                return Err(if reader.at_value() { ragged() } else { reader.expected("'['") });
            }
            reader.space();
            level(reader, shape, depth + 1, value)?;
            length += 1;
            reader.space();
            if reader.take(b']') {
                break;
            }
            if !reader.take(b',') {
                return Err(reader.expected("',' or ']'"));
            }
            reader.space();
        }
    }
    if shape.get(depth) == Some(&length) { Ok(()) } else { Err(ragged()) }
}

/// The rest of an array of elements: how many there are.
#[inline]
fn row(
    reader: &mut Reader<'_>,
    value: &mut impl FnMut(&mut Reader<'_>) -> Result<(), Fault>,
) -> Result<u64, Fault> {
    if reader.take(b']') {
        return Ok(0);
    }
    let mut length = 0;
    loop {
        value(reader)?;
        length += 1;
        reader.space();
        if reader.take(b',') {
            reader.space();
        } else if reader.take(b']') {
            return Ok(length);
        } else {
            return Err(reader.expected("',' or ']'"));
        }
    }
}

#[cold]
fn too_many(count: usize) -> Fault {
    Fault::data(format!("more than the {count} elements of its shape"))
}

/// A value of another type, or no value at all.
#[cold]
fn unfit(reader: &Reader<'_>, datatype: Datatype) -> Fault {
    if reader.at_value() {
        Fault::data(format!("{} where {datatype} is expected", reader.found()))
    } else {
        reader.expected("a value")
    }
}

#[cold]
fn out_of_range(number: &Number<'_>, datatype: Datatype) -> Fault {
    Fault::data(format!("{} is out of range for {datatype}", clip(number.text())))
}

#[cold]
fn fraction(number: &Number<'_>, datatype: Datatype) -> Fault {
    Fault::data(format!("{} where {datatype} is expected", clip(number.text())))
}

/// A type of fixed size that has a JSON form.
trait Element: Sized {
    /// Its bits, little-endian.
    type Stored: Pod + Zeroable;

    fn read(reader: &mut Reader<'_>) -> Result<Self::Stored, Fault>;
}

impl Element for bool {
    type Stored = u8;

    #[inline]
    fn read(reader: &mut Reader<'_>) -> Result<u8, Fault> {
        if reader.word("true") {
            Ok(1)
        } else if reader.word("false") {
            Ok(0)
        } else {
            Err(unfit(reader, Datatype::Bool))
        }
    }
}

macro_rules! integer {
    ($type:ty, $datatype:expr) => {
        impl Element for $type {
            type Stored = $type;

            #[inline]
            fn read(reader: &mut Reader<'_>) -> Result<$type, Fault> {
                if !matches!(reader.peek(), Some(b'-' | b'0'..=b'9')) {
                    return Err(unfit(reader, $datatype));
                }
                let number = reader.number()?;
                let value = number.integer().map_err(|problem| match problem {
                    NoInteger::TooLarge => out_of_range(&number, $datatype),
                    NoInteger::Fraction => fraction(&number, $datatype),
                })?;
                <$type>::try_from(value)
                    .map(<$type>::to_le)
                    .map_err(|_| out_of_range(&number, $datatype))
            }
        }
    };
}

integer!(u8, Datatype::Uint8);
integer!(u16, Datatype::Uint16);
integer!(u32, Datatype::Uint32);
integer!(u64, Datatype::Uint64);
integer!(i8, Datatype::Int8);
integer!(i16, Datatype::Int16);
integer!(i32, Datatype::Int32);
integer!(i64, Datatype::Int64);

macro_rules! float {
    ($type:ty, $bits:ty, $convert:ident, $datatype:expr) => {
        impl Element for $type {
            type Stored = $bits;

            #[inline]
            fn read(reader: &mut Reader<'_>) -> Result<$bits, Fault> {
                let value = if matches!(reader.peek(), Some(b'0'..=b'9')) {
                    finite(reader, Number::$convert, <$type>::is_infinite, $datatype)?
                } else if let Some(value) = named(reader)? {
                    value as $type
                } else if reader.peek() == Some(b'-') {
                    finite(reader, Number::$convert, <$type>::is_infinite, $datatype)?
                } else {
                    return Err(unfit(reader, $datatype));
                };
                Ok(value.to_bits().to_le())
            }
        }
    };
}

float!(f32, u32, single, Datatype::Fp32);
float!(f64, u64, double, Datatype::Fp64);

#[inline(always)]
fn finite<'a, T: Copy>(
    reader: &mut Reader<'a>,
    convert: impl Fn(&Number<'a>) -> T,
    is_infinite: impl Fn(T) -> bool,
    datatype: Datatype,
) -> Result<T, Fault> {
    let number = reader.number()?;
    let value = convert(&number);
    if is_infinite(value) { Err(out_of_range(&number, datatype)) } else { Ok(value) }
}

/// A value that JSON has no number for: as a string, or as a bare token.
#[inline]
fn named(reader: &mut Reader<'_>) -> Result<Option<f64>, Fault> {
    if reader.peek() != Some(b'"') {
        return Ok(reader.bare_float());
    }
    let before = *reader;
    let value = match &*reader.string()? {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    };
    if value.is_none() {
        *reader = before;
    }
    Ok(value)
}
