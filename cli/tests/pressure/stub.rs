//! A node in the test's own process. What it does with a request is in the request's `x-script`
//! header, which the router passes on.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, task::Poll};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use midspan_net::{
    Body, BodyError, Limits, Tasks,
    body::{boxed, full},
    listen, reply,
};
use midspan_protocol::{
    LoadReport, headers,
    metadata::{NodeInfo, RepositoryEntry},
};
use tokio::sync::watch;

use crate::meter::Meter;

static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// The node.
pub(crate) struct Stub {
    pub(crate) addr: SocketAddr,
    state: Arc<State>,
    _tasks: Tasks,
}

#[derive(Default)]
struct State {
    gate: watch::Sender<bool>,
    /// Inferences under way, whose answer's head is still to come.
    busy: watch::Sender<usize>,
    /// Bytes of answers that the server took.
    sent: Meter,
}

impl Stub {
    /// Listens as a node does, with the same windows and limits.
    pub(crate) fn start() -> Self {
        let near = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = listen::bind(near, 1).expect("a port").remove(0);
        let addr = listener.local_addr().expect("an address");
        let state = Arc::new(State::default());
        let tasks = Tasks::default();
        let own = Arc::clone(&state);
        let handler = move |request, _peer| answer(Arc::clone(&own), request);
        listen::serve(listener, Limits::default(), &tasks, handler).expect("a runtime");
        Self { addr, state, _tasks: tasks }
    }

    /// Inferences under way.
    pub(crate) fn busy(&self) -> usize {
        *self.state.busy.borrow()
    }

    /// Lets the `gated` requests go on, also those to come.
    pub(crate) fn open(&self) {
        self.state.gate.send_replace(true);
    }

    /// Waits until `count` inferences are under way.
    pub(crate) async fn holds(&self, count: usize) {
        let mut busy = self.state.busy.subscribe();
        let reached = busy.wait_for(|now| *now >= count);
        crate::in_time("requests at the node", reached).await.expect("counting");
    }

    /// Bytes of `large` answers that left the producer.
    pub(crate) fn sent(&self) -> &Meter {
        &self.state.sent
    }
}

/// One inference under way.
struct Busy<'c>(&'c watch::Sender<usize>);

impl<'c> Busy<'c> {
    fn count(busy: &'c watch::Sender<usize>) -> Self {
        busy.send_modify(|count| *count += 1);
        Self(busy)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Response<Body> {
    let mut response = match request.uri().path() {
        "/v2/health/ready" => reply::json(StatusCode::OK, "{\"live\":true,\"ready\":true}"),
        "/v2/midspan/node" => reply::value(StatusCode::OK, &info()),
        _ => {
            let _busy = Busy::count(&state.busy);
            scripted(&state, request).await
        }
    };
    let report =
        LoadReport { boot: 1, workers: 64, service_us: 100, ..LoadReport::default() }.encode();
    let report = HeaderValue::from_str(&report).expect("a header");
    response.headers_mut().insert(headers::LOAD, report);
    response
}

/// `gated`: reads once the gate is open. `large:<bytes>`: a long answer. `status:<code>`: an error.
/// `early:<code>`: an error before the body is read. Else: reads, and tells how much.
async fn scripted(state: &State, request: Request<Incoming>) -> Response<Body> {
    let script = request.headers().get("x-script").and_then(|value| value.to_str().ok());
    let script = script.unwrap_or_default().to_owned();
    let (script, argument) = script.split_once(':').unwrap_or((&script, ""));
    let error = || {
        let status = StatusCode::from_bytes(argument.as_bytes()).expect("a status");
        reply::error(status, "as told")
    };
    if script == "early" {
        return error();
    }
    if script == "gated" {
        let mut gate = state.gate.subscribe();
        let _opened = gate.wait_for(|open| *open).await;
    }
    let Ok(read) = discard(request.into_body()).await else {
        return reply::error(StatusCode::BAD_REQUEST, "the body broke off");
    };
    match script {
        "large" => large(argument.parse().expect("a number"), state.sent.clone()),
        "status" => error(),
        _ => Response::new(full(read.to_string())),
    }
}

async fn discard(mut body: Incoming) -> Result<usize, hyper::Error> {
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        read += frame?.data_ref().map_or(0, Bytes::len);
    }
    Ok(read)
}

fn large(length: usize, sent: Meter) -> Response<Body> {
    let mut response = Response::new(boxed(zeros(length, sent)));
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    response
}

/// A body of `length` zeros, each frame counted as it is taken.
pub(crate) fn zeros(
    length: usize,
    taken: Meter,
) -> impl http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static {
    let mut left = length;
    StreamBody::new(stream::poll_fn(move |_| {
        let size = left.min(ZEROS.len());
        left -= size;
        taken.add(size);
        Poll::Ready((size > 0).then(|| Ok(Frame::data(Bytes::from_static(&ZEROS[..size])))))
    }))
}

/// Some bytes, then nothing more, ever.
pub(crate) fn stuck() -> Body {
    let mut some = Some(Bytes::from_static(&ZEROS));
    boxed(StreamBody::new(stream::poll_fn(move |_| match some.take() {
        Some(bytes) => Poll::Ready(Some(Ok::<_, BodyError>(Frame::data(bytes)))),
        None => Poll::Pending,
    })))
}

fn info() -> NodeInfo {
    let model = RepositoryEntry {
        name: "m".into(),
        version: "1".into(),
        state: "READY".into(),
        reason: String::new(),
    };
    NodeInfo {
        name: "stub".into(),
        role: "edge".into(),
        workers: 64,
        models: vec![model],
        ..NodeInfo::default()
    }
}
