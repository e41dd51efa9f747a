//! Asking a node which models it serves.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response};
use midspan_net::{
    Body,
    body::{collect, empty},
    transport::Transport,
};
use midspan_protocol::{
    headers,
    metadata::{NodeInfo, RepositoryEntry},
};
use tokio::time::timeout;

/// Largest document taken from a node.
pub(crate) const MAX_INFO: usize = 1 << 20;

/// One node, and how it is asked.
pub(crate) struct Inquiry<'l> {
    pub(crate) link: &'l dyn Transport,
    /// The node's name.
    pub(crate) node: &'l str,
    /// Who asks.
    pub(crate) router: &'l HeaderValue,
    /// Time for each exchange.
    pub(crate) patience: Duration,
}

impl Inquiry<'_> {
    /// A Midspan node says all; any other server of the protocol has a repository index.
    pub(crate) async fn info(&self) -> Result<NodeInfo, String> {
        if let Ok(info) = self.document::<NodeInfo>(Method::GET, "/v2/midspan/node").await {
            return Ok(info);
        }
        let models: Vec<RepositoryEntry> =
            self.document(Method::POST, "/v2/repository/index").await?;
        Ok(NodeInfo { name: self.node.to_owned(), workers: 1, models, ..NodeInfo::default() })
    }

    async fn document<T: serde::de::DeserializeOwned>(
        &self,
        method: Method,
        path: &'static str,
    ) -> Result<T, String> {
        let response = self.send(method, path).await?;
        if !response.status().is_success() {
            return Err(format!("{path} answered {}", response.status()));
        }
        let body = timeout(self.patience, collect(response.into_body(), MAX_INFO));
        let body = body.await.map_err(|_| "too slow".to_owned())?;
        let body: Bytes = body.map_err(|error| error.to_string())?;
        serde_json::from_slice(&body).map_err(|error| format!("{path}: {error}"))
    }

    /// Sends a request without a body.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &'static str,
    ) -> Result<Response<Body>, String> {
        let mut request = Request::new(empty());
        *request.method_mut() = method;
        *request.uri_mut() = http::Uri::from_static(path);
        request.headers_mut().insert(headers::ROUTER, self.router.clone());
        let answer = timeout(self.patience, self.link.send(request)).await;
        answer
            .map_err(|_| format!("no answer within {:?}", self.patience))?
            .map_err(|error| error.to_string())
    }
}
