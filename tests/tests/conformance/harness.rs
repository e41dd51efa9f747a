//! A node and a router in front of it, on threads of this process, and the two ways of asking
//! them: HTTP/1.1 on a plain socket, HTTP/2 through a pool. It expects nothing of an answer.

use std::{fmt, io, net::SocketAddr, rc::Rc, thread::JoinHandle};

use http::{HeaderName, HeaderValue, Method, Request};
use midspan_net::{
    body::{collect, full},
    config::parse,
    transport::{HttpVersion, PoolOptions, Pooled, Transport as _},
};
use midspan_protocol::LoadReport;
use midspan_router::FleetStatus;
use system_tests::onnx_models::{self, TestModel};
use tempfile::TempDir;
use tokio::{sync::oneshot, time::timeout};

use crate::{
    answer::Answer,
    case::Call,
    sweep::Sweep,
    wire::{PATIENCE, Wire},
};

const TRIES: usize = 500_000;

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hop {
    Node,
    Router,
}

impl Hop {
    pub(crate) const BOTH: [Self; 2] = [Self::Node, Self::Router];
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Node { "node" } else { "router" })
    }
}

/// What one pair differs in from another.
#[derive(Clone, Copy, Default)]
pub(crate) struct Setup {
    /// Lines before the tables, of both configurations.
    pub(crate) top: &'static str,
    /// Lines of `[limits]`, of both.
    pub(crate) limits: &'static str,
    /// Lines of `[limits]` of the node alone.
    pub(crate) node_limits: &'static str,
}

/// Something that runs until it is asked to stop.
struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Running {
    fn start(run: impl FnOnce(oneshot::Receiver<()>) -> io::Result<()> + Send + 'static) -> Self {
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || run(stopped));
        Self { stop: Some(stop), thread: Some(thread) }
    }

    fn ask_to_stop(&mut self) {
        drop(self.stop.take());
    }

    fn outcome(&mut self) -> Result<(), String> {
        self.ask_to_stop();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let outcome = thread.join().map_err(|_panic| "it panicked".to_owned())?;
        outcome.map_err(|error| error.to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let outcome = self.outcome();
        if !std::thread::panicking() {
            assert_eq!(outcome, Ok(()), "node and router end well");
        }
    }
}

/// A node and a router in front of it. The router is dropped first.
pub(crate) struct Pair {
    router: Running,
    node: Running,
    pub(crate) apps: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) node_addr: SocketAddr,
    _folder: TempDir,
}

impl Pair {
    /// Starts both and waits until the router knows the node's models.
    pub(crate) async fn start(setup: Setup, models: &[TestModel]) -> Result<Self, String> {
        let folder = TempDir::new().map_err(|error| error.to_string())?;
        let tables = onnx_models::write(folder.path(), models).map_err(|e| e.to_string())?;
        let Setup { top, limits, node_limits } = setup;
        let text = format!(
            "name = \"n1\"\nworkers = 1\n{top}\n[listen]\naddress = \"127.0.0.1:0\"\ndrain = \
             \"5s\"\n[limits]\n{limits}\n{node_limits}\n{tables}"
        );
        let config = parse::<midspan_node::RawConfig>("node.toml", &text, folder.path());
        let config = config.map_err(|error| error.to_string())?;
        let (ready, addr) = oneshot::channel();
        let mut node = Running::start(move |stopped| {
            let stopped = async {
                let _or_dropped = stopped.await;
            };
            midspan_node::run(config, stopped, |addr| ready.send(addr).unwrap_or_default())
        });
        let Ok(node_addr) = addr.await else {
            return Err(node.outcome().err().unwrap_or_else(|| "it ended at once".into()));
        };
        let text = format!(
            "name = \"r1\"\n{top}\n[listen]\napps = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
             threads = 1\ndrain = \"5s\"\n[limits]\n{limits}\n\
             [probe]\ninterval = \"100ms\"\ntimeout = \"10s\"\n\
             [[node]]\nname = \"n1\"\naddress = \"{node_addr}\"\n"
        );
        let config = parse::<midspan_router::RawConfig>("router.toml", &text, folder.path());
        let config = config.map_err(|error| error.to_string())?;
        let (ready, addrs) = oneshot::channel();
        let mut router = Running::start(move |stopped| {
            let stopped = async {
                let _or_dropped = stopped.await;
            };
            midspan_router::run(config, stopped, |apps, admin| {
                ready.send((apps, admin)).unwrap_or_default()
            })
        });
        let Ok((apps, admin)) = addrs.await else {
            return Err(router.outcome().err().unwrap_or_else(|| "it ended at once".into()));
        };
        let pair = Self { router, node, apps, admin, node_addr, _folder: folder };
        let known = async || pair.fleet().await.is_ok_and(|f| !f.nodes[0].models.is_empty());
        eventually("the router knows the node's models", known).await?;
        Ok(pair)
    }

    pub(crate) fn stop(&mut self, hop: Hop) {
        match hop {
            Hop::Node => self.node.ask_to_stop(),
            Hop::Router => self.router.ask_to_stop(),
        }
    }

    /// Stops both and waits for them, while this runtime goes on: connections of its pools are to
    /// see that they end.
    pub(crate) async fn end(self) {
        let Self { mut router, mut node, .. } = self;
        let ending = tokio::task::spawn_blocking(move || [router.outcome(), node.outcome()]);
        let outcomes = ending.await.expect("nothing panics while it waits");
        assert_eq!(outcomes, [Ok(()), Ok(())], "router and node end well");
    }

    /// The fleet as the router sees it.
    pub(crate) async fn fleet(&self) -> Result<FleetStatus, String> {
        fleet(self.admin).await
    }

    /// One hop, as cases ask it.
    pub(crate) fn side(&self, hop: Hop, sweep: &Sweep) -> Side {
        let addr = if hop == Hop::Node { self.node_addr } else { self.apps };
        let authority = addr.to_string().parse().expect("an address is an authority");
        let options = PoolOptions { version: HttpVersion::H2, ..PoolOptions::default() };
        let h2 = Rc::new(Pooled::new(authority, options));
        let (node, admin) = (self.node_addr, self.admin);
        Side { hop, addr, node, admin, h2, sweep: sweep.clone() }
    }
}

async fn fleet(admin: SocketAddr) -> Result<FleetStatus, String> {
    let answer = Wire::connect(admin).await?.exchange(&Call::get("/nodes")).await?;
    serde_json::from_slice(&answer.body).map_err(|error| error.to_string())
}

/// One hop, and what is needed to look behind it.
#[derive(Clone)]
pub(crate) struct Side {
    pub(crate) hop: Hop,
    pub(crate) addr: SocketAddr,
    pub(crate) node: SocketAddr,
    admin: SocketAddr,
    h2: Rc<Pooled>,
    pub(crate) sweep: Sweep,
}

impl Side {
    pub(crate) async fn wire(&self) -> Result<Wire, String> {
        Wire::connect(self.addr).await
    }

    /// Sends over HTTP/1.1 on a connection of its own.
    pub(crate) async fn call(&self, call: &Call) -> Result<Answer, String> {
        let answer = self.wire().await?.exchange(call).await?;
        self.sweep.saw(self.hop, &call.path, &call.method, &answer);
        Ok(answer)
    }

    /// Sends over HTTP/2.
    pub(crate) async fn call_h2(&self, call: &Call) -> Result<Answer, String> {
        let mut request = Request::new(full(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = call.path.parse().map_err(|error| format!("{error}"))?;
        for (name, value) in &call.headers {
            let value = HeaderValue::from_str(value).map_err(|error| error.to_string())?;
            request.headers_mut().append(HeaderName::from_static(name), value);
        }
        let exchange = async {
            let response = self.h2.send(request).await.map_err(|error| error.to_string())?;
            let (head, body) = response.into_parts();
            let body = collect(body, 256 << 20).await.map_err(|error| error.to_string())?;
            Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
        };
        timeout(PATIENCE, exchange).await.map_err(|_elapsed| "no answer in time".to_owned())?
    }

    /// What the node says of its load.
    pub(crate) async fn load(&self) -> Result<LoadReport, String> {
        let live = Call::get("/v2/health/live");
        let answer = Wire::connect(self.node).await?.exchange(&live).await?;
        let report = LoadReport::decode(answer.header("midspan-load"));
        report.ok_or_else(|| "the node reports no load".to_owned())
    }

    /// Waits until so many requests are in flight at the node.
    pub(crate) async fn in_flight(&self, count: u32) -> Result<(), String> {
        let what = format!("{count} in flight at the node");
        eventually(&what, async || self.load().await.is_ok_and(|load| load.rif == count)).await
    }

    /// Waits until nothing is in flight anywhere.
    pub(crate) async fn idle(&self) -> Result<(), String> {
        self.in_flight(0).await?;
        eventually("nothing in flight at the router", async || {
            fleet(self.admin).await.is_ok_and(|fleet| fleet.in_flight == 0)
        })
        .await
    }

    /// Whether the hop still answers.
    pub(crate) async fn alive(&self) -> Result<(), String> {
        let answer = self.call(&Call::get("/v2/health/live")).await?;
        if answer.status == 200 { Ok(()) } else { Err(answer.brief()) }
    }
}

/// The method is needed to read an answer; these scripts use one of two.
pub(crate) const GET: Method = Method::GET;

/// Asks again and again, a bounded number of times, until it is so.
pub(crate) async fn eventually(
    what: &str,
    mut so: impl AsyncFnMut() -> bool,
) -> Result<(), String> {
    let polling = async {
        for _ in 0..TRIES {
            if so().await {
                return true;
            }
            tokio::task::yield_now().await;
        }
        false
    };
    let outcome = timeout(PATIENCE, polling).await;
    if outcome == Ok(true) { Ok(()) } else { Err(format!("never so: {what}")) }
}
