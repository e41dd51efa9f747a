//! Nodes on threads of their own, a client in front of them, and labelled pictures to ask about.

use std::{io, net::SocketAddr, path::Path, sync::OnceLock, thread::JoinHandle, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use midspan_net::{
    Body,
    body::{collect, empty, full},
    config::parse,
    transport::{HttpVersion, PoolOptions, Pooled, Transport, TransportError},
};
use midspan_node::{Config, RawConfig};
use midspan_protocol::{InferRequest, InferResponse, Tensor, headers};
use midspan_split::{Bundle, Labelled};
use serde_json::Value;
use tokio::{sync::oneshot, time::timeout};

/// Nothing here takes this long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const TRIES: usize = 100_000;
/// Path of an inference of the embedded model.
pub(crate) const INFER: &str = "/v2/models/fashion/infer";

/// What a test's node differs in from the usual edge.
pub(crate) struct Setup<'s> {
    pub(crate) role: &'s str,
    /// Lines before the first table.
    pub(crate) top: &'s str,
    /// Lines of `[limits]`.
    pub(crate) limits: &'s str,
    /// Lines of `[offload]`.
    pub(crate) offload: &'s str,
    /// Lines of the first `[[model]]`, and of others with their heads.
    pub(crate) model: &'s str,
    /// Addresses and regions.
    pub(crate) clouds: Vec<(SocketAddr, &'s str)>,
    pub(crate) listen: &'s str,
    pub(crate) drain: &'s str,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self {
            role: "edge",
            top: "",
            limits: "",
            // Long enough that a slow machine alone degrades no answer.
            offload: "timeout = \"30s\"\nprobe_interval = \"20ms\"\nprobe_timeout = \"30s\"",
            model: "bundle = \"embedded\"",
            clouds: Vec::new(),
            listen: "127.0.0.1:0",
            drain: "1s",
        }
    }
}

impl Setup<'_> {
    pub(crate) fn config(&self) -> Config {
        let Self { role, top, limits, offload, model, listen, drain, .. } = self;
        let name = if *role == "edge" { "e1" } else { "c1" };
        let clouds: String = self
            .clouds
            .iter()
            .map(|(addr, region)| {
                format!("[[cloud]]\naddress = \"{addr}\"\nregion = \"{region}\"\n")
            })
            .collect();
        let text = format!(
            "name = \"{name}\"\nrole = \"{role}\"\nregion = \"home\"\nworkers = 1\n{top}\n\
             [listen]\naddress = \"{listen}\"\ndrain = \"{drain}\"\n\
             [limits]\n{limits}\n[offload]\n{offload}\n[[model]]\n{model}\n{clouds}"
        );
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models");
        parse::<RawConfig>("test.toml", &text, &models).unwrap()
    }

    pub(crate) async fn start(&self) -> Node {
        midspan_runtime::test_support::library();
        let config = self.config();
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, addr) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let stopped = async move {
                let _or_dropped = stopped.await;
            };
            midspan_node::run(config, stopped, |addr| ready.send(addr).unwrap())
        });
        let Ok(addr) = timeout(PATIENCE, addr).await.unwrap() else {
            panic!("the node does not start: {:?}", thread.join())
        };
        let app = pool(addr, HttpVersion::H1);
        Node { addr, app, stop: Some(stop), thread: Some(thread) }
    }

    /// A cloud node.
    pub(crate) fn cloud() -> Self {
        Self { role: "cloud", offload: "", ..Self::default() }
    }
}

/// A running node; stopped when dropped.
pub(crate) struct Node {
    pub(crate) addr: SocketAddr,
    pub(crate) app: Pooled,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Node {
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

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        exchange(&self.app, request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(request(Method::GET, path, empty())).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.send(request(Method::POST, path, full(body))).await
    }

    /// Infers pictures in one request.
    pub(crate) async fn infer(&self, pictures: &[usize], exit: &str) -> Answer {
        self.send(with(infer(pictures), "midspan-exit", exit)).await
    }

    /// The node still answers.
    pub(crate) async fn assert_well(&self, after: &str) {
        let answer = self.infer(&[0], "force").await;
        assert_eq!(answer.status, 200, "after {after}: {answer:?}");
        assert_eq!(answer.logits().len(), 10, "after {after}");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            if !std::thread::panicking() {
                outcome.expect("the node does not panic").expect("the node ends well");
            }
        }
    }
}

/// The labelled pictures of the embedded bundle.
pub(crate) fn pictures() -> &'static Labelled {
    static PICTURES: OnceLock<Labelled> = OnceLock::new();
    PICTURES.get_or_init(|| Bundle::embedded().unwrap().labelled().unwrap().unwrap())
}

/// Pictures as one tensor, grey values divided by 255.
pub(crate) fn tensor(indices: &[usize]) -> Tensor {
    let grey = indices.iter().flat_map(|index| pictures().pixels(*index).unwrap());
    let values: Vec<f32> = grey.map(|grey| f32::from(*grey) / 255.0).collect();
    Tensor::from_f32("image", vec![indices.len() as u64, 1, 28, 28], &values).unwrap()
}

/// A binary inference whose answer is binary too.
pub(crate) fn infer(indices: &[usize]) -> Request<Body> {
    let mut message = InferRequest { inputs: vec![tensor(indices)], ..InferRequest::default() };
    message.parameters.set("binary_data_output", midspan_protocol::Parameter::Bool(true));
    encoded(&message, true)
}

/// Any inference.
pub(crate) fn encoded(message: &InferRequest, binary: bool) -> Request<Body> {
    let encoded = message.encode(binary).unwrap();
    let mut request = request(Method::POST, INFER, full(encoded.body));
    if let Some(length) = encoded.json_length {
        request.headers_mut().insert(headers::INFERENCE_HEADER_CONTENT_LENGTH, length.into());
    }
    request
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

    /// The answer of a model.
    #[track_caller]
    pub(crate) fn response(&self) -> InferResponse {
        assert_eq!(self.status, 200, "{self:?}");
        let length = headers::json_length(&self.headers).unwrap();
        InferResponse::parse(&self.body, length).unwrap()
    }

    #[track_caller]
    pub(crate) fn logits(&self) -> Vec<f32> {
        self.response().output("logits").unwrap().to_f32().unwrap()
    }

    /// A text parameter of the answer, split at commas.
    #[track_caller]
    pub(crate) fn list(&self, parameter: &str) -> Vec<String> {
        let response = self.response();
        let text = response.parameters.get(parameter).and_then(|value| value.as_str());
        text.unwrap_or_default().split(',').map(str::to_owned).collect()
    }
}

/// Any request.
pub(crate) fn request(method: Method, path: &str, body: Body) -> Request<Body> {
    Request::builder().method(method).uri(path).body(body).unwrap()
}

/// Adds a header.
pub(crate) fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().append(name, value.parse().unwrap());
    request
}

/// Sends and reads the answer whole.
pub(crate) async fn exchange(pool: &Pooled, request: Request<Body>) -> Answer {
    read(head(pool, request).await.unwrap()).await
}

/// Sends and waits for the answer's head.
pub(crate) async fn head(
    pool: &Pooled,
    request: Request<Body>,
) -> Result<Response<Body>, TransportError> {
    timeout(PATIENCE, pool.send(request)).await.expect("an answer in time")
}

async fn read(response: Response<Body>) -> Answer {
    let (head, body) = response.into_parts();
    let body = timeout(PATIENCE, collect(body, 128 << 20)).await.unwrap().unwrap();
    Answer { status: head.status, headers: head.headers, body }
}

/// Asserts that two lists of numbers differ by at most `most`.
#[track_caller]
pub(crate) fn assert_near(left: &[f32], right: &[f32], most: f32, what: &str) {
    assert_eq!(left.len(), right.len(), "{what}");
    let largest = left.iter().zip(right).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest <= most, "{what}: differ by {largest}");
}

/// The class of each row of ten logits.
pub(crate) fn classes(logits: &[f32]) -> Vec<usize> {
    logits.chunks(10).map(|row| midspan_split::exit::classify(row, 1.0).0).collect()
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
