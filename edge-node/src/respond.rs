//! The last step: the answer in the form that was asked for, where each row was answered, and the
//! load report that rides on every response.

use std::{fmt::Write as _, time::Instant};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use midspan_net::{Body, body::full, telemetry::Metric};
use midspan_protocol::{AnsweredBy, headers, response::OutputForm, timing};

use crate::{
    Node,
    error::NodeError,
    exit::RowAnswer,
    infer::{Answer, Spent},
    message::Answered,
    model::Model,
};

/// Encodes an answer for REST.
///
/// # Errors
/// An output that cannot be written in the form asked for.
pub(crate) fn respond(
    node: &Node,
    mut answered: Answered,
    form: &OutputForm,
) -> Result<Response<Body>, NodeError> {
    let encoded = answered.message.encode(form);
    let encoded = encoded.inspect_err(|_| answered.measure.failed())?;
    let media_type = encoded.media_type();
    let mut response = Response::new(full(encoded.body));
    let map = response.headers_mut();
    *map = annotate(node, &answered);
    map.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    if let Some(length) = encoded.json_length {
        map.insert(headers::INFERENCE_HEADER_CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(response)
}

/// Headers that say where, how well and how fast an answer was made, whichever form it goes out
/// in. Counts its rows, so call it once for each answer.
pub(crate) fn annotate(node: &Node, answered: &Answered) -> HeaderMap {
    let Answered { model, answer, .. } = answered;
    let mut map = HeaderMap::new();
    set(&mut map, headers::REGION, &regions(&node.config.region, answer));
    set(&mut map, headers::SERVER_TIMING, &server_timing(&answer.spent));
    describe(&mut map, model, answer);
    map
}

/// Where the answer was made: here, at the cloud, or both for a batch of both.
fn regions(own: &str, answer: &Answer) -> String {
    let Some(away) = answer.region.as_deref().filter(|away| *away != own) else {
        return own.into();
    };
    let here = answer.rows.iter().any(|row| row.place != AnsweredBy::Cloud);
    if here { format!("{own},{away}") } else { away.to_owned() }
}

/// Headers that say where and how well the request was answered.
fn describe(map: &mut HeaderMap, model: &Model, answer: &Answer) {
    let mut places = answer.rows.iter().map(|row| row.place);
    let place = places.next().unwrap_or(answer.place);
    if places.all(|other| other == place) {
        set(map, headers::ANSWERED_BY, &place.to_string());
    }
    if let Some(reason) = answer.rows.iter().find_map(|row| row.degraded) {
        set(map, headers::DEGRADED, reason);
    }
    let exits = answer.rows.iter().any(|row| matches!(row.place, AnsweredBy::Exit(_)));
    if exits {
        set(map, headers::CERTIFIED, if answer.certified { "true" } else { "false" });
    }
    count_rows(model, answer);
}

fn count_rows(model: &Model, answer: &Answer) {
    let places = [("exit", 0), ("local", 1), ("cloud", 2)];
    let place = |row: &RowAnswer| match row.place {
        AnsweredBy::Exit(_) => 0,
        AnsweredBy::Local => 1,
        AnsweredBy::Cloud => 2,
    };
    for (name, number) in places {
        let rows = answer.rows.iter().filter(|row| place(row) == number).count() as u64;
        if rows > 0 {
            Metric::NodeRows.counter(&[&model.name, name]).increment(rows);
        }
    }
    for reason in answer.rows.iter().filter_map(|row| row.degraded) {
        Metric::NodeDegraded.counter(&[&model.name, reason]).increment(1);
    }
}

fn server_timing(spent: &Spent) -> String {
    let mut value = String::with_capacity(96);
    timing::push(&mut value, "queue", spent.waited);
    timing::push(&mut value, "run", spent.ran);
    if let Some(offload) = spent.offload {
        timing::push(&mut value, "offload", offload);
    }
    value
}

/// What every response of the node carries, errors included.
pub(crate) fn finish(
    node: &Node,
    mut response: Response<Body>,
    router: Option<&str>,
    started: Instant,
) -> Response<Body> {
    let report = node.load.report(router, node.queue.len(), node.tasks.is_draining());
    let map = response.headers_mut();
    set(map, headers::NODE, &node.config.name);
    set(map, headers::LOAD, &report.encode());
    set(map, headers::ENDPOINT_LOAD_METRICS, &report.orca());
    let mut value = String::with_capacity(128);
    if let Some(text) = map.get(headers::SERVER_TIMING).and_then(|value| value.to_str().ok()) {
        let _infallible = write!(value, "{text}");
    }
    timing::push(&mut value, "total", started.elapsed());
    set(map, headers::SERVER_TIMING, &value);
    response
}

/// Counts an inference by its outcome.
pub(crate) fn count(status: StatusCode) {
    Metric::NodeRequests.counter(&[status.as_str()]).increment(1);
}

fn set(map: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        map.insert(name, value);
    }
}
