//! Inference responses: encoding at a server, parsing at a client.

use bytes::Bytes;

use crate::{
    Parameters, ProtocolError, RequestedOutput, Tensor,
    json::{Bare, Fault, Reader, put, read_list, read_tensor, text_of, write_tensor},
    request::no_duplicates,
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
        let all = parameters.flag("binary_data_output")?.unwrap_or(false);
        let named = outputs
            .iter()
            .map(|output| {
                Ok((output.name.clone(), output.parameters.flag("binary_data")?.unwrap_or(all)))
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
            write_tensor(tensor, binary, &mut json, &mut blobs)
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
        let text = text_of(body, json_length)?;
        let mut rest = body.slice(text.len()..);
        let response = Self::read(&mut Reader::new(text), &mut rest)
            .map_err(|fault| fault.into_error(ProtocolError::output))?;
        if !rest.is_empty() {
            return Err(ProtocolError::Binary(format!(
                "{} bytes are left over after the last binary output",
                rest.len()
            )));
        }
        no_duplicates(response.outputs.iter().map(|output| output.name.as_str()))
            .map_err(|name| ProtocolError::output(name, "sent twice"))?;
        Ok(response)
    }

    fn read(reader: &mut Reader<'_>, rest: &mut Bytes) -> Result<Self, Fault> {
        let (mut model_name, mut model_version, mut id) = (None, None, None);
        let (mut parameters, mut outputs) = (None, None);
        reader.space();
        reader.object(|reader, member| {
            let text = |reader: &mut Reader<'_>| Ok(reader.string()?.into_owned());
            match member {
                "model_name" => model_name = Some(text(reader)?),
                "model_version" => model_version = reader.optional(text)?,
                "id" => id = reader.optional(text)?,
                "parameters" => parameters = reader.optional(Parameters::read)?,
                "outputs" => {
                    outputs = Some(read_list(reader, |reader| read_tensor(reader, rest))?);
                }
                _ => reader.skip(Bare::Refused)?,
            }
            Ok(())
        })?;
        reader.end()?;
        Ok(Self {
            model_name: model_name.ok_or_else(|| Fault::missing("model_name"))?,
            model_version,
            id,
            parameters: parameters.unwrap_or_default(),
            outputs: outputs.ok_or_else(|| Fault::missing("outputs"))?,
        })
    }

    /// The output called `name`.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<&Tensor> {
        self.outputs.iter().find(|output| output.name == name)
    }
}

#[cfg(test)]
mod tests;
