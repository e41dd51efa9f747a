//! Inference messages to and from the types that REST uses too: every tensor ends up in binary
//! form, whether it came as raw or as typed contents.
//!
//! Raw contents share the memory of the message. Typed contents are checked here (the one right
//! field, range, count); shape against size is the tensor's own check.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};

use super::inference::{
    InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse,
    ModelRepositoryParameter,
    infer_parameter::ParameterChoice,
    model_infer_request::{InferInputTensor, InferRequestedOutputTensor},
    model_infer_response::InferOutputTensor,
};
use crate::{
    Datatype, InferRequest, InferResponse, ModelName, Parameter, Parameters, ProtocolError,
    RequestedOutput, Tensor,
    error::clip,
    parameters::{NO_SHARED_MEMORY, SHARED_MEMORY},
    request::no_duplicates,
    tensor::element_count,
};

/// Set on every answer of a stream: no further answer to the same request follows.
pub const FINAL_RESPONSE: &str = "triton_final_response";

/// The one reserved parameter that clients send. It asks for an empty last answer where a model
/// gives several; ours give exactly one, which is the last.
const EMPTY_FINAL_RESPONSE: &str = "triton_enable_empty_final_response";

/// A model as a message names it; an empty version is none.
#[must_use]
pub fn model(name: &str, version: &str) -> ModelName {
    ModelName { name: name.to_owned(), version: some(version.to_owned()) }
}

impl ModelInferRequest {
    /// A request to `model`, all tensors as raw contents.
    #[must_use]
    pub fn new(model: &ModelName, request: InferRequest) -> Self {
        let mut raw_input_contents = Vec::with_capacity(request.inputs.len());
        let input = |tensor: Tensor| {
            raw_input_contents.push(tensor.data);
            InferInputTensor {
                name: tensor.name,
                datatype: tensor.datatype.as_str().to_owned(),
                shape: dims(&tensor.shape),
                ..InferInputTensor::default()
            }
        };
        let inputs = request.inputs.into_iter().map(input).collect();
        let output = |output: RequestedOutput| InferRequestedOutputTensor {
            name: output.name,
            parameters: parameters_out(output.parameters),
        };
        Self {
            model_name: model.name.clone(),
            model_version: model.version.clone().unwrap_or_default(),
            id: request.id.unwrap_or_default(),
            parameters: parameters_out(request.parameters),
            inputs,
            outputs: request.outputs.into_iter().map(output).collect(),
            raw_input_contents,
        }
    }

    /// The model that is asked.
    #[must_use]
    pub fn model(&self) -> ModelName {
        model(&self.model_name, &self.model_version)
    }

    /// The request in the form of REST.
    ///
    /// # Errors
    /// Any deviation from the protocol, naming the tensor, expected and received values.
    pub fn into_request(self) -> Result<InferRequest, ProtocolError> {
        no_duplicates(self.outputs.iter().map(|output| output.name.as_str()))
            .map_err(|name| ProtocolError::output(name, "requested twice"))?;
        no_duplicates(self.inputs.iter().map(|input| input.name.as_str()))
            .map_err(|name| ProtocolError::input(name, "sent twice"))?;
        for input in &self.inputs {
            no_shared_memory(&input.parameters)
                .map_err(|problem| ProtocolError::input(&input.name, problem))?;
            reserved(&input.parameters)?;
        }
        let output = |output: InferRequestedOutputTensor| {
            no_shared_memory(&output.parameters)
                .map_err(|problem| ProtocolError::output(&output.name, problem))?;
            Ok(RequestedOutput { name: output.name, parameters: parameters_in(output.parameters)? })
        };
        let outputs = self.outputs.into_iter().map(output).collect::<Result<_, ProtocolError>>()?;
        let described = self.inputs.into_iter().map(|input| Described {
            name: input.name,
            datatype: input.datatype,
            shape: input.shape,
            contents: input.contents,
        });
        let request = InferRequest {
            id: some(self.id),
            parameters: parameters_in(self.parameters)?,
            inputs: tensors("input", described, self.raw_input_contents)?,
            outputs,
        };
        request.check_hints()?;
        Ok(request)
    }
}

impl From<InferResponse> for ModelInferResponse {
    /// All outputs as raw contents.
    fn from(response: InferResponse) -> Self {
        let mut raw_output_contents = Vec::with_capacity(response.outputs.len());
        let output = |tensor: Tensor| {
            raw_output_contents.push(tensor.data);
            InferOutputTensor {
                name: tensor.name,
                datatype: tensor.datatype.as_str().to_owned(),
                shape: dims(&tensor.shape),
                ..InferOutputTensor::default()
            }
        };
        let outputs = response.outputs.into_iter().map(output).collect();
        Self {
            model_name: response.model_name,
            model_version: response.model_version.unwrap_or_default(),
            id: response.id.unwrap_or_default(),
            parameters: parameters_out(response.parameters),
            outputs,
            raw_output_contents,
        }
    }
}

impl ModelInferResponse {
    /// The response in the form of REST, as a client reads it.
    ///
    /// # Errors
    /// Any deviation from the protocol.
    pub fn into_response(self) -> Result<InferResponse, ProtocolError> {
        let described = self.outputs.into_iter().map(|output| Described {
            name: output.name,
            datatype: output.datatype,
            shape: output.shape,
            contents: output.contents,
        });
        let outputs = tensors("output", described, self.raw_output_contents)?;
        Ok(InferResponse {
            model_name: self.model_name,
            model_version: some(self.model_version),
            id: some(self.id),
            parameters: parameters_of(self.parameters)?,
            outputs,
        })
    }
}

/// A tensor of a message, input or output.
struct Described {
    name: String,
    datatype: String,
    shape: Vec<i64>,
    contents: Option<InferTensorContents>,
}

fn tensors(
    kind: &'static str,
    described: impl ExactSizeIterator<Item = Described>,
    raw: Vec<Bytes>,
) -> Result<Vec<Tensor>, ProtocolError> {
    if !raw.is_empty() && raw.len() != described.len() {
        let (raw, count) = (raw.len(), described.len());
        let problem = format!("raw_{kind}_contents has {raw} entries for {count} {kind}s");
        return Err(ProtocolError::Message(problem));
    }
    let mut raw = raw.into_iter();
    let tensor = |described: Described| {
        let name = clip(&described.name);
        let tensor = described.into_tensor(kind, raw.next());
        tensor.map_err(|problem| ProtocolError::Tensor { kind, name, problem })
    };
    described.map(tensor).collect()
}

impl Described {
    fn into_tensor(self, kind: &str, raw: Option<Bytes>) -> Result<Tensor, String> {
        let datatype = Datatype::parse(&self.datatype)
            .ok_or_else(|| format!("unknown datatype '{}'", clip(&self.datatype)))?;
        let shape = positive(&self.shape)?;
        let count = element_count(&shape)?;
        let contents = self.contents.unwrap_or_default();
        let data = match raw {
            Some(_) if !contents.is_empty() => {
                return Err(format!("has both contents and an entry in raw_{kind}_contents"));
            }
            Some(raw) => raw,
            None => contents.into_elements(datatype, count, kind)?,
        };
        Tensor::new(self.name, datatype, shape, data).map_err(|error| match error {
            ProtocolError::Tensor { problem, .. } => problem,
            other => other.to_string(),
        })
    }
}

fn positive(shape: &[i64]) -> Result<Vec<u64>, String> {
    let dim = |dim: &i64| u64::try_from(*dim).map_err(|_| format!("a dimension is {dim}"));
    shape.iter().map(dim).collect()
}

/// Dimensions were bounded when the tensor was made.
fn dims(shape: &[u64]) -> Vec<i64> {
    shape.iter().map(|dim| i64::try_from(*dim).unwrap_or(i64::MAX)).collect()
}

impl InferTensorContents {
    /// The fields by name, with the elements in each.
    fn fields(&self) -> [(&'static str, usize); 8] {
        [
            ("bool_contents", self.bool_contents.len()),
            ("int_contents", self.int_contents.len()),
            ("int64_contents", self.int64_contents.len()),
            ("uint_contents", self.uint_contents.len()),
            ("uint64_contents", self.uint64_contents.len()),
            ("fp32_contents", self.fp32_contents.len()),
            ("fp64_contents", self.fp64_contents.len()),
            ("bytes_contents", self.bytes_contents.len()),
        ]
    }

    /// Whether no field has an element.
    fn is_empty(&self) -> bool {
        self.fields().iter().all(|field| field.1 == 0)
    }

    /// The elements in binary form.
    fn into_elements(self, datatype: Datatype, count: usize, kind: &str) -> Result<Bytes, String> {
        let right = match datatype {
            Datatype::Bool => "bool_contents",
            Datatype::Int8 | Datatype::Int16 | Datatype::Int32 => "int_contents",
            Datatype::Int64 => "int64_contents",
            Datatype::Uint8 | Datatype::Uint16 | Datatype::Uint32 => "uint_contents",
            Datatype::Uint64 => "uint64_contents",
            Datatype::Fp32 => "fp32_contents",
            Datatype::Fp64 => "fp64_contents",
            Datatype::Bytes => "bytes_contents",
            Datatype::Fp16 | Datatype::Bf16 => {
                return Err(format!(
                    "{datatype} has no field in contents; send it in raw_{kind}_contents"
                ));
            }
        };
        let fields = self.fields();
        if let Some((wrong, _)) = fields.iter().find(|field| field.0 != right && field.1 > 0) {
            return Err(format!("{datatype} elements belong in {right}, not in {wrong}"));
        }
        let got = fields.iter().map(|field| field.1).sum::<usize>();
        if got != count {
            return Err(format!("expected {count} elements for its shape, got {got}"));
        }
        Ok(match datatype {
            Datatype::Bool => self.bool_contents.iter().map(|value| u8::from(*value)).collect(),
            Datatype::Int8 => narrow(&self.int_contents, datatype, i8::to_le_bytes)?,
            Datatype::Int16 => narrow(&self.int_contents, datatype, i16::to_le_bytes)?,
            Datatype::Int32 => plain(&self.int_contents, i32::to_le_bytes),
            Datatype::Int64 => plain(&self.int64_contents, i64::to_le_bytes),
            Datatype::Uint8 => narrow(&self.uint_contents, datatype, u8::to_le_bytes)?,
            Datatype::Uint16 => narrow(&self.uint_contents, datatype, u16::to_le_bytes)?,
            Datatype::Uint32 => plain(&self.uint_contents, u32::to_le_bytes),
            Datatype::Uint64 => plain(&self.uint64_contents, u64::to_le_bytes),
            Datatype::Fp32 => plain(&self.fp32_contents, f32::to_le_bytes),
            Datatype::Fp64 => plain(&self.fp64_contents, f64::to_le_bytes),
            Datatype::Bytes => prefixed(&self.bytes_contents)?,
            Datatype::Fp16 | Datatype::Bf16 => Bytes::new(),
        })
    }
}

fn plain<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Bytes {
    let mut out = BytesMut::with_capacity(values.len() * N);
    values.iter().for_each(|value| out.put_slice(&bytes(*value)));
    out.freeze()
}

/// Elements that travel in a wider type than they are.
fn narrow<Wide, Narrow, const N: usize>(
    values: &[Wide],
    datatype: Datatype,
    bytes: impl Fn(Narrow) -> [u8; N],
) -> Result<Bytes, String>
where
    Wide: Copy + std::fmt::Display,
    Narrow: TryFrom<Wide>,
{
    let mut out = BytesMut::with_capacity(values.len() * N);
    for value in values {
        let narrow = Narrow::try_from(*value)
            .map_err(|_| format!("{value} is out of range for {datatype}"))?;
        out.put_slice(&bytes(narrow));
    }
    Ok(out.freeze())
}

fn prefixed(strings: &[Bytes]) -> Result<Bytes, String> {
    let length = strings.iter().map(|bytes| bytes.len() + 4).sum();
    let mut out = BytesMut::with_capacity(length);
    for bytes in strings {
        out.put_u32_le(u32::try_from(bytes.len()).map_err(|_| "a string over 4 GiB")?);
        out.put_slice(bytes);
    }
    Ok(out.freeze())
}

/// Memory of the sender's host is not this host's: data in it cannot be had, nor left there.
fn no_shared_memory(parameters: &HashMap<String, InferParameter>) -> Result<(), &'static str> {
    if parameters.contains_key(SHARED_MEMORY) { Err(NO_SHARED_MEMORY) } else { Ok(()) }
}

fn reserved(map: &HashMap<String, InferParameter>) -> Result<(), ProtocolError> {
    let reserved = |name: &&String| name.starts_with("triton_") && *name != EMPTY_FINAL_RESPONSE;
    match map.keys().find(reserved) {
        Some(name) => {
            Err(ProtocolError::Message(format!("parameter '{}' is reserved", clip(name))))
        }
        None => Ok(()),
    }
}

/// The parameters of a request.
fn parameters_in(mut map: HashMap<String, InferParameter>) -> Result<Parameters, ProtocolError> {
    reserved(&map)?;
    map.remove(EMPTY_FINAL_RESPONSE);
    parameters_of(map)
}

fn parameters_of(map: HashMap<String, InferParameter>) -> Result<Parameters, ProtocolError> {
    let entries = map.into_iter().map(|(name, value)| {
        let value = parameter_in(&name, value)?;
        Ok((name, value))
    });
    Ok(Parameters(entries.collect::<Result<_, ProtocolError>>()?))
}

/// The parameters of a load or an unload.
///
/// # Errors
/// A parameter without a value.
pub fn repository_parameters(
    map: &HashMap<String, ModelRepositoryParameter>,
) -> Result<Parameters, ProtocolError> {
    use super::inference::model_repository_parameter::ParameterChoice as Choice;
    let mut parameters = Parameters::default();
    for (name, value) in map {
        let value = match &value.parameter_choice {
            Some(Choice::BoolParam(value)) => Parameter::Bool(*value),
            Some(Choice::Int64Param(value)) => Parameter::Int(*value),
            Some(Choice::StringParam(value)) => Parameter::Text(value.clone()),
            // Files travel so. No model is loaded from them, so that the name is all that counts.
            Some(Choice::BytesParam(_)) => Parameter::Text(String::new()),
            None => {
                let name = clip(name);
                return Err(ProtocolError::Message(format!("parameter '{name}' has no value")));
            }
        };
        parameters.set(name, value);
    }
    Ok(parameters)
}

fn parameter_in(name: &str, value: InferParameter) -> Result<Parameter, ProtocolError> {
    match value.parameter_choice {
        Some(ParameterChoice::BoolParam(value)) => Ok(Parameter::Bool(value)),
        Some(ParameterChoice::Int64Param(value)) => Ok(Parameter::Int(value)),
        Some(ParameterChoice::Uint64Param(value)) => {
            Ok(i64::try_from(value).map_or(Parameter::Uint(value), Parameter::Int))
        }
        Some(ParameterChoice::DoubleParam(value)) => Ok(Parameter::Float(value)),
        Some(ParameterChoice::StringParam(value)) => Ok(Parameter::Text(value)),
        None => Err(ProtocolError::Message(format!("parameter '{}' has no value", clip(name)))),
    }
}

fn parameters_out(parameters: Parameters) -> HashMap<String, InferParameter> {
    parameters.0.into_iter().map(|(name, value)| (name, value.into())).collect()
}

impl From<Parameter> for InferParameter {
    fn from(value: Parameter) -> Self {
        let choice = match value {
            Parameter::Bool(value) => ParameterChoice::BoolParam(value),
            Parameter::Int(value) => ParameterChoice::Int64Param(value),
            Parameter::Uint(value) => ParameterChoice::Uint64Param(value),
            Parameter::Float(value) => ParameterChoice::DoubleParam(value),
            Parameter::Text(value) => ParameterChoice::StringParam(value),
        };
        Self { parameter_choice: Some(choice) }
    }
}

/// gRPC has no absent string: the empty one stands for it.
fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
