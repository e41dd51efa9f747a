//! Request, tensor and response parameters: string, number or boolean values, nothing nested.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, MapAccess, Visitor},
};

use crate::{
    ProtocolError,
    error::clip,
    json::{Bare, Fault, Reader},
};

/// Parameter of a tensor that is said to be in memory shared with the client.
pub(crate) const SHARED_MEMORY: &str = "shared_memory_region";

/// Why such a tensor is refused.
pub(crate) const NO_SHARED_MEMORY: &str =
    "is in shared memory, which cannot cross hosts; send the data";

/// One parameter value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Parameter {
    /// JSON boolean.
    Bool(bool),
    /// Integer within i64.
    Int(i64),
    /// Integer above i64's range.
    Uint(u64),
    /// Any other number.
    Float(f64),
    /// JSON string.
    Text(String),
}

impl Parameter {
    /// The value if it is a boolean.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// The value if it is a non-negative integer.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Int(value) => u64::try_from(*value).ok(),
            Self::Uint(value) => Some(*value),
            _ => None,
        }
    }

    /// The value if it is a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Text(value) = self { Some(value) } else { None }
    }
}

impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ParameterVisitor;
        impl Visitor<'_> for ParameterVisitor {
            type Value = Parameter;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a parameter: string, number or boolean")
            }
            fn visit_bool<E: Error>(self, value: bool) -> Result<Parameter, E> {
                Ok(Parameter::Bool(value))
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Parameter, E> {
                Ok(Parameter::Int(value))
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Parameter, E> {
                Ok(i64::try_from(value).map_or(Parameter::Uint(value), Parameter::Int))
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<Parameter, E> {
                Ok(Parameter::Float(value))
            }
            fn visit_str<E: Error>(self, value: &str) -> Result<Parameter, E> {
                Ok(Parameter::Text(value.to_owned()))
            }
        }
        deserializer.deserialize_any(ParameterVisitor)
    }
}

/// Named parameters, in name order.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Parameters(pub BTreeMap<String, Parameter>);

impl Parameters {
    /// The value of `name`, if given.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.0.get(name)
    }

    /// Sets `name`.
    pub fn set(&mut self, name: &str, value: Parameter) {
        self.0.insert(name.to_owned(), value);
    }

    /// Reads the object that starts here.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let start = *reader;
        if start.peek() != Some(b'{') {
            return Err(start.expected("an object of parameters"));
        }
        // The pass that finds the end also bounds what follows, and refuses duplicates.
        reader.skip(Bare::Refused)?;
        serde_json::from_str(reader.since(&start)).map_err(|error| {
            // Positions inside this object would mislead a reader who counts from the body's start.
            let text = error.to_string();
            Fault::form(text.split_once(" at line ").map_or(text.as_str(), |(message, _)| message))
        })
    }

    /// The value of `name` if it is given, as a boolean.
    ///
    /// # Errors
    /// A value of another type.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, ProtocolError> {
        self.typed(name, "a boolean", Parameter::as_bool)
    }

    /// The value of `name` if it is given, as a non-negative integer.
    ///
    /// # Errors
    /// A value of another type, or a negative one.
    pub fn unsigned(&self, name: &str) -> Result<Option<u64>, ProtocolError> {
        self.typed(name, "a non-negative integer", Parameter::as_u64)
    }

    fn typed<T>(
        &self,
        name: &str,
        what: &str,
        read: impl FnOnce(&Parameter) -> Option<T>,
    ) -> Result<Option<T>, ProtocolError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        read(value)
            .map(Some)
            .ok_or_else(|| ProtocolError::Json(format!("parameter '{name}' is not {what}")))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor;
        impl<'de> Visitor<'de> for MapVisitor {
            type Value = Parameters;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of parameters")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parameters, A::Error> {
                let mut out = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    let value = map.next_value::<Parameter>().map_err(|error| {
                        A::Error::custom(format!("parameter '{}': {error}", clip(&name)))
                    })?;
                    if name.starts_with("triton_") {
                        return Err(A::Error::custom(format!(
                            "parameter '{}' is reserved",
                            clip(&name)
                        )));
                    }
                    // A second value for one name has no defined meaning: say so.
                    if let Some(_previous) = out.insert(name.clone(), value) {
                        return Err(A::Error::custom("a parameter is given twice"));
                    }
                }
                Ok(Parameters(out))
            }
        }
        deserializer.deserialize_map(MapVisitor)
    }
}
