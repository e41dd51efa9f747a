//! The admin port's documents: the fleet as this router sees it, and its decisions.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    extract::{Path, State},
    response::Response,
    routing::get,
};
use http::StatusCode;
use midspan_net::{admin::to_axum, reply};
use midspan_protocol::metadata::RepositoryEntry;
use serde::{Deserialize, Serialize};

use crate::{
    config::Config,
    fleet::Fleet,
    records::{DecisionId, Records, render},
};

/// `GET /nodes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetStatus {
    /// The router's name.
    pub router: String,
    /// Its region.
    pub region: String,
    /// The policy in force.
    pub policy: String,
    /// Number of the current topology.
    pub epoch: u64,
    /// Own requests at nodes now.
    pub in_flight: u32,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
}

/// One node as a router sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// `edge` or `cloud`, once it has said so.
    pub role: String,
    /// Its region.
    pub region: String,
    /// Host and port.
    pub address: String,
    /// Health, for example `healthy` or `dead`.
    pub health: String,
    /// Smoothed round trip of probes, µs.
    pub rtt_us: Option<u64>,
    /// Windowed minimum of it, µs.
    pub floor_rtt_us: Option<u64>,
    /// Requests in flight there by its last report.
    pub rif: Option<u32>,
    /// Own requests there now.
    pub own_requests: u32,
    /// Typical service time, µs.
    pub service_us: Option<u64>,
    /// Requests that it executes at once.
    pub workers: u32,
    /// Models, as `name/version`, the variant in brackets where one runs.
    pub models: Vec<String>,
    /// The clouds it offloads to.
    pub clouds: Vec<midspan_protocol::metadata::CloudInfo>,
}

#[derive(Clone)]
struct Shared {
    fleet: Arc<Fleet>,
    config: Arc<Config>,
    records: Arc<Records>,
}

/// `/nodes`, `/decisions/<id>` and what every admin port has.
pub(crate) fn routes(fleet: Arc<Fleet>, config: Arc<Config>, records: Arc<Records>) -> Router {
    Router::new()
        .route("/nodes", get(nodes))
        .route("/decisions/{id}", get(decision))
        .with_state(Shared { fleet, config, records })
        .merge(midspan_net::admin::base())
}

async fn nodes(State(shared): State<Shared>) -> Response {
    to_axum(reply::value(StatusCode::OK, &status(&shared.fleet, &shared.config)))
}

/// The fleet as it is known now.
#[must_use]
pub(crate) fn status(fleet: &Fleet, config: &Config) -> FleetStatus {
    let topology = fleet.topology();
    let now = fleet.now();
    let nodes = fleet.nodes.iter().enumerate().map(|(index, node)| {
        let info = fleet.info(index).unwrap_or_default();
        let view = fleet.slot(index).and_then(|slot| fleet.cells.view(slot, now));
        let region = config.regions.get(usize::from(node.region.get()));
        NodeStatus {
            name: node.name.clone(),
            role: info.role,
            region: region.cloned().unwrap_or_default(),
            address: node.authority.to_string(),
            health: view.as_ref().map_or("unknown", |view| view.health.as_str()).to_owned(),
            rtt_us: view.as_ref().and_then(|view| view.rtt).map(|rtt| rtt.0),
            floor_rtt_us: view.as_ref().and_then(|view| view.floor).map(|rtt| rtt.0),
            rif: view.as_ref().and_then(|view| view.reported).map(|report| report.total.0),
            own_requests: view.as_ref().map_or(0, |view| view.leases.0),
            service_us: view.as_ref().and_then(|view| view.service).map(|service| service.0),
            workers: info.workers,
            models: info.models.iter().map(|model| listed(&info.variants, model)).collect(),
            clouds: info.clouds,
        }
    });
    FleetStatus {
        router: config.name.clone(),
        region: config.region.clone(),
        policy: config.policy.as_str().to_owned(),
        epoch: topology.epoch(),
        in_flight: fleet.cells.total_leases().0,
        nodes: nodes.collect(),
    }
}

/// A model with its version, and the variant that runs where it is not the plain one.
fn listed(variants: &BTreeMap<String, String>, model: &RepositoryEntry) -> String {
    let name = format!("{}/{}", model.name, model.version);
    match variants.get(&name) {
        Some(variant) => format!("{name} ({variant})"),
        None => name,
    }
}

async fn decision(State(shared): State<Shared>, Path(id): Path<String>) -> Response {
    let id = if id == "last" {
        shared.records.last().ok_or_else(|| (StatusCode::NOT_FOUND, "no decision yet".to_owned()))
    } else {
        id.parse::<DecisionId>().map_err(|problem| (StatusCode::BAD_REQUEST, problem))
    };
    let found = id.and_then(|id| {
        let gone = || (StatusCode::NOT_FOUND, format!("decision {id} is not kept any more"));
        shared.records.get(id).map(|record| (id, record)).ok_or_else(gone)
    });
    to_axum(match found {
        Ok((id, record)) => reply::value(StatusCode::OK, &render(&shared.fleet, id, &record)),
        Err((status, problem)) => reply::error(status, &problem),
    })
}
