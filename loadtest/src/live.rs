//! The live driver: asks a workload of a running endpoint and reports what came back.
//!
//! Closed loop: `concurrency` requests are always in flight. Open loop: requests leave at their
//! scheduled times and latency counts from those times, so that a stalled server is charged for
//! the queue it causes. At most `concurrency` are in flight there too; one that finds no free place
//! waits, is counted as late, and its wait is part of its latency. It never retries: that is the
//! system's work under test.

mod answer;
pub(crate) mod client;
mod pacer;
mod worker;

use std::{
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use http::Uri;
use midspan_protocol::ExitMode;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

pub use client::Protocol;

use crate::{
    links::{LinksError, LinksStatus, fetch_links},
    outcome::Outcome,
    report::{Report, Settings, Stopped, Uplink},
    workload::{Pace, Workload},
};

/// Most requests in flight.
pub const MAX_CONCURRENCY: usize = 4096;

/// How a workload is asked.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Base address, for example `http://127.0.0.1:8080`; a path is kept as a prefix.
    pub endpoint: Uri,
    /// The model to ask.
    pub model: String,
    /// The version to ask; `None` leaves it to the server.
    pub version: Option<String>,
    /// The output that holds the scores; `None` takes the first.
    pub output: Option<String>,
    /// Requests in flight: exactly in a closed loop, at most in an open one.
    pub concurrency: NonZeroUsize,
    /// When requests are sent.
    pub pace: Pace,
    /// What one request may take from when it is sent.
    pub timeout: Duration,
    /// Nothing is sent after this; what is in flight is still waited for.
    pub max_duration: Duration,
    /// The HTTP version.
    pub protocol: Protocol,
    /// Whether to go on after a failed request.
    pub keep_going: bool,
    /// What to ask of the early exits; `None` sends no such header.
    pub exit: Option<ExitMode>,
    /// Where the emulated links' counters can be read, to report uplink bytes.
    pub links: Option<Uri>,
}

impl LiveOptions {
    /// Eight requests in flight in a closed loop over HTTP/1.1, ten seconds each, ten minutes in
    /// all, going on after failures.
    #[must_use]
    pub fn new(endpoint: Uri, model: impl Into<String>) -> Self {
        Self {
            endpoint,
            model: model.into(),
            version: None,
            output: None,
            concurrency: const { NonZeroUsize::new(8).unwrap() },
            pace: Pace::Closed,
            timeout: Duration::from_secs(10),
            max_duration: Duration::from_secs(600),
            protocol: Protocol::H1,
            keep_going: true,
            exit: None,
            links: None,
        }
    }

    /// The address that inference requests go to.
    ///
    /// # Errors
    /// When the options cannot be used.
    fn infer_uri(&self) -> Result<Uri, LiveError> {
        if self.endpoint.scheme_str() != Some("http") || self.endpoint.authority().is_none() {
            return Err(LiveError::Endpoint(self.endpoint.clone()));
        }
        if self.concurrency.get() > MAX_CONCURRENCY {
            return Err(LiveError::Concurrency(self.concurrency.get()));
        }
        let plain = |name: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
            let usable = !name.is_empty() && name.chars().all(fits);
            if usable { Ok(()) } else { Err(LiveError::Name(name.to_owned())) }
        };
        plain(&self.model)?;
        let version = match &self.version {
            None => String::new(),
            Some(version) => {
                plain(version)?;
                format!("/versions/{version}")
            }
        };
        let base = self.endpoint.to_string();
        let base = base.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        format!("{base}/v2/models/{}{version}/infer", self.model)
            .parse()
            .map_err(|_| LiveError::Endpoint(self.endpoint.clone()))
    }

    fn settings(&self, workload: &Workload) -> Settings {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Settings {
            driver: "live".into(),
            endpoint: self.endpoint.to_string(),
            model: self.model.clone(),
            requests: workload.len(),
            concurrency: self.concurrency.get(),
            pace: self.pace.to_string(),
            rate_per_s: self.pace.rate().map(crate::workload::Rate::get),
            timeout_ms: millis(self.timeout),
            max_duration_ms: millis(self.max_duration),
            protocol: self.protocol.to_string(),
            body: workload.form().to_string(),
            seed: workload.seed(),
        }
    }
}

/// A run that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Not an address the driver can speak to.
    #[error("endpoint '{0}': expected http://host:port (TLS endpoints are not supported)")]
    Endpoint(Uri),
    /// A model name or version that would have to be escaped.
    #[error("model or version '{0}': expected letters, digits and -._~")]
    Name(String),
    /// Too much in flight.
    #[error("concurrency {0}: at most {MAX_CONCURRENCY}")]
    Concurrency(usize),
    /// The links' counters cannot be read before the run.
    #[error(transparent)]
    Links(#[from] LinksError),
}

/// What a run left behind.
#[derive(Clone, Debug)]
pub struct Run {
    /// One per finished request, by index.
    pub outcomes: Vec<Outcome>,
    /// Their summary.
    pub report: Report,
}

/// Asks `workload` as `options` say. `progress` is called after every finished request with the
/// numbers of finished and of failed requests. Cancelling `cancel` ends the run early: requests in
/// flight are abandoned, and the report covers what was finished.
///
/// # Errors
/// When the options cannot be used or the links cannot be read before the start. Failed requests
/// are outcomes, not errors.
pub async fn run(
    workload: Arc<Workload>,
    options: &LiveOptions,
    progress: &(dyn Fn(usize, usize) + Sync),
    cancel: &CancellationToken,
) -> Result<Run, LiveError> {
    let uri = options.infer_uri()?;
    let before = match &options.links {
        Some(uri) => Some(fetch_links(uri).await?),
        None => None,
    };
    let stop = cancel.child_token();
    // Dropping the run's future must end the pacer's thread too.
    let _ends = stop.clone().drop_guard();
    let start = Instant::now();
    let driver = worker::Driver::new(Arc::clone(&workload), options.clone(), uri, start, &stop);
    let driver = Arc::new(driver);
    let mut outcomes = drive(&driver, workload.arrivals(options.pace), progress).await;
    let wall = start.elapsed();
    if let Some(driver) = Arc::into_inner(driver) {
        driver.close().await;
    }
    outcomes.sort_unstable_by_key(|outcome| outcome.index);
    let failed = outcomes.iter().any(|outcome| outcome.result.is_err());
    let stopped = if outcomes.len() == workload.len() {
        None
    } else if cancel.is_cancelled() {
        Some(Stopped::Cancelled)
    } else if failed && !options.keep_going {
        Some(Stopped::Failure)
    } else {
        Some(Stopped::Duration)
    };
    let mut report = Report::new(&outcomes, wall, options.settings(&workload));
    report.stopped = stopped;
    if let (Some(uri), Some(before)) = (&options.links, &before) {
        match uplink(uri, before, &report).await {
            Ok(uplink) => report.uplink = Some(uplink),
            Err(error) => report.notes.push(format!("no uplink figures: {error}")),
        }
    }
    Ok(Run { outcomes, report })
}

async fn uplink(uri: &Uri, before: &LinksStatus, report: &Report) -> Result<Uplink, LinksError> {
    let (up, down) = fetch_links(uri).await?.since(before)?;
    Ok(Uplink::new(up, down, report.hard_cases()))
}

/// Runs the workers, and the pacer of an open loop, until the last outcome.
async fn drive(
    driver: &Arc<worker::Driver>,
    arrivals: Option<Vec<Duration>>,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Vec<Outcome> {
    let workers = driver.options.concurrency.get().min(driver.workload.len());
    let (results, mut finished) = mpsc::channel(workers * 2);
    let mut tasks = JoinSet::new();
    let arrivals = arrivals.map(Arc::new);
    if let Some(times) = &arrivals {
        let (driver, times) = (Arc::clone(driver), Arc::clone(times));
        tasks.spawn_blocking(move || {
            pacer::run(driver.start, &times, &driver.turns, &driver.stop);
        });
    }
    for _ in 0..workers {
        let (driver, arrivals) = (Arc::clone(driver), arrivals.clone());
        let results = results.clone();
        tasks.spawn(async move {
            driver.work(arrivals.as_ref().map(|times| &times[..]), &results).await;
        });
    }
    drop(results);
    let (mut outcomes, mut errors) = (Vec::new(), 0);
    while let Some(outcome) = finished.recv().await {
        errors += usize::from(outcome.result.is_err());
        outcomes.push(outcome);
        progress(outcomes.len(), errors);
        if errors > 0 && !driver.options.keep_going {
            driver.stop.cancel();
        }
    }
    // The workers are done; the pacer may still have turns to give.
    driver.stop.cancel();
    while tasks.join_next().await.is_some() {}
    outcomes
}

#[cfg(test)]
mod tests;
