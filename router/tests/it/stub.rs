//! A node that does what a test tells it: answers probes like a node, and inferences by a script
//! that may also break the exchange off. Speaks HTTP/1.1 and HTTP/2 on one port.

use std::{
    convert::Infallible,
    future::Future,
    net::{SocketAddr, TcpListener as StdListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use midspan_net::{
    Body, BodyError,
    body::{boxed, collect, full},
    listen, reply,
};
use midspan_protocol::{
    LoadReport, headers,
    metadata::{NodeInfo, RepositoryEntry},
};
use tokio::{net::TcpListener, task::JoinSet};

/// The exchange ends without an answer: h1 closes the connection, h2 resets the stream.
#[derive(Debug, thiserror::Error)]
#[error("the script broke off")]
pub(crate) struct BreakOff;

/// What a script comes to.
pub(crate) type Outcome = Result<Response<Body>, BreakOff>;
type Script = dyn Fn(Request<Incoming>) -> BoxFuture<'static, Outcome> + Send + Sync;

/// A scripted node.
pub(crate) struct Stub {
    pub(crate) name: String,
    pub(crate) addr: SocketAddr,
    state: Arc<State>,
    serving: Option<tokio::task::JoinHandle<()>>,
}

struct State {
    name: String,
    boot: AtomicU64,
    draining: AtomicBool,
    unready: AtomicBool,
    models: Mutex<Vec<(&'static str, &'static str)>>,
    script: Mutex<Arc<Script>>,
    asked: AtomicUsize,
    heads: Mutex<Vec<HeaderMap>>,
}

impl Stub {
    /// A node that serves model `m` and answers with its own name.
    pub(crate) fn start(name: &str) -> Self {
        Self::on(name, bind())
    }

    /// The same on a listener that exists already.
    pub(crate) fn on(name: &str, listener: StdListener) -> Self {
        let addr = listener.local_addr().unwrap();
        let state = Arc::new(State {
            name: name.to_owned(),
            boot: AtomicU64::new(1),
            draining: AtomicBool::new(false),
            unready: AtomicBool::new(false),
            models: Mutex::new(vec![("m", "READY")]),
            script: Mutex::new(named(name)),
            asked: AtomicUsize::new(0),
            heads: Mutex::default(),
        });
        let listener = TcpListener::from_std(listener).unwrap();
        let serving = tokio::spawn(accept(listener, Arc::clone(&state)));
        Self { name: name.to_owned(), addr, state, serving: Some(serving) }
    }

    /// What further inferences get.
    pub(crate) fn script<F, Fut>(&self, script: F)
    where
        F: Fn(Request<Incoming>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        *self.state.script.lock().unwrap() = Arc::new(move |request| Box::pin(script(request)));
    }

    /// Back to answering with its own name.
    pub(crate) fn recover(&self) {
        *self.state.script.lock().unwrap() = named(&self.name);
    }

    /// Inferences asked since the last call.
    pub(crate) fn asked(&self) -> usize {
        self.state.asked.swap(0, Ordering::SeqCst)
    }

    /// Headers of the inference that came last.
    pub(crate) fn last_head(&self) -> HeaderMap {
        self.state.heads.lock().unwrap().last().cloned().unwrap()
    }

    /// What the load reports say from now on.
    pub(crate) fn set_draining(&self, draining: bool) {
        self.state.draining.store(draining, Ordering::SeqCst);
    }

    /// Whether probes are told that not all is ready, as while a model loads.
    pub(crate) fn set_unready(&self, unready: bool) {
        self.state.unready.store(unready, Ordering::SeqCst);
    }

    /// Other models, and a new boot id, as after a restart.
    pub(crate) fn restart_with(&self, models: &[&'static str]) {
        self.lists(&models.iter().map(|name| (*name, "READY")).collect::<Vec<_>>());
        self.state.boot.fetch_add(1, Ordering::SeqCst);
    }

    /// Other models in such states, in the same process.
    pub(crate) fn lists(&self, models: &[(&'static str, &'static str)]) {
        *self.state.models.lock().unwrap() = models.to_vec();
    }

    /// The same, to be said from within a script.
    pub(crate) fn lister(
        &self,
    ) -> impl Fn(&[(&'static str, &'static str)]) + Send + Sync + 'static {
        let state = Arc::clone(&self.state);
        move |models| *state.models.lock().unwrap() = models.to_vec()
    }

    /// Closes the port and every connection.
    pub(crate) async fn stop(&mut self) {
        let Some(serving) = self.serving.take() else { return };
        serving.abort();
        let _cancelled = serving.await;
    }
}

/// A free port on loopback.
pub(crate) fn bind() -> StdListener {
    listen::bind(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap().remove(0)
}

fn named(name: &str) -> Arc<Script> {
    let name = name.to_owned();
    Arc::new(move |request| {
        let name = name.clone();
        Box::pin(async move {
            match collect(request.into_body(), 128 << 20).await {
                Ok(_) => Ok(Response::new(full(name))),
                Err(_) => Err(BreakOff),
            }
        })
    })
}

/// Connections die with this task.
async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        stream.set_nodelay(true).unwrap();
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&state), request));
            let builder = auto::Builder::new(TokioExecutor::new());
            let _broken = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Outcome {
    let mut response = match request.uri().path() {
        "/v2/health/ready" if state.unready.load(Ordering::SeqCst) => {
            reply::health(Some("a model loads"))
        }
        "/v2/health/ready" => reply::json(StatusCode::OK, "{\"live\":true,\"ready\":true}"),
        "/v2/midspan/node" => reply::value(StatusCode::OK, &info(&state)),
        _ => {
            state.asked.fetch_add(1, Ordering::SeqCst);
            state.heads.lock().unwrap().push(request.headers().clone());
            let script = Arc::clone(&state.script.lock().unwrap());
            script(request).await?
        }
    };
    let report = LoadReport {
        boot: state.boot.load(Ordering::SeqCst),
        workers: 4,
        service_us: 100,
        draining: state.draining.load(Ordering::SeqCst),
        ..LoadReport::default()
    };
    let map = response.headers_mut();
    // A script may say something else, as a server does that is none of ours.
    map.entry(headers::LOAD).or_insert(HeaderValue::from_str(&report.encode()).unwrap());
    map.insert(headers::ENDPOINT_LOAD_METRICS, HeaderValue::from_str(&report.orca()).unwrap());
    map.entry(headers::SERVER_TIMING).or_insert(HeaderValue::from_static("run;dur=0.100"));
    Ok(response)
}

fn info(state: &State) -> NodeInfo {
    let entry = |(name, state): &(&str, &str)| RepositoryEntry {
        name: (*name).to_owned(),
        version: "1".into(),
        state: (*state).to_owned(),
        reason: if *state == "READY" { String::new() } else { "unloaded".into() },
    };
    NodeInfo {
        name: state.name.clone(),
        role: "edge".into(),
        workers: 4,
        models: state.models.lock().unwrap().iter().map(entry).collect(),
        ..NodeInfo::default()
    }
}

/// A body of these parts.
pub(crate) fn parts(parts: Vec<Bytes>) -> Body {
    let frames = parts.into_iter().map(|part| Ok::<_, Infallible>(Frame::data(part)));
    boxed(StreamBody::new(futures_util::stream::iter(frames)))
}

/// `sent`, then an error; the stream never ends cleanly. The error comes only when the receiver
/// has had a turn, so that what was sent is on its way.
pub(crate) fn broken(sent: Bytes) -> Body {
    let mut step = 0;
    boxed(StreamBody::new(futures_util::stream::poll_fn(move |cx| {
        step += 1;
        match step {
            1 => std::task::Poll::Ready(Some(Ok(Frame::data(sent.clone())))),
            2..50 => {
                cx.waker().wake_by_ref();
                std::task::Poll::Pending
            }
            _ => std::task::Poll::Ready(Some(Err(BodyError::Panicked))),
        }
    })))
}

/// `sent`, then nothing more, ever.
pub(crate) fn stuck(sent: Bytes) -> Body {
    let mut sent = Some(sent);
    boxed(StreamBody::new(futures_util::stream::poll_fn(move |_| match sent.take() {
        Some(sent) => std::task::Poll::Ready(Some(Ok::<_, Infallible>(Frame::data(sent)))),
        None => std::task::Poll::Pending,
    })))
}

/// An answer of `body`, which may promise its length.
pub(crate) fn promising(body: Body, length: Option<usize>) -> Response<Body> {
    let mut response = Response::new(body);
    if let Some(length) = length {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}
