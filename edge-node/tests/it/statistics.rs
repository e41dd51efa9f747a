//! Statistics of models rise with what is asked of them.

use http::Method;
use midspan_net::body::full;
use midspan_protocol::{
    Datatype, InferRequest, Tensor, headers,
    statistics::{ModelStatistics, Statistics},
};

use crate::{
    fixture::{Node, Setup, encoded, eventually, exchange, infer, pool, request, with},
    onnx,
};

async fn read(node: &Node, path: &str) -> Vec<ModelStatistics> {
    let answer = node.get(path).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_slice::<Statistics>(&answer.body).unwrap().model_stats
}

#[tokio::test]
async fn rows_runs_and_failures_are_counted() {
    let cloud = Setup::cloud().start().await;
    let edge = Setup { clouds: vec![(cloud.addr, "home")], ..Setup::default() }.start().await;
    let stats = read(&edge, "/v2/models/fashion/stats").await;
    let [first] = stats.as_slice() else { panic!("{stats:?}") };
    assert_eq!((first.name.as_str(), first.version.as_str()), ("fashion", "1"));
    assert_eq!((first.last_inference, first.inference_count), (0, 0));
    assert!(first.batch_stats.is_empty());

    for rows in [&[0][..], &[1, 2, 3], &[4, 5, 6]] {
        assert_eq!(edge.infer(rows, "never").await.header(headers::ANSWERED_BY), "cloud");
    }
    let wrong = Tensor::from_f32("image", vec![1, 1, 28, 1], &[0.0; 28]).unwrap();
    let wrong = InferRequest { inputs: vec![wrong], ..InferRequest::default() };
    edge.send(encoded(&wrong, true)).await.error(400);
    for path in
        ["/v2/models/fashion/stats", "/v2/models/fashion/versions/1/stats", "/v2/models/stats"]
    {
        let stats = read(&edge, path).await;
        let [counted] = stats.as_slice() else { panic!("{path}: {stats:?}") };
        assert_eq!((counted.inference_count, counted.execution_count), (7, 3), "{path}");
        assert!(counted.last_inference > 1_600_000_000_000);
        let inner = &counted.inference_stats;
        assert_eq!((inner.success.count, inner.fail.count), (3, 1));
        let steps = [inner.queue, inner.compute_input, inner.compute_infer, inner.compute_output];
        assert!(steps.iter().all(|step| step.count == 3), "{inner:?}");
        let parts: u64 = steps.iter().map(|step| step.ns).sum();
        assert!(inner.compute_infer.ns > 0 && inner.success.ns >= parts, "{inner:?}");
        let sizes: Vec<_> =
            counted.batch_stats.iter().map(|b| (b.batch_size, b.compute_infer.count)).collect();
        assert_eq!(sizes, [(1, 1), (3, 2)]);
    }
    let cloud = read(&cloud, "/v2/models/fashion/stats").await;
    assert_eq!((cloud[0].inference_count, cloud[0].execution_count), (7, 3), "offloads too");
}

#[tokio::test]
async fn an_answer_that_cannot_be_written_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let models = [onnx::write(folder.path(), "half", &onnx::unary("Identity", onnx::FP16, &[-1]))];
    let node = Setup { model: &onnx::headless(&models), ..Setup::default() }.start().await;
    let input = Tensor::new("x", Datatype::Fp16, vec![3], vec![0; 6].into()).unwrap();
    let message = InferRequest { inputs: vec![input], ..InferRequest::default() };
    let ask = |message: &InferRequest| {
        let encoded = message.encode(true).unwrap();
        let mut ask = request(Method::POST, "/v2/models/half/infer", full(encoded.body));
        let length = encoded.json_length.unwrap();
        ask.headers_mut().insert(headers::INFERENCE_HEADER_CONTENT_LENGTH, length.into());
        ask
    };
    node.send(ask(&message)).await.error(400);
    let mut binary = message.clone();
    binary.parameters.set("binary_data_output", midspan_protocol::Parameter::Bool(true));
    assert_eq!(node.send(ask(&binary)).await.status, 200);
    let stats = read(&node, "/v2/models/half/stats").await;
    let inner = &stats[0].inference_stats;
    assert_eq!((inner.success.count, inner.fail.count), (1, 1));
    assert_eq!(stats[0].inference_count, 1, "a lone open dimension is no batch");
}

#[tokio::test]
async fn who_goes_away_is_a_failure() {
    let cloud = crate::stub::Stub::start();
    let edge = Setup { clouds: vec![(cloud.addr, "home")], ..Setup::default() }.start().await;
    let (entered, mut has_entered) = tokio::sync::mpsc::unbounded_channel();
    cloud.script(move |_| {
        let entered = entered.clone();
        async move {
            entered.send(()).unwrap();
            std::future::pending().await
        }
    });
    let app = pool(edge.addr, midspan_net::transport::HttpVersion::H1);
    let asked = with(infer(&[0]), "midspan-exit", "never");
    let leaving = tokio::spawn(async move { exchange(&app, asked).await });
    has_entered.recv().await.unwrap();
    leaving.abort();
    eventually("it is counted", async || {
        let stats = read(&edge, "/v2/models/fashion/stats").await;
        stats[0].inference_stats.fail.count == 1 && stats[0].execution_count == 0
    })
    .await;
}
