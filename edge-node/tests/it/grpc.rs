//! The protocol over gRPC as clients see it: the same answers as over REST, and a status for
//! everything that has none.

use bytes::{BufMut, Bytes, BytesMut};
use http::{Method, Request as HttpRequest, header};
use midspan_net::{Body, body::full, transport::HttpVersion};
use midspan_protocol::{
    Context, InferRequest, InferResponse, LoadReport, ModelName, RequestedOutput,
    grpc::inference::{
        CudaSharedMemoryStatusRequest, InferTensorContents, ModelConfigRequest, ModelInferRequest,
        ModelInferResponse, ModelMetadataRequest, ModelReadyRequest, ModelStatisticsRequest,
        RepositoryIndexRequest, RepositoryModelLoadRequest, RepositoryModelUnloadRequest,
        ServerLiveRequest, ServerMetadataRequest, ServerReadyRequest,
        SystemSharedMemoryStatusRequest, grpc_inference_service_client::GrpcInferenceServiceClient,
    },
    headers, timing,
};
use prost::Message;
use tonic::{Code, Request, Status, metadata::MetadataMap, transport::Channel};

use crate::fixture::{
    Answer, Node, PATIENCE, Setup, assert_near, exchange, pool, request, tensor, with,
};

pub(crate) type Client = GrpcInferenceServiceClient<Channel>;

pub(crate) async fn channel(node: &Node) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{}", node.addr)).unwrap();
    endpoint.connect().await.unwrap()
}

pub(crate) async fn client(node: &Node) -> Client {
    GrpcInferenceServiceClient::new(channel(node).await).max_decoding_message_size(64 << 20)
}

/// Pictures as a message with this id, raw.
pub(crate) fn message(id: &str, indices: &[usize]) -> ModelInferRequest {
    let request = InferRequest {
        id: Some(id.into()),
        inputs: vec![tensor(indices)],
        ..InferRequest::default()
    };
    ModelInferRequest::new(&ModelName { name: "fashion".into(), version: None }, request)
}

/// A request with metadata; answered at the exit unless that says otherwise.
pub(crate) fn asked<T>(message: T, metadata: &[(&'static str, &str)]) -> Request<T> {
    let mut request = Request::new(message);
    for (name, value) in [("midspan-exit", "force")].iter().chain(metadata) {
        request.metadata_mut().insert(*name, value.parse().unwrap());
    }
    request
}

async fn infer(
    client: &mut Client,
    message: ModelInferRequest,
    metadata: &[(&'static str, &str)],
) -> Result<(MetadataMap, ModelInferResponse), Status> {
    let call = client.model_infer(asked(message, metadata));
    let answer = tokio::time::timeout(PATIENCE, call).await.expect("an answer in time")?;
    let (metadata, message, _) = answer.into_parts();
    Ok((metadata, message))
}

pub(crate) fn logits(response: ModelInferResponse) -> Vec<f32> {
    let response: InferResponse = response.into_response().unwrap();
    response.output("logits").unwrap().to_f32().unwrap()
}

/// A call as bytes, for what a client library cannot say.
pub(crate) fn call(method: &str, message: &impl Message) -> HttpRequest<Body> {
    let mut body = BytesMut::new();
    body.put_u8(0);
    body.put_u32(message.encoded_len() as u32);
    message.encode(&mut body).unwrap();
    let path = format!("/inference.GRPCInferenceService/{method}");
    let call = with(request(Method::POST, &path, full(body.freeze())), "te", "trailers");
    with(with(call, "content-type", "application/grpc"), "midspan-exit", "force")
}

pub(crate) async fn send(node: &Node, call: HttpRequest<Body>) -> Answer {
    exchange(&pool(node.addr, HttpVersion::H2), call).await
}

/// The code of an answer without a message.
#[track_caller]
pub(crate) fn code(answer: &Answer) -> Code {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header(header::CONTENT_TYPE), "application/grpc", "{answer:?}");
    Status::from_header_map(&answer.headers).expect("a status").code()
}

#[tokio::test]
async fn the_node_says_of_itself_what_it_says_over_rest() {
    let node = Setup::default().start().await;
    let mut client = client(&node).await;
    assert!(client.server_live(ServerLiveRequest {}).await.unwrap().into_inner().live);
    assert!(client.server_ready(ServerReadyRequest {}).await.unwrap().into_inner().ready);
    let server = client.server_metadata(ServerMetadataRequest {}).await.unwrap().into_inner();
    let rest = node.get("/v2").await.json();
    assert_eq!((&rest["name"], &rest["version"]), (&server.name.into(), &server.version.into()));
    assert_eq!(rest["extensions"], serde_json::json!(server.extensions));
    for version in ["", "1"] {
        let name = String::from("fashion");
        let ready = ModelReadyRequest { name: name.clone(), version: version.into() };
        assert!(client.model_ready(ready).await.unwrap().into_inner().ready);
        let model = ModelMetadataRequest { name, version: version.into() };
        let model = client.model_metadata(model).await.unwrap().into_inner();
        assert_eq!((&*model.name, &*model.platform), ("fashion", "onnx_onnxv1"));
        assert_eq!(model.versions, ["1"]);
        assert_eq!((&*model.inputs[0].name, &*model.inputs[0].datatype), ("image", "FP32"));
        assert_eq!(model.inputs[0].shape, [-1, 1, 28, 28]);
        assert_eq!(model.outputs[0].shape, [-1, 10]);
    }
    for ready in [false, true] {
        let index = RepositoryIndexRequest { ready, ..Default::default() };
        let index = client.repository_index(index).await.unwrap().into_inner();
        assert_eq!(index.models.len(), 1);
        assert_eq!((&*index.models[0].name, &*index.models[0].state), ("fashion", "READY"));
    }
    let system = SystemSharedMemoryStatusRequest::default();
    let system = client.system_shared_memory_status(system).await.unwrap();
    assert!(system.into_inner().regions.is_empty());
    let cuda = CudaSharedMemoryStatusRequest::default();
    let cuda = client.cuda_shared_memory_status(cuda).await.unwrap();
    assert!(cuda.into_inner().regions.is_empty());
}

#[tokio::test]
async fn raw_typed_and_rest_give_the_same() {
    let node = Setup::default().start().await;
    let mut client = client(&node).await;
    let rest = node.infer(&[3, 4], "force").await.logits();
    let raw = message("42", &[3, 4]);
    let mut typed = raw.clone();
    typed.raw_input_contents.clear();
    let fp32_contents = tensor(&[3, 4]).to_f32().unwrap();
    typed.inputs[0].contents = Some(InferTensorContents { fp32_contents, ..Default::default() });
    let mut versioned = raw.clone();
    versioned.model_version = "1".into();
    let mut named = raw.clone();
    let output = RequestedOutput { name: "logits".into(), ..Default::default() };
    let request = InferRequest { outputs: vec![output], ..raw.clone().into_request().unwrap() };
    named.outputs = ModelInferRequest::new(&raw.model(), request).outputs;
    for request in [raw, typed, versioned, named] {
        let (_, answer) = infer(&mut client, request, &[]).await.unwrap();
        assert_eq!(
            (&*answer.id, &*answer.model_name, &*answer.model_version),
            ("42", "fashion", "1")
        );
        assert_eq!(answer.outputs.len(), 1);
        assert_eq!(answer.outputs[0].shape, [2, 10]);
        assert_eq!(answer.raw_output_contents.len(), answer.outputs.len());
        assert!(answer.outputs.iter().all(|output| output.contents.is_none()), "never both");
        assert_eq!(logits(answer), rest);
    }
    let (_, answer) = infer(&mut client, message("", &[3]), &[]).await.unwrap();
    assert_eq!(answer.id, "");
    // Encoded pictures: BYTES, raw and typed.
    let pngs = crate::infer::pngs(&[3, 4]);
    let request = InferRequest { inputs: vec![pngs.clone()], ..InferRequest::default() };
    let raw = ModelInferRequest::new(&message("", &[]).model(), request);
    let mut typed = raw.clone();
    typed.raw_input_contents.clear();
    let bytes_contents = pngs.to_byte_strings().unwrap();
    typed.inputs[0].contents = Some(InferTensorContents { bytes_contents, ..Default::default() });
    for request in [raw, typed] {
        let (_, answer) = infer(&mut client, request, &[]).await.unwrap();
        assert_near(&logits(answer), &rest, 1e-5, "picture and tensor");
    }
}

#[tokio::test]
async fn an_answer_says_where_it_was_made_and_so_does_a_failure() {
    let node = Setup::default().start().await;
    let mut client = client(&node).await;
    let from = [("midspan-router", "r1")];
    let (metadata, _) = infer(&mut client, message("", &[0]), &from).await.unwrap();
    let value = |name: &str| metadata.get(name).map_or("", |value| value.to_str().unwrap());
    assert_eq!((value("midspan-node"), value("midspan-region")), ("e1", "home"));
    assert_eq!((value("midspan-answered-by"), value("midspan-certified")), ("exit:1", "false"));
    let report = LoadReport::decode(value("midspan-load")).unwrap();
    assert_eq!((report.rif, report.share), (0, 0));
    assert!(value("endpoint-load-metrics").starts_with("TEXT "));
    for part in ["queue", "run", "total"] {
        assert!(timing::find(value("server-timing"), part).is_some(), "{metadata:?}");
    }
    let mut ghost = message("", &[0]);
    ghost.model_name = "ghost".into();
    let status = infer(&mut client, ghost, &from).await.unwrap_err();
    assert_eq!(status.metadata().get("midspan-node").unwrap(), "e1");
    let load = status.metadata().get(headers::LOAD.as_str()).unwrap().to_str().unwrap();
    assert!(LoadReport::decode(load).is_some());
}

#[tokio::test]
async fn messages_that_say_nothing_sensible() {
    let node = Setup::default().start().await;
    let mut client = client(&node).await;
    let good = message("", &[0]);
    let contents = |contents| {
        let mut request = good.clone();
        request.raw_input_contents.clear();
        request.inputs[0].contents = contents;
        request
    };
    let changed = |change: &dyn Fn(&mut ModelInferRequest)| {
        let mut request = good.clone();
        change(&mut request);
        request
    };
    let floats = InferTensorContents { fp32_contents: vec![0.0; 784], ..Default::default() };
    let wide = InferTensorContents { fp64_contents: vec![0.0; 784], ..Default::default() };
    let few = InferTensorContents { fp32_contents: vec![0.0; 783], ..Default::default() };
    for (request, words) in [
        (changed(&|r| r.inputs[0].contents = Some(floats.clone())), "has both contents"),
        (changed(&|r| r.raw_input_contents.push(Bytes::new())), "2 entries for 1 inputs"),
        (changed(&|r| r.inputs.push(r.inputs[0].clone())), "sent twice"),
        (changed(&|r| r.inputs[0].shape = vec![2, 1, 28, 28]), "expected 6272 bytes"),
        (contents(Some(few)), "expected 784 elements for its shape, got 783"),
        (contents(Some(wide)), "FP32 elements belong in fp32_contents"),
        (contents(None), "expected 784 elements for its shape, got 0"),
        (changed(&|r| r.inputs[0].shape = vec![-1, 1, 28, 28]), "a dimension is -1"),
        (changed(&|r| r.inputs[0].shape = vec![784]), "expected shape"),
        (changed(&|r| r.inputs[0].datatype = "FLOAT".into()), "unknown datatype 'FLOAT'"),
        (changed(&|r| r.inputs[0].datatype = "INT32".into()), "expected FP32, got INT32"),
        (changed(&|r| r.inputs[0].name = "picture".into()), "no input 'picture'"),
        (changed(&|r| *r = ModelInferRequest { inputs: vec![], ..r.clone() }), "0 inputs"),
        (
            changed(&|r| {
                r.inputs.clear();
                r.raw_input_contents.clear();
            }),
            "'image' is missing",
        ),
        (changed(&|r| r.outputs = vec![Default::default()]), "no output ''"),
        (changed(&|r| r.outputs = vec![Default::default(); 2]), "requested twice"),
    ] {
        let status = infer(&mut client, request, &[]).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains(words), "{status:?}");
        node.assert_well(words).await;
    }
    // What is no message at all is the transport's matter, and no more than one call's.
    for body in [&b""[..], b"\0\0\0\0\x05hello", b"\0\0\0\0\x09hi", b"\x07\0\0\0\0"] {
        let mut call = call("ModelInfer", &good);
        *call.body_mut() = full(Bytes::from_static(body));
        assert_eq!(code(&send(&node, call).await), Code::Internal, "{body:?}");
        node.assert_well("no message").await;
    }
}

#[tokio::test]
async fn what_is_not_here_is_not_found() {
    let node = Setup::default().start().await;
    let mut client = client(&node).await;
    for (name, version) in [("ghost", ""), ("fashion", "9"), ("Fashion", ""), ("", "")] {
        let (name, version) = (String::from(name), String::from(version));
        let ready = ModelReadyRequest { name: name.clone(), version: version.clone() };
        let ready = client.model_ready(ready).await.unwrap_err();
        let model = ModelMetadataRequest { name: name.clone(), version: version.clone() };
        let model = client.model_metadata(model).await.unwrap_err();
        let config = ModelConfigRequest { name: name.clone(), version: version.clone() };
        let config = client.model_config(config).await.unwrap_err();
        let mut request = message("", &[0]);
        (request.model_name, request.model_version) = (name, version);
        let infer = infer(&mut client, request, &[]).await.unwrap_err();
        for status in [ready, model, config, infer] {
            assert_eq!(status.code(), Code::NotFound, "{status:?}");
            assert!(status.message().starts_with("Request for unknown model"), "{status:?}");
        }
    }
    let long = ModelReadyRequest { name: "é".repeat(100_000), ..Default::default() };
    let status = client.model_ready(long).await.unwrap_err();
    assert!(status.code() == Code::NotFound && status.message().len() < 4_000);
    let ghost = ModelStatisticsRequest { name: "ghost".into(), ..Default::default() };
    assert_eq!(client.model_statistics(ghost).await.unwrap_err().code(), Code::NotFound);
    // Off by default, for whichever name.
    let load = RepositoryModelLoadRequest { model_name: "ghost".into(), ..Default::default() };
    let load = client.repository_model_load(load).await.unwrap_err();
    let unload = RepositoryModelUnloadRequest { model_name: "ghost".into(), ..Default::default() };
    for status in [load, client.repository_model_unload(unload).await.unwrap_err()] {
        assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
        assert!(status.message().contains("model_control"), "{status:?}");
    }
}

#[tokio::test]
async fn methods_and_forms_that_are_not_served() {
    let node = Setup::default().start().await;
    let paths = ["TraceSetting", "LogSettings", "SystemSharedMemoryRegister", "Nope", ""];
    for method in paths {
        let answer = send(&node, call(method, &ServerLiveRequest {})).await;
        assert_eq!(code(&answer), Code::Unimplemented, "{method}");
        let text = Status::from_header_map(&answer.headers).unwrap();
        assert!(text.message().ends_with(&format!("GRPCInferenceService/{method}")), "{text:?}");
    }
    let mut elsewhere = call("", &ServerLiveRequest {});
    *elsewhere.uri_mut() =
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo".parse().unwrap();
    assert_eq!(code(&send(&node, elsewhere).await), Code::Unimplemented);
    let text = node.send(call("ServerLive", &ServerLiveRequest {})).await.error(415);
    assert!(text.contains("HTTP/2"), "{text}");
    for media_type in ["application/json", "application/grpc-web", "application/grpc+json"] {
        let mut call = call("ServerLive", &ServerLiveRequest {});
        call.headers_mut().insert(header::CONTENT_TYPE, media_type.parse().unwrap());
        assert!(send(&node, call).await.error(415).contains("application/grpc"));
    }
    let mut get = call("ServerLive", &ServerLiveRequest {});
    *get.method_mut() = Method::GET;
    let answer = send(&node, get).await;
    answer.error(405);
    assert_eq!(answer.header(header::ALLOW), "POST");
}

#[tokio::test]
async fn a_context_is_obeyed_or_refused() {
    let node = Setup::default().start().await;
    let mut client = client(&node).await;
    let context = |model: &str, regions: &[&str]| {
        let regions = regions.iter().map(|region| (*region).to_owned()).collect();
        Context { model: model.into(), regions, ..Context::default() }.encode()
    };
    for (context, expected, words) in [
        (context("fashion", &["home"]), Code::Ok, ""),
        (context("other", &[]), Code::InvalidArgument, "routed as model 'other' but asks for"),
        (context("fashion", &["far"]), Code::PermissionDenied, "region 'home'"),
        ("***".into(), Code::InvalidArgument, "midspan-context"),
    ] {
        let metadata = [("midspan-context", &*context)];
        let answer = infer(&mut client, message("", &[0]), &metadata).await;
        let status = answer.err().unwrap_or_else(|| Status::ok(""));
        assert_eq!(status.code(), expected, "{status:?}");
        assert!(status.message().contains(words), "{status:?}");
    }
    // A model named twice is the one that is decoded, and that must be the routed one.
    let mut twice = message("", &[0]).encode_to_vec();
    let other = ModelInferRequest { model_name: "ghost".into(), ..Default::default() };
    twice.splice(0..0, other.encode_to_vec());
    let routed = |model: &str, message: &[u8]| {
        let mut call = call("ModelInfer", &ServerLiveRequest {});
        let body = [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat();
        *call.body_mut() = full(body);
        with(call, "midspan-context", &context(model, &[]))
    };
    assert_eq!(code(&send(&node, routed("ghost", &twice)).await), Code::InvalidArgument);
    let answer = send(&node, routed("fashion", &twice)).await;
    assert!(answer.header("grpc-status").is_empty() && !answer.body.is_empty(), "{answer:?}");
    let exit = [("midspan-exit", "sometimes")];
    let status = infer(&mut client, message("", &[0]), &exit).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
}
