//! Raw binary requests: the body is the tensor.

use bytes::Bytes;
use http::{Method, header};
use midspan_net::body::full;

use crate::{
    fixture::{Answer, Node, Setup, infer, request, tensor, with},
    onnx,
};

async fn send(node: &Node, model: &str, body: impl Into<Bytes>) -> Answer {
    let path = format!("/v2/models/{model}/infer");
    let raw = request(Method::POST, &path, full(body));
    node.send(with(raw, "inference-header-content-length", "0")).await
}

#[tokio::test]
async fn the_body_is_the_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let identity = |name: &str, element, dims: &[i64]| {
        onnx::write(folder.path(), name, &onnx::unary("Identity", element, dims))
    };
    let two = onnx::model("Add", &["a", "b"], onnx::FP32, &[-1]);
    let models = [
        identity("vector", onnx::INT32, &[-1]),
        identity("text", onnx::STRING, &[-1]),
        identity("texts", onnx::STRING, &[2]),
        identity("open", onnx::FP32, &[-1, -1]),
        onnx::write(folder.path(), "two", &two),
    ];
    let model = format!("bundle = \"embedded\"\n{}", models.concat());
    let node = Setup { model: &model, ..Setup::default() }.start().await;

    let numbers: Vec<u8> = [7_i32, -1, i32::MIN].iter().flat_map(|v| v.to_le_bytes()).collect();
    let answer = send(&node, "vector", numbers.clone()).await;
    assert_eq!(answer.header(header::CONTENT_TYPE), "application/octet-stream");
    let response = answer.response();
    let output = response.output("y").unwrap();
    assert_eq!((output.shape.as_slice(), &output.data[..]), (&[3][..], &numbers[..]));

    let answer = send(&node, "text", "h\u{e9}").await.response();
    assert_eq!(answer.output("y").unwrap().to_byte_strings().unwrap(), ["h\u{e9}"]);

    let raw = request(Method::POST, "/v2/models/fashion/infer", full(tensor(&[3, 4]).data));
    let raw = with(with(raw, "inference-header-content-length", "0"), "midspan-exit", "force");
    let usual = node.send(with(infer(&[3, 4]), "midspan-exit", "force")).await;
    assert_eq!(node.send(raw).await.logits(), usual.logits());

    for (model, length, words) in [
        ("vector", 7, "no multiple of the 4"),
        ("fashion", 100, "no multiple of the 3136"),
        ("texts", 4, "BYTES"),
        ("open", 8, "at most one variable dimension"),
        ("two", 4, "one input"),
    ] {
        let text = send(&node, model, vec![0; length]).await.error(400);
        assert!(text.contains(words), "{model}: {text}");
    }
    send(&node, "ghost", "").await.error(404);
    node.assert_well("raw requests").await;
}
