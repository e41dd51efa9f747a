//! What came back, read whole, and the questions that expectations ask of it. It knows the
//! protocol's forms, not what a case expects.

use std::io::Read as _;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

/// An answer read whole.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Headers that may differ between a node and a router in front of it: time, tracing, connection
/// and what a hop says of its own work.
const OF_THE_HOP: [&str; 11] = [
    "connection",
    "date",
    "endpoint-load-metrics",
    "keep-alive",
    "midspan-decision",
    "midspan-load",
    "server-timing",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "x-request-id",
];

/// Headers of the node that made an answer. A router's own answers have none, a node's keep them.
const OF_THE_NODE: [&str; 2] = ["midspan-node", "midspan-region"];

impl Answer {
    /// A header as text; empty when it is missing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap_or("(not text)"))
    }

    /// Whether a header of this name holds `part`, whatever the case.
    pub(crate) fn header_has(&self, name: &str, part: &str) -> bool {
        let part = part.to_ascii_lowercase();
        let values = self.headers.get_all(name).iter();
        values.filter_map(|value| value.to_str().ok()).any(|value| {
            let mut members = value.split(',').map(|member| member.trim().to_ascii_lowercase());
            members.any(|member| member == part)
        })
    }

    /// The body as JSON; `serde_json` is strict.
    pub(crate) fn json(&self) -> Result<Value, String> {
        serde_json::from_slice(&self.body).map_err(|error| format!("no JSON body: {error}"))
    }

    /// The text of an error in the protocol's form.
    pub(crate) fn error(&self) -> Result<String, String> {
        let media = self.header("content-type");
        if media != "application/json" {
            return Err(format!("an error of media type '{media}', not application/json"));
        }
        let json = self.json()?;
        let text = json.get("error").and_then(Value::as_str).filter(|text| !text.is_empty());
        text.map(str::to_owned).ok_or_else(|| format!("no text member 'error' in {json}"))
    }

    /// An inference's JSON and the blobs behind it, by the extension's rules.
    pub(crate) fn split(&self) -> Result<(Value, Vec<Bytes>), String> {
        let body = self.decoded()?;
        // Without the header there is nothing but JSON.
        let length = self.headers.get("inference-header-content-length");
        let length = length.map_or(Some(body.len()), |length| length.to_str().ok()?.parse().ok());
        let length = length.ok_or("inference-header-content-length is no length")?;
        if length > body.len() {
            return Err(format!("a JSON length of {length} in {} bytes", body.len()));
        }
        let json: Value = serde_json::from_slice(&body[..length])
            .map_err(|error| format!("the first {length} bytes are no JSON: {error}"))?;
        let mut rest = body.slice(length..);
        let outputs = json.get("outputs").and_then(Value::as_array).cloned().unwrap_or_default();
        let sizes = outputs.iter().filter_map(|output| {
            output.pointer("/parameters/binary_data_size").and_then(Value::as_u64)
        });
        let mut blobs = Vec::new();
        for size in sizes {
            let size = usize::try_from(size).map_err(|error| error.to_string())?;
            if size > rest.len() {
                return Err(format!("a blob of {size} bytes, {} left", rest.len()));
            }
            blobs.push(rest.split_to(size));
        }
        if !rest.is_empty() {
            return Err(format!("{} bytes behind the last blob", rest.len()));
        }
        Ok((json, blobs))
    }

    /// The body without its content coding.
    pub(crate) fn decoded(&self) -> Result<Bytes, String> {
        let mut plain = Vec::new();
        let read = match self.header("content-encoding") {
            "" | "identity" => return Ok(self.body.clone()),
            "gzip" => flate2::read::GzDecoder::new(&self.body[..]).read_to_end(&mut plain),
            "deflate" => flate2::read::ZlibDecoder::new(&self.body[..]).read_to_end(&mut plain),
            other => return Err(format!("coding '{other}'")),
        };
        read.map_err(|error| format!("the body is not what content-encoding says: {error}"))?;
        Ok(plain.into())
    }

    /// How this answer, a node's, differs from a router's of the same request.
    pub(crate) fn compare(&self, routed: &Self) -> Result<(), String> {
        if self.status != routed.status {
            return Err(format!("status {} at the node, {} routed", self.status, routed.status));
        }
        if self.body != routed.body {
            let (node, router) = (clip(&self.body), clip(&routed.body));
            return Err(format!("body at the node: {node}; routed: {router}"));
        }
        let compared = |name: &&str| {
            let missing = OF_THE_NODE.contains(name) && !routed.headers.contains_key(*name);
            !OF_THE_HOP.contains(name) && !missing
        };
        let names = self.headers.keys().chain(routed.headers.keys());
        for name in names.map(http::HeaderName::as_str).filter(|name| compared(name)) {
            let all = |answer: &Self| -> Vec<Vec<u8>> {
                let values = answer.headers.get_all(name).iter();
                values.map(|value| value.as_bytes().to_vec()).collect()
            };
            if all(self) != all(routed) {
                let (node, router) = (self.header(name), routed.header(name));
                return Err(format!("header {name}: '{node}' at the node, '{router}' routed"));
            }
        }
        Ok(())
    }

    /// For messages: status and the beginning of the body.
    pub(crate) fn brief(&self) -> String {
        format!("{} {}", self.status, clip(&self.body))
    }
}

/// The beginning of a body, for messages.
pub(crate) fn clip(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(240)]);
    let more = if body.len() > 240 { " ..." } else { "" };
    format!("{text}{more}")
}

/// Whether two JSON values are the same to a reader: `1` and `1.0` are, large integers are exact.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => {
            if (a.is_f64() || b.is_f64()) && a.as_f64().is_some() {
                return a.as_f64() == b.as_f64();
            }
            a == b
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => left == right,
    }
}
