//! The classification extension: the best classes as text, with the bundle's labels.

use midspan_protocol::{Datatype, InferRequest, Parameter, RequestedOutput, headers};
use midspan_split::Bundle;

use crate::{
    fixture::{Answer, Setup, encoded, tensor, with},
    onnx::{self, ask},
    stub::{self, Stub},
};

/// Output `name`, its best `count` classes.
fn best(name: &str, count: i64) -> RequestedOutput {
    let mut output = RequestedOutput { name: name.into(), ..RequestedOutput::default() };
    output.parameters.set("classification", Parameter::Int(count));
    output
}

#[track_caller]
fn texts(answer: &Answer, name: &str, shape: &[u64]) -> Vec<String> {
    let response = answer.response();
    let output = response.output(name).unwrap();
    assert_eq!((output.datatype, output.shape.as_slice()), (Datatype::Bytes, shape));
    let texts = output.to_byte_strings().unwrap();
    texts.iter().map(|text| String::from_utf8(text.to_vec()).unwrap()).collect()
}

#[tokio::test]
async fn the_best_classes_of_exit_and_cloud_have_labels() {
    let cloud = Stub::start();
    let edge = Setup { clouds: vec![(cloud.addr, "home")], ..Setup::default() }.start().await;
    let labels = Bundle::embedded().unwrap().labels().to_vec();
    assert_eq!(labels.len(), 10, "the default model names its classes");
    let mut message = InferRequest { inputs: vec![tensor(&[0, 1])], ..InferRequest::default() };
    message.outputs = vec![best("logits", 3)];
    let logits = edge.infer(&[0, 1], "force").await.logits();
    for binary in [false, true] {
        let output = &mut message.outputs[0];
        output.parameters.set("binary_data", Parameter::Bool(binary));
        let answer = edge.send(with(encoded(&message, true), "midspan-exit", "force")).await;
        assert_eq!(answer.header(headers::ANSWERED_BY), "exit:1");
        let length = answer.headers.contains_key(headers::INFERENCE_HEADER_CONTENT_LENGTH);
        assert_eq!(length, binary);
        let texts = texts(&answer, "logits", &[2, 3]);
        for (row, texts) in texts.chunks(3).enumerate() {
            let row = &logits[row * 10..][..10];
            let mut order: Vec<usize> = (0..10).collect();
            order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
            let expected = order.iter().take(3);
            let expected = expected.map(|at| format!("{:.6}:{at}:{}", row[*at], labels[*at]));
            assert_eq!(texts, expected.collect::<Vec<_>>());
        }
    }
    message.outputs = vec![best("logits", 1)];
    let answer = edge.send(with(encoded(&message, true), "midspan-exit", "never")).await;
    assert_eq!(answer.header(headers::ANSWERED_BY), "cloud");
    let class = stub::CLASS;
    let text = format!("9.000000:{class}:{}", labels[class]);
    assert_eq!(texts(&answer, "logits", &[2, 1]), [text.clone(), text]);
}

#[tokio::test]
async fn plain_models_have_no_labels_and_some_types_no_order() {
    let folder = tempfile::tempdir().unwrap();
    let identity = |name: &str, element, dims: &[i64]| {
        onnx::write(folder.path(), name, &onnx::unary("Identity", element, dims))
    };
    let models = [
        identity("rows", onnx::FP32, &[-1, 4]),
        identity("flat", onnx::INT32, &[-1]),
        identity("text", onnx::STRING, &[-1]),
        identity("half", onnx::FP16, &[-1]),
    ];
    let node = Setup { model: &onnx::headless(&models), ..Setup::default() }.start().await;
    let send = async |model: &str, body: String, parameter: &str| {
        let output = format!(
            "{{\"outputs\":[{{\"name\":\"y\",\"parameters\":{{\"classification\":{parameter}}}}}],"
        );
        let body = body.replacen('{', &output, 1);
        node.post(&format!("/v2/models/{model}/infer"), body).await
    };
    let rows = || ask("FP32", &[1, 4], "[1,5,10,4]");
    let answer = send("rows", rows(), "2").await;
    assert_eq!(texts(&answer, "y", &[1, 2]), ["10.000000:2", "5.000000:1"]);
    let answer = send("rows", rows(), "1000000000000").await;
    assert_eq!(texts(&answer, "y", &[1, 4]).len(), 4, "as many as there are");
    let answer = send("flat", ask("INT32", &[4], "[1,5,10,4]"), "2").await;
    assert_eq!(texts(&answer, "y", &[2]), ["10:2", "5:1"]);
    let answer = send("rows", ask("FP32", &[1, 4], "[\"NaN\",1,\"Infinity\",1]"), "4").await;
    assert_eq!(texts(&answer, "y", &[1, 4]), ["Infinity:2", "1.000000:1", "1.000000:3", "NaN:0"]);
    for bad in ["0", "-1", "1.5", "\"2\"", "true"] {
        assert!(send("rows", rows(), bad).await.error(400).contains("'y'"), "{bad}");
    }
    let text = send("text", ask("BYTES", &[1], "[\"a\"]"), "1").await.error(400);
    assert!(text.contains("'y'") && text.contains("BYTES"), "{text}");
    let half = "{\"inputs\":[{\"name\":\"x\",\"shape\":[0],\"datatype\":\"FP16\",\"data\":[]}]}";
    send("half", half.into(), "1").await.error(400);
    // What is kept of each row is more than its bytes: batches are bounded where rows are kept.
    let many = |rows: u64| ask("FP32", &[rows, 0], "[]");
    let node = Setup {
        model: &onnx::headless(&[identity("open", onnx::FP32, &[-1, -1])]),
        ..Setup::default()
    };
    let node = node.start().await;
    let send = async |output: &str, rows| {
        let body = many(rows).replacen('{', output, 1);
        node.post("/v2/models/open/infer", body).await
    };
    let classified = "{\"outputs\":[{\"name\":\"y\",\"parameters\":{\"classification\":1}}],";
    assert_eq!(texts(&send(classified, 65_536).await, "y", &[65_536, 0]).len(), 0);
    assert!(send(classified, 65_537).await.error(400).contains("at most 65536"));
    let plain = send("{", 1 << 20).await.response();
    assert_eq!(plain.output("y").unwrap().shape, [1 << 20, 0]);
    assert!(send("{", (1 << 20) + 1).await.error(400).contains("has no elements, but"));
}
