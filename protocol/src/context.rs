//! The policy context that travels from router to node to cloud: a base64url JSON header.
//!
//! Nothing here authenticates it; a receiver takes it only from a link it trusts.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

/// Largest header value taken.
pub const MAX_ENCODED: usize = 4096;

/// What a hop must obey for this request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Who pays and whose rules apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Regions where the data may be processed; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<String>,
    /// The model that was routed; a different one in the body is refused.
    pub model: String,
    /// What is left of the deadline when the header is written, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// Why a context header was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// Over [`MAX_ENCODED`] bytes.
    #[error("midspan-context is {0} bytes; at most {MAX_ENCODED} are taken")]
    TooLong(usize),
    /// Not base64url.
    #[error("midspan-context is not base64url: {0}")]
    Base64(String),
    /// Not the JSON object expected.
    #[error("midspan-context: {0}")]
    Json(String),
}

impl Context {
    /// The header value.
    #[must_use]
    pub fn encode(&self) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        URL_SAFE_NO_PAD.encode(json)
    }

    /// Reads a header value.
    ///
    /// # Errors
    /// When it is too long, not base64url or not a context.
    pub fn decode(value: &[u8]) -> Result<Self, ContextError> {
        if value.len() > MAX_ENCODED {
            return Err(ContextError::TooLong(value.len()));
        }
        let json = URL_SAFE_NO_PAD
            .decode(value)
            .map_err(|error| ContextError::Base64(error.to_string()))?;
        serde_json::from_slice(&json).map_err(|error| ContextError::Json(error.to_string()))
    }

    /// Whether the data may be processed in `region`.
    #[must_use]
    pub fn allows(&self, region: &str) -> bool {
        self.regions.is_empty() || self.regions.iter().any(|allowed| allowed == region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_refusals() {
        let context = Context {
            tenant: Some("acme".into()),
            regions: vec!["eu-west".into()],
            model: "fashion".into(),
            deadline_ms: Some(250),
        };
        assert_eq!(Context::decode(context.encode().as_bytes()), Ok(context.clone()));
        assert!(context.allows("eu-west") && !context.allows("us-east"));
        assert!(Context::default().allows("anywhere"));
        assert!(Context::decode(b"***").is_err());
        assert!(Context::decode(URL_SAFE_NO_PAD.encode("{\"model\":1}").as_bytes()).is_err());
        assert_eq!(Context::decode(&[b'A'; 5000]), Err(ContextError::TooLong(5000)));
    }
}
