//! Tensor data to JSON: flat, shortest digits that read back to the same bits.

use crate::{Datatype, Tensor};

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
