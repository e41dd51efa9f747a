//! Reads an answer of an inference endpoint: status, place headers, class with the highest score.
//! Nothing is taken on trust: a body that does not follow the protocol is a failure.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode, response::Parts};
use midspan_protocol::{AnsweredBy, InferResponse, Tensor, headers};

use crate::outcome::{Answer, Failure, FailureKind};

/// Longest header text that is kept per outcome, bytes.
const MAX_TEXT: usize = 128;

/// The answer in `head` and `body`; scores are taken from `output`, or from the first output.
pub(crate) fn read(head: &Parts, body: &Bytes, output: Option<&str>) -> Result<Answer, Failure> {
    if head.status != StatusCode::OK {
        let kind = FailureKind::Status(head.status.as_u16());
        return Err(Failure::new(kind, &error_text(body)));
    }
    parse(head, body, output).map_err(|problem| Failure::new(FailureKind::BadAnswer, &problem))
}

fn parse(head: &Parts, body: &Bytes, output: Option<&str>) -> Result<Answer, String> {
    let name = headers::INFERENCE_HEADER_CONTENT_LENGTH;
    let json_length = match text(&head.headers, &name)? {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| format!("{name}: '{text}' is no length"))?),
    };
    let response = InferResponse::parse(body, json_length).map_err(|error| error.to_string())?;
    let scores = match output {
        Some(name) => response.output(name).ok_or_else(|| format!("no output '{name}'"))?,
        None => response.outputs.first().ok_or("no outputs")?,
    };
    let place = match text(&head.headers, &headers::ANSWERED_BY)? {
        None => None,
        Some(text) => Some(
            AnsweredBy::parse(&text)
                .ok_or_else(|| format!("{}: '{text}' is no place", headers::ANSWERED_BY))?,
        ),
    };
    Ok(Answer {
        predicted: argmax(scores)?,
        place,
        degraded: text(&head.headers, &headers::DEGRADED)?,
        node: text(&head.headers, &headers::NODE)?,
    })
}

/// The first index of the highest score of a single row.
fn argmax(scores: &Tensor) -> Result<u32, String> {
    let fail = |problem: &str| format!("output '{}': {problem}", scores.name);
    let one_row = scores.shape.split_last().is_none_or(|(_, rest)| rest.iter().all(|n| *n == 1));
    if !one_row {
        return Err(fail(&format!("expected the scores of one row, got shape {:?}", scores.shape)));
    }
    let datatype = scores.datatype;
    let values =
        scores.to_f32().ok_or_else(|| fail(&format!("expected FP32 scores, got {datatype}")))?;
    let mut best: Option<(u32, f32)> = None;
    for (class, value) in (0_u32..).zip(values) {
        if value.is_nan() {
            return Err(fail(&format!("score {class} is not a number")));
        }
        if best.is_none_or(|(_, highest)| value > highest) {
            best = Some((class, value));
        }
    }
    best.map(|(class, _)| class).ok_or_else(|| fail("no scores"))
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, String> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().map_err(|_| format!("{name}: not text"))?;
    if text.len() > MAX_TEXT {
        return Err(format!("{name}: {} bytes; at most {MAX_TEXT} are accepted", text.len()));
    }
    Ok(Some(text.to_owned()))
}

/// The `error` member of the protocol's error body, else the start of the body.
fn error_text(body: &Bytes) -> String {
    if body.is_empty() {
        return "(empty body)".to_owned();
    }
    #[derive(serde::Deserialize)]
    struct ErrorBody {
        error: String,
    }
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(ErrorBody { error }) => error,
        Err(_) => String::from_utf8_lossy(&body[..body.len().min(1024)]).into_owned(),
    }
}

#[cfg(test)]
mod tests;
