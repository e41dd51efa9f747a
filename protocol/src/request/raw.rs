//! The raw binary request: the whole body is the one input tensor, of a model that has one.

use bytes::{BufMut, Bytes, BytesMut};

use super::InferRequest;
use crate::{Datatype, Parameter, Parameters, ProtocolError, Tensor, tensor::element_count};

/// The input that a model declares.
#[derive(Clone, Copy, Debug)]
pub struct RawInput<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its element type.
    pub datatype: Datatype,
    /// Its dimensions; `None` where the model takes any.
    pub shape: &'a [Option<u64>],
}

impl InferRequest {
    /// Takes all of `body` as `input`, for a request whose `Inference-Header-Content-Length` is 0.
    /// One variable dimension follows from the length. A BYTES body is one element and carries no
    /// length prefix. All outputs are asked for as binary. Shares `body`'s memory, except for BYTES.
    ///
    /// # Errors
    /// More than one variable dimension, a length that does not fit the shape, or
    /// BYTES of another shape than one element.
    pub fn parse_raw(body: &Bytes, input: RawInput<'_>) -> Result<Self, ProtocolError> {
        let fail = |problem: String| ProtocolError::input(input.name, problem);
        let (shape, data) = if let Some(size) = input.datatype.size() {
            (infer(input.shape, body.len(), size).map_err(fail)?, body.clone())
        } else {
            one_string(input.shape, body).map_err(fail)?
        };
        let tensor = Tensor::new(input.name, input.datatype, shape, data)?;
        let mut parameters = Parameters::default();
        parameters.set("binary_data_output", Parameter::Bool(true));
        Ok(Self { inputs: vec![tensor], parameters, ..Self::default() })
    }
}

/// The shape of `length` bytes of elements of `size` bytes each.
fn infer(dims: &[Option<u64>], length: usize, size: usize) -> Result<Vec<u64>, String> {
    let known: Vec<u64> = dims.iter().copied().flatten().collect();
    let fixed = element_count(&known)?
        .checked_mul(size)
        .ok_or("the model's shape is larger than this machine's memory")?;
    let any = match dims.len() - known.len() {
        0 => 0,
        1 if fixed == 0 => {
            return Err("a raw request leaves the variable dimension open; send its shape".into());
        }
        1 if length.is_multiple_of(fixed) => (length / fixed) as u64,
        1 => {
            return Err(format!(
                "{length} bytes are no multiple of the {fixed} of the model's fixed dimensions"
            ));
        }
        several => {
            return Err(format!(
                "a raw request needs a model with at most one variable dimension, this has {several}"
            ));
        }
    };
    Ok(dims.iter().map(|dim| dim.unwrap_or(any)).collect())
}

/// `body` as the only element of a BYTES tensor.
fn one_string(dims: &[Option<u64>], body: &Bytes) -> Result<(Vec<u64>, Bytes), String> {
    let shape: Vec<u64> = dims.iter().map(|dim| dim.unwrap_or(1)).collect();
    let variable = dims.iter().filter(|dim| dim.is_none()).count();
    if variable > 1 || shape.is_empty() || shape.iter().any(|dim| *dim != 1) {
        return Err("a raw BYTES request needs a model whose input is of shape [1]".into());
    }
    let length = u32::try_from(body.len()).map_err(|_| "a BYTES element over 4 GiB")?;
    let mut data = BytesMut::with_capacity(body.len() + 4);
    data.put_u32_le(length);
    data.put_slice(body);
    Ok((shape, data.freeze()))
}
