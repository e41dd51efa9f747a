//! What a node says of itself, and errors in the protocol's form on every path.

use http::{Method, header};
use midspan_net::body::{empty, full};
use midspan_protocol::{LoadReport, headers, metadata::NodeInfo, timing};

use crate::{
    fixture::{Setup, eventually, request},
    stub::Stub,
};

#[tokio::test]
async fn metadata_health_index_and_itself() {
    let cloud = Stub::start();
    let node = Setup { clouds: vec![(cloud.addr, "far")], ..Setup::default() }.start().await;
    let server = node.get("/v2").await.json();
    assert_eq!(server["name"], "midspan");
    let extensions = server["extensions"].as_array().unwrap();
    assert!(extensions.contains(&"binary_tensor_data".into()), "{server}");
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
        (Method::GET, "/v2/models/fashion/config", 404, "not offered here"),
        (Method::GET, "/v2/models/fashion/stats", 404, "not offered here"),
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
