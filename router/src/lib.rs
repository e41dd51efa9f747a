//! The router: takes requests from apps, decides through the core, forwards to nodes.
//!
//! One file per hop of a request: [`listen`] → [`admit`] → [`locate`] → [`decide`] → [`forward`] →
//! [`respond`]; gRPC passes through [`grpc`] on its way. What concerns several nodes at once is
//! asked by [`fanout`]. Beside them: what is known of the fleet ([`fleet`], brought by [`probe`]), one
//! thread's state ([`shard`]), kept bodies ([`replay`]) and kept decisions ([`records`]). The
//! router parses no bodies, peeks at the first message of gRPC, and knows no models but by name.

mod admin;
mod admit;
mod answer;
pub mod config;
mod decide;
mod error;
mod fanout;
mod fleet;
mod forward;
mod grpc;
mod inquire;
mod listen;
mod locate;
mod own;
mod probe;
mod records;
mod replay;
mod respond;
mod ring;
mod shard;

use std::{future::Future, io, sync::Arc};

use midspan_net::{
    Limits, Tasks,
    admin::serve as serve_admin,
    listen::{Options, bind, serve},
    shards, telemetry,
};

pub use crate::{
    admin::{FleetStatus, NodeStatus},
    config::{Config, RawConfig},
    error::{Blame, RouteError},
    fleet::Fleet,
    records::{DecisionId, Records},
};
use crate::{replay::ReplayBudget, shard::Shard};

/// Runs a router until `stop` resolves, then drains. `ready` is called once both ports listen,
/// with the addresses that they have.
///
/// # Errors
/// A port that cannot be bound, or a fleet that makes no topology; nothing listens then.
pub fn run<S, R>(config: Config, stop: S, ready: R) -> io::Result<()>
where
    S: Future<Output = ()> + Send,
    R: FnOnce(std::net::SocketAddr, std::net::SocketAddr) + Send,
{
    telemetry::init_metrics().map_err(io::Error::other)?;
    let config = Arc::new(config);
    let fleet = Fleet::new(&config).map_err(|error| io::Error::other(format!("{error}")))?;
    let fleet = Arc::new(fleet);
    let records = Arc::new(Records::new(config.threads, config.limits.decisions));
    let replay = Arc::new(ReplayBudget::new(config.limits.replay_total.as_usize()));
    let tasks = Tasks::default();
    let apps = bind(config.apps, config.threads)?;
    let admin = bind(config.admin, 1)?;
    let addrs = (address(&apps)?, address(&admin)?);
    let control = std::sync::Mutex::new(Some((admin, stop, ready)));
    let apps = std::sync::Mutex::new(apps);
    shards::run(config.threads + 1, "router", |index| {
        let (config, fleet) = (Arc::clone(&config), Arc::clone(&fleet));
        let (records, replay, tasks) = (Arc::clone(&records), Arc::clone(&replay), tasks.clone());
        // The first thread probes and administers; the others serve apps.
        let control = (index == 0).then(|| take(&control)).flatten();
        let listener = (index > 0).then(|| apps.lock().ok()?.pop()).flatten();
        async move {
            // A router without its probes or with a deaf port is worse than none.
            let _all_end = tasks.drain_on_drop();
            if let Some((admin, stop, ready)) = control {
                let routes = admin::routes(Arc::clone(&fleet), Arc::clone(&config), records);
                admin.into_iter().try_for_each(|port| serve_admin(port, &tasks, routes.clone()))?;
                start_probes(&fleet, &config, &tasks);
                config.tls.iter().for_each(|tls| tls.watch(&tasks));
                ready(addrs.0, addrs.1);
                stop.await;
                tracing::info!("draining");
                tasks.start_drain();
            } else if let Some(listener) = listener {
                let limits = Limits {
                    connections: config.limits.connections,
                    streams: config.limits.streams,
                    ..Limits::default()
                };
                let options = Options { limits, tls: config.tls.clone(), ..Options::default() };
                let shard = Shard::new(
                    index - 1,
                    Arc::clone(&config),
                    fleet,
                    records,
                    replay,
                    tasks.clone(),
                );
                let shard = Arc::new(shard);
                serve(listener, options, &tasks, move |request, peer| {
                    listen::handle(Arc::clone(&shard), request, peer)
                })?;
                tasks.drain_started().await;
            }
            if !tasks.drain(config.drain).await {
                tracing::warn!("the drain's grace period ended with requests under way");
            }
            Ok(())
        }
    })
}

fn take<T>(slot: &std::sync::Mutex<Option<T>>) -> Option<T> {
    slot.lock().ok()?.take()
}

fn address(listeners: &[std::net::TcpListener]) -> io::Result<std::net::SocketAddr> {
    listeners.first().ok_or_else(|| io::Error::other("no listener"))?.local_addr()
}

fn start_probes(fleet: &Arc<Fleet>, config: &Arc<Config>, tasks: &Tasks) {
    let seed = shard::ambient_seed();
    tasks.spawn_until_drain(probe::sweep(Arc::clone(fleet)));
    for index in 0..config.nodes.len() {
        let probing = probe::probe(Arc::clone(fleet), Arc::clone(config), index, seed);
        tasks.spawn_until_drain(probing);
    }
}
