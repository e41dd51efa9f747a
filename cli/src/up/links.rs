//! The emulated uplink's counters and switches over HTTP.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State},
    response::Response,
    routing::{get, post},
};
use http::StatusCode;
use midspan_load::{
    emulator::{Link, Outage},
    links::LinksStatus,
};
use midspan_net::{admin::to_axum, reply};

/// The one link's name.
const UPLINK: &str = "uplink";

/// `GET /links`, `POST /links/uplink/{cut,refuse,restore}`.
pub(super) fn routes(link: Option<Arc<Link>>) -> Router {
    Router::new()
        .route("/links", get(show))
        .route("/links/{name}/{action}", post(switch))
        .with_state(link)
}

async fn show(State(link): State<Option<Arc<Link>>>) -> Response {
    let links = link.iter().map(|link| link.status(UPLINK)).collect();
    to_axum(reply::value(StatusCode::OK, &LinksStatus { links }))
}

async fn switch(
    State(link): State<Option<Arc<Link>>>,
    Path((name, action)): Path<(String, String)>,
) -> Response {
    let outage = match action.as_str() {
        "cut" => Outage::Blackhole,
        "refuse" => Outage::Refuse,
        "restore" => Outage::None,
        _ => {
            let message = format!("'{action}' is not cut, refuse or restore");
            return to_axum(reply::error(StatusCode::BAD_REQUEST, &message));
        }
    };
    match link.filter(|_| name == UPLINK) {
        Some(link) => {
            link.set_outage(outage);
            to_axum(reply::value(StatusCode::OK, &link.status(UPLINK)))
        }
        None => to_axum(reply::error(StatusCode::NOT_FOUND, &format!("no emulated link '{name}'"))),
    }
}
