//! A cloud that does what a test tells it, over HTTP/2 as edges speak it.

use std::{
    future::Future,
    net::{SocketAddr, TcpListener as StdListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
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
use midspan_protocol::{InferResponse, Tensor, headers, response::OutputForm};
use midspan_split::FrameHeader;
use tokio::{net::TcpListener, task::JoinSet};

/// The stream is reset without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the script broke off")]
pub(crate) struct BreakOff;

/// What a script comes to.
pub(crate) type Outcome = Result<Response<Body>, BreakOff>;
type Script = dyn Fn(Request<Incoming>) -> BoxFuture<'static, Outcome> + Send + Sync;

/// A scripted cloud.
pub(crate) struct Stub {
    pub(crate) addr: SocketAddr,
    state: Arc<State>,
    serving: tokio::task::JoinHandle<()>,
}

struct State {
    script: Mutex<Arc<Script>>,
    asked: AtomicUsize,
}

/// What a well cloud answers: this class, whatever the activation.
pub(crate) const CLASS: usize = 7;

impl Stub {
    pub(crate) fn start() -> Self {
        Self::on(bind())
    }

    /// The same on a listener that exists already.
    pub(crate) fn on(listener: StdListener) -> Self {
        let addr = listener.local_addr().unwrap();
        let state =
            Arc::new(State { script: Mutex::new(Arc::new(well)), asked: AtomicUsize::new(0) });
        let serving = accept(TcpListener::from_std(listener).unwrap(), Arc::clone(&state));
        Self { addr, state, serving: tokio::spawn(serving) }
    }

    /// What further offloads get.
    pub(crate) fn script<F, Fut>(&self, script: F)
    where
        F: Fn(Request<Incoming>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        *self.state.script.lock().unwrap() = Arc::new(move |request| Box::pin(script(request)));
    }

    /// Back to answering well.
    pub(crate) fn recover(&self) {
        *self.state.script.lock().unwrap() = Arc::new(well);
    }

    /// Offloads asked since the last call.
    pub(crate) fn asked(&self) -> usize {
        self.state.asked.swap(0, Ordering::SeqCst)
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A free port on loopback.
pub(crate) fn bind() -> StdListener {
    listen::bind(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap().remove(0)
}

/// Connections die with this task.
async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let state = Arc::clone(&state);
                async move {
                    if request.uri().path() == "/v2/health/ready" {
                        return Ok(reply::json(StatusCode::OK, "{\"live\":true,\"ready\":true}"));
                    }
                    state.asked.fetch_add(1, Ordering::SeqCst);
                    let script = Arc::clone(&state.script.lock().unwrap());
                    script(request).await
                }
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            let _broken = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn well(request: Request<Incoming>) -> BoxFuture<'static, Outcome> {
    Box::pin(async move {
        let frame = collect(request.into_body(), 1 << 20).await.map_err(|_| BreakOff)?;
        let header = FrameHeader::peek(&frame).map_err(|_| BreakOff)?;
        Ok(logits(u64::from(header.rows), 10))
    })
}

/// An answer of this shape that says [`CLASS`].
pub(crate) fn logits(rows: u64, columns: u64) -> Response<Body> {
    let row = (0..columns).map(|column| if column == CLASS as u64 { 9.0 } else { 0.0 });
    let values: Vec<f32> = (0..rows).flat_map(|_| row.clone()).collect();
    let outputs = vec![Tensor::from_f32("logits", vec![rows, columns], &values).unwrap()];
    let message =
        InferResponse { model_name: "fashion".into(), outputs, ..InferResponse::default() };
    let encoded = message.encode(&OutputForm::binary()).unwrap();
    let mut response = Response::new(full(encoded.body));
    let length = encoded.json_length.unwrap();
    response.headers_mut().insert(headers::INFERENCE_HEADER_CONTENT_LENGTH, length.into());
    response
}

/// A body that starts and then fails.
pub(crate) fn broken(sent: &'static [u8]) -> Body {
    let frames = [Ok(Frame::data(Bytes::from_static(sent))), Err(BodyError::Panicked)];
    boxed(StreamBody::new(futures_util::stream::iter(frames)))
}
