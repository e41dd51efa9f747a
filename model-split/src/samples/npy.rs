//! Arrays of NumPy: `.npy` and `.npz` bytes as tensors of plain row-major, little-endian data. No
//! length is believed before it is checked against the data. It must not know of models.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use midspan_runtime::tensor::element_count;
use midspan_runtime::{ElementType, Tensor};
use npyz::{DType, NpyHeader, Order};

/// First bytes of a `.npy` file.
pub(super) const NPY: &[u8] = b"\x93NUMPY";
/// First bytes of a `.npz` file.
pub(super) const ZIP: &[u8] = b"PK";
/// Longest header, as NumPy itself bounds it.
const LONGEST_HEADER: usize = 10_000;
/// Deepest nesting of a header; a plain array's has two.
const DEEPEST_HEADER: usize = 8;
/// Most arrays of one `.npz`.
const MOST_ARRAYS: usize = 1024;

/// Reads one `.npy`.
pub(super) fn array(bytes: &[u8]) -> Result<Tensor, String> {
    let (header, data) = header(bytes)?;
    let DType::Plain(kind) = header.dtype() else {
        return Err("an array of records is no tensor".into());
    };
    let name = kind.to_string();
    let (order, text) = (name.as_bytes().first(), name.get(1..).unwrap_or_default());
    let (element, item, unit) = element(text)
        .ok_or_else(|| format!("arrays of dtype \"{name}\" have no counterpart in a model"))?;
    let shape = header.shape().iter().map(|size| usize::try_from(*size));
    let shape: Vec<usize> = shape.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let expected = element_count(&shape).and_then(|count| count.checked_mul(item));
    if expected != Some(data.len()) {
        return Err(format!(
            "{} bytes of data do not fill an array of shape {shape:?} and dtype \"{name}\"",
            data.len()
        ));
    }
    let mut data = match header.order() {
        Order::C => data.to_vec(),
        Order::Fortran => row_major(data, &shape, item),
    };
    if order == Some(&b'>') {
        data.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
    }
    let tensor = match element {
        Kind::Number(element) => Tensor::new(element, shape, data),
        Kind::Bytes => Tensor::from_strings(shape, &items(&data, item).collect::<Vec<_>>()),
        Kind::Text => {
            let texts: Option<Vec<String>> = items(&data, item).map(text_of).collect();
            let texts = texts.ok_or("a string is no Unicode text")?;
            Tensor::from_strings(shape, &texts)
        }
    };
    tensor.map_err(|error| error.to_string())
}

/// The header and what follows it.
fn header(bytes: &[u8]) -> Result<(NpyHeader, &[u8]), String> {
    let damaged = || "its .npy header is damaged".to_owned();
    if !bytes.starts_with(NPY) {
        return Err("it is no .npy array".into());
    }
    let (version, rest) = bytes.get(6..).and_then(<[u8]>::split_first_chunk).ok_or_else(damaged)?;
    let (length, text) = match version {
        [1, _] => {
            rest.split_first_chunk().map(|(len, rest)| (u32::from(u16::from_le_bytes(*len)), rest))
        }
        _ => rest.split_first_chunk().map(|(len, rest)| (u32::from_le_bytes(*len), rest)),
    }
    .ok_or_else(damaged)?;
    let text = text.get(..length as usize).filter(|text| text.len() <= LONGEST_HEADER);
    // The parser of the header descends once for each bracket.
    let open = |byte: &&u8| b"([{".contains(*byte);
    if text.ok_or_else(damaged)?.iter().filter(open).count() > DEEPEST_HEADER {
        return Err(damaged());
    }
    let mut rest = bytes;
    // The crate multiplies the dimensions unchecked, which panics where overflow checks are on.
    let parsed = catch_unwind(AssertUnwindSafe(|| NpyHeader::from_reader(&mut rest)));
    let header =
        parsed.map_err(|_panic| damaged())?.map_err(|error| format!("{}: {error}", damaged()))?;
    Ok((header, rest))
}

#[derive(Clone, Copy)]
enum Kind {
    Number(ElementType),
    /// Bytes of a fixed length, filled up with zeros.
    Bytes,
    /// Characters of four bytes each, filled up with zeros.
    Text,
}

/// What a dtype without its byte order stands for, bytes of an item, bytes of what has an order.
fn element(dtype: &str) -> Option<(Kind, usize, usize)> {
    use ElementType as E;
    let number = match dtype {
        "b1" => E::Bool,
        "u1" => E::U8,
        "u2" => E::U16,
        "u4" => E::U32,
        "u8" => E::U64,
        "i1" => E::I8,
        "i2" => E::I16,
        "i4" => E::I32,
        "i8" => E::I64,
        "f2" => E::F16,
        "f4" => E::F32,
        "f8" => E::F64,
        // NumPy has no bfloat16: the package ml_dtypes writes it as two opaque bytes.
        "V2" => E::BF16,
        _ => {
            let (kind, length) = dtype.split_at_checked(1)?;
            let length: usize = length.parse().ok()?;
            return match kind {
                "S" => Some((Kind::Bytes, length, 1)),
                "U" => Some((Kind::Text, length.checked_mul(4)?, 4)),
                _ => None,
            };
        }
    };
    let size = number.size()?;
    Some((Kind::Number(number), size, size))
}

fn items(data: &[u8], item: usize) -> impl Iterator<Item = &[u8]> {
    data.chunks_exact(item.max(1)).map(|item| {
        let end = item.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        &item[..end]
    })
}

fn text_of(item: &[u8]) -> Option<String> {
    let chars = item.chunks(4).map(|unit| {
        let mut word = [0; 4];
        word[..unit.len()].copy_from_slice(unit);
        char::from_u32(u32::from_le_bytes(word))
    });
    chars.collect()
}

/// Items whose first index runs fastest, as items whose last index does.
fn row_major(data: &[u8], shape: &[usize], item: usize) -> Vec<u8> {
    let mut strides = Vec::with_capacity(shape.len());
    shape.iter().fold(1, |stride, size| {
        strides.push(stride);
        stride * size
    });
    let (mut index, mut from) = (vec![0; shape.len()], 0);
    let mut out = Vec::with_capacity(data.len());
    while out.len() < data.len() {
        out.extend_from_slice(&data[from * item..(from + 1) * item]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            from += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            from -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    out
}

/// Reads all arrays of an `.npz` by their names, unpacking at most `limit` bytes.
pub(super) fn archive(bytes: &[u8], limit: u64) -> Result<BTreeMap<String, Tensor>, String> {
    let damaged = |error: &dyn std::fmt::Display| format!("it is no .npz archive: {error}");
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| damaged(&error))?;
    if archive.len() > MOST_ARRAYS {
        return Err(format!("{} arrays; at most {MOST_ARRAYS} are read", archive.len()));
    }
    let (mut arrays, mut left) = (BTreeMap::new(), limit);
    for index in 0..archive.len() {
        let file = archive.by_index(index).map_err(|error| damaged(&error))?;
        let stored = file.name().map_err(|error| damaged(&error))?.into_owned();
        let Some(name) = stored.strip_suffix(".npy").map(str::to_owned) else { continue };
        let mut unpacked = Vec::new();
        file.take(left + 1).read_to_end(&mut unpacked).map_err(|error| damaged(&error))?;
        left = left
            .checked_sub(unpacked.len() as u64)
            .ok_or_else(|| format!("its arrays are larger than {limit} bytes"))?;
        let tensor = array(&unpacked).map_err(|reason| format!("array \"{name}\": {reason}"))?;
        arrays.insert(name, tensor);
    }
    Ok(arrays)
}
