//! A tensor in the binary extension's form, with checked construction.

use bytes::{Bytes, BytesMut};

use crate::{Datatype, ProtocolError};

/// Dimensions a shape may have; ONNX models stay well below.
pub const MAX_RANK: usize = 32;

/// Largest product of the other dimensions of a tensor that has one of 0.
pub const MAX_EMPTY: u64 = 1 << 20;

/// A named tensor. `data` is little-endian and row-major; BYTES elements carry a u32 length prefix.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Name as the model knows it.
    pub name: String,
    /// Element type.
    pub datatype: Datatype,
    /// Dimensions; empty for a scalar.
    pub shape: Vec<u64>,
    /// Element bytes, checked against shape and datatype.
    pub data: Bytes,
}

impl Tensor {
    /// Checks that `data` holds exactly the elements that `shape` promises.
    ///
    /// # Errors
    /// A [`ProtocolError::Tensor`] naming expected and received byte or element counts.
    pub fn new(
        name: impl Into<String>,
        datatype: Datatype,
        shape: Vec<u64>,
        data: Bytes,
    ) -> Result<Self, ProtocolError> {
        let tensor = Self { name: name.into(), datatype, shape, data };
        let count = element_count(&tensor.shape)
            .map_err(|problem| ProtocolError::input(&tensor.name, problem))?;
        tensor.check_data(count).map_err(|problem| ProtocolError::input(&tensor.name, problem))?;
        Ok(tensor)
    }

    /// A single-precision tensor.
    ///
    /// # Errors
    /// When `values` is not of the shape's length.
    pub fn from_f32(
        name: impl Into<String>,
        shape: Vec<u64>,
        values: &[f32],
    ) -> Result<Self, ProtocolError> {
        let mut data = BytesMut::with_capacity(values.len() * 4);
        values.iter().for_each(|value| data.extend_from_slice(&value.to_le_bytes()));
        Self::new(name, Datatype::Fp32, shape, data.freeze())
    }

    /// The elements of an FP32 tensor; `None` for another datatype.
    #[must_use]
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        (self.datatype == Datatype::Fp32).then(|| {
            let (chunks, _) = self.data.as_chunks::<4>();
            chunks.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect()
        })
    }

    /// The elements of a BYTES tensor; `None` for another datatype.
    #[must_use]
    pub fn to_byte_strings(&self) -> Option<Vec<Bytes>> {
        (self.datatype == Datatype::Bytes)
            .then(|| byte_strings(&self.data).map_while(Result::ok).collect())
    }

    /// Elements in the tensor; shapes were bounded at construction.
    #[must_use]
    pub fn elements(&self) -> usize {
        element_count(&self.shape).unwrap_or(0)
    }

    fn check_data(&self, count: usize) -> Result<(), String> {
        let got = self.data.len();
        if let Some(size) = self.datatype.size() {
            let expected =
                count.checked_mul(size).ok_or("shape is larger than this machine's memory")?;
            if got != expected {
                return Err(format!("expected {expected} bytes for its shape, got {got}"));
            }
            if self.datatype == Datatype::Bool && self.data.iter().any(|byte| *byte > 1) {
                return Err("a BOOL byte is neither 0 nor 1".into());
            }
            return Ok(());
        }
        let mut elements = 0_usize;
        for element in byte_strings(&self.data) {
            element?;
            elements += 1;
        }
        if elements != count {
            return Err(format!("expected {count} BYTES elements, got {elements}"));
        }
        Ok(())
    }
}

/// Elements that `shape` promises, or why it cannot be a shape.
pub(crate) fn element_count(shape: &[u64]) -> Result<usize, String> {
    if shape.len() > MAX_RANK {
        return Err(format!("{} dimensions; at most {MAX_RANK} are accepted", shape.len()));
    }
    if shape.contains(&0) {
        // Whoever walks the rows of a tensor without bytes must come to an end, too.
        let mut others = shape.iter().filter(|dim| **dim > 0);
        let others = others.try_fold(1_u64, |product, dim| product.checked_mul(*dim));
        return match others {
            Some(others) if others <= MAX_EMPTY => Ok(0),
            _ => Err(format!(
                "shape {shape:?} has no elements, but other dimensions of more than {MAX_EMPTY}"
            )),
        };
    }
    shape
        .iter()
        .try_fold(1_u64, |product, dim| product.checked_mul(*dim))
        .filter(|count| *count <= isize::MAX as u64 / 8)
        .and_then(|count| usize::try_from(count).ok())
        .ok_or_else(|| format!("shape {shape:?} has more elements than can be addressed"))
}

fn byte_strings(data: &Bytes) -> impl Iterator<Item = Result<Bytes, String>> + '_ {
    let mut at = 0_usize;
    std::iter::from_fn(move || {
        if at >= data.len() {
            return None;
        }
        let end = data
            .get(at..)
            .and_then(|rest| rest.first_chunk::<4>())
            .map(|len| u32::from_le_bytes(*len) as usize)
            .and_then(|len| (at + 4).checked_add(len))
            .filter(|end| *end <= data.len());
        Some(match end {
            Some(end) => {
                let element = data.slice(at + 4..end);
                at = end;
                Ok(element)
            }
            None => {
                let problem = format!("a BYTES element at offset {at} reaches beyond the data");
                at = data.len();
                Err(problem)
            }
        })
    })
}

#[cfg(test)]
mod tests;
