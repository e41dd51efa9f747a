//! The node: runs models, in role `edge` or `cloud`.
//!
//! One file per step of a request's life: [`listen`] → [`accept`] → [`queue`] → [`batch`] →
//! [`exec`] → [`exit`] → [`offload`] → [`respond`]; [`message`] takes a request's tensors
//! to the answer's, [`infer`] is the way through the steps, and [`resume`] the way of an activation
//! at a cloud; [`grpc`] is the other form that apps may ask in. Beside them: loaded models
//! ([`model`], [`repository`], [`control`]), what clients are told of them ([`own`], [`describe`],
//! [`statistics`]), the clouds an edge knows ([`clouds`]) and the load report ([`load`]). The node
//! never routes between edges and never changes a model.

mod accept;
mod batch;
mod classify;
mod clouds;
pub mod config;
mod control;
mod describe;
mod error;
mod exec;
mod exit;
mod grpc;
mod infer;
mod listen;
mod load;
mod message;
mod model;
mod offload;
mod own;
mod queue;
mod raw;
mod repository;
mod respond;
mod resume;
mod schedule;
mod statistics;

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Instant};

use midspan_net::{
    Limits, Tasks, admin,
    listen::{Options, bind, serve},
    telemetry,
};

use crate::{clouds::Clouds, exec::Workers, load::Load, queue::Queue, repository::Repository};
pub use crate::{
    config::{Config, ModelSource, RawConfig, Role, Run},
    error::NodeError,
};

/// What every request of a node shares.
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) repository: Repository,
    pub(crate) queue: Arc<Queue>,
    pub(crate) load: Load,
    pub(crate) clouds: Clouds,
    pub(crate) tasks: Tasks,
}

/// Runs a node until `stop` resolves, then drains. Models are loaded before the port opens;
/// `ready` is called with its address once it listens.
///
/// # Errors
/// A model that cannot be loaded or a port that cannot be bound; nothing listens then.
pub fn run<S, R>(config: Config, stop: S, ready: R) -> io::Result<()>
where
    S: Future<Output = ()>,
    R: FnOnce(SocketAddr),
{
    telemetry::init_metrics().map_err(io::Error::other)?;
    // Bound first: a port in use is found before a minute of loading models.
    let apps = bind(config.listen, 1)?;
    let admin_port = config.admin.map(|addr| bind(addr, 1)).transpose()?.unwrap_or_default();
    let repository = Repository::load(&config).map_err(io::Error::other)?;
    let queue = Arc::new(Queue::new(config.limits.queue));
    let load = Load::new(config.workers);
    let workers = Workers::start(config.workers, &queue)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let tasks = Tasks::default();
        let clouds = Clouds::new(&config).map_err(io::Error::other)?;
        let limits = Limits {
            connections: config.limits.connections,
            streams: config.limits.streams,
            ..Limits::default()
        };
        let options = Options { limits, tls: config.tls.clone(), ..Options::default() };
        config.tls.iter().for_each(|tls| tls.watch(&tasks));
        let grace = config.drain;
        let node = Node {
            config,
            repository,
            queue: Arc::clone(&queue),
            load,
            clouds,
            tasks: tasks.clone(),
        };
        let node = Arc::new(node);
        clouds::start_probes(&node);
        let mut addr = None;
        for listener in apps {
            addr = Some(listener.local_addr()?);
            let (node, calls) = (Arc::clone(&node), grpc::Services::new(&node));
            serve(listener, options.clone(), &tasks, move |request, peer| {
                listen::handle(Arc::clone(&node), calls.clone(), request, peer)
            })?;
        }
        admin_port.into_iter().try_for_each(|port| admin::serve(port, &tasks, admin::base()))?;
        if let Some(addr) = addr {
            ready(addr);
        }
        stop.await;
        let end = Instant::now() + grace;
        tracing::info!("draining");
        if !tasks.drain(grace).await {
            tracing::warn!("the drain's grace period ended with requests under way");
        }
        Ok::<_, io::Error>(end)
    });
    queue.close();
    let end = outcome?;
    // A run that goes on, for nobody, must not keep the process.
    if !workers.join(end.saturating_duration_since(Instant::now())) {
        tracing::warn!("a run goes on after the drain's grace period; it ends with the process");
    }
    Ok(())
}
