//! The HTTP client of the drivers: pooled connections, whole answers with a bound on their size,
//! failures sorted by what the caller can tell apart. It knows no inference.

use std::{error::Error, fmt, str::FromStr, time::Duration};

use bytes::Bytes;
use http::{Request, response::Parts};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioTimer,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Which HTTP version the driver speaks; both in clear text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, one connection per request in flight.
    #[default]
    H1,
    /// HTTP/2 with prior knowledge, one connection.
    H2,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::H1 => "h1",
            Self::H2 => "h2",
        })
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "h1" => Ok(Self::H1),
            "h2" => Ok(Self::H2),
            _ => Err(format!("protocol '{text}': expected h1 or h2")),
        }
    }
}

/// Why there is no whole answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("{0}")]
    Connect(String),
    #[error("{0}")]
    Reset(String),
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
}

/// A pooled client whose tasks end with it.
#[derive(Debug)]
pub(crate) struct Client {
    inner: legacy::Client<HttpConnector, Full<Bytes>>,
    tasks: Tracked,
}

impl Client {
    /// A client that keeps up to `idle` unused connections.
    pub(crate) fn new(protocol: Protocol, idle: usize) -> Self {
        let tasks = Tracked { tracker: TaskTracker::new(), cancel: CancellationToken::new() };
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let inner = legacy::Client::builder(tasks.clone())
            .http2_only(protocol == Protocol::H2)
            .pool_max_idle_per_host(idle)
            .pool_idle_timeout(Duration::from_secs(60))
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .build(connector);
        Self { inner, tasks }
    }

    /// Sends `request` and reads the whole answer, of at most `limit` bytes. Without a timeout of
    /// its own: dropping the future abandons the request.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
        limit: usize,
    ) -> Result<(Parts, Bytes), SendError> {
        let answer = self.inner.request(request).await.map_err(|error| {
            let text = chain(&error);
            if error.is_connect() { SendError::Connect(text) } else { SendError::Reset(text) }
        })?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, limit).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                SendError::TooLarge(limit)
            } else {
                SendError::Reset(chain(&*error))
            }
        })?;
        Ok((head, body.to_bytes()))
    }

    /// Closes all connections and waits for their tasks.
    pub(crate) async fn close(self) {
        let Self { inner, tasks } = self;
        drop(inner);
        tasks.cancel.cancel();
        tasks.tracker.close();
        tasks.tracker.wait().await;
    }
}

/// An error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Runs the connections' tasks, so that none outlives its client.
#[derive(Clone, Debug)]
struct Tracked {
    tracker: TaskTracker,
    cancel: CancellationToken,
}

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        let cancel = self.cancel.clone();
        self.tracker.spawn(async move { cancel.run_until_cancelled(task).await });
    }
}
