//! An inference server whose behaviour is scripted per image: the first value of the image is the
//! script's index. It parses requests in earnest and refuses what is not the protocol.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    body::{Body, Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use midspan_protocol::{InferRequest, InferResponse, Tensor, headers, response::OutputForm};
use tokio::{
    net::TcpListener,
    sync::{Notify, mpsc},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// What the server does about one image.
#[derive(Clone, Debug)]
pub(super) enum Script {
    /// Answers with class, place, degraded and node headers (empty: none).
    Answer(u32, &'static str, &'static str, &'static str),
    /// A status and a body.
    Status(u16, &'static str),
    /// Never answers.
    Hang,
    /// Ends the connection or stream in place of an answer.
    Abort,
    /// Ends it in the middle of the answer's body.
    AbortBody,
    /// Answers class 0 once the gate opens; tells when the request came.
    Gate,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    cancel: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct Shared {
    scripts: Vec<Script>,
    gate: Notify,
    arrived: mpsc::UnboundedSender<Instant>,
    seen: Mutex<Vec<String>>,
}

impl Server {
    pub(super) async fn start(scripts: Vec<Script>) -> (Self, mpsc::UnboundedReceiver<Instant>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let (gate, seen) = (Notify::new(), Mutex::default());
        let shared = Arc::new(Shared { scripts, gate, arrived, seen });
        let (cancel, tasks) = (CancellationToken::new(), TaskTracker::new());
        let serve = serve(listener, Arc::clone(&shared), cancel.clone(), tasks.clone());
        tasks.spawn(cancel.clone().run_until_cancelled_owned(serve));
        (Self { address, shared, cancel, tasks }, arrivals)
    }

    pub(super) fn open_gate(&self) {
        self.shared.gate.notify_one();
    }

    /// `path exit-header content-type` of every request so far.
    pub(super) fn seen(&self) -> Vec<String> {
        self.shared.seen.lock().unwrap().clone()
    }

    pub(super) async fn stop(self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    cancel: CancellationToken,
    tasks: TaskTracker,
) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let shared = Arc::clone(&shared);
        let connection = async move {
            let service = service_fn(|request| respond(Arc::clone(&shared), request));
            let builder = auto::Builder::new(TokioExecutor::new());
            // Scripted aborts end connections with an error.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        };
        tasks.spawn(cancel.clone().run_until_cancelled_owned(connection));
    }
}

type Answer = Response<BoxBody<Bytes, io::Error>>;

async fn respond(shared: Arc<Shared>, request: Request<Incoming>) -> io::Result<Answer> {
    let (head, body) = request.into_parts();
    let header = |name| head.headers.get(name).map_or("-", |value| value.to_str().unwrap());
    let path = head.uri.path();
    let (exit, media) = (header(headers::EXIT), header(http::header::CONTENT_TYPE));
    shared.seen.lock().unwrap().push(format!("{path} {exit} {media}"));
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let length = header(headers::INFERENCE_HEADER_CONTENT_LENGTH).parse().ok();
    let request = match InferRequest::parse(&body, length) {
        Ok(request) => request,
        Err(error) => return Ok(plain(400, &error.to_string())),
    };
    let values = request.inputs[0].to_f32().unwrap();
    let script = &shared.scripts[(values[0] * 255.0).round() as usize];
    match *script {
        Script::Answer(class, place, degraded, node) => {
            let form = OutputForm::of(&request.parameters, &request.outputs).unwrap();
            Ok(scores(class, [place, degraded, node], &form))
        }
        Script::Status(code, body) => Ok(plain(code, body)),
        Script::Hang => std::future::pending().await,
        Script::Abort => Err(io::Error::other("scripted abort")),
        Script::AbortBody => Ok(Response::new(BoxBody::new(Torn(false)))),
        Script::Gate => {
            shared.arrived.send(Instant::now()).unwrap();
            shared.gate.notified().await;
            Ok(scores(0, ["local", "", ""], &OutputForm::binary()))
        }
    }
}

fn full(body: impl Into<Bytes>) -> BoxBody<Bytes, io::Error> {
    Full::new(body.into()).map_err(|never: Infallible| match never {}).boxed()
}

fn plain(status: u16, body: &str) -> Answer {
    Response::builder().status(status).body(full(body.to_owned())).unwrap()
}

fn scores(class: u32, marks: [&str; 3], form: &OutputForm) -> Answer {
    let mut row = [0.0; 4];
    row[class as usize] = 2.5;
    let outputs = vec![Tensor::from_f32("logits", vec![1, 4], &row).unwrap()];
    let response = InferResponse { model_name: "m".into(), outputs, ..InferResponse::default() };
    let encoded = response.encode(form).unwrap();
    let mut builder = Response::builder();
    if let Some(length) = encoded.json_length {
        builder = builder.header(headers::INFERENCE_HEADER_CONTENT_LENGTH, length);
    }
    for (name, mark) in [headers::ANSWERED_BY, headers::DEGRADED, headers::NODE].iter().zip(marks) {
        if !mark.is_empty() {
            builder = builder.header(name, mark);
        }
    }
    builder.body(full(encoded.body)).unwrap()
}

/// A body that breaks after its first bytes.
struct Torn(bool);

impl Body for Torn {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let torn = std::mem::replace(&mut self.0, true);
        Poll::Ready(Some(if torn {
            Err(io::Error::other("scripted abort"))
        } else {
            Ok(Frame::data(Bytes::from_static(b"{\"model_name\":")))
        }))
    }
}
