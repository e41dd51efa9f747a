//! The page docs/METRICS.md, rendered from the enum of metrics. It decides the page's form and
//! nothing of its content.

use std::fmt::Write as _;

use midspan_net::telemetry::{Kind, Metric};

const HEAD: &str = "\
# Metrics

Router and nodes serve these as Prometheus text at `/metrics` of their admin address. The list is
complete: every metric is a member of `midspan_net::telemetry::Metric`, and a test renders this page
from it. Histograms of seconds have buckets from 50 µs to 10 s. Label values are bounded: status
codes, reasons of a fixed list, and names from configuration files.
";

/// The page.
#[must_use]
pub fn page() -> String {
    let mut out = HEAD.to_owned();
    for (title, prefix) in [("Router", "midspan_router_"), ("Node", "midspan_node_")] {
        section(&mut out, title, |name| name.starts_with(prefix));
    }
    let known =
        |name: &str| name.starts_with("midspan_router_") || name.starts_with("midspan_node_");
    section(&mut out, "Both", |name| !known(name));
    out
}

fn section(out: &mut String, title: &str, belongs: impl Fn(&str) -> bool) {
    let all = Metric::ALL.iter().map(|metric| metric.describe());
    let rows: Vec<_> = all.filter(|(name, ..)| belongs(name)).collect();
    if rows.is_empty() {
        return;
    }
    let _infallible = write!(
        out,
        "\n## {title}\n\n| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n"
    );
    for (name, kind, labels, meaning) in rows {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() { "none".to_owned() } else { labels.join(", ") };
        let kind = kind_name(kind);
        let _infallible = writeln!(out, "| `{name}` | {kind} | {labels} | {meaning} |");
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    }
}
