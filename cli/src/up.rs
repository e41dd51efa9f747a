//! `midspan up`: the whole system on this machine. One router, two edges and a cloud run as child
//! processes of this program, so that each can be killed; the emulated uplink runs in here.

mod child;
mod fleet;
mod links;

use std::{net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use anyhow::{Context, ensure};
use clap::Parser;
use midspan_load::emulator::{BitsPerSecond, Link, LinkSpec, Outage};
use midspan_net::{Tasks, admin, listen::bind, tasks::stop_signal, telemetry};

use self::{child::Supervisor, fleet::Layout};
use crate::{fetch, runtime, table};

/// Start the whole system on this machine: one router, two edge nodes, one cloud node, and an
/// emulated link between edges and cloud. Ctrl-C drains and stops it.
///
/// Examples:
///   midspan up
///   midspan up --uplink 3g --bundle models/fashion
#[derive(Parser)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The link between edges and cloud: `wifi`, `4g`, `3g`, or `none` for no emulation.
    #[arg(long, default_value = "4g", value_parser = ["wifi", "4g", "3g", "none"])]
    uplink: String,
    /// Folder of the bundle to serve; the one inside the program without it.
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// How the router chooses: `capped_affinity`, `ring_bounded` or `nearest`.
    #[arg(long, default_value = "capped_affinity", value_parser = ["capped_affinity", "ring_bounded", "nearest"])]
    policy: String,
    /// Port for apps, on loopback.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// The router's admin port, on loopback.
    #[arg(long, default_value_t = 9090)]
    admin_port: u16,
    /// Port of the emulated link's counters and switches, on loopback.
    #[arg(long, default_value_t = 9091)]
    links_port: u16,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    if let Some(folder) = &args.bundle {
        // Opened here so that a wrong folder is one line, not a child's log.
        midspan_split::Bundle::open(folder)?;
    }
    telemetry::init_logs(false);
    runtime::ensure()?;
    fetch::block_on(up(args))
}

async fn up(args: Args) -> anyhow::Result<()> {
    let local = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    for port in [args.port, args.admin_port] {
        // The router binds them itself, later; a port in use is better said before four starts.
        drop(bind(local(port), 1)?);
    }
    let links_port = bind(local(args.links_port), 1)?;
    let folder = tempfile::Builder::new().prefix("midspan-up-").tempdir()?;
    let tasks = Tasks::default();
    let mut stop = std::pin::pin!(stop_signal());
    let starting = start(&args, folder.path(), &tasks);
    let started = tokio::select! {
        biased;
        signal = &mut stop => {
            signal?;
            return Ok(());
        }
        started = starting => started?,
    };
    let Started { layout, link, supervisors } = started;
    let routes = links::routes(link.clone()).merge(admin::base());
    links_port.into_iter().try_for_each(|port| admin::serve(port, &tasks, routes.clone()))?;
    announce(&args, &layout, link.as_deref());
    let failed = supervise(&supervisors, stop).await;
    crate::say(format_args!("draining"));
    // Apps first, then those that the apps' requests still need; the cloud is last.
    let mut supervisors = supervisors.into_iter();
    let cloud = supervisors.next();
    for supervisor in supervisors.rev() {
        supervisor.stop().await;
    }
    // A cut link would keep the edges' connections open at the cloud, which waits for their end.
    if let Some(link) = &link {
        link.set_outage(Outage::Refuse);
    }
    if let Some(cloud) = cloud {
        cloud.stop().await;
    }
    tasks.drain(Duration::from_secs(2)).await;
    failed
}

/// Waits for Ctrl-C, or for a child that cannot be kept alive.
async fn supervise(
    supervisors: &[Supervisor],
    stop: impl Future<Output = std::io::Result<&'static str>>,
) -> anyhow::Result<()> {
    let failures = supervisors.iter().map(|supervisor| Box::pin(supervisor.failed()));
    let failed = async {
        let mut pending: Vec<_> = failures.collect();
        std::future::poll_fn(|cx| {
            let ready = pending.iter_mut().find_map(|failure| match failure.as_mut().poll(cx) {
                std::task::Poll::Ready(error) => Some(error),
                std::task::Poll::Pending => None,
            });
            ready.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        })
        .await
    };
    tokio::select! {
        biased;
        signal = stop => signal.map(|_| ()).map_err(Into::into),
        error = failed => Err(error),
    }
}

/// A running system.
struct Started {
    layout: Layout,
    link: Option<std::sync::Arc<Link>>,
    /// In the order of their start: cloud, edges, router.
    supervisors: Vec<Supervisor>,
}

async fn start(args: &Args, folder: &std::path::Path, tasks: &Tasks) -> anyhow::Result<Started> {
    let mut layout = Layout::new(args);
    let mut supervisors = Vec::with_capacity(4);
    let cloud = Supervisor::start("node", "cloud", folder, layout.cloud(), tasks).await?;
    layout.cloud_addr = Some(cloud.addr);
    supervisors.push(cloud);
    let spec = LinkSpec::from_str(&args.uplink)?;
    let mut link = None;
    if args.uplink != "none" {
        let target = layout.cloud_addr.context("the cloud has no address")?;
        let bound = Link::bind(SocketAddr::from(([127, 0, 0, 1], 0)), target, spec).await?;
        layout.link_addr = Some(bound.local_addr());
        link = Some(std::sync::Arc::new(bound));
    }
    for name in ["edge-a", "edge-b"] {
        let edge = Supervisor::start("node", name, folder, layout.edge(name), tasks).await?;
        layout.edges.push((name, edge.addr));
        supervisors.push(edge);
    }
    let router = Supervisor::start("router", "router", folder, layout.router(), tasks).await?;
    supervisors.push(router);
    ensure!(layout.settled().await, "the router did not come to know its nodes within 30 s");
    Ok(Started { layout, link, supervisors })
}

/// A link in words.
fn describe(spec: &LinkSpec) -> String {
    let megabits = |rate: Option<BitsPerSecond>| {
        rate.map_or("any".into(), |rate| format!("{} Mbps", rate.get() as f64 / 1e6))
    };
    let (up, down) = (megabits(spec.up), megabits(spec.down));
    format!("{up} up, {down} down, {} ms round trip", spec.rtt.as_millis())
}

fn announce(args: &Args, layout: &Layout, link: Option<&Link>) {
    let endpoint = format!("http://127.0.0.1:{}", args.port);
    out!("{}\n", table::render(&["PROCESS", "ROLE", "ADDRESS", "RUNS"], &layout.rows()));
    match link {
        Some(link) => out!("uplink    {}: {}", args.uplink, describe(&link.spec())),
        None => out!("uplink    not emulated"),
    }
    out!("endpoint  {endpoint}/v2/models/{}/infer\n", layout.model);
    out!("try, in another terminal:");
    let midspan = std::env::args().next().unwrap_or_else(|| "midspan".into());
    let flag = |name: &str, default: u16, port: u16| {
        if port == default { String::new() } else { format!(" --{name} http://127.0.0.1:{port}") }
    };
    let app = flag("endpoint", 8080, args.port);
    let admin = flag("admin", 9090, args.admin_port);
    let bundle = args.bundle.as_ref().map(|path| format!(" --bundle {}", path.display()));
    let bundle = bundle.unwrap_or_default();
    let labelled = bundle.replace("--bundle", "--labelled");
    let links = match args.links_port {
        9091 => String::new(),
        port => format!(" --links http://127.0.0.1:{port}/links"),
    };
    out!("  {midspan} infer --sample 7{app}{bundle}");
    out!("  {midspan} load live --requests 1000 --concurrency 8{app}{labelled}{links}");
    out!("  {midspan} status{admin}");
    out!("  {midspan} explain last{admin}");
    out!("  curl {endpoint}/v2/models/{}", layout.model);
    if link.is_some() {
        out!(
            "  curl -X POST http://127.0.0.1:{}/links/uplink/cut      # and /restore",
            args.links_port
        );
    }
    out!("\nCtrl-C stops everything.");
}
