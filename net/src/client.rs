//! One-shot requests for tools: fetch a JSON document from an admin port, post a small body.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Uri};
use serde::de::DeserializeOwned;

use crate::{
    body,
    transport::{PoolOptions, Pooled, Transport, TransportError},
};

/// Largest document a tool reads.
const MAX_DOCUMENT: usize = 64 << 20;

/// Why a document could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL has no host.
    #[error("{0} is no http URL with a host")]
    Url(Uri),
    /// No answer.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// No answer in time.
    #[error("{0} did not answer within {1:?}")]
    Timeout(Uri, Duration),
    /// The answer broke off.
    #[error(transparent)]
    Body(#[from] body::BodyError),
    /// The server refused.
    #[error("{uri} answered {status}: {message}")]
    Status {
        /// What was asked.
        uri: Uri,
        /// The status.
        status: http::StatusCode,
        /// The server's error text.
        message: String,
    },
    /// Not the document expected.
    #[error("{uri} answered something else than expected: {problem}")]
    Document {
        /// What was asked.
        uri: Uri,
        /// What did not fit.
        problem: String,
    },
}

/// Sends one request and reads the answer whole.
///
/// # Errors
/// See [`ClientError`]; a status other than 2xx is one.
pub async fn fetch(
    method: Method,
    uri: &Uri,
    body: Bytes,
    timeout: Duration,
) -> Result<Bytes, ClientError> {
    let authority = uri.authority().cloned().ok_or_else(|| ClientError::Url(uri.clone()))?;
    let pool = Pooled::new(authority, PoolOptions::default());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::new(body::full(body));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().map_err(|_| ClientError::Url(uri.clone()))?;
    let exchange = async {
        let response = pool.send(request).await?;
        let status = response.status();
        let body = body::collect(response.into_body(), MAX_DOCUMENT).await?;
        if status.is_success() {
            return Ok(body);
        }
        let message = serde_json::from_slice::<serde_json::Value>(&body)
            .ok()
            .and_then(|value| value.get("error")?.as_str().map(str::to_owned))
            .unwrap_or_else(|| String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned());
        Err(ClientError::Status { uri: uri.clone(), status, message })
    };
    tokio::time::timeout(timeout, exchange)
        .await
        .map_err(|_| ClientError::Timeout(uri.clone(), timeout))?
}

/// Fetches a JSON document.
///
/// # Errors
/// See [`ClientError`].
pub async fn get_json<T: DeserializeOwned>(uri: &Uri, timeout: Duration) -> Result<T, ClientError> {
    let body = fetch(Method::GET, uri, Bytes::new(), timeout).await?;
    serde_json::from_slice(&body)
        .map_err(|error| ClientError::Document { uri: uri.clone(), problem: error.to_string() })
}
