//! A client and a scripted node of gRPC: frames by hand, so that a test may also send wrong ones.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use midspan_net::{
    Body, BodyError,
    body::{boxed, empty, full},
    transport::{HttpVersion, Pooled},
};
use midspan_protocol::grpc::peek::frame;
use tokio::{sync::mpsc, time::timeout};

use crate::fixture::{PATIENCE, Router, head, pool};

/// A string field.
pub(crate) fn text(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = value.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(value);
    out
}

/// A framed request that names its model as an inference does.
pub(crate) fn naming(model: &str) -> Bytes {
    frame(&[text(3, b"id"), text(1, model.as_bytes())].concat())
}

/// A call of the inference service.
pub(crate) fn call(method: &str, body: Body) -> Request<Body> {
    let path = format!("/inference.GRPCInferenceService/{method}");
    call_at(&path, body)
}

/// A call of any service.
pub(crate) fn call_at(path: &str, body: Body) -> Request<Body> {
    let mut request = crate::fixture::request(http::Method::POST, path, body);
    let map = request.headers_mut();
    map.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    map.insert(header::TE, HeaderValue::from_static("trailers"));
    request
}

/// An inference of model `m` in a session.
pub(crate) fn infer(session: &str) -> Request<Body> {
    let request = call("ModelInfer", full(naming("m")));
    crate::fixture::with(request, "midspan-session", session)
}

/// A client of the router.
pub(crate) fn client(router: &Router) -> Pooled {
    pool(router.apps, HttpVersion::H2)
}

/// What came of a call.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

impl Reply {
    /// The code, from trailers or head.
    #[track_caller]
    pub(crate) fn status(&self) -> u16 {
        let said = self.trailers.get("grpc-status").or(self.head.get("grpc-status"));
        said.unwrap_or_else(|| panic!("no status: {self:?}")).to_str().unwrap().parse().unwrap()
    }

    /// Checks code and form of an answer without messages; returns its text.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16) -> &str {
        assert_eq!(self.status(), status, "{self:?}");
        assert!(self.body.is_empty() && self.trailers.is_empty(), "trailers only: {self:?}");
        assert_eq!(self.head["content-type"], "application/grpc");
        self.head["grpc-message"].to_str().unwrap()
    }
}

/// Calls and reads the answer whole.
pub(crate) async fn exchange(client: &Pooled, request: Request<Body>) -> Reply {
    let response = head(client, request).await.unwrap();
    assert_eq!(response.status(), 200);
    let (head, body) = response.into_parts();
    let read = timeout(PATIENCE, body.collect()).await.expect("no hang").unwrap();
    let trailers = read.trailers().cloned().unwrap_or_default();
    Reply { head: head.headers, body: read.to_bytes(), trailers }
}

/// The other end of [`pushed`].
pub(crate) type Pushing = mpsc::UnboundedSender<Result<Bytes, BodyError>>;

/// A body that is sent as the test goes on; it ends when the sender is dropped, and an error
/// resets its stream.
pub(crate) fn pushed() -> (Pushing, Body) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let frames = stream::unfold(receiver, |mut receiver: mpsc::UnboundedReceiver<_>| async {
        let piece: Result<Bytes, BodyError> = receiver.recv().await?;
        Some((piece.map(Frame::data), receiver))
    });
    (sender, boxed(StreamBody::new(frames)))
}

/// Trailers of a status.
pub(crate) fn trailers(status: u16) -> HeaderMap {
    HeaderMap::from_iter([
        (http::HeaderName::from_static("grpc-status"), HeaderValue::from(status)),
        (http::HeaderName::from_static("x-trailer"), HeaderValue::from_static("kept")),
    ])
}

/// A node's answer: `data`, then a status.
pub(crate) fn answer(data: impl Into<Bytes>, status: u16) -> Response<Body> {
    let frames = [Frame::data(data.into()), Frame::trailers(trailers(status))];
    stream_answer(boxed(StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)))))
}

/// A node's answer with any body.
pub(crate) fn stream_answer(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let map = response.headers_mut();
    map.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// A node's answer without messages.
pub(crate) fn only(status: u16, message: &'static str) -> Response<Body> {
    let mut response = stream_answer(empty());
    let map = response.headers_mut();
    map.insert("grpc-status", HeaderValue::from(status));
    map.insert("grpc-message", HeaderValue::from_static(message));
    response
}
