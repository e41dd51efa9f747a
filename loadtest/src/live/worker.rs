//! One of the driver's workers: takes the next request when it is its turn, sends it, times it.
//! The only place of the driver that looks at the clock per request.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderValue, Request, Uri, header};
use http_body_util::Full;
use midspan_protocol::{ExitMode, headers};
use tokio::{
    select,
    sync::{Semaphore, mpsc},
    time,
};
use tokio_util::sync::CancellationToken;

use super::{
    LiveOptions, answer,
    client::{Client, SendError},
};
use crate::{
    outcome::{Answer, Failure, FailureKind, Outcome},
    workload::{Planned, Workload},
};

/// Largest answer that is read, bytes.
const MAX_ANSWER: usize = 16 << 20;

/// What the workers of a run share.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) workload: Arc<Workload>,
    pub(super) options: LiveOptions,
    pub(super) start: Instant,
    /// Turns of an open loop that the pacer has released and nobody took yet.
    pub(super) turns: Semaphore,
    pub(super) stop: CancellationToken,
    next: AtomicUsize,
    uri: Uri,
    headers: HeaderMap,
    client: Client,
}

impl Driver {
    pub(super) fn new(
        workload: Arc<Workload>,
        options: LiveOptions,
        uri: Uri,
        start: Instant,
        stop: &CancellationToken,
    ) -> Self {
        let mut headers = HeaderMap::new();
        if let Some(exit) = options.exit {
            let value = match exit {
                ExitMode::Auto => "auto",
                ExitMode::Never => "never",
                ExitMode::Force => "force",
            };
            headers.insert(headers::EXIT, HeaderValue::from_static(value));
        }
        let client = Client::new(options.protocol, options.concurrency.get());
        let (turns, next) = (Semaphore::new(0), AtomicUsize::new(0));
        let stop = stop.clone();
        Self { workload, options, start, turns, stop, next, uri, headers, client }
    }

    /// Closes the connections and waits for their tasks.
    pub(super) async fn close(self) {
        self.client.close().await;
    }

    /// Works until the workload is done, the time is up or the run is stopped.
    pub(super) async fn work(
        &self,
        arrivals: Option<&[Duration]>,
        results: &mpsc::Sender<Outcome>,
    ) {
        while let Some(index) = self.turn(arrivals.is_some()).await {
            let Some(planned) = self.workload.get(index) else { return };
            let sent = Instant::now();
            let intended =
                arrivals.and_then(|times| times.get(index)).map_or(sent, |time| self.start + *time);
            let Some(result) = self.stop.run_until_cancelled(self.ask(&planned)).await else {
                return;
            };
            let outcome = Outcome {
                index,
                image: planned.image,
                label: planned.label,
                latency_us: micros(intended.elapsed()),
                late_us: micros(sent.saturating_duration_since(intended)),
                result,
            };
            if results.send(outcome).await.is_err() {
                return;
            }
        }
    }

    /// The next request's index when it may be sent.
    async fn turn(&self, open: bool) -> Option<usize> {
        let end = self.start + self.options.max_duration;
        if open {
            // All turns taken and none to come: without this the last workers would wait for ever.
            if self.next.load(Relaxed) >= self.workload.len() {
                return None;
            }
            select! {
                biased;
                () = self.stop.cancelled() => return None,
                () = time::sleep_until(end.into()) => return None,
                turn = self.turns.acquire() => turn.ok()?.forget(),
            }
        }
        if self.stop.is_cancelled() || Instant::now() >= end {
            return None;
        }
        let index = self.next.fetch_add(1, Relaxed);
        if index + 1 >= self.workload.len() {
            // Wakes the workers that wait for a turn that will not come.
            self.turns.close();
        }
        (index < self.workload.len()).then_some(index)
    }

    async fn ask(&self, planned: &Planned<'_>) -> Result<Answer, Failure> {
        let mut request = Request::new(Full::new(planned.body.body.clone()));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().clone_from(&self.headers);
        let media = HeaderValue::from_static(planned.body.media_type());
        request.headers_mut().insert(header::CONTENT_TYPE, media);
        if let Some(length) = planned.body.json_length {
            request.headers_mut().insert(headers::INFERENCE_HEADER_CONTENT_LENGTH, length.into());
        }
        let answer = self.client.send(request, MAX_ANSWER);
        let (head, body) = match time::timeout(self.options.timeout, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(failure(&error)),
            Err(_) => {
                let detail = format!("no whole answer within {:?}", self.options.timeout);
                return Err(Failure::new(FailureKind::Timeout, &detail));
            }
        };
        answer::read(&head, &body, self.options.output.as_deref())
    }
}

fn failure(error: &SendError) -> Failure {
    let kind = match error {
        SendError::Connect(_) => FailureKind::Connect,
        SendError::Reset(_) => FailureKind::Reset,
        SendError::TooLarge(_) => FailureKind::BadAnswer,
    };
    Failure::new(kind, &error.to_string())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
