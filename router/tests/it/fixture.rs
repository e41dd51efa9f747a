//! A router on a thread of its own, and an app in front of it.

use std::{io, net::SocketAddr, path::Path, thread::JoinHandle, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use midspan_net::{
    Body,
    body::{collect, empty, full},
    config::parse,
    transport::{HttpVersion, PoolOptions, Pooled, Transport, TransportError},
};
use midspan_protocol::headers;
use midspan_router::{FleetStatus, NodeStatus, RawConfig};
use serde_json::Value;
use tokio::{sync::oneshot, time::timeout};

use crate::stub::Stub;

/// Nothing here takes this long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const TRIES: usize = 200_000;

/// Both versions of HTTP.
pub(crate) const VERSIONS: [HttpVersion; 2] = [HttpVersion::H1, HttpVersion::H2];

/// What a test's router differs in from the usual one.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) policy: &'static str,
    /// Lines of `[listen]`.
    pub(crate) listen: String,
    /// Lines of `[limits]`.
    pub(crate) limits: &'static str,
    /// HTTP version towards the nodes.
    pub(crate) nodes: HttpVersion,
    pub(crate) probe_interval: &'static str,
    pub(crate) probe_timeout: &'static str,
    pub(crate) drain: &'static str,
    pub(crate) threads: usize,
    pub(crate) model_control: bool,
}

impl Default for Setup {
    /// Each node is probed once, so that nothing but the test's requests changes its state; a
    /// session's first choice is the same each time.
    fn default() -> Self {
        Self {
            policy: "ring_bounded",
            listen: String::new(),
            limits: "",
            nodes: HttpVersion::H1,
            probe_interval: "10m",
            probe_timeout: "10s",
            drain: "1s",
            threads: 1,
            model_control: false,
        }
    }
}

impl Setup {
    /// Probes often enough that a test may wait for them.
    pub(crate) fn probing() -> Self {
        Self { probe_interval: "20ms", ..Self::default() }
    }

    /// Starts the router and waits until it knows the nodes.
    pub(crate) async fn start(&self, nodes: &[&Stub]) -> Router {
        let named: Vec<_> = nodes.iter().map(|node| (node.name.as_str(), node.addr)).collect();
        // The one probe may be slow on a busy machine, and a node that is measured to be farther
        // away than a test's deadline is not asked at all: such a router is started again.
        for _ in 0..20 {
            let router = self.start_cold(&named).await;
            eventually("every node is known", async || {
                router.fleet().await.nodes.iter().all(|node| !node.models.is_empty())
            })
            .await;
            let near = |node: &NodeStatus| node.floor_rtt_us.is_some_and(|floor| floor < 20_000);
            if router.fleet().await.nodes.iter().all(near) {
                return router;
            }
        }
        panic!("no probe of 20 was answered within 20 ms")
    }

    /// Starts the router with nodes that may not be there.
    pub(crate) async fn start_cold(&self, nodes: &[(&str, SocketAddr)]) -> Router {
        let config = parse::<RawConfig>("test.toml", &self.toml(nodes), Path::new(".")).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, addrs) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let stopped = async move {
                let _or_dropped = stopped.await;
            };
            midspan_router::run(config, stopped, |apps, admin| ready.send((apps, admin)).unwrap())
        });
        let Ok((apps, admin)) = timeout(PATIENCE, addrs).await.unwrap() else {
            panic!("the router does not start: {:?}", thread.join())
        };
        Router {
            apps,
            app: pool(apps, HttpVersion::H1),
            admin: pool(admin, HttpVersion::H1),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    fn toml(&self, nodes: &[(&str, SocketAddr)]) -> String {
        let Self { policy, listen, limits, probe_interval, probe_timeout, drain, threads, .. } =
            self;
        let model_control = self.model_control;
        let protocol = if self.nodes == HttpVersion::H1 { "h1" } else { "h2" };
        let nodes: String = nodes
            .iter()
            .map(|(name, addr)| {
                format!(
                    "[[node]]\nname = \"{name}\"\naddress = \"{addr}\"\nprotocol = \"{protocol}\"\n"
                )
            })
            .collect();
        format!(
            "name = \"r1\"\nmodel_control = {model_control}\n\
             [listen]\napps = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
             threads = {threads}\ndrain = \"{drain}\"\n{listen}\n\
             [limits]\n{limits}\n\
             [policy]\nname = \"{policy}\"\n\
             [probe]\ninterval = \"{probe_interval}\"\ntimeout = \"{probe_timeout}\"\n\
             {nodes}"
        )
    }
}

/// A running router; stopped when dropped.
pub(crate) struct Router {
    pub(crate) apps: SocketAddr,
    pub(crate) app: Pooled,
    admin: Pooled,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Router {
    /// Asks it to drain.
    pub(crate) fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits until `run` has returned.
    pub(crate) async fn stopped(mut self) -> io::Result<()> {
        let thread = self.thread.take().unwrap();
        let joined = tokio::task::spawn_blocking(move || thread.join().unwrap());
        timeout(PATIENCE, joined).await.unwrap().unwrap()
    }

    /// `GET /nodes`.
    pub(crate) async fn fleet(&self) -> FleetStatus {
        serde_json::from_slice(&self.admin("/nodes").await.body).unwrap()
    }

    /// One node of it.
    pub(crate) async fn node(&self, name: &str) -> NodeStatus {
        self.fleet().await.nodes.into_iter().find(|node| node.name == name).unwrap()
    }

    /// A document of the admin port.
    pub(crate) async fn admin(&self, path: &str) -> Answer {
        exchange(&self.admin, request(Method::GET, path, empty())).await
    }

    /// Sends a request as an app and reads the answer whole.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        exchange(&self.app, request).await
    }

    /// Infers model `m` in a session.
    pub(crate) async fn infer(&self, session: &str) -> Answer {
        self.send(infer(session, "{}")).await
    }

    /// A session whose first choice is `node`.
    pub(crate) async fn session_of(&self, node: &Stub) -> String {
        for index in 0..1_000 {
            let session = format!("s{index}");
            if self.infer(&session).await.body == node.name {
                node.asked();
                return session;
            }
        }
        panic!("no session prefers {}", node.name)
    }

    /// Waits until the router counts no request of its own at any node.
    pub(crate) async fn idle(&self) {
        eventually("nothing is in flight", async || {
            let fleet = self.fleet().await;
            fleet.in_flight == 0 && fleet.nodes.iter().all(|node| node.own_requests == 0)
        })
        .await;
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            if !std::thread::panicking() {
                outcome.expect("the router does not panic").expect("the router ends well");
            }
        }
    }
}

/// A client towards `addr`.
pub(crate) fn pool(addr: SocketAddr, version: HttpVersion) -> Pooled {
    let authority = addr.to_string().parse().unwrap();
    Pooled::new(authority, PoolOptions { version, ..PoolOptions::default() })
}

/// An answer read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// A header as text; empty when it is missing.
    pub(crate) fn header(&self, name: impl header::AsHeaderName) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Checks status and form of an error and returns its text.
    #[track_caller]
    pub(crate) fn error(&self, status: u16) -> String {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert_eq!(self.header(header::CONTENT_TYPE), "application/json", "{self:?}");
        if status == 503 {
            assert_eq!(self.header(header::RETRY_AFTER), "1", "{self:?}");
        }
        self.json()["error"].as_str().expect("a text member 'error'").to_owned()
    }
}

/// Any request.
pub(crate) fn request(method: Method, path: &str, body: Body) -> Request<Body> {
    Request::builder().method(method).uri(path).body(body).unwrap()
}

/// An inference of model `m`.
pub(crate) fn infer(session: &str, body: impl Into<Bytes>) -> Request<Body> {
    infer_body(session, full(body))
}

/// The same with any body.
pub(crate) fn infer_body(session: &str, body: Body) -> Request<Body> {
    let mut request = request(Method::POST, "/v2/models/m/infer", body);
    request.headers_mut().insert(headers::SESSION, session.parse().unwrap());
    request
}

/// Adds a header.
pub(crate) fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().append(name, value.parse().unwrap());
    request
}

/// Sends and reads the answer whole.
pub(crate) async fn exchange(pool: &Pooled, request: Request<Body>) -> Answer {
    let response = head(pool, request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = timeout(PATIENCE, collect(body, 128 << 20)).await.unwrap().unwrap();
    Answer { status: head.status, headers: head.headers, body }
}

/// Sends and waits for the answer's head.
pub(crate) async fn head(
    pool: &Pooled,
    request: Request<Body>,
) -> Result<Response<Body>, TransportError> {
    timeout(PATIENCE, pool.send(request)).await.expect("an answer in time")
}

/// Asks again and again, a bounded number of times, until it is so.
pub(crate) async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let polling = async {
        for _ in 0..TRIES {
            if check().await {
                return true;
            }
            tokio::task::yield_now().await;
        }
        false
    };
    assert_eq!(timeout(PATIENCE, polling).await, Ok(true), "{what}");
}
