//! Inference at an edge alone: forms of the same request, headers of the answer, pictures, and a
//! model without a bundle.

use std::io::Cursor;

use bytes::{BufMut, Bytes, BytesMut};
use http::{Method, header};
use midspan_net::{body::full, transport::HttpVersion};
use midspan_protocol::{
    Datatype, InferRequest, LoadReport, RequestedOutput, Tensor, headers, timing,
};

use crate::fixture::{
    Setup, assert_near, classes, encoded, exchange, infer, pictures, pool, request, tensor, with,
};

#[tokio::test]
async fn json_and_binary_give_the_same() {
    let node = Setup::default().start().await;
    let mut message =
        InferRequest { id: Some("42".into()), inputs: vec![tensor(&[3])], ..Default::default() };
    let json = node.send(with(encoded(&message, false), "midspan-exit", "force")).await;
    assert_eq!(json.header(header::CONTENT_TYPE), "application/json");
    assert_eq!(json.json()["outputs"][0]["shape"], serde_json::json!([1, 10]));
    let logits = json.logits();
    for version in [HttpVersion::H1, HttpVersion::H2] {
        let binary = with(infer(&[3]), "midspan-exit", "force");
        let binary = exchange(&pool(node.addr, version), binary).await;
        assert_eq!(binary.header(header::CONTENT_TYPE), "application/octet-stream");
        assert_eq!(binary.logits(), logits, "{version:?}");
    }
    assert_eq!(json.response().id.as_deref(), Some("42"));
    assert_eq!(json.response().model_version.as_deref(), Some("1"));
    message.outputs = vec![RequestedOutput { name: "logits".into(), ..Default::default() }];
    let named = node.send(with(encoded(&message, true), "midspan-exit", "force")).await;
    assert_eq!(named.header(header::CONTENT_TYPE), "application/json", "in binary, out JSON");
    assert_eq!(named.logits(), logits);
}

#[tokio::test]
async fn an_answer_says_where_it_was_made_and_how_busy_the_node_is() {
    let node = Setup::default().start().await;
    let asked = with(infer(&[0]), "midspan-exit", "force");
    let answer = node.send(with(asked, "midspan-router", "r1")).await;
    assert_eq!(answer.header(headers::NODE), "e1");
    assert_eq!(answer.header(headers::REGION), "home");
    assert_eq!(answer.header(headers::ANSWERED_BY), "exit:1");
    assert_eq!(answer.header(headers::CERTIFIED), "false", "forced is never certified");
    assert_eq!(answer.header(headers::DEGRADED), "");
    let report = LoadReport::decode(answer.header(headers::LOAD)).unwrap();
    assert!(report.boot != 0 && report.service_us > 0, "{report:?}");
    assert_eq!((report.rif, report.share, report.workers), (0, 0, 1));
    assert!(answer.header(headers::ENDPOINT_LOAD_METRICS).starts_with("TEXT "));
    let spent = answer.header(headers::SERVER_TIMING);
    let part = |name| timing::find(spent, name).unwrap_or_else(|| panic!("{name}: {spent}"));
    assert!(part("run") > std::time::Duration::ZERO && part("total") >= part("run"), "{spent}");
    assert!(timing::find(spent, "queue").is_some(), "{spent}");
    assert!(timing::find(spent, "offload").is_none(), "a sure row goes nowhere: {spent}");
    let again = node.infer(&[0], "force").await;
    let again = LoadReport::decode(again.header(headers::LOAD)).unwrap();
    assert_eq!(again.boot, report.boot);
}

/// Grey pictures as PNG files in one BYTES tensor.
pub(crate) fn pngs(indices: &[usize]) -> Tensor {
    let mut data = BytesMut::new();
    for index in indices {
        let grey = pictures().pixels(*index).unwrap().to_vec();
        let picture = image::GrayImage::from_raw(28, 28, grey).unwrap();
        let mut file = Cursor::new(Vec::new());
        picture.write_to(&mut file, image::ImageFormat::Png).unwrap();
        data.put_u32_le(file.get_ref().len() as u32);
        data.put_slice(file.get_ref());
    }
    let shape = vec![indices.len() as u64];
    Tensor::new("image", Datatype::Bytes, shape, data.freeze()).unwrap()
}

#[tokio::test]
async fn a_picture_is_as_good_as_its_tensor() {
    let node = Setup::default().start().await;
    for indices in [&[5][..], &[6, 7, 8]] {
        let message = InferRequest { inputs: vec![pngs(indices)], ..Default::default() };
        let picture = node.send(with(encoded(&message, true), "midspan-exit", "force")).await;
        let tensor = node.infer(indices, "force").await;
        assert_near(&picture.logits(), &tensor.logits(), 1e-5, "picture and tensor");
    }
}

#[tokio::test]
async fn zero_rows_get_zero_rows() {
    let node = Setup::default().start().await;
    for exit in ["auto", "never", "force"] {
        let answer = node.infer(&[], exit).await;
        assert_eq!(answer.response().output("logits").unwrap().shape, [0, 10], "{exit}");
        node.assert_well("zero rows").await;
    }
}

#[tokio::test]
async fn a_plain_onnx_file_is_served_whole() {
    let node = Setup { model: "onnx = \"fashion.onnx\"", ..Setup::default() }.start().await;
    let model = node.get("/v2/models/fashion").await.json();
    let names: Vec<_> = model["outputs"].as_array().unwrap().iter().map(|o| &o["name"]).collect();
    assert_eq!(names, ["logits1", "logits2", "logits3"]);
    let few: Vec<usize> = (0..20).collect();
    let answer = node.infer(&few, "force").await;
    assert_eq!(answer.header(headers::ANSWERED_BY), "local", "no exits without a bundle");
    let response = answer.response();
    assert_eq!(response.outputs.len(), 3);
    let logits = response.output("logits3").unwrap().to_f32().unwrap();
    let classes = classes(&logits);
    let right = classes.iter().zip(&few);
    let right = right.filter(|(class, index)| pictures().label(**index) == Some(**class));
    assert!(right.count() >= 16, "the model works");
    // The bundle's exit is the same exit.
    let bundle = Setup::default().start().await;
    let exit = bundle.infer(&few, "force").await.logits();
    let whole = response.output("logits1").unwrap().to_f32().unwrap();
    assert_near(&exit, &whole, 1e-4, "exit 1 of bundle and file");
    let one = InferRequest {
        inputs: vec![tensor(&few)],
        outputs: vec![RequestedOutput { name: "logits2".into(), ..Default::default() }],
        ..Default::default()
    };
    let answer = node.send(encoded(&one, true)).await;
    assert_eq!(answer.response().outputs.len(), 1, "only what is asked for");
}

#[tokio::test]
async fn a_context_is_obeyed_or_refused() {
    let node = Setup::default().start().await;
    let context = |model: &str, regions: &[&str]| {
        let context = midspan_protocol::Context {
            model: model.into(),
            regions: regions.iter().map(|region| (*region).to_owned()).collect(),
            ..Default::default()
        };
        with(with(infer(&[0]), "midspan-exit", "force"), "midspan-context", &context.encode())
    };
    assert_eq!(node.send(context("fashion", &[])).await.status, 200);
    assert_eq!(node.send(context("fashion", &["far", "home"])).await.status, 200);
    let text = node.send(context("other", &[])).await.error(400);
    assert!(text.contains("routed as model 'other' but asks for 'fashion'"), "{text}");
    let text = node.send(context("fashion", &["far"])).await.error(403);
    assert!(text.contains("region 'home'"), "{text}");
    for garbage in ["***", "e30", &"A".repeat(5000)] {
        let asked = with(infer(&[0]), "midspan-context", garbage);
        assert!(node.send(asked).await.error(400).contains("midspan-context"));
    }
    let bad_exit = node.infer(&[0], "sometimes").await.error(400);
    assert!(bad_exit.contains("midspan-exit is 'sometimes'"), "{bad_exit}");
}

#[tokio::test]
async fn numbers_keep_their_form() {
    let node = Setup::default().start().await;
    let zeros = vec!["0"; 784].join(",");
    let body = format!(
        "{{\"inputs\":[{{\"name\":\"image\",\"shape\":[1,1,28,28],\"datatype\":\"FP32\",\
         \"data\":[{zeros}]}}]}}"
    );
    let flat = request(Method::POST, "/v2/models/fashion/infer", full(Bytes::from(body)));
    let flat = node.send(with(flat, "midspan-exit", "force")).await.logits();
    let zero = Tensor::from_f32("image", vec![1, 1, 28, 28], &[0.0; 784]).unwrap();
    let binary = InferRequest { inputs: vec![zero], ..Default::default() };
    let binary = node.send(with(encoded(&binary, true), "midspan-exit", "force")).await;
    assert_eq!(binary.logits(), flat);
}
