//! What one runtime thread owns: connection pools towards the nodes, decision buffers, the seed.
//! Shared with other threads are only the fleet's knowledge and the budgets.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::StatusCode;
use metrics::{Counter, Gauge, Histogram};
use midspan_net::{
    telemetry::Metric,
    transport::{HttpVersion, PoolOptions, Pooled, Transport},
};
use midspan_router_core::{Decision, Inputs, Rng};
use tower::retry::budget::TpsBudget;

use crate::{
    config::{Config, Node},
    fleet::Fleet,
    records::Records,
    replay::ReplayBudget,
};

/// Span over which the retry budget counts.
const RETRY_WINDOW: Duration = Duration::from_secs(10);

/// One thread's state.
pub(crate) struct Shard {
    pub(crate) index: usize,
    pub(crate) config: Arc<Config>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) records: Arc<Records>,
    pub(crate) replay: Arc<ReplayBudget>,
    pub(crate) retries: TpsBudget,
    pub(crate) tasks: midspan_net::Tasks,
    pub(crate) scratch: Mutex<Scratch>,
    pub(crate) meters: Meters,
    links: Vec<Link>,
}

/// Buffers of one decision, reused.
pub(crate) struct Scratch {
    pub(crate) inputs: Inputs,
    pub(crate) decision: Decision,
    pub(crate) rng: Rng,
}

/// The way to one node, with its counter.
struct Link {
    transport: Box<dyn Transport>,
    /// gRPC is HTTP/2, whatever version REST takes to the node; none where both take HTTP/2.
    grpc: Option<Box<dyn Transport>>,
    /// Whether the node has ever answered gRPC.
    speaks_grpc: AtomicBool,
    sent: Counter,
}

impl Link {
    fn new(node: &Node) -> Self {
        let pool = |version| -> Box<dyn Transport> {
            let options = PoolOptions { version, ..PoolOptions::default() };
            Box::new(Pooled::new(node.authority.clone(), options))
        };
        Self {
            transport: pool(node.version),
            grpc: (node.version != HttpVersion::H2).then(|| pool(HttpVersion::H2)),
            speaks_grpc: AtomicBool::new(node.version == HttpVersion::H2),
            sent: Metric::RouterSent.counter(&[&node.name]),
        }
    }
}

impl Shard {
    pub(crate) fn new(
        index: usize,
        config: Arc<Config>,
        fleet: Arc<Fleet>,
        records: Arc<Records>,
        replay: Arc<ReplayBudget>,
        tasks: midspan_net::Tasks,
    ) -> Self {
        let links = config.nodes.iter().map(Link::new).collect();
        Self {
            index,
            records,
            replay,
            retries: TpsBudget::new(
                RETRY_WINDOW,
                config.limits.retry_min_per_second,
                f32::from(config.limits.retry_percent) / 100.0,
            ),
            tasks,
            scratch: Mutex::new(Scratch {
                inputs: Inputs::new(config.policy),
                decision: Decision::new(),
                rng: Rng::new(ambient_seed()),
            }),
            meters: Meters::new(),
            links,
            config,
            fleet,
        }
    }

    /// The way to a configured node, for gRPC or REST; counts the request that is about to be sent.
    pub(crate) fn link(&self, node: usize, grpc: bool) -> Option<&dyn Transport> {
        let link = self.links.get(node)?;
        link.sent.increment(1);
        let own = link.grpc.as_ref().filter(|_| grpc);
        Some(own.unwrap_or(&link.transport).as_ref())
    }

    /// Whether a node has ever answered on the way that gRPC takes: one that never did may speak
    /// only HTTP/1.1, and is not to be ejected for it.
    pub(crate) fn speaks_grpc(&self, node: usize) -> bool {
        self.links.get(node).is_some_and(|link| link.speaks_grpc.load(Ordering::Relaxed))
    }

    /// Takes note that it has.
    pub(crate) fn answered_grpc(&self, node: usize) {
        if let Some(link) = self.links.get(node) {
            link.speaks_grpc.store(true, Ordering::Relaxed);
        }
    }
}

/// A seed that differs between routers and restarts, so that they do not choose alike.
pub(crate) fn ambient_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// Metric handles that every request touches.
pub(crate) struct Meters {
    statuses: Vec<OnceLock<Counter>>,
    pub(crate) seconds: Histogram,
    pub(crate) in_flight: Gauge,
}

const FIRST_STATUS: u16 = 100;
const STATUSES: usize = 500;

impl Meters {
    fn new() -> Self {
        Self {
            statuses: (0..STATUSES).map(|_| OnceLock::new()).collect(),
            seconds: Metric::RouterSeconds.histogram(&[]),
            in_flight: Metric::RouterInFlight.gauge(&[]),
        }
    }

    pub(crate) fn count(&self, status: StatusCode) {
        let index = usize::from(status.as_u16().saturating_sub(FIRST_STATUS));
        if let Some(counter) = self.statuses.get(index) {
            counter.get_or_init(|| Metric::RouterRequests.counter(&[status.as_str()])).increment(1);
        }
    }
}
