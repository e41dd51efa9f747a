//! JSON tensor data to and from element bytes: exact integers, range checks, ragged arrays refused.
//!
//! Parsing never allocates by what a shape promises, only by what the text holds.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use crate::{Datatype, Tensor};

/// A text whose bare `NaN`/`Infinity` tokens were written as strings that start with `marker`,
/// which occurs nowhere else in it.
pub(crate) struct Quoted {
    pub(crate) text: String,
    pub(crate) marker: String,
}

/// Parses `raw` (a flat array, or one nested exactly to `shape`) into element bytes.
pub(crate) fn parse_data(
    raw: &str,
    datatype: Datatype,
    shape: &[u64],
    count: usize,
    marker: Option<&str>,
) -> Result<Bytes, String> {
    if !datatype.has_json_form() {
        return Err(format!("{datatype} has no JSON form; send it as binary data"));
    }
    let room = count.min(raw.len() / 2 + 1);
    let mut sink = Sink {
        datatype,
        shape,
        count,
        seen: 0,
        marker,
        nested: None,
        out: BytesMut::with_capacity(room.saturating_mul(datatype.size().unwrap_or(4))),
    };
    let mut json = serde_json::Deserializer::from_str(raw);
    Level { sink: &mut sink, depth: 0 }
        .deserialize(&mut json)
        .and_then(|()| json.end())
        .map_err(|error| format!("data: {}", without_position(&error)))?;
    if sink.seen != count {
        return Err(format!("expected {count} elements for its shape, got {}", sink.seen));
    }
    Ok(sink.out.freeze())
}

/// Positions inside one tensor's data would mislead a reader who counts from the body's start.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split_once(" at line ").map_or(text.clone(), |(message, _)| message.to_owned())
}

struct Sink<'s> {
    datatype: Datatype,
    shape: &'s [u64],
    count: usize,
    seen: usize,
    /// Prefix of strings that stand for bare tokens.
    marker: Option<&'s str>,
    /// Whether the outermost array holds arrays; known at its first element.
    nested: Option<bool>,
    out: BytesMut,
}

impl Sink<'_> {
    fn next(&mut self) -> Result<(), String> {
        self.seen += 1;
        if self.seen > self.count {
            return Err(format!("more than the {} elements of its shape", self.count));
        }
        Ok(())
    }

    fn put_int(&mut self, value: i128) -> Result<(), String> {
        self.next()?;
        let range = || format!("{value} is out of range for {}", self.datatype);
        macro_rules! put {
            ($type:ty) => {{
                let value = <$type>::try_from(value).map_err(|_| range())?;
                self.out.put_slice(&value.to_le_bytes());
            }};
        }
        match self.datatype {
            Datatype::Uint8 => put!(u8),
            Datatype::Uint16 => put!(u16),
            Datatype::Uint32 => put!(u32),
            Datatype::Uint64 => put!(u64),
            Datatype::Int8 => put!(i8),
            Datatype::Int16 => put!(i16),
            Datatype::Int32 => put!(i32),
            Datatype::Int64 => put!(i64),
            Datatype::Fp32 => self.out.put_f32_le(value as f32),
            Datatype::Fp64 => self.out.put_f64_le(value as f64),
            other => return Err(format!("a number where {other} is expected")),
        }
        Ok(())
    }

    fn put_float(&mut self, value: f64) -> Result<(), String> {
        match self.datatype {
            Datatype::Fp32 => {
                let narrow = value as f32;
                if narrow.is_infinite() && value.is_finite() {
                    return Err(format!("{value} is out of range for FP32"));
                }
                self.next()?;
                self.out.put_f32_le(narrow);
            }
            Datatype::Fp64 => {
                self.next()?;
                self.out.put_f64_le(value);
            }
            // A real client writes integers as 1.0; every f64 integer fits an i128 up to 2^127.
            _ if value.fract() == 0.0 && value.abs() < 1e38 => self.put_int(value as i128)?,
            other => return Err(format!("{value} where {other} is expected")),
        }
        Ok(())
    }

    fn put_bool(&mut self, value: bool) -> Result<(), String> {
        if self.datatype != Datatype::Bool {
            return Err(format!("a boolean where {} is expected", self.datatype));
        }
        self.next()?;
        self.out.put_u8(value.into());
        Ok(())
    }

    fn put_text(&mut self, text: &str) -> Result<(), String> {
        let bare = self.marker.and_then(|marker| text.strip_prefix(marker));
        match (self.datatype, bare.unwrap_or(text)) {
            (Datatype::Fp32 | Datatype::Fp64, "NaN") => self.put_special(f64::NAN),
            (Datatype::Fp32 | Datatype::Fp64, "Infinity") => self.put_special(f64::INFINITY),
            (Datatype::Fp32 | Datatype::Fp64, "-Infinity") => self.put_special(f64::NEG_INFINITY),
            (Datatype::Bytes, text) if bare.is_none() => {
                self.next()?;
                let length = u32::try_from(text.len()).map_err(|_| "a string over 4 GiB")?;
                self.out.put_u32_le(length);
                self.out.put_slice(text.as_bytes());
                Ok(())
            }
            (other, _) if bare.is_some() => Err(format!("a bare NaN or Infinity in {other}")),
            (other, _) => Err(format!("a string where {other} is expected")),
        }
    }

    fn put_special(&mut self, value: f64) -> Result<(), String> {
        self.next()?;
        match self.datatype {
            Datatype::Fp32 => self.out.put_f32_le(value as f32),
            _ => self.out.put_f64_le(value),
        }
        Ok(())
    }
}

/// One value at `depth`: an array or an element.
struct Level<'a, 's> {
    sink: &'a mut Sink<'s>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Level<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Level<'_, '_> {
    fn element<E: Error>(
        self,
        put: impl FnOnce(&mut Sink<'_>) -> Result<(), String>,
    ) -> Result<(), E> {
        if self.depth == 0 {
            return Err(E::custom("expected an array"));
        }
        let nested = *self.sink.nested.get_or_insert(false);
        let leaf = if nested { self.sink.shape.len() } else { 1 };
        if self.depth != leaf {
            return Err(E::custom(format!("nesting does not follow shape {:?}", self.sink.shape)));
        }
        put(self.sink).map_err(E::custom)
    }
}

impl<'de> Visitor<'de> for Level<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of {}", self.sink.datatype)
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.element(|sink| sink.put_bool(value))
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.element(|sink| sink.put_int(value.into()))
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.element(|sink| sink.put_int(value.into()))
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.element(|sink| sink.put_float(value))
    }
    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.element(|sink| sink.put_text(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { sink, depth } = self;
        let ragged = |sink: &Sink<'_>| {
            A::Error::custom(format!("array does not follow shape {:?}", sink.shape))
        };
        if depth > 0 && (!*sink.nested.get_or_insert(true) || depth >= sink.shape.len()) {
            return Err(ragged(sink));
        }
        let mut length = 0_u64;
        while seq.next_element_seed(Level { sink: &mut *sink, depth: depth + 1 })?.is_some() {
            length += 1;
        }
        // The outermost array of flat data has the product's length, checked at the end.
        let nested = depth > 0 || sink.nested == Some(true);
        if nested && sink.shape.get(depth) != Some(&length) {
            return Err(ragged(sink));
        }
        Ok(())
    }
}

/// Rewrites bare `NaN`, `Infinity` and `-Infinity` tokens, which JSON lacks and real clients send,
/// as marked strings. `None` when the text has no such token outside strings.
pub(crate) fn quote_bare_floats(text: &str) -> Option<Quoted> {
    let mut marker = "bare:".to_owned();
    while text.contains(&marker) {
        marker.insert(0, '~');
    }
    const TOKENS: [&str; 3] = ["NaN", "-Infinity", "Infinity"];
    let (mut out, mut rest, mut found) = (String::with_capacity(text.len() + 64), text, false);
    let mut in_string = false;
    while let Some(first) = rest.chars().next() {
        let mut taken = first.len_utf8();
        if in_string {
            match first {
                '\\' => taken += rest[1..].chars().next().map_or(0, char::len_utf8),
                '"' => in_string = false,
                _ => {}
            }
        } else if let Some(token) = TOKENS.iter().find(|token| rest.starts_with(**token)) {
            out.push('"');
            out.push_str(&marker);
            out.push_str(token);
            out.push('"');
            rest = &rest[token.len()..];
            found = true;
            continue;
        } else {
            in_string = first == '"';
        }
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    found.then_some(Quoted { text: out, marker })
}

/// Writes a tensor's elements as a flat JSON array. NaN and infinities become strings.
///
/// # Errors
/// A half-precision tensor, or a BYTES element that is not UTF-8.
pub(crate) fn write_data(tensor: &Tensor, out: &mut Vec<u8>) -> Result<(), String> {
    macro_rules! numbers {
        ($type:ty) => {{
            let (chunks, _) = tensor.data.as_chunks::<{ size_of::<$type>() }>();
            write_all(out, chunks.iter().map(|chunk| <$type>::from_le_bytes(*chunk)), to_json)
        }};
    }
    match tensor.datatype {
        Datatype::Bool => write_all(out, tensor.data.iter().map(|byte| *byte != 0), to_json),
        Datatype::Uint8 => numbers!(u8),
        Datatype::Uint16 => numbers!(u16),
        Datatype::Uint32 => numbers!(u32),
        Datatype::Uint64 => numbers!(u64),
        Datatype::Int8 => numbers!(i8),
        Datatype::Int16 => numbers!(i16),
        Datatype::Int32 => numbers!(i32),
        Datatype::Int64 => numbers!(i64),
        Datatype::Fp32 => {
            let (chunks, _) = tensor.data.as_chunks::<4>();
            write_all(out, chunks.iter().map(|chunk| f32::from_le_bytes(*chunk)), |out, value| {
                if value.is_finite() { to_json(out, value) } else { special(out, value.into()) }
            })
        }
        Datatype::Fp64 => {
            let (chunks, _) = tensor.data.as_chunks::<8>();
            write_all(out, chunks.iter().map(|chunk| f64::from_le_bytes(*chunk)), |out, value| {
                if value.is_finite() { to_json(out, value) } else { special(out, value) }
            })
        }
        Datatype::Bytes => {
            let strings = tensor.to_byte_strings().unwrap_or_default();
            write_all(out, strings.iter(), |out, bytes| {
                let text = std::str::from_utf8(bytes)
                    .map_err(|_| "not valid UTF-8; ask for it with binary_data".to_owned())?;
                to_json(out, text)
            })
        }
        half => Err(format!("{half} has no JSON form; ask for it with binary_data")),
    }
}

fn write_all<T>(
    out: &mut Vec<u8>,
    values: impl Iterator<Item = T>,
    write: impl Fn(&mut Vec<u8>, T) -> Result<(), String>,
) -> Result<(), String> {
    out.push(b'[');
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, value)?;
    }
    out.push(b']');
    Ok(())
}

fn to_json<T: serde::Serialize>(out: &mut Vec<u8>, value: T) -> Result<(), String> {
    serde_json::to_writer(out, &value).map_err(|error| error.to_string())
}

fn special(out: &mut Vec<u8>, value: f64) -> Result<(), String> {
    let name = match value {
        value if value.is_nan() => "NaN",
        value if value > 0.0 => "Infinity",
        _ => "-Infinity",
    };
    to_json(out, name)
}

#[cfg(test)]
mod tests;
