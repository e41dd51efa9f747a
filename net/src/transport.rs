//! Getting a request to another hop and its answer back. One small trait, so that a pooled TCP
//! client and a link that the other side dialled look the same to the caller.

use std::{future::Future, pin::Pin, time::Duration};

use http::{Request, Response, Uri, uri::Authority};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use serde::{Deserialize, Serialize};

use crate::body::{self, Body};

/// The answer's future.
pub type Sending<'t> =
    Pin<Box<dyn Future<Output = Result<Response<Body>, TransportError>> + Send + 't>>;

/// A way to one peer. Dropping the future, or the response's body, abandons the exchange and
/// resets its stream.
pub trait Transport: Send + Sync {
    /// Sends `request`, whose URI holds only path and query, to the peer.
    fn send(&self, request: Request<Body>) -> Sending<'_>;
}

/// Why no answer's head came.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// No connection could be made: the peer has seen nothing of the request.
    #[error("cannot connect to {peer}: {cause}")]
    Connect {
        /// Host and port.
        peer: String,
        /// The system's reason.
        cause: String,
    },
    /// The exchange broke after the request may have been seen.
    #[error("{peer} broke off: {cause}")]
    Broken {
        /// Host and port.
        peer: String,
        /// What the client saw.
        cause: String,
    },
}

/// HTTP version towards a peer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum HttpVersion {
    /// HTTP/1.1, a pool of connections.
    #[default]
    H1,
    /// HTTP/2 with prior knowledge, one connection for many requests.
    H2,
}

/// Bytes that an HTTP/1.1 connection buffers each way; hyper grows to 400 KiB otherwise.
const H1_BUFFER: usize = 64 << 10;

/// Bytes of an answer that a peer may send ahead of its reader on HTTP/2.
const H2_STREAM_WINDOW: u32 = 256 << 10;

/// No bound beside the streams' own: apps that do not read their answers must not hold up the
/// others whose answers come over the same connection.
const H2_CONNECTION_WINDOW: u32 = (1 << 31) - 1;

/// A pooled HTTP client towards one peer.
pub struct Pooled {
    client: Client<HttpConnector, Body>,
    authority: Authority,
}

/// How a pool behaves.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// HTTP version.
    pub version: HttpVersion,
    /// Time for the TCP handshake.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// Unused connections kept.
    pub max_idle: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            version: HttpVersion::H1,
            connect_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(60),
            max_idle: 256,
        }
    }
}

impl Pooled {
    /// A pool towards `authority` (host and port).
    #[must_use]
    pub fn new(authority: Authority, options: PoolOptions) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(options.connect_timeout));
        let h2 = options.version == HttpVersion::H2;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(options.idle_timeout)
            .pool_max_idle_per_host(options.max_idle)
            .http1_max_buf_size(H1_BUFFER)
            .http2_only(h2)
            .http2_initial_stream_window_size(H2_STREAM_WINDOW)
            .http2_initial_connection_window_size(H2_CONNECTION_WINDOW)
            // A peer that vanished without a word is noticed while requests wait on it.
            .http2_keep_alive_interval(h2.then_some(Duration::from_secs(5)))
            .http2_keep_alive_timeout(Duration::from_secs(5))
            .set_host(true)
            .build(connector);
        Self { client, authority }
    }
}

impl Transport for Pooled {
    fn send(&self, mut request: Request<Body>) -> Sending<'_> {
        let path = request.uri().path_and_query().cloned();
        let target = Uri::builder()
            .scheme("http")
            .authority(self.authority.clone())
            .path_and_query(path.map_or("/".into(), |path| path.as_str().to_owned()))
            .build();
        Box::pin(async move {
            let peer = || self.authority.to_string();
            *request.uri_mut() = target.map_err(|error| TransportError::Connect {
                peer: peer(),
                cause: error.to_string(),
            })?;
            match self.client.request(request).await {
                Ok(response) => Ok(response.map(body::boxed)),
                Err(error) => {
                    let (peer, cause) = (peer(), root_cause(&error));
                    Err(if error.is_connect() {
                        TransportError::Connect { peer, cause }
                    } else {
                        TransportError::Broken { peer, cause }
                    })
                }
            }
        })
    }
}

/// The innermost error says what happened; the outer ones say only that something did.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

#[cfg(test)]
mod tests;
