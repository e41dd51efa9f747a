//! The part of the document about inferences. Their tensors are parsed by hand, so their schemas
//! are written by hand too.

use serde_json::{Map, Value, json};

use crate::{Datatype, headers};

/// A successful inference.
pub(super) fn success() -> Value {
    let text = json!({ "type": "string" });
    let header = |what: &str, schema: &Value| json!({ "description": what, "schema": schema });
    json!({
        "description": "The outputs",
        "headers": {
            headers::INFERENCE_HEADER_CONTENT_LENGTH.as_str(): header(
                "Bytes of JSON before the binary tensors, where there are any",
                &json!({ "type": "integer", "minimum": 0 }),
            ),
            headers::NODE.as_str(): header("Node that answered", &text),
            headers::REGION.as_str(): header("Region where the answer was made", &text),
            headers::ANSWERED_BY.as_str(): header("exit:<n>, local or cloud", &text),
            headers::DEGRADED.as_str(): header("Why an early exit had to answer", &text),
            headers::CERTIFIED.as_str(): header(
                "Whether a certified bound covers the exit's answer",
                &json!({ "enum": ["true", "false"] }),
            ),
            headers::DECISION.as_str(): header("Id of the router's decision", &text),
            headers::SERVER_TIMING.as_str(): header("Where the time went", &text),
        },
        "content": {
            "application/json": { "schema": { "$ref": "#/components/schemas/InferResponse" } },
            "application/octet-stream": {},
        },
    })
}

/// Schemas of requests, responses and tensors.
pub(super) fn schemas() -> Map<String, Value> {
    let parameters = json!({ "$ref": "#/components/schemas/Parameters" });
    let tensor = |required: &[&str], data: Value| {
        json!({
            "type": "object",
            "required": required,
            "properties": {
                "name": { "type": "string" },
                "shape": {
                    "type": "array",
                    "maxItems": crate::tensor::MAX_RANK,
                    "items": { "type": "integer", "minimum": 0 },
                },
                "datatype": { "enum": Datatype::names().collect::<Vec<_>>() },
                "parameters": parameters,
                "data": data,
            },
        })
    };
    let data = json!({ "$ref": "#/components/schemas/TensorData" });
    let mut out = Map::new();
    let mut add = |name: &str, schema: Value| out.insert(name.to_owned(), schema);
    add(
        "Parameters",
        json!({
            "type": "object",
            "description": "Names that start with triton_ are reserved",
            "additionalProperties": { "type": ["string", "number", "boolean"] },
        }),
    );
    add(
        "TensorData",
        json!({
            "description": "Row-major, flat or nested to the shape; NaN, Infinity and -Infinity as strings",
            "type": "array",
            "items": { "anyOf": [{ "type": ["number", "string", "boolean"] }, data] },
        }),
    );
    add("InputTensor", tensor(&["name", "shape", "datatype"], data.clone()));
    add("OutputTensor", tensor(&["name", "shape", "datatype"], data));
    out.extend(messages(&parameters));
    out
}

/// Schemas of the messages as a whole.
fn messages(parameters: &Value) -> [(String, Value); 3] {
    let list = |name: &str| {
        let items = json!({ "$ref": format!("#/components/schemas/{name}") });
        json!({ "type": "array", "items": items })
    };
    let text = json!({ "type": "string" });
    let object = |required: &[&str], properties: Value| json!({ "type": "object", "required": required, "properties": properties });
    let output = object(&["name"], json!({ "name": text, "parameters": parameters }));
    let request = json!({
        "id": text,
        "parameters": parameters,
        "inputs": list("InputTensor"),
        "outputs": list("RequestedOutput"),
    });
    let response = json!({
        "model_name": text,
        "model_version": text,
        "id": text,
        "parameters": parameters,
        "outputs": list("OutputTensor"),
    });
    [
        ("RequestedOutput".into(), output),
        ("InferRequest".into(), object(&["inputs"], request)),
        ("InferResponse".into(), object(&["model_name", "outputs"], response)),
    ]
}
