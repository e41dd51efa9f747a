//! `midspan infer`: send a picture or a labelled sample, see answer, place and timing.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use bytes::{BufMut, BytesMut};
use clap::Parser;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use midspan_net::{
    body::{collect, full},
    transport::{PoolOptions, Pooled, Transport, TransportError},
};
use midspan_protocol::{Datatype, InferRequest, InferResponse, Parameter, Tensor, headers, timing};
use midspan_split::{Bundle, exit::classify};
use serde_json::json;

use crate::{fetch, open, table};

/// Send one picture or labelled sample and print label, confidence, place and timings.
///
/// Examples:
///   midspan infer --sample 7
///   midspan infer --image shoe.png --json
#[derive(Parser)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Index of a labelled sample of the bundle.
    #[arg(long, conflicts_with = "image", required_unless_present = "image")]
    sample: Option<usize>,
    /// A PNG, JPEG or WebP file; the node decodes and resizes it.
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Where requests go.
    #[arg(long, default_value = "http://127.0.0.1:8080", value_name = "URL")]
    endpoint: Uri,
    /// The bundle whose samples and labels are used; the one inside the program without it.
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// The early exit: `auto`, `never` (always the full path) or `force` (always the exit).
    #[arg(long, default_value = "auto", value_parser = ["auto", "never", "force"])]
    exit: String,
    /// Affinity key: requests of one session prefer one node.
    #[arg(long)]
    session: Option<String>,
    /// Give up after so many milliseconds.
    #[arg(long, default_value_t = 10_000)]
    deadline_ms: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What came back.
struct Answered {
    map: HeaderMap,
    response: InferResponse,
    took: Duration,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let bundle = open::bundle(args.bundle.as_ref())?;
    let (tensor, truth) = input(args, &bundle)?;
    let answered = fetch::block_on(send(args, &bundle, tensor))?;
    let logits = answered.response.outputs.first().and_then(Tensor::to_f32);
    let logits = logits.context("the answer holds no FP32 output")?;
    let (class, confidence) = classify(&logits, 1.0);
    let stated = answered.response.parameters.get("midspan_confidence").and_then(Parameter::as_str);
    let confidence = stated.and_then(|text| text.parse().ok()).unwrap_or(confidence);
    let label =
        |class: usize| bundle.labels().get(class).cloned().unwrap_or_else(|| class.to_string());
    print(args, &answered, &label(class), class, confidence, truth.map(label));
    Ok(())
}

fn input(args: &Args, bundle: &Bundle) -> anyhow::Result<(Tensor, Option<usize>)> {
    let name = &bundle.manifest().inputs.first().context("the bundle has no input")?.name;
    if let Some(path) = &args.image {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        let length = u32::try_from(bytes.len()).context("the picture is over 4 GiB")?;
        let mut element = BytesMut::with_capacity(bytes.len() + 4);
        element.put_u32_le(length);
        element.extend_from_slice(&bytes);
        return Ok((Tensor::new(name, Datatype::Bytes, vec![1], element.freeze())?, None));
    }
    let labelled = bundle.labelled()?.context("the bundle has no labelled samples; use --image")?;
    let index = args.sample.unwrap_or(0);
    let Some(tensor) = labelled.tensor(index) else {
        bail!("--sample {index}: the bundle has samples 0 to {}", labelled.len().saturating_sub(1));
    };
    let shape = tensor.shape().iter().map(|dim| *dim as u64).collect();
    let tensor = Tensor::new(name, Datatype::Fp32, shape, tensor.into_bytes().into())?;
    Ok((tensor, labelled.label(index)))
}

async fn send(args: &Args, bundle: &Bundle, tensor: Tensor) -> anyhow::Result<Answered> {
    let mut message = InferRequest { inputs: vec![tensor], ..InferRequest::default() };
    message.parameters.set("binary_data_output", Parameter::Bool(true));
    let encoded = message.encode(true)?;
    let name = &bundle.manifest().name;
    let mut request = Request::new(full(encoded.body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = format!("/v2/models/{name}/infer").parse()?;
    let map = request.headers_mut();
    map.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Some(length) = encoded.json_length {
        map.insert(headers::INFERENCE_HEADER_CONTENT_LENGTH, HeaderValue::from(length));
    }
    map.insert(headers::EXIT, HeaderValue::from_str(&args.exit)?);
    map.insert(headers::DEADLINE_MS, HeaderValue::from(args.deadline_ms));
    if let Some(session) = &args.session {
        map.insert(headers::SESSION, HeaderValue::from_str(session).context("--session")?);
    }
    let authority = args.endpoint.authority().cloned().context("--endpoint has no host")?;
    let pool = Pooled::new(authority, PoolOptions::default());
    let started = Instant::now();
    let exchange = async {
        let response = pool.send(request).await.map_err(|error| match error {
            TransportError::Connect { .. } => {
                anyhow::Error::new(error).context(fetch::not_running(&args.endpoint))
            }
            broken => broken.into(),
        })?;
        let (head, body) = response.into_parts();
        let body = collect(body, 64 << 20).await?;
        anyhow::Ok((head, body))
    };
    let patience = Duration::from_millis(args.deadline_ms) + Duration::from_secs(1);
    let (head, body) =
        tokio::time::timeout(patience, exchange).await.context("no answer in time")??;
    let took = started.elapsed();
    if head.status != StatusCode::OK {
        let text = serde_json::from_slice::<serde_json::Value>(&body).ok();
        let text = text.and_then(|value| Some(value.get("error")?.as_str()?.to_owned()));
        bail!("{}: {}", head.status, text.unwrap_or_default());
    }
    let length = headers::json_length(&head.headers).map_err(anyhow::Error::msg)?;
    let response = InferResponse::parse(&body, length)?;
    Ok(Answered { map: head.headers, response, took })
}

fn print(
    args: &Args,
    answered: &Answered,
    label: &str,
    class: usize,
    confidence: f32,
    truth: Option<String>,
) {
    let text = |name: http::HeaderName| {
        answered.map.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let timings = text(headers::SERVER_TIMING).unwrap_or_default();
    let hops: Vec<(&str, Duration)> = timing::entries(&timings).collect();
    let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    let (place, node) = (text(headers::ANSWERED_BY), text(headers::NODE));
    let degraded = text(headers::DEGRADED);
    let decision = text(headers::DECISION);
    if args.json {
        let hops: serde_json::Map<_, _> =
            hops.iter().map(|(name, span)| ((*name).to_owned(), json!(micros(*span)))).collect();
        out!(
            "{}",
            json!({
                "label": label,
                "class": class,
                "confidence": confidence,
                "truth": truth,
                "answered_by": place,
                "node": node,
                "region": text(headers::REGION),
                "degraded": degraded,
                "certified": text(headers::CERTIFIED).map(|value| value == "true"),
                "decision": decision,
                "total_us": micros(answered.took),
                "hops_us": hops,
            })
        );
        return;
    }
    let or = |value: Option<String>| value.unwrap_or_else(|| "?".into());
    out!("answer       {label} (class {class}, confidence {:.1} %)", confidence * 100.0);
    if let Some(truth) = truth {
        out!("truth        {truth}");
    }
    out!("answered by  {} at {} (region {})", or(place), or(node), or(text(headers::REGION)));
    if let Some(reason) = degraded {
        out!("degraded     {reason}: the full path was not available");
    }
    out!("time         {} in all", table::micros(micros(answered.took)));
    for (name, span) in hops {
        out!("  {name:<11}{}", table::micros(micros(span)));
    }
    if let Some(decision) = decision {
        out!("decision     {decision}  (midspan explain {decision})");
    }
}
