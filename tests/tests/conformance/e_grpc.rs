//! 6e of the table: gRPC over HTTP/2 on the same port. Inferences are data: a request, and the
//! tensors or the code that must come back; what is no inference is a script.

use std::future::Future;

use futures_util::{
    FutureExt as _, StreamExt as _, TryStreamExt as _, future::LocalBoxFuture, stream,
};
use midspan_protocol::grpc::{
    health::{
        HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
    },
    inference::{
        InferTensorContents, ModelInferRequest, ModelInferResponse, ModelMetadataRequest,
        ModelReadyRequest, ModelStreamInferResponse, ServerLiveRequest, ServerLiveResponse,
        ServerMetadataRequest, ServerReadyRequest,
        grpc_inference_service_client::GrpcInferenceServiceClient,
        infer_parameter::ParameterChoice, model_metadata_response::TensorMetadata,
    },
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::{
    Code, Request, Response, Status, Streaming,
    transport::{Channel, Endpoint},
};

use crate::{
    case::{Call, Outcome, ensure},
    e_tensors::{blobs, infers, input, request},
    harness::{Hop, Pair, Setup, Side},
    models,
    sweep::Sweep,
    wire::PATIENCE,
};

type Client = GrpcInferenceServiceClient<Channel>;
/// A message, or why there is none.
pub(crate) type Reply<T> = Result<T, (Code, String)>;
type Script = fn(Grpc) -> LocalBoxFuture<'static, Outcome>;

/// The message limit of the pair that is asked here.
const LIMIT: usize = 32 << 20;

/// One hop over gRPC, and over REST to compare with.
#[derive(Clone)]
pub(crate) struct Grpc {
    client: Client,
    channel: Channel,
    side: Side,
}

/// Sends everything to a pair of its own.
pub(crate) async fn run(sweep: &Sweep) {
    let limits = "deadline = \"60s\"\nmax_deadline = \"2m\"\nbody = \"32MiB\"";
    let pair = Pair::start(Setup { limits, ..Setup::default() }, &models::all()).await;
    let pair = pair.expect("a pair of node and router starts");
    let mut hops = Vec::new();
    for hop in Hop::BOTH {
        hops.push(Grpc::connect(pair.side(hop, sweep)).await.expect("a port that listens"));
    }
    for case in infers() {
        let mut replies = Vec::new();
        for hop in &hops {
            let reply = infer(hop, case.request.clone()).await;
            let outcome = case.want.check(&case.request, &reply);
            sweep.note(case.id, hop.side.hop, &case.what, outcome);
            if let Ok(response) = &reply {
                sweep.note("C133", hop.side.hop, &case.what, one_form(response));
            }
            replies.push(reply);
        }
        let same = replies[0] == replies[1];
        let differs = || format!("not transparent: {:?} and {:?}", replies[0], replies[1]);
        let outcome = if same { Ok(()) } else { Err(differs()) };
        sweep.note(case.id, Hop::Router, &case.what, outcome);
    }
    for (id, what, script) in SCRIPTS {
        for hop in &hops {
            let outcome = timeout(PATIENCE, script(hop.clone())).await;
            let outcome = outcome.unwrap_or_else(|_elapsed| Err("no answer in time".into()));
            sweep.note(id, hop.side.hop, what, outcome);
        }
    }
    drop(hops);
    pair.end().await;
}

impl Grpc {
    async fn connect(side: Side) -> Result<Self, String> {
        let endpoint = Endpoint::from_shared(format!("http://{}", side.addr));
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        let channel = endpoint.connect().await.map_err(|error| error.to_string())?;
        let client = Client::new(channel.clone())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX);
        Ok(Self { client, channel, side })
    }
}

async fn sent<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Reply<T> {
    match timeout(PATIENCE, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err((status.code(), status.message().to_owned())),
        Err(_elapsed) => Err((Code::DeadlineExceeded, "no answer in time".to_owned())),
    }
}

async fn infer(hop: &Grpc, request: ModelInferRequest) -> Reply<ModelInferResponse> {
    sent(hop.client.clone().model_infer(request)).await
}

/// C133: all outputs raw, or all in typed fields.
fn one_form(response: &ModelInferResponse) -> Outcome {
    let (raw, outputs) = (response.raw_output_contents.len(), &response.outputs);
    let typed = outputs.iter().filter(|output| output.contents.is_some()).count();
    let one = (raw == outputs.len() && typed == 0) || (raw == 0 && typed == outputs.len());
    ensure!(one, "{raw} raw and {typed} typed of {} outputs", outputs.len());
    Ok(())
}

const SCRIPTS: [(&str, &str, Script); 10] = [
    ("C125", "live, ready and metadata are REST's", |hop| as_rest(hop).boxed_local()),
    ("C134", "unknown models and versions", |hop| unknown(hop).boxed_local()),
    ("C136", "20 MiB there and back", |hop| large(hop).boxed_local()),
    ("C136", "over the limit", |hop| too_large(hop).boxed_local()),
    ("C137", "good, bad, good in one stream", |hop| mixed_stream(hop).boxed_local()),
    ("C138", "triton_grpc_error ends the stream", |hop| ended_stream(hop).boxed_local()),
    ("C139", "triton_final_response", |hop| final_response(hop).boxed_local()),
    ("C140", "grpc.health.v1", |hop| health(hop).boxed_local()),
    ("C141", "an RPC that is not there", |hop| unimplemented(hop).boxed_local()),
    ("C126", "an HTTP/1.1 request on the same port", |hop| rest_beside(hop).boxed_local()),
];

fn told<T>(reply: Reply<T>) -> Result<T, String> {
    reply.map_err(|(code, message)| format!("{code:?}: {message}"))
}

async fn as_rest(hop: Grpc) -> Outcome {
    let mut client = hop.client.clone();
    let get = async |path: &str| hop.side.call(&Call::get(path)).await?.json();
    ensure!(told(sent(client.server_live(ServerLiveRequest {})).await)?.live, "not live");
    ensure!(told(sent(client.server_ready(ServerReadyRequest {})).await)?.ready, "not ready");
    for version in ["", "1", "v10"] {
        let (name, version) = ("versioned".to_owned(), version.to_owned());
        let ready = ModelReadyRequest { name, version };
        ensure!(told(sent(client.model_ready(ready)).await)?.ready, "the model is not ready");
    }
    let server = told(sent(client.server_metadata(ServerMetadataRequest {})).await)?;
    let got =
        json!({"name": server.name, "version": server.version, "extensions": server.extensions});
    let rest = get("/v2").await?;
    ensure!(got == rest, "{got}, REST says {rest}");
    for name in ["simple", "id_scalar", "versioned", "mödel a"] {
        let asked = ModelMetadataRequest { name: name.to_owned(), version: String::new() };
        let model = told(sent(client.model_metadata(asked)).await)?;
        let tensors = |list: &[TensorMetadata]| {
            let tensor = |t: &TensorMetadata| json!({"name": t.name, "datatype": t.datatype, "shape": t.shape});
            list.iter().map(tensor).collect::<Value>()
        };
        let got = json!({
            "name": model.name, "versions": model.versions, "platform": model.platform,
            "inputs": tensors(&model.inputs), "outputs": tensors(&model.outputs),
        });
        let path = format!("/v2/models/{}", name.replace('ö', "%C3%B6").replace(' ', "%20"));
        let rest = get(&path).await?;
        ensure!(got == rest, "{got}, REST says {rest}");
    }
    Ok(())
}

async fn unknown(hop: Grpc) -> Outcome {
    let mut client = hop.client.clone();
    for (name, version) in [("nope", ""), ("simple", "999"), ("Simple", ""), ("simple", "abc")] {
        let (name, version) = (name.to_owned(), version.to_owned());
        let ready = ModelReadyRequest { name: name.clone(), version: version.clone() };
        let ready = sent(client.model_ready(ready)).await.map(drop);
        let metadata = ModelMetadataRequest { name: name.clone(), version: version.clone() };
        let metadata = sent(client.model_metadata(metadata)).await.map(drop);
        let mut request = request("", vec![]);
        (request.model_name, request.model_version) = (name.clone(), version.clone());
        let infer = infer(&hop, request).await.map(drop);
        for (verb, reply) in [("ready", ready), ("metadata", metadata), ("infer", infer)] {
            let code = reply.as_ref().err().map(|(code, _)| *code);
            ensure!(code == Some(Code::NotFound), "{verb} of {name} '{version}': {reply:?}");
        }
    }
    Ok(())
}

/// An inference of so many bytes.
fn bytes_of(count: usize) -> ModelInferRequest {
    let blob: Vec<u8> = (0..count).map(|at| at as u8).collect();
    let mut request = request("id_uint8", vec![input("x", "UINT8", &[count as i64], None)]);
    request.raw_input_contents = vec![blob.into()];
    request
}

async fn large(hop: Grpc) -> Outcome {
    let request = bytes_of(20 << 20);
    let response = told(infer(&hop, request.clone()).await)?;
    ensure!(blobs(&response)? == request.raw_input_contents, "not the same bytes");
    Ok(())
}

async fn too_large(hop: Grpc) -> Outcome {
    let reply = infer(&hop, bytes_of(LIMIT + 1)).await.map(drop);
    let code = reply.as_ref().err().map(|(code, _)| *code);
    let refused = matches!(code, Some(Code::ResourceExhausted | Code::OutOfRange));
    ensure!(refused, "expected RESOURCE_EXHAUSTED, got {reply:?}");
    let mut client = hop.client.clone();
    let live = told(sent(client.server_live(ServerLiveRequest {})).await)?.live;
    ensure!(live, "not live afterwards");
    Ok(())
}

/// One number through the identity, with an id.
fn good(id: &str) -> ModelInferRequest {
    let contents = InferTensorContents { fp32_contents: vec![1.5], ..Default::default() };
    let tensor = input("x", "FP32", &[1], Some(contents));
    ModelInferRequest { id: id.to_owned(), ..request("id_fp32", vec![tensor]) }
}

fn bad(id: &str) -> ModelInferRequest {
    let mut request = good(id);
    request.inputs[0].shape = vec![7];
    request
}

async fn stream_of(
    hop: &Grpc,
    requests: Vec<ModelInferRequest>,
    fails: bool,
) -> Result<Streaming<ModelStreamInferResponse>, String> {
    let mut request = Request::new(stream::iter(requests));
    if fails {
        request.metadata_mut().insert("triton_grpc_error", "true".parse().expect("ASCII"));
    }
    told(sent(hop.client.clone().model_stream_infer(request)).await)
}

async fn mixed(hop: &Grpc) -> Result<Vec<ModelStreamInferResponse>, String> {
    let requests = vec![good("first"), bad("second"), good("third")];
    let answers = stream_of(hop, requests, false).await?;
    answers.try_collect().await.map_err(|status| format!("the stream ends with {status}"))
}

async fn mixed_stream(hop: Grpc) -> Outcome {
    let answers = mixed(&hop).await?;
    ensure!(answers.len() == 3, "{} answers", answers.len());
    for (answer, (id, fails)) in
        answers.iter().zip([("first", false), ("second", true), ("third", false)])
    {
        ensure!(answer.error_message.is_empty() != fails, "{id}: '{}'", answer.error_message);
        let got = answer.infer_response.as_ref().map(|response| response.id.as_str());
        ensure!(got == Some(id), "{id}: the id is {got:?}");
    }
    Ok(())
}

async fn ended_stream(hop: Grpc) -> Outcome {
    let requests = vec![good("first"), bad("second"), good("third")];
    let mut answers = stream_of(&hop, requests, true).await?;
    let first = answers.next().await.and_then(Result::ok);
    ensure!(first.is_some_and(|first| first.error_message.is_empty()), "the first fails");
    let second = answers.next().await;
    let code = match &second {
        Some(Err(status)) => Some(status.code()),
        _ => None,
    };
    ensure!(code == Some(Code::InvalidArgument), "then {second:?}");
    ensure!(!matches!(answers.next().await, Some(Ok(_))), "the stream goes on");
    Ok(())
}

async fn final_response(hop: Grpc) -> Outcome {
    for answer in mixed(&hop).await?.iter().filter(|answer| answer.error_message.is_empty()) {
        let response = answer.infer_response.as_ref().ok_or("no response")?;
        let flag = response.parameters.get("triton_final_response");
        let flag = flag.and_then(|flag| flag.parameter_choice.clone());
        ensure!(flag == Some(ParameterChoice::BoolParam(true)), "the flag is {flag:?}");
    }
    Ok(())
}

async fn health(hop: Grpc) -> Outcome {
    let mut client = HealthClient::new(hop.channel);
    let asked = HealthCheckRequest { service: String::new() };
    let status = told(sent(client.check(asked)).await)?.status;
    ensure!(status == ServingStatus::Serving as i32, "the status is {status}");
    let asked = HealthCheckRequest { service: "nope".to_owned() };
    let reply = sent(client.check(asked)).await.map(drop);
    let code = reply.as_ref().err().map(|(code, _)| *code);
    ensure!(code == Some(Code::NotFound), "an unknown service: {reply:?}");
    Ok(())
}

async fn unimplemented(hop: Grpc) -> Outcome {
    for path in [
        "/inference.GRPCInferenceService/TraceSetting",
        "/inference.GRPCInferenceService/LogSettings",
        "/inference.GRPCInferenceService/Nope",
        "/inference.Nope/Nope",
    ] {
        let mut client = tonic::client::Grpc::new(hop.channel.clone());
        client.ready().await.map_err(|error| error.to_string())?;
        let codec = tonic_prost::ProstCodec::<ServerLiveRequest, ServerLiveResponse>::default();
        let path = http::uri::PathAndQuery::from_static(path);
        let call = client.unary(Request::new(ServerLiveRequest {}), path.clone(), codec);
        let reply = sent(call).await.map(drop);
        let code = reply.as_ref().err().map(|(code, _)| *code);
        ensure!(code == Some(Code::Unimplemented), "{path}: {reply:?}");
    }
    Ok(())
}

async fn rest_beside(hop: Grpc) -> Outcome {
    told(infer(&hop, good("grpc")).await)?;
    hop.side.alive().await?;
    let h2 = hop.side.call_h2(&Call::get("/v2/health/live")).await?;
    ensure!(h2.status == 200, "REST over HTTP/2: {}", h2.brief());
    told(infer(&hop, good("again")).await).map(drop)
}
