//! The OpenAPI 3.1 document of the REST endpoints, made from the types that are sent and from one
//! table of operations, which is checked against [`Route`]. It describes; it decides nothing.

use std::sync::OnceLock;

use bytes::Bytes;
use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{
    metadata::{
        Health, IndexRequest, ModelConfig, ModelList, ModelMetadata, ModelReady, RepositoryEntry,
        ServerMetadata,
    },
    statistics::Statistics,
};

mod infer;

/// One operation of the document.
struct Operation {
    /// With `{model}` and `{version}`.
    path: &'static str,
    post: bool,
    /// Unique, as generated clients name their functions.
    id: &'static str,
    summary: &'static str,
    /// Name of the request body's schema.
    takes: Option<&'static str>,
    gives: Gives,
    /// Statuses besides 200 that are to be expected.
    errors: &'static [u16],
}

/// What a successful answer holds.
enum Gives {
    /// A component schema by name.
    One(&'static str),
    /// A list of them.
    Many(&'static str),
    /// Any JSON object.
    Object,
    /// Nothing.
    Nothing,
    /// An inference response, JSON or binary.
    Inference,
}

const MODEL: &[u16] = &[400, 404, 405, 500, 503, 504];
const INFER: &[u16] = &[400, 403, 404, 405, 408, 413, 415, 500, 503, 504];
const CONTROL: &[u16] = &[400, 403, 404, 405, 408, 413, 500, 503, 504];

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    get("/v2", "serverMetadata", "Name, version and extensions of this server", Gives::One("ServerMetadata"), &[405]),
    get("/v2/health/live", "serverLive", "Whether the process answers", Gives::One("Health"), &[405]),
    get("/v2/health/ready", "serverReady", "Whether inferences can be taken", Gives::One("Health"), &[405, 503]),
    get("/v2/models", "modelList", "Names of all models", Gives::One("ModelList"), &[405, 503]),
    get("/v2/models/stats", "allStatistics", "Statistics of all models", Gives::One("Statistics"), &[405, 500, 503, 504]),
    get("/v2/models/{model}", "modelMetadata", "Inputs, outputs and versions of a model", Gives::One("ModelMetadata"), MODEL),
    get("/v2/models/{model}/versions/{version}", "modelVersionMetadata", "Inputs and outputs of a version", Gives::One("ModelMetadata"), MODEL),
    get("/v2/models/{model}/ready", "modelReady", "Whether a model can be inferred now", Gives::One("ModelReady"), MODEL),
    get("/v2/models/{model}/versions/{version}/ready", "modelVersionReady", "Whether a version can be inferred now", Gives::One("ModelReady"), MODEL),
    get("/v2/models/{model}/stats", "modelStatistics", "Statistics of a model", Gives::One("Statistics"), MODEL),
    get("/v2/models/{model}/versions/{version}/stats", "modelVersionStatistics", "Statistics of a version", Gives::One("Statistics"), MODEL),
    get("/v2/models/{model}/config", "modelConfig", "Configuration of a model", Gives::One("ModelConfig"), MODEL),
    get("/v2/models/{model}/versions/{version}/config", "modelVersionConfig", "Configuration of a version", Gives::One("ModelConfig"), MODEL),
    post("/v2/models/{model}/infer", "infer", "An inference", Some("InferRequest"), Gives::Inference, INFER),
    post("/v2/models/{model}/versions/{version}/infer", "inferVersion", "An inference by a version", Some("InferRequest"), Gives::Inference, INFER),
    post("/v2/repository/index", "repositoryIndex", "All models and their states", Some("IndexRequest"), Gives::Many("RepositoryEntry"), &[400, 405, 408, 413, 415, 503, 504]),
    post("/v2/repository/models/{model}/load", "loadModel", "Loads a configured model, or loads it anew", Some("ControlRequest"), Gives::Nothing, CONTROL),
    post("/v2/repository/models/{model}/unload", "unloadModel", "Takes a model out of service", Some("ControlRequest"), Gives::Nothing, CONTROL),
    get("/v2/systemsharedmemory/status", "systemSharedMemory", "Always empty: memory is not shared between hosts", Gives::Many("Nothing"), &[405]),
    get("/v2/cudasharedmemory/status", "cudaSharedMemory", "Always empty: memory is not shared between hosts", Gives::Many("Nothing"), &[405]),
    get("/openapi.json", "openapi", "This document", Gives::Object, &[405]),
    get("/v2/docs/dataplane.json", "dataplane", "This document", Gives::Object, &[405]),
];

const fn get(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    gives: Gives,
    errors: &'static [u16],
) -> Operation {
    Operation { path, post: false, id, summary, takes: None, gives, errors }
}

const fn post(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    takes: Option<&'static str>,
    gives: Gives,
    errors: &'static [u16],
) -> Operation {
    Operation { path, post: true, id, summary, takes, gives, errors }
}

/// The document as served, made once.
#[must_use]
pub fn document() -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    DOCUMENT.get_or_init(|| build().to_string().into()).clone()
}

/// The document as a value.
#[must_use]
pub fn build() -> Value {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let method = if operation.post { "post" } else { "get" };
        paths.insert(operation.path.to_owned(), json!({ method: describe(operation) }));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Midspan",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Open Inference Protocol (KServe V2) with the binary tensor extension",
            "license": { "name": "Apache-2.0 OR MIT" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "parameters": parameters(),
            "responses": { "Error": error_response() },
        },
    })
}

fn describe(operation: &Operation) -> Value {
    let mut responses = Map::new();
    responses.insert("200".into(), success(&operation.gives));
    for status in operation.errors {
        // Health keeps its own body when it is not ready.
        let body = match (operation.id, status) {
            ("serverReady", 503) => {
                json!({ "description": "Not ready", "content": content("Health") })
            }
            _ => json!({ "$ref": "#/components/responses/Error" }),
        };
        responses.insert(status.to_string(), body);
    }
    let mut out = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": responses,
    });
    let named = ["model", "version"].into_iter();
    let mut named: Vec<Value> = named
        .filter(|name| operation.path.contains(&format!("{{{name}}}")))
        .map(|name| json!({ "$ref": format!("#/components/parameters/{name}") }))
        .collect();
    if matches!(operation.gives, Gives::Inference) {
        let ours = ["jsonLength", "deadline", "exit", "session"].into_iter();
        named.extend(ours.map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })));
    }
    if !named.is_empty() {
        out["parameters"] = Value::Array(named);
    }
    if let Some(schema) = operation.takes {
        let inference = matches!(operation.gives, Gives::Inference);
        let mut content = content(schema);
        if inference {
            content["application/octet-stream"] = json!({});
        }
        out["requestBody"] = json!({ "required": inference, "content": content });
    }
    out
}

fn success(gives: &Gives) -> Value {
    match gives {
        Gives::One(schema) => json!({ "description": "OK", "content": content(schema) }),
        Gives::Many(schema) => {
            let items = json!({ "$ref": format!("#/components/schemas/{schema}") });
            let schema = json!({ "type": "array", "items": items });
            json!({ "description": "OK", "content": { "application/json": { "schema": schema } } })
        }
        Gives::Object => {
            let content = json!({ "application/json": { "schema": { "type": "object" } } });
            json!({ "description": "OK", "content": content })
        }
        Gives::Nothing => json!({ "description": "Done" }),
        Gives::Inference => infer::success(),
    }
}

fn content(schema: &str) -> Value {
    json!({
        "application/json": { "schema": { "$ref": format!("#/components/schemas/{schema}") } }
    })
}

fn error_response() -> Value {
    json!({
        "description": "Why there is no other answer",
        "headers": {
            "retry-after": {
                "description": "Seconds to wait, on 503",
                "schema": { "type": "integer", "minimum": 0 },
            },
        },
        "content": content("Error"),
    })
}

fn parameters() -> Value {
    let segment = |name: &str, what: &str| {
        json!({
            "name": name, "in": "path", "required": true, "description": what,
            "schema": { "type": "string", "minLength": 1 },
        })
    };
    let header = |name: &str, what: &str, schema: Value| json!({ "name": name, "in": "header", "description": what, "schema": schema });
    json!({
        "model": segment("model", "Name of the model, percent-encoded"),
        "version": segment("version", "One of the versions in the model's metadata"),
        "jsonLength": header(
            "Inference-Header-Content-Length",
            "Bytes of JSON before the binary tensors; 0 when all of the body is the only input",
            json!({ "type": "integer", "minimum": 0 }),
        ),
        "deadline": header(
            "midspan-deadline-ms",
            "How long the caller waits, milliseconds",
            json!({ "type": "integer", "minimum": 1 }),
        ),
        "exit": header(
            "midspan-exit",
            "Whether an early exit may answer, must not, or always does",
            json!({ "enum": ["auto", "never", "force"] }),
        ),
        "session": header(
            "midspan-session",
            "Requests of one session prefer one node",
            json!({ "type": "string" }),
        ),
    })
}

/// The component schemas: derived from the types that are sent, and those of inferences.
fn schemas() -> Value {
    let mut out = infer::schemas();
    derived::<ServerMetadata>("ServerMetadata", &mut out);
    derived::<Health>("Health", &mut out);
    derived::<ModelReady>("ModelReady", &mut out);
    derived::<ModelMetadata>("ModelMetadata", &mut out);
    derived::<ModelList>("ModelList", &mut out);
    derived::<ModelConfig>("ModelConfig", &mut out);
    derived::<RepositoryEntry>("RepositoryEntry", &mut out);
    derived::<IndexRequest>("IndexRequest", &mut out);
    derived::<Statistics>("Statistics", &mut out);
    out.insert("Nothing".into(), json!(false));
    out.insert(
        "Error".into(),
        json!({
            "type": "object",
            "required": ["error"],
            "properties": { "error": { "type": "string", "minLength": 1 } },
        }),
    );
    out.insert(
        "ControlRequest".into(),
        json!({
            "type": "object",
            "properties": {
                "parameters": {
                    "type": "object",
                    "properties": { "unload_dependents": { "type": "boolean" } },
                },
            },
        }),
    );
    Value::Object(out)
}

/// Adds a type's schema and those of the types inside it.
fn derived<T: JsonSchema>(name: &str, out: &mut Map<String, Value>) {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = false;
        settings.transforms.clear();
    });
    let mut generator = settings.into_generator();
    let schema: Schema = T::json_schema(&mut generator);
    for (inner, schema) in generator.take_definitions(true) {
        out.insert(inner, schema);
    }
    out.insert(name.to_owned(), schema.into());
}

#[cfg(test)]
mod tests;
