//! Inference requests: parsing at a server, encoding at a client.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    Datatype, Encoded, Parameters, ProtocolError, Tensor,
    error::clip,
    json::{parse_data, quote_bare_floats},
    tensor::element_count,
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestedOutput {
    /// Output name.
    pub name: String,
    /// For example `binary_data`, `classification`.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with inputs")]
struct WireRequest<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    parameters: Option<Parameters>,
    #[serde(borrow)]
    inputs: Vec<WireInput<'a>>,
    #[serde(default)]
    outputs: Option<Vec<RequestedOutput>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an input object")]
struct WireInput<'a> {
    name: String,
    shape: Vec<u64>,
    datatype: String,
    #[serde(default)]
    parameters: Option<Parameters>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

impl InferRequest {
    /// Parses a request body. `json_length` is the value of `Inference-Header-Content-Length`, if
    /// the header was sent; binary tensors share `body`'s memory.
    ///
    /// # Errors
    /// Any deviation from the protocol, naming the member, expected and received values.
    pub fn parse(body: &Bytes, json_length: Option<usize>) -> Result<Self, ProtocolError> {
        let length = json_length.unwrap_or(body.len());
        if length > body.len() {
            return Err(ProtocolError::Binary(format!(
                "inference-header-content-length is {length} but the body has {} bytes",
                body.len()
            )));
        }
        let text = std::str::from_utf8(&body[..length])
            .map_err(|error| ProtocolError::Json(format!("not UTF-8: {error}")))?;
        let quoted;
        let (wire, marker) = match serde_json::from_str::<WireRequest<'_>>(text) {
            Ok(wire) => (wire, None),
            Err(error) => {
                let bad = |error: serde_json::Error| ProtocolError::Json(error.to_string());
                quoted = quote_bare_floats(text).ok_or_else(|| bad(error))?;
                let wire = serde_json::from_str(&quoted.text).map_err(bad)?;
                (wire, Some(quoted.marker.as_str()))
            }
        };
        Self::from_wire(wire, body.slice(length..), marker)
    }

    fn from_wire(
        wire: WireRequest<'_>,
        binary: Bytes,
        marker: Option<&str>,
    ) -> Result<Self, ProtocolError> {
        let outputs = wire.outputs.unwrap_or_default();
        no_duplicates(outputs.iter().map(|output| output.name.as_str()))
            .map_err(|name| ProtocolError::output(name, "requested twice"))?;
        no_duplicates(wire.inputs.iter().map(|input| input.name.as_str()))
            .map_err(|name| ProtocolError::input(name, "sent twice"))?;
        let mut rest = binary;
        let inputs = wire
            .inputs
            .into_iter()
            .map(|input| {
                let name = clip(&input.name);
                input
                    .into_tensor(&mut rest, marker)
                    .map_err(|problem| ProtocolError::input(&name, problem))
            })
            .collect::<Result<Vec<_>, _>>()?;
        if !rest.is_empty() {
            return Err(ProtocolError::Binary(format!(
                "{} bytes are left over after the last binary input",
                rest.len()
            )));
        }
        let parameters = wire.parameters.unwrap_or_default();
        Ok(Self { id: wire.id, parameters, inputs, outputs })
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
            write_tensor(tensor, &Parameters::default(), binary, &mut json, &mut blobs)
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

impl WireInput<'_> {
    fn into_tensor(self, rest: &mut Bytes, marker: Option<&str>) -> Result<Tensor, String> {
        let datatype = Datatype::parse(&self.datatype)
            .ok_or_else(|| format!("unknown datatype '{}'", clip(&self.datatype)))?;
        let count = element_count(&self.shape)?;
        let parameters = self.parameters.unwrap_or_default();
        let data = match (self.data, parameters.get("binary_data_size")) {
            (Some(_), Some(_)) => return Err("has both data and binary_data_size".into()),
            (None, None) => return Err("has neither data nor binary_data_size".into()),
            (Some(raw), None) => parse_data(raw.get(), datatype, &self.shape, count, marker)?,
            (None, Some(size)) => {
                let size = size
                    .as_u64()
                    .and_then(|size| usize::try_from(size).ok())
                    .ok_or("binary_data_size is not a non-negative integer")?;
                if size > rest.len() {
                    return Err(format!(
                        "binary_data_size is {size} but {} bytes are left in the body",
                        rest.len()
                    ));
                }
                rest.split_to(size)
            }
        };
        Tensor::new(self.name, datatype, self.shape, data).map_err(|error| match error {
            ProtocolError::Tensor { problem, .. } => problem,
            other => other.to_string(),
        })
    }
}

/// Writes one tensor object, its elements inline or appended to `blobs`.
pub(crate) fn write_tensor(
    tensor: &Tensor,
    parameters: &Parameters,
    binary: bool,
    json: &mut Vec<u8>,
    blobs: &mut Vec<Bytes>,
) -> Result<(), String> {
    put(json, "{\"name\":", &tensor.name);
    put(json, ",\"shape\":", &tensor.shape);
    put(json, ",\"datatype\":", tensor.datatype.as_str());
    if binary {
        let mut parameters = parameters.clone();
        let size = i64::try_from(tensor.data.len()).map_err(|_| "tensor is too large")?;
        parameters.set("binary_data_size", crate::Parameter::Int(size));
        put(json, ",\"parameters\":", &parameters);
        blobs.push(tensor.data.clone());
    } else {
        if !parameters.is_empty() {
            put(json, ",\"parameters\":", parameters);
        }
        json.extend_from_slice(b",\"data\":");
        crate::json::write_data(tensor, json)?;
    }
    json.push(b'}');
    Ok(())
}

/// Appends `key` and `value` as JSON; strings, numbers and maps of them cannot fail to serialise.
pub(crate) fn put<T: serde::Serialize + ?Sized>(json: &mut Vec<u8>, key: &str, value: &T) {
    json.extend_from_slice(key.as_bytes());
    let written = serde_json::to_writer(&mut *json, value);
    debug_assert!(written.is_ok());
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
