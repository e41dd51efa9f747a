//! Inference requests: parsing at a server, encoding at a client.

mod hints;
mod raw;

use bytes::Bytes;
use serde::Serialize;

pub use hints::{Sequence, SequenceId};
pub use raw::RawInput;

use crate::{
    Encoded, Parameters, ProtocolError, Tensor,
    json::{Bare, Fault, Reader, put, read_list, read_tensor, text_of, write_tensor},
};

/// An inference request whose tensors are all in binary form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InferRequest {
    /// The app's correlation id.
    pub id: Option<String>,
    /// Request parameters.
    pub parameters: Parameters,
    /// Input tensors, in request order.
    pub inputs: Vec<Tensor>,
    /// Outputs asked for; empty means all.
    pub outputs: Vec<RequestedOutput>,
}

/// An output that the request names.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RequestedOutput {
    /// Output name.
    pub name: String,
    /// For example `binary_data`, `classification`.
    #[serde(skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
}

impl InferRequest {
    /// Parses a request body. `json_length` is the value of `Inference-Header-Content-Length`, if
    /// the header was sent and is not 0 (see [`InferRequest::parse_raw`]). Binary tensors share
    /// `body`'s memory; the data of JSON tensors starts at a multiple of eight bytes.
    ///
    /// # Errors
    /// Any deviation from the protocol, naming the member, expected and received values.
    pub fn parse(body: &Bytes, json_length: Option<usize>) -> Result<Self, ProtocolError> {
        let text = text_of(body, json_length)?;
        let mut rest = body.slice(text.len()..);
        let request = Self::read(&mut Reader::new(text), &mut rest)
            .map_err(|fault| fault.into_error(ProtocolError::input))?;
        if !rest.is_empty() {
            return Err(ProtocolError::Binary(format!(
                "{} bytes are left over after the last binary input",
                rest.len()
            )));
        }
        no_duplicates(request.outputs.iter().map(|output| output.name.as_str()))
            .map_err(|name| ProtocolError::output(name, "requested twice"))?;
        no_duplicates(request.inputs.iter().map(|input| input.name.as_str()))
            .map_err(|name| ProtocolError::input(name, "sent twice"))?;
        request.check_hints()?;
        Ok(request)
    }

    fn read(reader: &mut Reader<'_>, rest: &mut Bytes) -> Result<Self, Fault> {
        let (mut id, mut parameters, mut inputs, mut outputs) = (None, None, None, None);
        reader.space();
        reader.object(|reader, member| {
            match member {
                "id" => id = reader.optional(|reader| Ok(reader.string()?.into_owned()))?,
                "parameters" => parameters = reader.optional(Parameters::read)?,
                "inputs" => {
                    inputs = Some(read_list(reader, |reader| read_tensor(reader, rest))?);
                }
                "outputs" => {
                    outputs = reader.optional(|reader| read_list(reader, RequestedOutput::read))?;
                }
                _ => reader.skip(Bare::Refused)?,
            }
            Ok(())
        })?;
        reader.end()?;
        Ok(Self {
            id,
            parameters: parameters.unwrap_or_default(),
            inputs: inputs.ok_or_else(|| Fault::missing("inputs"))?,
            outputs: outputs.unwrap_or_default(),
        })
    }

    /// Encodes the request, every input as binary when `binary` is set.
    ///
    /// # Errors
    /// A tensor that has no JSON form while `binary` is not set.
    pub fn encode(&self, binary: bool) -> Result<Encoded, ProtocolError> {
        let mut json = Vec::with_capacity(256);
        json.extend_from_slice(b"{");
        if let Some(id) = &self.id {
            put(&mut json, "\"id\":", id);
            json.push(b',');
        }
        if !self.parameters.is_empty() {
            put(&mut json, "\"parameters\":", &self.parameters);
            json.push(b',');
        }
        json.extend_from_slice(b"\"inputs\":[");
        let mut blobs = Vec::new();
        for (index, tensor) in self.inputs.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            write_tensor(tensor, binary, &mut json, &mut blobs)
                .map_err(|problem| ProtocolError::input(&tensor.name, problem))?;
        }
        json.push(b']');
        if !self.outputs.is_empty() {
            put(&mut json, ",\"outputs\":", &self.outputs);
        }
        json.push(b'}');
        Ok(Encoded::new(json, &blobs))
    }
}

impl RequestedOutput {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let (mut name, mut parameters) = (None, None);
        reader.object(|reader, member| {
            match member {
                "name" => name = Some(reader.string()?.into_owned()),
                "parameters" => parameters = reader.optional(Parameters::read)?,
                _ => reader.skip(Bare::Refused)?,
            }
            Ok(())
        })?;
        let name = name.ok_or_else(|| Fault::missing("name"))?;
        Ok(Self { name, parameters: parameters.unwrap_or_default() })
    }
}

pub(crate) fn no_duplicates<'a>(
    names: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), &'a str> {
    let mut sorted: Vec<&str> = names.collect();
    sorted.sort_unstable();
    sorted.windows(2).find(|pair| pair[0] == pair[1]).map_or(Ok(()), |pair| Err(pair[0]))
}

#[cfg(test)]
mod tests;
