//! What one runtime thread owns: connection pools towards the nodes, decision buffers, the seed.
//! Shared with other threads are only the fleet's knowledge and the budgets.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use http::StatusCode;
use metrics::{Counter, Gauge, Histogram};
use midspan_net::{
    telemetry::Metric,
    transport::{PoolOptions, Pooled, Transport},
};
use midspan_router_core::{Decision, Inputs, Rng};
use tower::retry::budget::TpsBudget;

use crate::{config::Config, fleet::Fleet, records::Records, replay::ReplayBudget};

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
    sent: Counter,
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
        let links = config
            .nodes
            .iter()
            .map(|node| Link {
                transport: Box::new(Pooled::new(
                    node.authority.clone(),
                    PoolOptions { version: node.version, ..PoolOptions::default() },
                )),
                sent: Metric::RouterSent.counter(&[&node.name]),
            })
            .collect();
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

    /// The way to a configured node; counts the request that is about to be sent.
    pub(crate) fn link(&self, node: usize) -> Option<&dyn Transport> {
        let link = self.links.get(node)?;
        link.sent.increment(1);
        Some(link.transport.as_ref())
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
