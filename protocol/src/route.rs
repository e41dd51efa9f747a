//! Which endpoint a method and path name: one parser for router and node, so that both answer an
//! unknown path, a wrong method and a broken name alike.

use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// A model as an app names it: without a version, or with one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelName {
    /// Model name, percent-decoded.
    pub name: String,
    /// Version, when the app names one.
    pub version: Option<String>,
}

impl ModelName {
    /// The path of the model, percent-encoded: what is asked of it is added to it.
    #[must_use]
    pub fn path(&self) -> String {
        let escape = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        match &self.version {
            Some(version) => {
                format!("/v2/models/{}/versions/{}", escape(&self.name), escape(version))
            }
            None => format!("/v2/models/{}", escape(&self.name)),
        }
    }
}

impl std::fmt::Display for ModelName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{} version {version}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// What is asked of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Its metadata.
    Metadata,
    /// Whether it can be inferred now.
    Ready,
    /// Statistics.
    Stats,
    /// Configuration.
    Config,
    /// An inference.
    Infer,
    /// Loading it, or loading it anew.
    Load,
    /// Taking it out of service.
    Unload,
    /// The rest of an inference, from an activation (node to cloud only).
    Offload,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Server metadata.
    Server,
    /// Liveness.
    Live,
    /// Readiness.
    Ready,
    /// Repository index.
    Index,
    /// Names of all models.
    Models,
    /// Statistics of all models.
    Statistics,
    /// State of shared memory regions, which cannot be used between hosts: none.
    SharedMemory,
    /// The OpenAPI document.
    Document,
    /// A node's word about itself (router to node only).
    Node,
    /// Something of a model.
    Model(ModelName, Verb),
}

/// Why a method and path name no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteFault {
    /// No such path: 404.
    #[error("no such path: {0}")]
    NotFound(String),
    /// The path exists, the method does not: 405.
    #[error("{path} takes {allow}")]
    Method {
        /// The path.
        path: String,
        /// Methods that it takes, for `Allow`.
        allow: &'static str,
    },
    /// A segment that cannot be a name: 400.
    #[error("'{0}' is no model name or version")]
    Name(String),
}

const GET: &str = "GET, HEAD";
const POST: &str = "POST";

impl Route {
    /// Parses a path without its query.
    ///
    /// # Errors
    /// See [`RouteFault`].
    pub fn parse(method: &Method, path: &str) -> Result<Self, RouteFault> {
        let (route, allow) = Self::of_path(path)?;
        let ok = match allow {
            POST => method == Method::POST,
            _ => method == Method::GET || method == Method::HEAD,
        };
        if ok { Ok(route) } else { Err(RouteFault::Method { path: clipped(path), allow }) }
    }

    /// The endpoint at a path, and the methods that it takes, as in `Allow`.
    ///
    /// # Errors
    /// [`RouteFault::NotFound`] and [`RouteFault::Name`].
    pub fn of_path(path: &str) -> Result<(Self, &'static str), RouteFault> {
        if path == "/openapi.json" {
            return Ok((Self::Document, GET));
        }
        let not_found = || RouteFault::NotFound(clipped(path));
        let rest = path
            .strip_prefix("/v2")
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
            .ok_or_else(not_found)?;
        let segments: Vec<&str> = rest.split('/').skip(1).collect();
        Ok(match segments.as_slice() {
            [] | [""] => (Self::Server, GET),
            ["health", "live"] => (Self::Live, GET),
            ["health", "ready"] => (Self::Ready, GET),
            ["docs", "dataplane.json"] => (Self::Document, GET),
            ["repository", "index"] => (Self::Index, POST),
            ["repository", "models", name, "load"] => {
                (Self::Model(model(name, None)?, Verb::Load), POST)
            }
            ["repository", "models", name, "unload"] => {
                (Self::Model(model(name, None)?, Verb::Unload), POST)
            }
            ["systemsharedmemory" | "cudasharedmemory", "status"] => (Self::SharedMemory, GET),
            ["midspan", "node"] => (Self::Node, GET),
            ["midspan", "models", name, "versions", version, "offload"] => {
                (Self::Model(model(name, Some(version))?, Verb::Offload), POST)
            }
            ["models"] => (Self::Models, GET),
            ["models", "stats"] => (Self::Statistics, GET),
            ["models", name, tail @ ..] => {
                let (version, tail) = match tail {
                    ["versions", version, tail @ ..] => (Some(version), tail),
                    tail => (None, tail),
                };
                let (verb, allow) = match tail {
                    [] => (Verb::Metadata, GET),
                    ["ready"] => (Verb::Ready, GET),
                    ["stats"] => (Verb::Stats, GET),
                    ["config"] => (Verb::Config, GET),
                    ["infer"] => (Verb::Infer, POST),
                    _ => return Err(not_found()),
                };
                (Self::Model(model(name, version)?, verb), allow)
            }
            _ => return Err(not_found()),
        })
    }
}

/// Keeps a hostile path from filling the answer and the log.
fn clipped(path: &str) -> String {
    path.chars().take(256).collect()
}

fn model(name: &str, version: Option<&&str>) -> Result<ModelName, RouteFault> {
    let version = version.map(|version| decode(version)).transpose()?;
    Ok(ModelName { name: decode(name)?, version })
}

fn decode(segment: &str) -> Result<String, RouteFault> {
    percent_decode_str(segment)
        .decode_utf8()
        .ok()
        .filter(|text| !text.is_empty() && !text.contains(['\0', '/', '\\']))
        .filter(|text| text != ".." && text != ".")
        .map(std::borrow::Cow::into_owned)
        .ok_or_else(|| RouteFault::Name(segment.chars().take(128).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, version: Option<&str>, verb: Verb) -> Route {
        Route::Model(ModelName { name: name.into(), version: version.map(Into::into) }, verb)
    }

    #[test]
    fn endpoints_of_the_protocol() {
        for (method, path, route) in [
            (Method::GET, "/v2", Route::Server),
            (Method::GET, "/v2/", Route::Server),
            (Method::HEAD, "/v2/health/ready", Route::Ready),
            (Method::POST, "/v2/repository/index", Route::Index),
            (Method::POST, "/v2/repository/models/m/load", model("m", None, Verb::Load)),
            (Method::POST, "/v2/repository/models/m/unload", model("m", None, Verb::Unload)),
            (Method::GET, "/v2/models", Route::Models),
            (Method::GET, "/v2/models/stats", Route::Statistics),
            (Method::GET, "/v2/cudasharedmemory/status", Route::SharedMemory),
            (Method::GET, "/openapi.json", Route::Document),
            (Method::GET, "/v2/docs/dataplane.json", Route::Document),
            (Method::POST, "/v2/models/m/infer", model("m", None, Verb::Infer)),
            (Method::POST, "/v2/models/m/versions/v10/infer", model("m", Some("v10"), Verb::Infer)),
            (Method::GET, "/v2/models/m%C3%B6del%20a/ready", model("mödel a", None, Verb::Ready)),
            (Method::GET, "/v2/models/m/versions/1", model("m", Some("1"), Verb::Metadata)),
            (
                Method::POST,
                "/v2/midspan/models/m/versions/1/offload",
                model("m", Some("1"), Verb::Offload),
            ),
        ] {
            assert_eq!(Route::parse(&method, path), Ok(route), "{method} {path}");
        }
    }

    #[test]
    fn a_model_s_path_leads_back_to_it() {
        for (name, version) in [("m", None), ("mödel a", Some("v/1")), ("a%2F", Some("1"))] {
            let route = model(name, version.filter(|v| !v.contains('/')), Verb::Stats);
            let Route::Model(named, _) = &route else { panic!("no model") };
            let path = format!("{}/stats", named.path());
            assert_eq!(Route::parse(&Method::GET, &path), Ok(route), "{path}");
        }
    }

    #[test]
    fn faults_are_told_apart() {
        let parse = |method: &str, path: &str| match Route::parse(&method.parse().unwrap(), path)
            .unwrap_err()
        {
            RouteFault::NotFound(_) => 404,
            RouteFault::Method { .. } => 405,
            RouteFault::Name(_) => 400,
        };
        for (method, path, status) in [
            ("GET", "/", 404),
            ("GET", "/v2x", 404),
            ("GET", "/v2/nope", 404),
            ("POST", "/v2/models/m/nope", 404),
            ("GET", "/v2/models/m/infer", 405),
            ("POST", "/v2/health/live", 405),
            ("DELETE", "/v2", 405),
            ("GET", "/v2/repository/models/m/load", 405),
            ("POST", "/v2/models", 405),
            ("GET", "/v2/models/%FF", 400),
            ("GET", "/v2/models/%2E%2E", 400),
            ("GET", "/v2/models/a%00b", 400),
            ("GET", "/v2/models//ready", 400),
        ] {
            assert_eq!(parse(method, path), status, "{method} {path}");
        }
    }
}
