//! The clouds that an edge knows: probed at a fixed rate, chosen by the same core that routers
//! use. Choosing a cloud is the same decision as choosing a node.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode};
use midspan_net::{
    body::{collect, empty},
    transport::{HttpVersion, PoolOptions, Pooled, Transport},
};
use midspan_protocol::{LoadReport, headers, metadata::CloudInfo, timing};
use midspan_router_core::{
    BootId, Cells, Choice, Decision, Event, Held, Inputs, Micros, ModelId, NodeKey, NodeSpec,
    PayloadClass, Policy, RegionId, RegionSet, Report, Rif, Rng, Served, Slot, Timestamp, Topology,
    TopologyBuilder, Tuning, choose, gather, hash_bytes, observe, sweep,
};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::{Node, config::Config, infer::Terms};

/// Every cloud is asked for every model: which one it has is its own to say.
const ANY_MODEL: ModelId = ModelId(0);
/// Period of the core's sweep.
const SWEEP: Duration = Duration::from_millis(250);

/// The clouds of a node.
pub(crate) struct Clouds {
    pub(crate) cells: Arc<Cells>,
    topology: Topology,
    all: Vec<Cloud>,
    by_key: HashMap<NodeKey, usize>,
    regions: Vec<String>,
    scratch: Mutex<(Inputs, Decision, Rng)>,
    started: Instant,
}

struct Cloud {
    address: String,
    region: RegionId,
    slot: Slot,
    link: Pooled,
    /// Its own name, once it has answered.
    name: Mutex<String>,
}

impl Clouds {
    /// # Errors
    /// When the configured clouds make no topology.
    pub(crate) fn new(config: &Config) -> Result<Self, String> {
        let cells = Cells::new(64, Tuning::default()).map_err(|error| format!("{error:?}"))?;
        let mut builder = TopologyBuilder::new();
        let key = |address: &str| NodeKey(hash_bytes(address.as_bytes()));
        for cloud in &config.clouds {
            let mut spec = NodeSpec::new(key(cloud.authority.as_str()), cloud.region);
            spec.models = vec![Served { model: ANY_MODEL, held: Held::Resident, service: None }];
            builder = builder.node(spec);
        }
        let topology = builder.build(None, &cells).map_err(|error| error.to_string())?;
        let cloud = |cloud: &crate::config::Cloud| {
            let address = cloud.authority.to_string();
            let slot = topology.slot_of(key(&address)).ok_or("a cloud has no slot")?;
            // HTTP/2: repeated headers cost a byte each, and one connection keeps the path warm.
            let options = PoolOptions { version: HttpVersion::H2, ..PoolOptions::default() };
            let link = Pooled::new(cloud.authority.clone(), options);
            Ok(Cloud { address, region: cloud.region, slot, link, name: Mutex::default() })
        };
        let all = config.clouds.iter().map(cloud).collect::<Result<Vec<_>, String>>()?;
        let by_key =
            all.iter().enumerate().map(|(index, cloud)| (key(&cloud.address), index)).collect();
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0_u8);
        Ok(Self {
            cells: Arc::new(cells),
            topology,
            all,
            by_key,
            regions: config.regions.clone(),
            scratch: Mutex::new((Inputs::new(Policy::default()), Decision::new(), Rng::new(seed))),
            started: Instant::now(),
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp(Micros::from(self.started.elapsed()).0)
    }

    /// Takes note of what happened at a cloud.
    pub(crate) fn observe(&self, event: Event) {
        observe(&self.cells, self.now(), event);
    }

    /// The way to a cloud.
    pub(crate) fn link(&self, key: NodeKey) -> Option<&Pooled> {
        self.by_key.get(&key).and_then(|index| self.all.get(*index)).map(|cloud| &cloud.link)
    }

    /// Where hard rows may go, best first.
    ///
    /// # Errors
    /// Why nowhere.
    pub(crate) fn choose(
        &self,
        terms: &Terms,
        left: Duration,
        bytes: usize,
    ) -> Result<Vec<Choice>, &'static str> {
        if self.all.is_empty() {
            return Err("no_cloud");
        }
        let mut request = midspan_router_core::Request::new(ANY_MODEL);
        request.deadline = Some(Micros::from(left));
        request.payload = PayloadClass::of_len(bytes as u64);
        request.allowed = self.allowed(terms);
        if request.allowed.is_empty() {
            return Err("region_not_allowed");
        }
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let (inputs, decision, rng) = &mut *scratch;
        gather(self.now(), &self.topology, &self.cells, &request, rng, inputs);
        choose(inputs, rng.next_u64(), decision);
        if !decision.choices().is_empty() {
            return Ok(decision.choices().to_vec());
        }
        let excluded = &inputs.excluded;
        let nowhere = excluded.not_allowed > 0 && excluded.dead + excluded.ejected == 0;
        Err(if nowhere { "region_not_allowed" } else { "cloud_unreachable" })
    }

    /// The regions that the request's context allows; all without a context.
    fn allowed(&self, terms: &Terms) -> RegionSet {
        let Some(context) = terms.context.as_ref().filter(|context| !context.regions.is_empty())
        else {
            return RegionSet::ALL;
        };
        let known = self.regions.iter().enumerate();
        let ids = known.filter(|(_, name)| context.allows(name)).filter_map(|(index, _)| {
            u16::try_from(index).ok().and_then(|id| RegionId::new(id).ok())
        });
        RegionSet::of(ids)
    }

    /// What routers and operators are told.
    pub(crate) fn infos(&self) -> Vec<CloudInfo> {
        let info = |cloud: &Cloud| {
            let view = self.cells.view(cloud.slot, self.now());
            CloudInfo {
                url: cloud.address.clone(),
                name: cloud.name.lock().unwrap_or_else(PoisonError::into_inner).clone(),
                region: self
                    .regions
                    .get(usize::from(cloud.region.get()))
                    .cloned()
                    .unwrap_or_default(),
                health: view.as_ref().map_or("unknown", |view| view.health.as_str()).to_owned(),
                rtt_us: view.and_then(|view| view.rtt).map_or(0, |rtt| rtt.0),
            }
        };
        self.all.iter().map(info).collect()
    }
}

/// Starts the sweep and one prober per cloud.
pub(crate) fn start_probes(node: &Arc<Node>) {
    if node.clouds.all.is_empty() {
        return;
    }
    let sweeping = Arc::clone(node);
    node.tasks.spawn_until_drain(async move {
        let mut ticks = interval(SWEEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let clouds = &sweeping.clouds;
            sweep(clouds.now(), &clouds.topology, &clouds.cells);
        }
    });
    for index in 0..node.clouds.all.len() {
        let node = Arc::clone(node);
        node.tasks.clone().spawn_until_drain(async move {
            let mut ticks = interval(node.config.offload.probe_interval.0);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut was_up = None;
            loop {
                ticks.tick().await;
                let outcome = probe(&node, index).await;
                if was_up.replace(outcome.is_ok()) == Some(outcome.is_ok()) {
                    continue;
                }
                let cloud = node.clouds.all.get(index).map_or("?", |cloud| cloud.address.as_str());
                match outcome {
                    Ok(()) => tracing::info!(cloud, "answers probes"),
                    Err(problem) => tracing::warn!(cloud, problem, "does not answer probes"),
                }
            }
        });
    }
}

async fn probe(node: &Node, index: usize) -> Result<(), String> {
    let clouds = &node.clouds;
    let cloud = clouds.all.get(index).ok_or("no such cloud")?;
    let patience = node.config.offload.probe_timeout.0;
    let mut request = Request::new(empty());
    *request.uri_mut() = http::Uri::from_static("/v2/health/ready");
    if let Ok(name) = HeaderValue::from_str(&node.config.name) {
        request.headers_mut().insert(headers::ROUTER, name);
    }
    let sent = Instant::now();
    let exchange = async {
        let response = cloud.link.send(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let _body: Bytes = collect(body, 1 << 16).await.map_err(|error| error.to_string())?;
        Ok::<_, String>(head)
    };
    let answer = timeout(patience, exchange).await;
    let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {patience:?}")));
    let rtt = sent.elapsed();
    let answer = answer.and_then(|head| {
        // A cloud that is not ready but tells its load is at work: one of its models is on its way
        // into service, which is no reason to leave the others.
        let load = head.headers.get(headers::LOAD).and_then(|value| value.to_str().ok());
        let load = load.and_then(LoadReport::decode);
        let well = head.status == StatusCode::OK || load.is_some_and(|load| !load.draining);
        if well { Ok(head) } else { Err(format!("it answered {}", head.status)) }
    });
    match answer {
        Ok(head) => {
            let text = |name: http::HeaderName| {
                head.headers.get(name).and_then(|value| value.to_str().ok())
            };
            let spent = text(headers::SERVER_TIMING).and_then(|value| timing::find(value, "total"));
            if let Some(name) = text(headers::NODE) {
                name.clone_into(&mut cloud.name.lock().unwrap_or_else(PoisonError::into_inner));
            }
            clouds.observe(Event::ProbeOk {
                slot: cloud.slot,
                rtt: Micros::from(rtt),
                server_time: Micros::from(spent.filter(|spent| *spent < rtt).unwrap_or_default()),
                report: text(headers::LOAD).and_then(LoadReport::decode).map(report),
            });
            Ok(())
        }
        Err(problem) => {
            clouds.observe(Event::ProbeFailed { slot: cloud.slot });
            Err(problem)
        }
    }
}

fn report(report: LoadReport) -> Report {
    Report {
        boot: BootId::fold(report.boot),
        total: Rif(report.rif),
        share: Rif(report.share),
        draining: report.draining,
    }
}
