//! Metrics and logs. Every metric is a member of one enum, so that the list in docs/METRICS.md is
//! complete and label values stay bounded: a label is a `&'static str` or a configured name.

use std::io::IsTerminal as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use metrics::{Counter, Gauge, Histogram, Label};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// What a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution, seconds or bytes as its name says.
    Histogram,
}

macro_rules! metrics_enum {
    ($($(#[doc = $help:literal])* $variant:ident: $kind:ident $name:literal [$($label:literal),*];)*) => {
        /// Every metric that Midspan exports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Metric {
            $($(#[doc = $help])* $variant,)*
        }

        impl Metric {
            /// All of them, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Name, kind, label names, meaning.
            #[must_use]
            pub fn describe(self) -> (&'static str, Kind, &'static [&'static str], &'static str) {
                match self {
                    $(Self::$variant => ($name, Kind::$kind, &[$($label),*], concat!($($help),*).trim_ascii()),)*
                }
            }
        }
    };
}

metrics_enum! {
    /// Requests that the router finished, by final status code.
    RouterRequests: Counter "midspan_router_requests_total" ["status"];
    /// Time from a request's head to its answer's head at the router, seconds.
    RouterSeconds: Histogram "midspan_router_request_seconds" [];
    /// Requests now between the router's admission and the end of their answer.
    RouterInFlight: Gauge "midspan_router_in_flight" [];
    /// Requests that the router sent to a node, by node.
    RouterSent: Counter "midspan_router_sent_total" ["node"];
    /// Requests that the router sent again, by why the attempt before failed.
    RouterRetries: Counter "midspan_router_retries_total" ["reason"];
    /// Requests that the router refused or failed, by reason.
    RouterErrors: Counter "midspan_router_errors_total" ["reason"];
    /// Probes of nodes, by node and outcome.
    RouterProbes: Counter "midspan_router_probes_total" ["node", "outcome"];
    /// Bytes of request bodies now kept for a retry.
    RouterReplayBytes: Gauge "midspan_router_replay_bytes" [];
    /// Inference requests that the node finished, by final status code.
    NodeRequests: Counter "midspan_node_requests_total" ["status"];
    /// Rows that the node answered, by place: exit, local or cloud.
    NodeRows: Counter "midspan_node_rows_total" ["model", "place"];
    /// Rows answered by less than the full path, by reason.
    NodeDegraded: Counter "midspan_node_degraded_rows_total" ["model", "reason"];
    /// Requests refused or failed at the node, by reason.
    NodeErrors: Counter "midspan_node_errors_total" ["reason"];
    /// Time of one stage's run without waiting, seconds.
    NodeRunSeconds: Histogram "midspan_node_run_seconds" ["model", "stage"];
    /// Time that a run waited for a worker, seconds.
    NodeWaitSeconds: Histogram "midspan_node_wait_seconds" [];
    /// Runs that wait for a worker now.
    NodeQueue: Gauge "midspan_node_queue_length" [];
    /// Time of one offload to the cloud, seconds.
    NodeOffloadSeconds: Histogram "midspan_node_offload_seconds" ["model"];
    /// Bytes of activation frames sent to the cloud, headers of HTTP not counted.
    NodeOffloadBytes: Counter "midspan_node_offload_bytes_total" ["model"];
    /// Connections now open, by port: apps or admin. The scrape's own is one of them.
    Connections: Gauge "midspan_connections" ["port"];
    /// Tasks now running that a drain waits for: listeners, connections, probes and the like.
    Tasks: Gauge "midspan_tasks" [];
}

impl Metric {
    /// The counter with these label values, in the order of its label names. Keep the handle:
    /// looking it up costs a hash of its labels.
    pub fn counter(self, values: &[&str]) -> Counter {
        let (name, labels) = self.key(values);
        metrics::with_recorder(|recorder| {
            recorder.register_counter(&metrics::Key::from_parts(name, labels), &METADATA)
        })
    }

    /// The gauge with these label values.
    pub fn gauge(self, values: &[&str]) -> Gauge {
        let (name, labels) = self.key(values);
        metrics::with_recorder(|recorder| {
            recorder.register_gauge(&metrics::Key::from_parts(name, labels), &METADATA)
        })
    }

    /// The histogram with these label values.
    pub fn histogram(self, values: &[&str]) -> Histogram {
        let (name, labels) = self.key(values);
        metrics::with_recorder(|recorder| {
            recorder.register_histogram(&metrics::Key::from_parts(name, labels), &METADATA)
        })
    }

    fn key(self, values: &[&str]) -> (&'static str, Vec<Label>) {
        let (name, _, names, _) = self.describe();
        debug_assert_eq!(names.len(), values.len(), "{name}");
        let labels = names.iter().zip(values);
        (name, labels.map(|(name, value)| Label::new(*name, (*value).to_owned())).collect())
    }
}

const METADATA: metrics::Metadata<'static> =
    metrics::Metadata::new("midspan", metrics::Level::INFO, None);

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Seconds, from 50 µs to 10 s.
const BUCKETS: [f64; 16] = [
    0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0,
    2.0, 10.0,
];

/// Installs the process's recorder. Later calls change nothing.
///
/// # Errors
/// When another recorder is installed.
pub fn init_metrics() -> Result<(), String> {
    // Router and node may start at once in one process; only one of them installs.
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if HANDLE.get().is_some() {
        return Ok(());
    }
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &BUCKETS)
        .map_err(|error| error.to_string())?
        .build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(|error| error.to_string())?;
    metrics::with_recorder(|recorder| {
        for metric in Metric::ALL {
            let (name, kind, _, help) = metric.describe();
            match kind {
                Kind::Counter => recorder.describe_counter(name.into(), None, help.into()),
                Kind::Gauge => recorder.describe_gauge(name.into(), None, help.into()),
                Kind::Histogram => recorder.describe_histogram(name.into(), None, help.into()),
            }
        }
    });
    let _first = HANDLE.set(handle);
    Ok(())
}

/// Prometheus text of all metrics; empty before [`init_metrics`].
#[must_use]
pub fn render() -> String {
    HANDLE.get().map_or_else(String::new, |handle| {
        handle.run_upkeep();
        handle.render()
    })
}

/// Logs to standard error: `MIDSPAN_LOG` filters (default `info`), `json` for machines.
pub fn init_logs(json: bool) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("MIDSPAN_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        // The fallback of a failed write is a print to the same place, which would panic.
        .log_internal_errors(false);
    // A second call, as tests make, keeps the first subscriber.
    let _already = if json { builder.json().try_init() } else { builder.try_init() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_renders_with_its_labels() {
        init_metrics().unwrap();
        init_metrics().unwrap();
        Metric::RouterRequests.counter(&["200"]).increment(2);
        Metric::RouterSeconds.histogram(&[]).record(0.001);
        Metric::RouterInFlight.gauge(&[]).set(3.0);
        let text = render();
        assert!(text.contains("midspan_router_requests_total{status=\"200\"} 2"), "{text}");
        assert!(text.contains("midspan_router_request_seconds_bucket{le=\"0.001\"} 1"), "{text}");
        for metric in Metric::ALL {
            let (name, _, _, help) = metric.describe();
            assert!(name.starts_with("midspan_") && !help.is_empty());
        }
    }
}
