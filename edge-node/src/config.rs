//! The node's configuration: raw TOML types with their defaults, and the validated form.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::uri::Authority;
use midspan_net::{
    config::{Problem, Validate},
    cors::{Cors, Origins},
    shards,
    tls::{Certificates, RawTls},
    units::{Size, Span},
};
use midspan_router_core::RegionId;
use midspan_split::sign::TrustedKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a node is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs the front of a model, answers at exits, offloads hard cases.
    #[default]
    Edge,
    /// Runs all stages, and the rest of what edges offload.
    Cloud,
}

impl Role {
    /// `edge` or `cloud`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Cloud => "cloud",
        }
    }
}

/// Node configuration file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawConfig {
    /// The node's name, as routers list it.
    pub name: String,
    /// `edge` or `cloud`.
    #[serde(default)]
    pub role: Role,
    /// Region of this node.
    #[serde(default = "local")]
    pub region: String,
    /// Inferences at once, each on a thread of its own; 0 means one per core.
    #[serde(default)]
    pub workers: usize,
    /// Whether clients may load and unload the models of this file while the node runs
    /// (`/v2/repository/models/<name>/load` and `/unload`); 403 otherwise.
    #[serde(default)]
    pub model_control: bool,
    /// Ports.
    #[serde(default)]
    pub listen: RawListen,
    /// Files of Ed25519 public keys (PEM), relative to this file. With any, a bundle is loaded only
    /// when one of them signed it (`midspan split bundle sign`), and plain ONNX files are refused;
    /// the bundle inside the program is trusted as the program is.
    #[serde(default)]
    pub trusted_keys: Vec<PathBuf>,
    /// Bounds.
    #[serde(default)]
    pub limits: RawLimits,
    /// How hard cases go to a cloud.
    #[serde(default)]
    pub offload: RawOffload,
    /// The models, at least one.
    #[serde(default)]
    pub model: Vec<RawModel>,
    /// The clouds that hard cases may go to, in no order: the best is chosen per request.
    #[serde(default)]
    pub cloud: Vec<RawCloud>,
}

/// Ports.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawListen {
    /// Address for requests: HTTP/1.1 and HTTP/2 with prior knowledge.
    pub address: SocketAddr,
    /// Address for metrics; none by default. Keep it on loopback: it asks for no identity.
    pub admin: Option<SocketAddr>,
    /// How long requests under way may take after SIGTERM or SIGINT.
    pub drain: Span,
    /// Origins whose pages may call this port, for example `https://app.example`; `*` means all, an
    /// empty list none.
    pub origins: Vec<String>,
    /// Encrypts the port for requests: HTTP/1.1 and HTTP/2 as the client asks for in its handshake.
    /// Routers and edges do not speak TLS to nodes, so this is for apps that ask a node directly.
    pub tls: Option<RawTls>,
}

impl Default for RawListen {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 8101)),
            admin: None,
            drain: Span::millis(10_000),
            origins: vec!["*".into()],
            tls: None,
        }
    }
}

/// Bounds.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawLimits {
    /// Largest request body.
    pub body: Size,
    /// Connections at once.
    pub connections: usize,
    /// Streams at once on one HTTP/2 connection.
    pub streams: u32,
    /// Runs that may wait for a worker; further requests get 503.
    pub queue: usize,
    /// Deadline of a request that states none.
    pub deadline: Span,
    /// Longest deadline that may be asked for.
    pub max_deadline: Span,
}

impl Default for RawLimits {
    fn default() -> Self {
        Self {
            body: Size(64 << 20),
            connections: 4096,
            streams: 256,
            queue: 256,
            deadline: Span::millis(10_000),
            max_deadline: Span::millis(60_000),
        }
    }
}

/// How hard cases go to a cloud.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawOffload {
    /// After this time without the cloud's answer the node answers itself, marked degraded.
    pub timeout: Span,
    /// Time kept back from a request's deadline for answering itself.
    pub margin: Span,
    /// Time between two probes of a cloud.
    pub probe_interval: Span,
    /// After this time a probe counts as failed.
    pub probe_timeout: Span,
}

impl Default for RawOffload {
    fn default() -> Self {
        Self {
            timeout: Span::millis(500),
            margin: Span::millis(5),
            probe_interval: Span::millis(500),
            probe_timeout: Span::millis(500),
        }
    }
}

/// One model: a bundle, or a plain ONNX file that is served whole.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawModel {
    /// Folder of a bundle, relative to this file, or `embedded` for the bundle inside the program.
    #[serde(default)]
    pub bundle: Option<String>,
    /// Path of an ONNX file, relative to this file.
    #[serde(default)]
    pub onnx: Option<PathBuf>,
    /// Name of an ONNX file's model; its file name by default. A bundle has its own.
    #[serde(default)]
    pub name: Option<String>,
    /// Version of an ONNX file's model; `1` by default. A bundle has its own.
    #[serde(default)]
    pub version: Option<String>,
    /// Stages of a bundle that an edge runs itself; the bundle's own number by default.
    #[serde(default)]
    pub local_stages: Option<usize>,
    /// Variant of a bundle's stages that an edge runs, such as `int8`; by default the stages as they
    /// were cut.
    #[serde(default)]
    pub variant: Option<String>,
}

/// One cloud.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawCloud {
    /// Host and port.
    pub address: String,
    /// Region of the cloud, which decides residency.
    #[serde(default = "local")]
    pub region: String,
}

fn local() -> String {
    "local".into()
}

/// A validated configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Its region.
    pub region: String,
    /// Threads that run models.
    pub workers: usize,
    /// Whether clients may load and unload models.
    pub model_control: bool,
    /// Address for requests.
    pub listen: SocketAddr,
    /// Address for metrics.
    pub admin: Option<SocketAddr>,
    /// Grace period of the drain.
    pub drain: Duration,
    /// Whose pages may call the port.
    pub cors: Cors,
    /// What encrypts the port for requests.
    pub tls: Option<Arc<Certificates>>,
    /// Whose bundles are loaded; everyone's when empty.
    pub trusted_keys: Vec<TrustedKey>,
    /// Bounds.
    pub limits: RawLimits,
    /// How hard cases go to a cloud.
    pub offload: RawOffload,
    /// The models.
    pub models: Vec<ModelSource>,
    /// The clouds.
    pub clouds: Vec<Cloud>,
    /// Region names by [`RegionId`].
    pub regions: Vec<String>,
}

/// Where a model comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// The bundle inside the program.
    Embedded {
        /// Which part of it.
        run: Run,
    },
    /// A bundle's folder.
    Bundle {
        /// The folder.
        path: PathBuf,
        /// Which part of it.
        run: Run,
    },
    /// A plain ONNX file.
    Onnx {
        /// The file.
        path: PathBuf,
        /// Name of the model.
        name: String,
        /// Its version.
        version: String,
    },
}

/// What of a bundle a node runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Stages that an edge runs itself; the bundle's own number without it.
    pub local_stages: Option<usize>,
    /// Variant of these stages; as they were cut without it.
    pub variant: Option<String>,
}

/// A validated cloud.
#[derive(Clone, Debug)]
pub struct Cloud {
    /// Host and port.
    pub authority: Authority,
    /// Its region.
    pub region: RegionId,
}

impl Validate for RawConfig {
    type Valid = Config;

    fn validate(self, base: &Path) -> Result<Config, Problem> {
        let name_ok = !self.name.is_empty()
            && self.name.len() <= 64
            && self.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !name_ok {
            return Err(Problem::new("name", "1 to 64 letters, digits, '-', '_' or '.'"));
        }
        self.limits.check()?;
        self.offload.check()?;
        if self.workers > 1024 {
            return Err(Problem::new("workers", "must be at most 1024"));
        }
        if self.model.is_empty() {
            return Err(Problem::new("model", "at least one [[model]] is needed"));
        }
        if self.role == Role::Cloud && !self.cloud.is_empty() {
            return Err(Problem::new(
                "cloud",
                "a cloud does not offload; remove it or set role = \"edge\"",
            ));
        }
        let keys = self.trusted_keys.iter().enumerate().map(|(index, file)| {
            TrustedKey::read(&base.join(file))
                .map_err(|error| Problem::new(format!("trusted_keys[{index}]"), error.to_string()))
        });
        let trusted_keys = keys.collect::<Result<Vec<_>, _>>()?;
        let models = self.model.into_iter().enumerate();
        let models = models
            .map(|(index, model)| {
                let (key, signed) = (format!("model[{index}]"), !trusted_keys.is_empty());
                model.validate(&key, base, self.role, signed)
            })
            .collect::<Result<_, _>>()?;
        let mut regions = vec![self.region.clone()];
        let clouds = self.cloud.into_iter().enumerate();
        let clouds = clouds
            .map(|(index, cloud)| cloud.validate(&format!("cloud[{index}]"), &mut regions))
            .collect::<Result<_, _>>()?;
        Ok(Config {
            name: self.name,
            role: self.role,
            region: self.region,
            workers: if self.workers == 0 { shards::cores() } else { self.workers },
            model_control: self.model_control,
            listen: self.listen.address,
            admin: self.listen.admin,
            drain: self.listen.drain.0,
            cors: Origins::parse(&self.listen.origins)
                .map(Cors::new)
                .map_err(|problem| Problem::new("listen.origins", problem))?,
            tls: self.listen.tls.map(|tls| tls.load(base, "listen.tls")).transpose()?,
            trusted_keys,
            limits: self.limits,
            offload: self.offload,
            models,
            clouds,
            regions,
        })
    }
}

impl RawLimits {
    fn check(&self) -> Result<(), Problem> {
        for (key, value) in [
            ("body", self.body.0),
            ("connections", self.connections as u64),
            ("streams", self.streams.into()),
            ("queue", self.queue as u64),
        ] {
            if value == 0 {
                return Err(Problem::new(format!("limits.{key}"), "must be at least 1"));
            }
        }
        if self.deadline.0.is_zero() || self.deadline > self.max_deadline {
            return Err(Problem::new(
                "limits.deadline",
                "must be above zero and at most max_deadline",
            ));
        }
        Ok(())
    }
}

impl RawOffload {
    fn check(&self) -> Result<(), Problem> {
        if self.timeout.0.is_zero() {
            return Err(Problem::new("offload.timeout", "must be longer than zero"));
        }
        if self.probe_interval.0 < Duration::from_millis(10) {
            return Err(Problem::new(
                "offload.probe_interval",
                "at least 10ms, or probes become the load",
            ));
        }
        if self.probe_timeout.0.is_zero() {
            return Err(Problem::new("offload.probe_timeout", "must be longer than zero"));
        }
        Ok(())
    }
}

/// Names and versions are parts of paths.
fn segment(text: &str) -> Result<(), &'static str> {
    let bad = matches!(text, "" | "." | "..") || text.contains(['\0', '/', '\\']);
    if bad { Err("must be one part of a path") } else { Ok(()) }
}

impl RawCloud {
    fn validate(self, key: &str, regions: &mut Vec<String>) -> Result<Cloud, Problem> {
        let authority = self.address.parse::<Authority>().ok();
        let authority = authority.filter(|authority| authority.port_u16().is_some());
        let authority =
            authority.ok_or_else(|| Problem::new(format!("{key}.address"), "not host:port"))?;
        let index = regions.iter().position(|known| *known == self.region).unwrap_or_else(|| {
            regions.push(self.region);
            regions.len() - 1
        });
        let region = u16::try_from(index).ok().and_then(|id| RegionId::new(id).ok());
        let region =
            region.ok_or_else(|| Problem::new(format!("{key}.region"), "too many regions"))?;
        Ok(Cloud { authority, region })
    }
}

mod model;
#[cfg(test)]
mod tests;
