//! The router's configuration: raw TOML types with their defaults, and the validated form.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use http::uri::Authority;
use midspan_net::{
    config::{Problem, Validate},
    cors::{Cors, Origins},
    shards,
    tls::{Certificates, RawTls},
    transport::HttpVersion,
    units::{Size, Span},
};
use midspan_router_core::{Place, Policy, RegionId, Weight};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Router configuration file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawConfig {
    /// This router's name: in logs, in decision records, and towards nodes, which report its share
    /// of their load.
    #[serde(default = "router_name")]
    pub name: String,
    /// Region of this router.
    #[serde(default = "local")]
    pub region: String,
    /// Where this router is, as `[latitude, longitude]` in degrees; gives nodes that were not
    /// probed yet a round trip to assume.
    #[serde(default)]
    pub place: Option<[f64; 2]>,
    /// Whether apps may load and unload models through this router, on every node that lists them;
    /// 403 otherwise. The nodes' own `model_control` must be on too.
    #[serde(default)]
    pub model_control: bool,
    /// Ports.
    #[serde(default)]
    pub listen: RawListen,
    /// Bounds.
    #[serde(default)]
    pub limits: RawLimits,
    /// How nodes are chosen.
    #[serde(default)]
    pub policy: RawPolicy,
    /// Live latency probes.
    #[serde(default)]
    pub probe: RawProbe,
    /// What is believed of clients.
    #[serde(default)]
    pub clients: RawClients,
    /// The nodes, at least one.
    #[serde(default)]
    pub node: Vec<RawNode>,
}

/// Ports.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawListen {
    /// Address for apps: HTTP/1.1 and HTTP/2 with prior knowledge.
    pub apps: SocketAddr,
    /// Address for metrics, health and decisions. Keep it on loopback: it asks for no identity.
    pub admin: SocketAddr,
    /// Runtime threads, each with its own listener and connection pools; 0 means one per core.
    pub threads: usize,
    /// How long requests under way may take after SIGTERM or SIGINT.
    pub drain: Span,
    /// Origins whose pages may call this port, for example `https://app.example`; `*` means all, an
    /// empty list none.
    pub origins: Vec<String>,
    /// Encrypts the apps' port: HTTP/1.1 and HTTP/2 as the client asks for in its handshake. Clients
    /// that speak no TLS are then turned away.
    pub tls: Option<RawTls>,
}

impl Default for RawListen {
    fn default() -> Self {
        Self {
            apps: SocketAddr::from(([127, 0, 0, 1], 8080)),
            admin: SocketAddr::from(([127, 0, 0, 1], 9090)),
            threads: 0,
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
    /// Client connections at once, per thread.
    pub connections: usize,
    /// Streams at once on one HTTP/2 client connection.
    pub streams: u32,
    /// Deadline of a request that states none with `midspan-deadline-ms`.
    pub deadline: Span,
    /// Longest deadline that a client may ask for. A stream of gRPC may ask for any, or for none;
    /// it ends when nothing has moved on it, in either direction, for this long.
    pub max_deadline: Span,
    /// Request and answer bodies up to this size survive the loss of a node: the request is kept
    /// for another try, the answer is read whole before its head goes out.
    pub replay_body: Size,
    /// Memory for kept request bodies in all; beyond it requests are streamed and not retried.
    pub replay_total: Size,
    /// Retries as a share of a thread's requests, percent, over ten seconds.
    pub retry_percent: u8,
    /// Retries per second that each thread is allowed whatever its share.
    pub retry_min_per_second: u32,
    /// Decision records kept per thread for `midspan explain`.
    pub decisions: usize,
}

impl Default for RawLimits {
    fn default() -> Self {
        Self {
            body: Size(64 << 20),
            connections: 4096,
            streams: 256,
            deadline: Span::millis(10_000),
            max_deadline: Span::millis(60_000),
            replay_body: Size(64 << 10),
            replay_total: Size(16 << 20),
            retry_percent: 20,
            retry_min_per_second: 10,
            decisions: 4096,
        }
    }
}

/// How nodes are chosen.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawPolicy {
    /// `capped_affinity` (affinity while it costs little, else the lowest predicted cost),
    /// `ring_bounded` (consistent hashing with bounded loads) or `nearest` (lowest probed round
    /// trip).
    pub name: String,
}

impl Default for RawPolicy {
    fn default() -> Self {
        Self { name: Policy::default().as_str().to_owned() }
    }
}

/// Live latency probes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawProbe {
    /// Time between two probes of a node.
    pub interval: Span,
    /// After this time a probe counts as failed.
    pub timeout: Span,
}

impl Default for RawProbe {
    fn default() -> Self {
        Self { interval: Span::millis(500), timeout: Span::millis(500) }
    }
}

/// What is believed of clients.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawClients {
    /// Addresses of proxies whose `midspan-place: <latitude>,<longitude>` header is believed.
    pub trusted_proxies: Vec<IpAddr>,
}

/// One node.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawNode {
    /// The node's name; its place on the hash ring follows from it.
    pub name: String,
    /// Host and port, for example `10.1.0.7:8101`.
    pub address: String,
    /// Region of the node, which decides residency.
    #[serde(default = "local")]
    pub region: String,
    /// Where the node is, as `[latitude, longitude]` in degrees.
    #[serde(default)]
    pub place: Option<[f64; 2]>,
    /// Share of the work relative to other nodes.
    #[serde(default = "weight")]
    pub weight: u16,
    /// HTTP version towards the node.
    #[serde(default)]
    pub protocol: HttpVersion,
}

fn router_name() -> String {
    "router".into()
}

fn local() -> String {
    "local".into()
}

fn weight() -> u16 {
    100
}

/// A validated configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// This router's name.
    pub name: String,
    /// Its region.
    pub region: String,
    /// Where it is.
    pub place: Option<Place>,
    /// Whether apps may load and unload models.
    pub model_control: bool,
    /// Port for apps.
    pub apps: SocketAddr,
    /// Admin port.
    pub admin: SocketAddr,
    /// Threads that serve apps.
    pub threads: usize,
    /// Grace period of the drain.
    pub drain: Duration,
    /// Whose pages may call the port.
    pub cors: Cors,
    /// What encrypts the apps' port.
    pub tls: Option<Arc<Certificates>>,
    /// Bounds.
    pub limits: RawLimits,
    /// The policy with its parameters.
    pub policy: Policy,
    /// Time between probes.
    pub probe_interval: Duration,
    /// Time after which a probe failed.
    pub probe_timeout: Duration,
    /// Proxies whose place header is believed.
    pub trusted_proxies: Vec<IpAddr>,
    /// Region names by [`RegionId`].
    pub regions: Vec<String>,
    /// The nodes.
    pub nodes: Vec<Node>,
}

/// A validated node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Host and port.
    pub authority: Authority,
    /// Its region.
    pub region: RegionId,
    /// Where it is.
    pub place: Option<Place>,
    /// Share of the work.
    pub weight: Weight,
    /// HTTP version towards it.
    pub version: HttpVersion,
}

impl Validate for RawConfig {
    type Valid = Config;

    fn validate(self, base: &Path) -> Result<Config, Problem> {
        token("name", &self.name)?;
        self.limits.check()?;
        let policy = Policy::from_name(&self.policy.name).ok_or_else(|| {
            Problem::new(
                "policy.name",
                format!("no such policy; choose one of {}", Policy::NAMES.join(", ")),
            )
        })?;
        if self.probe.interval.0 < Duration::from_millis(10) {
            return Err(Problem::new("probe.interval", "at least 10ms, or probes become the load"));
        }
        if self.probe.timeout.0.is_zero() {
            return Err(Problem::new("probe.timeout", "must be longer than zero"));
        }
        if self.node.is_empty() {
            return Err(Problem::new("node", "at least one [[node]] is needed"));
        }
        let mut regions = vec![self.region.clone()];
        let mut nodes: Vec<Node> = Vec::with_capacity(self.node.len());
        for (index, raw) in self.node.into_iter().enumerate() {
            let node = raw.validate(&format!("node[{index}]"), &mut regions)?;
            if nodes.iter().any(|other| other.name == node.name) {
                return Err(Problem::new(
                    format!("node[{index}].name"),
                    "another node has this name",
                ));
            }
            nodes.push(node);
        }
        Ok(Config {
            place: self.place.map(|place| to_place("place", place)).transpose()?,
            name: self.name,
            region: self.region,
            model_control: self.model_control,
            apps: self.listen.apps,
            admin: self.listen.admin,
            threads: if self.listen.threads == 0 {
                shards::cores()
            } else {
                self.listen.threads.min(256)
            },
            drain: self.listen.drain.0,
            cors: Origins::parse(&self.listen.origins)
                .map(Cors::new)
                .map_err(|problem| Problem::new("listen.origins", problem))?,
            tls: self.listen.tls.map(|tls| tls.load(base, "listen.tls")).transpose()?,
            limits: self.limits,
            policy,
            probe_interval: self.probe.interval.0,
            probe_timeout: self.probe.timeout.0,
            trusted_proxies: self.clients.trusted_proxies,
            regions,
            nodes,
        })
    }
}

impl RawLimits {
    fn check(&self) -> Result<(), Problem> {
        let at_least = |key: &str, value: u64, least: u64| {
            if value >= least {
                return Ok(());
            }
            Err(Problem::new(format!("limits.{key}"), format!("must be at least {least}")))
        };
        at_least("body", self.body.0, 1)?;
        at_least("connections", self.connections as u64, 1)?;
        at_least("streams", self.streams.into(), 1)?;
        at_least("decisions", self.decisions as u64, 1)?;
        if self.deadline.0.is_zero() || self.deadline > self.max_deadline {
            return Err(Problem::new(
                "limits.deadline",
                "must be above zero and at most max_deadline",
            ));
        }
        if self.replay_body > self.replay_total {
            return Err(Problem::new("limits.replay_body", "must be at most replay_total"));
        }
        if self.retry_percent > 100 {
            return Err(Problem::new("limits.retry_percent", "must be at most 100"));
        }
        Ok(())
    }
}

impl RawNode {
    fn validate(self, key: &str, regions: &mut Vec<String>) -> Result<Node, Problem> {
        token(&format!("{key}.name"), &self.name)?;
        let authority: Authority = self
            .address
            .parse()
            .ok()
            .filter(|authority: &Authority| authority.port_u16().is_some())
            .ok_or_else(|| Problem::new(format!("{key}.address"), "not host:port"))?;
        let region = match regions.iter().position(|known| *known == self.region) {
            Some(index) => index,
            None => {
                regions.push(self.region);
                regions.len() - 1
            }
        };
        let region = u16::try_from(region).ok().and_then(|id| RegionId::new(id).ok());
        Ok(Node {
            region: region.ok_or_else(|| {
                Problem::new(
                    format!("{key}.region"),
                    format!("more than {} regions", RegionId::COUNT),
                )
            })?,
            place: self.place.map(|place| to_place(&format!("{key}.place"), place)).transpose()?,
            weight: Weight::new(self.weight)
                .map_err(|error| Problem::new(format!("{key}.weight"), error.to_string()))?,
            name: self.name,
            authority,
            version: self.protocol,
        })
    }
}

/// Names go into headers and metric labels.
fn token(key: &str, name: &str) -> Result<(), Problem> {
    let ok = !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if ok { Ok(()) } else { Err(Problem::new(key, "1 to 64 letters, digits, '-', '_' or '.'")) }
}

fn to_place(key: &str, [lat, lon]: [f64; 2]) -> Result<Place, Problem> {
    Place::new(lat, lon).map_err(|error| Problem::new(key, error.to_string()))
}

#[cfg(test)]
mod tests;
