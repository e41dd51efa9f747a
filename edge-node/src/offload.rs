//! Sending the activation of hard rows to a cloud: the frame, the choice of the cloud by the same
//! core that routers use, the deadline. Whatever goes wrong is a reason, never an error of the
//! request: the caller has an exit to fall back to.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use midspan_net::{
    body::{collect, full},
    telemetry::Metric,
    transport::{Transport, TransportError},
};
use midspan_protocol::{Context, InferResponse, headers};
use midspan_router_core::{Choice, Event, FailureKind, Micros, Slot, book, bookings};
use midspan_split::codec::encode;
use tokio::time::timeout_at;

use crate::{
    Node,
    batch::Blob,
    infer::Terms,
    model::{Model, Stage, StageCut},
};

/// Largest answer taken from a cloud.
const MAX_ANSWER: usize = 64 << 20;

/// What a cloud answered.
pub(crate) struct Away {
    /// Under the names apps use.
    pub(crate) outputs: Vec<(String, Blob)>,
    /// Where it was answered.
    pub(crate) region: Option<String>,
}

/// Sends the hard rows away and brings their outputs back, or says why not.
pub(crate) async fn offload(
    node: &Node,
    model: &Model,
    stage: &Stage,
    rows: &Blob,
    terms: &Terms,
) -> Result<Away, &'static str> {
    let Some(cut) = &stage.cut else { return Err("no_cut") };
    let offload = &node.config.offload;
    let now = Instant::now();
    let own = terms.until.checked_sub(offload.margin.0).unwrap_or(now);
    let until = own.min(now + offload.timeout.0);
    let frame = frame(rows, cut)?;
    Metric::NodeOffloadBytes.counter(&[&model.name]).increment(frame.len() as u64);
    let choices = node.clouds.choose(terms, until.saturating_duration_since(now), frame.len())?;
    let mut reason = "cloud_busy";
    let mut tried = Vec::new();
    for (choice, cap) in bookings(&choices) {
        if tried.contains(&choice.slot) {
            continue;
        }
        let Ok(_lease) = book(&node.clouds.cells, choice.slot, cap) else { continue };
        tried.push(choice.slot);
        let sent = Instant::now();
        match attempt(node, model, cut, choice, frame.clone(), terms, until).await {
            Ok(away) => {
                let took = sent.elapsed();
                Metric::NodeOffloadSeconds.histogram(&[&model.name]).record(took.as_secs_f64());
                return Ok(away);
            }
            Err(failed) => reason = failed,
        }
        if Instant::now() >= until {
            break;
        }
    }
    Err(reason)
}

fn frame(rows: &Blob, cut: &StageCut) -> Result<Bytes, &'static str> {
    let view = rows.view().map_err(|_| "bad_activation")?;
    let frame = encode(&view, &cut.codec, cut.precision, cut.split_id);
    frame.map(Bytes::from).map_err(|error| {
        tracing::warn!(%error, "an activation cannot be written as a frame");
        "bad_activation"
    })
}

async fn attempt(
    node: &Node,
    model: &Model,
    cut: &StageCut,
    choice: &Choice,
    frame: Bytes,
    terms: &Terms,
    until: Instant,
) -> Result<Away, &'static str> {
    let clouds = &node.clouds;
    let link = clouds.link(choice.node).ok_or("cloud_unreachable")?;
    let request = request(node, model, cut, frame, terms, until).ok_or("bad_activation")?;
    let sent = Instant::now();
    let failed = |kind, reason| {
        clouds.observe(Event::Failed { slot: choice.slot, kind });
        Err(reason)
    };
    let exchange = async {
        let response = link.send(request).await.map_err(|error| match error {
            TransportError::Connect { .. } => (FailureKind::Connect, "cloud_unreachable"),
            TransportError::Broken { .. } => (FailureKind::Reset, "cloud_lost"),
        })?;
        let (head, body) = response.into_parts();
        let body =
            collect(body, MAX_ANSWER).await.map_err(|_| (FailureKind::Reset, "cloud_lost"))?;
        Ok::<_, (FailureKind, &'static str)>((head.status, head.headers, body))
    };
    let (status, map, body) = match timeout_at(until.into(), exchange).await {
        Err(_elapsed) => return failed(FailureKind::Timeout, "cloud_timeout"),
        Ok(Err((kind, reason))) => return failed(kind, reason),
        Ok(Ok(answer)) => answer,
    };
    match status {
        StatusCode::OK => {}
        StatusCode::CONFLICT => {
            tracing::warn!(model = model.name, split = %cut.split_id, "the cloud has other splits");
            answered(node, choice.slot, sent.elapsed());
            return Err("split_mismatch");
        }
        status if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE => {
            return failed(FailureKind::ServerError, "cloud_failed");
        }
        status => {
            tracing::warn!(model = model.name, %status, "the cloud refuses");
            answered(node, choice.slot, sent.elapsed());
            return Err("cloud_refused");
        }
    }
    match outputs(model, &map, &body) {
        Some(outputs) => {
            answered(node, choice.slot, sent.elapsed());
            let region = map.get(headers::REGION).and_then(|value| value.to_str().ok());
            Ok(Away { outputs, region: region.map(str::to_owned) })
        }
        None => failed(FailureKind::ServerError, "cloud_garbage"),
    }
}

fn answered(node: &Node, slot: Slot, latency: Duration) {
    let latency = Micros::from(latency);
    node.clouds.observe(Event::Answered { slot, latency, server_time: None, report: None });
}

fn request(
    node: &Node,
    model: &Model,
    cut: &StageCut,
    frame: Bytes,
    terms: &Terms,
    until: Instant,
) -> Option<Request<midspan_net::Body>> {
    let path = format!("/v2/midspan/models/{}/versions/{}/offload", model.name, model.version);
    let mut request = Request::new(full(frame));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.parse().ok()?;
    let map = request.headers_mut();
    map.insert(header::CONTENT_TYPE, HeaderValue::from_static(headers::FRAME_MEDIA_TYPE));
    map.insert(headers::SPLIT_ID, HeaderValue::from_str(&cut.split_id.to_string()).ok()?);
    map.insert(headers::ROUTER, HeaderValue::from_str(&node.config.name).ok()?);
    let left = until.saturating_duration_since(Instant::now()).as_millis();
    map.insert(headers::DEADLINE_MS, HeaderValue::from(u64::try_from(left).ok()?.max(1)));
    // The deadline travels in its own header: a context that repeats costs one byte on h2.
    let context = Context {
        model: model.name.clone(),
        deadline_ms: None,
        ..terms.context.clone().unwrap_or_default()
    };
    map.insert(headers::CONTEXT, HeaderValue::from_str(&context.encode()).ok()?);
    Some(request)
}

/// The outputs that the model promises, by the names apps use; `None` when one is missing or has
/// another type.
fn outputs(model: &Model, map: &HeaderMap, body: &Bytes) -> Option<Vec<(String, Blob)>> {
    let length = headers::json_length(map).ok()?;
    let response = InferResponse::parse(body, length).ok()?;
    let output = |port: &crate::model::Port| {
        let tensor = response.output(&port.spec.name)?;
        let blob = Blob::from_protocol(tensor)?;
        (blob.element == port.spec.element && port.spec.admits(&blob.shape))
            .then(|| (port.spec.name.clone(), blob))
    };
    model.outputs.iter().map(output).collect()
}
