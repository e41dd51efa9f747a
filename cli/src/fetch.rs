//! Small helpers of the commands that ask a running system.

use std::{future::Future, time::Duration};

use anyhow::Context;
use http::Uri;
use midspan_net::{client::ClientError, transport::TransportError};
use serde::de::DeserializeOwned;

/// Patience with an admin port.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs a future on a small runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

/// A document under a base URL; an error says what to check.
pub(crate) async fn document<T: DeserializeOwned>(base: &Uri, path: &str) -> anyhow::Result<T> {
    let uri = join(base, path)?;
    midspan_net::client::get_json(&uri, PATIENCE).await.map_err(|error| match error {
        ClientError::Transport(TransportError::Connect { .. }) => {
            anyhow::Error::new(error).context(not_running(base))
        }
        other => other.into(),
    })
}

/// What to say when nobody listens at `base`.
pub(crate) fn not_running(base: &Uri) -> String {
    format!("is Midspan running at {base}? `midspan up` starts it")
}

/// `base` with `path` in place of its own.
pub(crate) fn join(base: &Uri, path: &str) -> anyhow::Result<Uri> {
    let authority = base.authority().with_context(|| format!("{base} has no host"))?;
    format!("http://{authority}{path}").parse().with_context(|| format!("{base}{path} is no URL"))
}
