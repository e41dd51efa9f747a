//! An app that uploads and downloads in either HTTP version; and HTTP/2 streams that can be left.

use std::net::{Shutdown, SocketAddr};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use midspan_net::{
    Body,
    body::{boxed, empty},
};
use socket2::{SockRef, Socket};
use tokio::task::JoinSet;

use crate::{
    in_time,
    meter::Meter,
    raw::{self, Raw},
    stub::zeros,
};

/// HTTP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    H1,
    H2,
}

impl Version {
    pub(crate) const BOTH: [Self; 2] = [Self::H1, Self::H2];

    /// As the router's configuration says it.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::H1 => "h1",
            Self::H2 => "h2",
        }
    }
}

/// Sends an inference with `length` bytes, each counted; the answer's text.
pub(crate) async fn upload(
    version: Version,
    addr: SocketAddr,
    script: &str,
    length: usize,
    sent: Meter,
) -> String {
    match version {
        Version::H1 => {
            let mut client = Raw::connect(addr).await;
            client.send(raw::head(script, length)).await;
            client.send_zeros(length, &sent).await;
            client.answer().await.expect("an answer").text()
        }
        Version::H2 => {
            let mut client = H2::connect(addr).await;
            let response = client.infer(script, boxed(zeros(length, sent))).await;
            let body = response.expect("an answer").into_body().collect().await;
            String::from_utf8_lossy(&body.expect("its body").to_bytes()).into_owned()
        }
    }
}

/// An answer of which only the head was read.
pub(crate) enum Unread {
    H1(Raw, usize),
    H2(H2, Incoming),
}

impl Unread {
    /// Asks for `length` bytes and reads the head.
    pub(crate) async fn ask(version: Version, addr: SocketAddr, length: usize) -> Self {
        let script = format!("large:{length}");
        match version {
            Version::H1 => {
                let mut client = Raw::connect(addr).await;
                client.send(raw::head(&script, 0)).await;
                let (status, head) = client.head().await.expect("an answer");
                assert_eq!(status, 200);
                Self::H1(client, raw::length(&head))
            }
            Version::H2 => {
                let mut client = H2::connect(addr).await;
                let response = client.infer(&script, empty()).await.expect("an answer");
                Self::H2(client, response.into_body())
            }
        }
    }

    /// Reads all the rest; how much the whole body was.
    pub(crate) async fn read(self) -> usize {
        match self {
            Self::H1(client, length) => {
                assert!(client.drained(length).await, "the answer broke off");
                length
            }
            Self::H2(_client, mut body) => {
                let mut read = 0;
                while let Some(frame) = in_time("an answer's frame", body.frame()).await {
                    read += frame.expect("the answer").data_ref().map_or(0, Bytes::len);
                }
                read
            }
        }
    }
}

/// One HTTP/2 connection, with the windows of RFC 9113; dropping it closes the socket.
pub(crate) struct H2 {
    sender: http2::SendRequest<Body>,
    /// The same socket: hyper keeps its own open until every stream has ended.
    socket: Socket,
    _driver: JoinSet<()>,
}

impl H2 {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        let stream = raw::connect(addr).await;
        let socket = SockRef::from(&stream).try_clone().expect("a socket");
        let handshake = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(65_535)
            .initial_connection_window_size(65_535)
            .handshake(TokioIo::new(stream));
        let (sender, connection) = in_time("a handshake", handshake).await.expect("HTTP/2");
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            let _closed = connection.await;
        });
        Self { sender, socket, _driver: driver }
    }

    /// Sends an inference for the stub's `script`, see [`Self::send`].
    pub(crate) fn infer(
        &mut self,
        script: &str,
        body: Body,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + Send + use<> {
        self.send("/v2/models/m/infer", &[("x-script", script.to_owned())], body)
    }

    /// Posts `body`. Dropping the future, or the answer's body, resets the stream.
    pub(crate) fn send(
        &mut self,
        path: &str,
        headers: &[(&str, String)],
        body: Body,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + Send + use<> {
        let mut request = Request::post(format!("http://a{path}"));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        self.sender.send_request(request.body(body).expect("a request"))
    }
}

impl Drop for H2 {
    fn drop(&mut self) {
        let _gone = self.socket.shutdown(Shutdown::Both);
    }
}
