//! `midspan status` and `midspan explain`: the fleet and its decisions, as a router sees them.

use anyhow::Context;
use clap::Parser;
use http::Uri;
use midspan_router::FleetStatus;
use serde_json::Value;

use crate::{fetch, table};

/// Print the fleet: nodes, role, health, round trip, requests in flight, models.
///
/// Example:  midspan status --admin http://127.0.0.1:9090
#[derive(Parser)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The router's admin port.
    #[arg(long, default_value = "http://127.0.0.1:9090", value_name = "URL")]
    admin: Uri,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Say why a request went where it went.
///
/// The id is in the response header midspan-decision; `last` is the newest decision.
///
/// Example:  midspan explain last
#[derive(Parser)]
#[command(verbatim_doc_comment)]
pub(crate) struct ExplainArgs {
    /// Decision id, or `last`.
    id: String,
    /// The router's admin port.
    #[arg(long, default_value = "http://127.0.0.1:9090", value_name = "URL")]
    admin: Uri,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let status: FleetStatus = fetch::block_on(fetch::document(&args.admin, "/nodes"))?;
    if args.json {
        out!("{}", serde_json::to_string_pretty(&status)?);
        return Ok(());
    }
    out!(
        "router {}  region {}  policy {}  in flight {}\n",
        status.router,
        status.region,
        status.policy,
        status.in_flight
    );
    out!("{}", render(&status));
    Ok(())
}

fn render(status: &FleetStatus) -> String {
    let dash = || "-".to_owned();
    let rtt = |value: Option<u64>| value.map_or_else(dash, table::micros);
    let mut rows = Vec::new();
    let mut clouds: Vec<(String, Vec<String>)> = Vec::new();
    for node in &status.nodes {
        let role = if node.role.is_empty() { dash() } else { node.role.clone() };
        rows.push(vec![
            node.name.clone(),
            role,
            node.region.clone(),
            node.health.clone(),
            rtt(node.rtt_us),
            node.rif.map_or_else(dash, |rif| rif.to_string()),
            rtt(node.service_us),
            node.models.join(" "),
        ]);
        for cloud in &node.clouds {
            let name = if cloud.name.is_empty() { cloud.url.clone() } else { cloud.name.clone() };
            // What a dead edge last said of its cloud is no news.
            let stale = node.health == "dead";
            let health = if stale { "unknown".to_owned() } else { cloud.health.clone() };
            let seen = Some(cloud.rtt_us).filter(|rtt| *rtt > 0 && !stale);
            let via = format!("via {}", node.name);
            clouds.push((
                name.clone(),
                vec![
                    name,
                    "cloud".into(),
                    cloud.region.clone(),
                    health,
                    rtt(seen),
                    dash(),
                    dash(),
                    via,
                ],
            ));
        }
    }
    clouds.sort_by(|a, b| a.0.cmp(&b.0));
    rows.extend(clouds.into_iter().map(|(_, row)| row));
    let head = ["NODE", "ROLE", "REGION", "HEALTH", "RTT", "RIF", "SERVICE", "MODELS"];
    table::render(&head, &rows)
}

pub(crate) fn explain(args: &ExplainArgs) -> anyhow::Result<()> {
    let path = format!("/decisions/{}", args.id);
    let record: Value = fetch::block_on(fetch::document(&args.admin, &path))?;
    if args.json {
        out!("{}", serde_json::to_string_pretty(&record)?);
        return Ok(());
    }
    let text = |value: &Value, key: &str| match value.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "-".into(),
    };
    out!(
        "decision {}  policy {}  model {}  outcome {}\n",
        text(&record, "id"),
        text(&record, "policy"),
        text(&record, "model"),
        text(&record, "outcome")
    );
    let candidates = record.get("candidates").and_then(Value::as_array).context("no candidates")?;
    let us = |value: &Value, key: &str| {
        value.get(key).and_then(Value::as_u64).map_or("-".into(), table::micros)
    };
    let row = |candidate: &Value| {
        vec![
            text(candidate, "node"),
            text(candidate, "verdict"),
            text(candidate, "found"),
            text(candidate, "health"),
            us(candidate, "floor_rtt_us"),
            us(candidate, "service_us"),
            text(candidate, "load"),
            us(candidate, "predicted_us"),
        ]
    };
    let rows: Vec<Vec<String>> = candidates.iter().map(row).collect();
    let head = ["NODE", "VERDICT", "FOUND", "HEALTH", "FLOOR RTT", "SERVICE", "LOAD", "PREDICTED"];
    out!("{}", table::render(&head, &rows));
    let excluded = record.get("excluded").and_then(Value::as_object);
    let excluded = excluded.into_iter().flatten().filter(|(_, count)| count.as_u64() != Some(0));
    let excluded: Vec<String> = excluded.map(|(why, count)| format!("{why}: {count}")).collect();
    if !excluded.is_empty() {
        out!("\nnot considered: {}", excluded.join(", "));
    }
    Ok(())
}
