//! Inference responses: encoding at a server, parsing at a client.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    Datatype, Parameter, Parameters, ProtocolError, RequestedOutput, Tensor,
    json::parse_data,
    request::{no_duplicates, put, write_tensor},
    tensor::element_count,
};

/// An encoded message: the body and, if it has a binary part, how much of it is JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// JSON, followed by the binary tensors.
    pub body: Bytes,
    /// Value for `Inference-Header-Content-Length`; `None` when all of the body is JSON.
    pub json_length: Option<usize>,
}

impl Encoded {
    /// Puts the binary tensors behind the JSON: the one copy of each.
    pub(crate) fn new(mut json: Vec<u8>, blobs: &[Bytes]) -> Self {
        let binary: usize = blobs.iter().map(Bytes::len).sum();
        let json_length = (binary > 0).then_some(json.len());
        json.reserve_exact(binary);
        blobs.iter().for_each(|blob| json.extend_from_slice(blob));
        Self { body: json.into(), json_length }
    }

    /// The media type to send with it.
    #[must_use]
    pub fn media_type(&self) -> &'static str {
        if self.json_length.is_some() { "application/octet-stream" } else { "application/json" }
    }
}

/// An inference response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InferResponse {
    /// The model that answered.
    pub model_name: String,
    /// Its version.
    pub model_version: Option<String>,
    /// The request's id, echoed.
    pub id: Option<String>,
    /// Response parameters, for example `midspan_places`.
    pub parameters: Parameters,
    /// Output tensors.
    pub outputs: Vec<Tensor>,
}

/// Which outputs go out as binary: the response form that a request asked for.
#[derive(Clone, Debug, Default)]
pub struct OutputForm {
    all: bool,
    named: Vec<(String, bool)>,
}

impl OutputForm {
    /// Reads `binary_data_output` and each output's `binary_data` (which overrides it).
    ///
    /// # Errors
    /// A value that is no boolean.
    pub fn of(parameters: &Parameters, outputs: &[RequestedOutput]) -> Result<Self, ProtocolError> {
        let flag = |parameters: &Parameters, name: &str| match parameters.get(name) {
            None => Ok(None),
            Some(value) => value
                .as_bool()
                .map(Some)
                .ok_or_else(|| ProtocolError::Json(format!("parameter '{name}' is not a boolean"))),
        };
        let all = flag(parameters, "binary_data_output")?.unwrap_or(false);
        let named = outputs
            .iter()
            .map(|output| {
                Ok((output.name.clone(), flag(&output.parameters, "binary_data")?.unwrap_or(all)))
            })
            .collect::<Result<_, ProtocolError>>()?;
        Ok(Self { all, named })
    }

    /// Every output as binary.
    #[must_use]
    pub fn binary() -> Self {
        Self { all: true, named: Vec::new() }
    }

    fn is_binary(&self, name: &str) -> bool {
        self.named.iter().find(|entry| entry.0 == name).map_or(self.all, |entry| entry.1)
    }
}

#[derive(Deserialize)]
#[serde(expecting = "an object with outputs")]
struct WireResponse<'a> {
    model_name: String,
    #[serde(default)]
    model_version: Option<String>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    parameters: Option<Parameters>,
    #[serde(borrow)]
    outputs: Vec<WireOutput<'a>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an output object")]
struct WireOutput<'a> {
    name: String,
    shape: Vec<u64>,
    datatype: String,
    #[serde(default)]
    parameters: Option<Parameters>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

impl InferResponse {
    /// Encodes the response in the form that the request asked for.
    ///
    /// # Errors
    /// An output that cannot be written as JSON and was not asked for as binary.
    pub fn encode(&self, form: &OutputForm) -> Result<Encoded, ProtocolError> {
        let mut json = Vec::with_capacity(256);
        put(&mut json, "{\"model_name\":", &self.model_name);
        if let Some(version) = &self.model_version {
            put(&mut json, ",\"model_version\":", version);
        }
        if let Some(id) = &self.id {
            put(&mut json, ",\"id\":", id);
        }
        if !self.parameters.is_empty() {
            put(&mut json, ",\"parameters\":", &self.parameters);
        }
        json.extend_from_slice(b",\"outputs\":[");
        let mut blobs = Vec::new();
        for (index, tensor) in self.outputs.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            let binary = form.is_binary(&tensor.name);
            write_tensor(tensor, &Parameters::default(), binary, &mut json, &mut blobs)
                .map_err(|problem| ProtocolError::output(&tensor.name, problem))?;
        }
        json.extend_from_slice(b"]}");
        Ok(Encoded::new(json, &blobs))
    }

    /// Parses a response body. `json_length` as in [`crate::InferRequest::parse`].
    ///
    /// # Errors
    /// Any deviation from the protocol.
    pub fn parse(body: &Bytes, json_length: Option<usize>) -> Result<Self, ProtocolError> {
        let length = json_length.unwrap_or(body.len());
        let json = body.get(..length).ok_or_else(|| {
            ProtocolError::Binary(format!(
                "inference-header-content-length is {length}, body has {}",
                body.len()
            ))
        })?;
        let wire: WireResponse<'_> =
            serde_json::from_slice(json).map_err(|error| ProtocolError::Json(error.to_string()))?;
        no_duplicates(wire.outputs.iter().map(|output| output.name.as_str()))
            .map_err(|name| ProtocolError::output(name, "sent twice"))?;
        let mut rest = body.slice(length..);
        let outputs = wire
            .outputs
            .into_iter()
            .map(|output| output.into_tensor(&mut rest))
            .collect::<Result<_, _>>()?;
        if !rest.is_empty() {
            return Err(ProtocolError::Binary(format!("{} bytes are left over", rest.len())));
        }
        Ok(Self {
            model_name: wire.model_name,
            model_version: wire.model_version,
            id: wire.id,
            parameters: wire.parameters.unwrap_or_default(),
            outputs,
        })
    }

    /// The output called `name`.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<&Tensor> {
        self.outputs.iter().find(|output| output.name == name)
    }
}

impl WireOutput<'_> {
    fn into_tensor(self, rest: &mut Bytes) -> Result<Tensor, ProtocolError> {
        let fail = |problem: String| ProtocolError::output(&self.name, problem);
        let datatype = Datatype::parse(&self.datatype)
            .ok_or_else(|| fail(format!("unknown datatype '{}'", self.datatype)))?;
        let count = element_count(&self.shape).map_err(fail)?;
        let size = self.parameters.as_ref().and_then(|p| p.get("binary_data_size"));
        let data = match (self.data, size.and_then(Parameter::as_u64)) {
            (Some(raw), None) => {
                parse_data(raw.get(), datatype, &self.shape, count, None).map_err(fail)?
            }
            (None, Some(size)) if size <= rest.len() as u64 => rest.split_to(size as usize),
            _ => return Err(fail("has neither data nor a fitting binary_data_size".into())),
        };
        Tensor::new(self.name, datatype, self.shape, data)
    }
}

#[cfg(test)]
mod tests;
