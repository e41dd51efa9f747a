//! What a node says of itself, and errors in the protocol's form on every path.

use http::{Method, header};
use midspan_net::{
    body::{empty, full},
    transport::HttpVersion,
};
use midspan_protocol::{LoadReport, headers, metadata::NodeInfo, timing};

use crate::{
    fixture::{Setup, eventually, exchange, pool, request},
    onnx,
    stub::Stub,
};

#[tokio::test]
async fn metadata_health_index_and_itself() {
    let cloud = Stub::start();
    let node = Setup { clouds: vec![(cloud.addr, "far")], ..Setup::default() }.start().await;
    let server = node.get("/v2").await.json();
    assert_eq!(server["name"], "midspan");
    let extensions = serde_json::json!([
        "binary_tensor_data",
        "classification",
        "model_configuration",
        "model_repository",
        "model_repository(unload_dependents)",
        "parameters",
        "schedule_policy",
        "statistics"
    ]);
    assert_eq!(server["extensions"], extensions, "each has tests here");
    assert_eq!(node.get("/v2/health/live").await.json()["live"], true);
    let ready = node.get("/v2/health/ready").await;
    assert_eq!((ready.status.as_u16(), &ready.json()["ready"]), (200, &true.into()));
    for path in ["/v2/models/fashion", "/v2/models/fashion/versions/1"] {
        let model = node.get(path).await.json();
        assert_eq!(model["name"], "fashion");
        assert_eq!(model["versions"], serde_json::json!(["1"]));
        let image = serde_json::json!(
            [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 28, 28]}]);
        let logits = serde_json::json!([{"name": "logits", "datatype": "FP32", "shape": [-1, 10]}]);
        assert_eq!((&model["inputs"], &model["outputs"]), (&image, &logits));
        assert_eq!(node.get(&format!("{path}/ready")).await.json()["ready"], true);
    }
    let index = node.send(request(Method::POST, "/v2/repository/index", full("{}"))).await.json();
    assert_eq!((&index[0]["name"], &index[0]["state"]), (&"fashion".into(), &"READY".into()));
    eventually("the cloud was probed", async || {
        let info = node.get("/v2/midspan/node").await;
        let info: NodeInfo = serde_json::from_slice(&info.body).unwrap();
        assert_eq!((info.name.as_str(), info.role.as_str()), ("e1", "edge"));
        assert_eq!((info.region.as_str(), info.workers), ("home", 1));
        assert_eq!(info.models[0].name, "fashion");
        let [cloud] = info.clouds.as_slice() else { panic!("{info:?}") };
        cloud.region == "far" && cloud.health == "healthy" && cloud.rtt_us > 0
    })
    .await;
}

#[tokio::test]
async fn refusals_are_json_on_every_path() {
    let node = Setup::default().start().await;
    for (method, path, status, words) in [
        (Method::GET, "/", 404, "no such path: /"),
        (Method::GET, "/v2/nope", 404, "no such path"),
        (Method::GET, "/metrics", 404, "no such path"),
        (Method::GET, "/v2/models/ghost", 404, "Request for unknown model: 'ghost'"),
        (Method::POST, "/v2/models/ghost/infer", 404, "Request for unknown model: 'ghost'"),
        (Method::POST, "/v2/models/fashion/versions/9/infer", 404, "unknown model: 'fashion"),
        (Method::POST, "/v2/midspan/models/ghost/versions/1/offload", 404, "unknown model"),
        (Method::GET, "/v2/models/ghost/config", 404, "Request for unknown model: 'ghost'"),
        (Method::GET, "/v2/models/ghost/stats", 404, "Request for unknown model: 'ghost'"),
        (Method::GET, "/v2/models/fashion/versions/9/config", 404, "unknown model: 'fashion"),
        (Method::POST, "/v2/systemsharedmemory/region/r/register", 404, "no such path"),
        (Method::POST, "/v2/repository/models/fashion/load", 403, "model_control = true"),
        (Method::GET, "/v2/models/fashion/infer", 405, "takes POST"),
        (Method::PUT, "/v2/models/fashion", 405, "takes GET, HEAD"),
        (Method::GET, "/v2/repository/index", 405, "takes POST"),
        (Method::POST, "/v2/models/a%2Fb/infer", 400, "is no model name"),
    ] {
        let body = if method == Method::GET { empty() } else { full("{}") };
        let answer = node.send(request(method.clone(), path, body)).await;
        let text = answer.error(status);
        assert!(text.contains(words), "{method} {path}: {text}");
        assert_eq!(status == 405, !answer.header(header::ALLOW).is_empty(), "{method} {path}");
        assert_eq!(answer.header(headers::NODE), "e1", "errors carry the node too");
        assert!(LoadReport::decode(answer.header(headers::LOAD)).is_some(), "{answer:?}");
        assert!(timing::find(answer.header(headers::SERVER_TIMING), "total").is_some());
    }
}

#[tokio::test]
async fn lists_and_configurations() {
    let folder = tempfile::tempdir().unwrap();
    let models = [
        onnx::write(folder.path(), "vector", &onnx::unary("Identity", onnx::FP32, &[-1])),
        onnx::write(folder.path(), "pair", &onnx::unary("Identity", onnx::STRING, &[-1, 2])),
    ];
    let model = format!("bundle = \"embedded\"\n{}", models.concat());
    let node = Setup { model: &model, ..Setup::default() }.start().await;
    let names = serde_json::json!({ "models": ["fashion", "pair", "vector"] });
    assert_eq!(node.get("/v2/models").await.json(), names);
    for kind in ["system", "cuda"] {
        let regions = node.get(&format!("/v2/{kind}sharedmemory/status")).await;
        assert_eq!((regions.status.as_u16(), &regions.body[..]), (200, &b"[]"[..]));
    }
    let told = |name: &str, kind: &str, dims: &[i64]| serde_json::json!([{ "name": name, "data_type": kind, "dims": dims }]);
    for (name, batch, input, output) in [
        (
            "fashion",
            1024,
            told("image", "TYPE_FP32", &[1, 28, 28]),
            told("logits", "TYPE_FP32", &[10]),
        ),
        ("vector", 0, told("x", "TYPE_FP32", &[-1]), told("y", "TYPE_FP32", &[-1])),
        ("pair", 1024, told("x", "TYPE_STRING", &[2]), told("y", "TYPE_STRING", &[2])),
    ] {
        for path in ["config", "versions/1/config"] {
            let config = node.get(&format!("/v2/models/{name}/{path}")).await.json();
            assert_eq!((&config["name"], &config["max_batch_size"]), (&name.into(), &batch.into()));
            assert_eq!((&config["backend"], &config["input"]), (&"onnxruntime".into(), &input));
            assert_eq!(config["output"], output, "{name}");
        }
    }
    let small = Setup { limits: "body = \"32KiB\"", ..Setup::default() }.start().await;
    let config = small.get("/v2/models/fashion/config").await.json();
    assert_eq!(config["max_batch_size"], 10, "as many rows as the body may hold");
}

#[tokio::test]
async fn head_is_get_without_its_body() {
    let node = Setup::default().start().await;
    for version in [HttpVersion::H1, HttpVersion::H2] {
        let app = pool(node.addr, version);
        for path in ["/v2", "/v2/health/ready", "/v2/models/fashion", "/v2/models/ghost", "/nope"] {
            let head = exchange(&app, request(Method::HEAD, path, empty())).await;
            let get = exchange(&app, request(Method::GET, path, empty())).await;
            assert_eq!((head.status, head.body.len()), (get.status, 0), "{path}");
            let length = get.body.len().to_string();
            assert_eq!(head.header(header::CONTENT_LENGTH), length, "{version:?} {path}");
            assert_eq!(head.header(header::CONTENT_TYPE), "application/json", "{path}");
        }
        let wrong =
            exchange(&app, request(Method::HEAD, "/v2/models/fashion/infer", empty())).await;
        assert_eq!((wrong.status.as_u16(), wrong.header(header::ALLOW)), (405, "POST"));
    }
}
