//! Live latency probes: each node is asked at a fixed rate, whatever the traffic. A probe brings
//! round trip, load and health; now and then it also asks which models the node serves.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderValue, Method, Response, StatusCode};
use metrics::Counter;
use midspan_net::{
    Body,
    body::{collect, empty},
    telemetry::Metric,
    transport::{PoolOptions, Pooled},
};
use midspan_protocol::{LoadReport, headers, timing};
use midspan_router_core::{Event, Micros, Rng, hash_bytes};
use tokio::time::{MissedTickBehavior, interval_at, timeout};

use crate::{
    config::{Config, Node},
    fleet::Fleet,
    forward::report,
    inquire::{Inquiry, MAX_INFO},
};

/// Period of the core's sweep.
const SWEEP: Duration = Duration::from_millis(250);
/// Every so many probes the node is asked for its models anyway.
const REFRESH: u32 = 4;

/// Sweeps for ever.
pub(crate) async fn sweep(fleet: Arc<Fleet>) {
    let mut ticks = tokio::time::interval(SWEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        fleet.sweep();
    }
}

/// Probes one node for ever. The phase is drawn from `seed`, so that a router's probes, and those
/// of many routers, do not come in bursts.
pub(crate) async fn probe(fleet: Arc<Fleet>, config: Arc<Config>, index: usize, seed: u64) {
    let Some(node) = config.nodes.get(index).cloned() else { return };
    let mut rng = Rng::new(seed ^ hash_bytes(node.name.as_bytes()));
    let period = config.probe_interval;
    let mut prober = Prober::new(&fleet, &config, index, &node);
    // The first probe goes out at once: a router that starts must know its nodes.
    prober.once().await;
    let phase = period.mul_f64((rng.next_u64() % 1024) as f64 / 1024.0);
    let mut ticks = interval_at(tokio::time::Instant::now() + phase, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        prober.once().await;
    }
}

struct Prober<'f> {
    fleet: &'f Fleet,
    index: usize,
    name: String,
    router: HeaderValue,
    link: Pooled,
    patience: Duration,
    boot: Option<u64>,
    until_refresh: u32,
    was_up: Option<bool>,
    was_ready: bool,
    ok: Counter,
    failed: Counter,
}

impl<'f> Prober<'f> {
    fn new(fleet: &'f Fleet, config: &Config, index: usize, node: &Node) -> Self {
        let options = PoolOptions {
            version: node.version,
            connect_timeout: config.probe_timeout,
            max_idle: 1,
            ..PoolOptions::default()
        };
        Self {
            fleet,
            index,
            name: node.name.clone(),
            router: HeaderValue::from_str(&config.name)
                .unwrap_or_else(|_| HeaderValue::from_static("router")),
            link: Pooled::new(node.authority.clone(), options),
            patience: config.probe_timeout,
            boot: None,
            until_refresh: 0,
            was_up: None,
            was_ready: true,
            ok: Metric::RouterProbes.counter(&[&node.name, "ok"]),
            failed: Metric::RouterProbes.counter(&[&node.name, "failed"]),
        }
    }

    async fn once(&mut self) {
        let (answer, rtt) = self.ask().await;
        let Some(slot) = self.fleet.slot(self.index) else { return };
        let outcome = answer.and_then(|response| {
            let load = header(&response, &headers::LOAD).and_then(LoadReport::decode);
            // A node that reports its load lives: which of its models are ready, and whether it
            // drains, it says elsewhere, so one model that loads does not take the others away.
            let reports = load.is_some() && response.status() == StatusCode::SERVICE_UNAVAILABLE;
            if response.status() == StatusCode::OK || reports {
                let spent = header(&response, &headers::SERVER_TIMING)
                    .and_then(|value| timing::find(value, "total"))
                    .unwrap_or_default();
                return Ok((load, spent, response.status() == StatusCode::OK));
            }
            Err(format!("it answered {}", response.status()))
        });
        match outcome {
            Ok((load, spent, ready)) => {
                self.ok.increment(1);
                self.fleet.observe(Event::ProbeOk {
                    slot,
                    rtt: Micros::from(rtt),
                    server_time: if spent < rtt { Micros::from(spent) } else { Micros::ZERO },
                    report: load.map(report),
                });
                self.turned(true, "");
                if ready != self.was_ready {
                    // Models come or go.
                    self.until_refresh = 0;
                    self.was_ready = ready;
                }
                self.refresh(load.map(|load| load.boot)).await;
            }
            Err(problem) => {
                self.failed.increment(1);
                self.fleet.observe(Event::ProbeFailed { slot });
                self.turned(false, &problem);
                self.until_refresh = 0;
            }
        }
    }

    /// One timed exchange. Towards a node that was not up a first one opens the connection, whose
    /// handshake is no part of the round trip.
    async fn ask(&self) -> (Result<Response<Body>, String>, Duration) {
        const READY: &str = "/v2/health/ready";
        if self.was_up != Some(true)
            && let Err(problem) = self.get(READY).await
        {
            return (Err(problem), Duration::ZERO);
        }
        let sent = Instant::now();
        let answer = self.get(READY).await;
        (answer, sent.elapsed())
    }

    /// Says once that a node came or went.
    fn turned(&mut self, up: bool, problem: &str) {
        if self.was_up.replace(up) == Some(up) {
            return;
        }
        if up {
            tracing::info!(node = self.name, "answers probes");
        } else {
            tracing::warn!(node = self.name, problem, "does not answer probes");
        }
    }

    /// Asks for the models at first, after a restart, and now and then.
    async fn refresh(&mut self, boot: Option<u64>) {
        if self.boot == boot && self.until_refresh > 0 {
            self.until_refresh -= 1;
            return;
        }
        match self.inquiry().info().await {
            Ok(info) => {
                self.boot = boot;
                self.until_refresh = REFRESH;
                if let Err(error) = self.fleet.learn(self.index, info) {
                    tracing::error!(node = self.name, ?error, "its models do not fit the fleet");
                }
            }
            Err(problem) => {
                tracing::warn!(node = self.name, problem, "did not say which models it serves");
            }
        }
    }

    async fn get(&self, path: &'static str) -> Result<Response<Body>, String> {
        let mut response = self.inquiry().send(Method::GET, path).await?;
        // The body is read so that the connection is used again.
        let body = std::mem::replace(response.body_mut(), empty());
        let read = timeout(self.patience, collect(body, MAX_INFO)).await;
        read.map_err(|_| "too slow".to_owned())?.map_err(|error| error.to_string())?;
        Ok(response)
    }

    fn inquiry(&self) -> Inquiry<'_> {
        Inquiry {
            link: &self.link,
            node: &self.name,
            router: &self.router,
            patience: self.patience,
        }
    }
}

fn header<'r>(response: &'r Response<Body>, name: &http::HeaderName) -> Option<&'r str> {
    response.headers().get(name).and_then(|value| value.to_str().ok())
}
