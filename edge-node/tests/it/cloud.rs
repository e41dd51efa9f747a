//! A cloud and the frames it is sent: the split is judged before anything is decoded, and damaged
//! frames are refused.

use bytes::Bytes;
use http::{Method, Request};
use midspan_net::{Body, body::full};
use midspan_protocol::{Context, headers};
use midspan_runtime::{ElementType, TensorRef};
use midspan_split::{Bundle, SplitId, encode};

use crate::fixture::{Answer, Node, Setup, request, with};

const OFFLOAD: &str = "/v2/midspan/models/fashion/versions/1/offload";
const ROW: usize = 8 * 7 * 7;

/// A frame of two rows for this split, as an edge writes it.
fn frame(split: SplitId) -> Vec<u8> {
    let bundle = Bundle::embedded().unwrap();
    let values: Vec<u8> =
        (0..2 * ROW).flat_map(|at| ((at % 60) as f32 / 10.0).to_le_bytes()).collect();
    let rows = TensorRef::new(ElementType::F32, &[2, 8, 7, 7], &values).unwrap();
    encode(&rows, &bundle.codec(0).unwrap(), bundle.precision(0).unwrap(), split).unwrap()
}

fn live() -> SplitId {
    Bundle::embedded().unwrap().split_id().unwrap()
}

fn offload(frame: Vec<u8>) -> Request<Body> {
    let request = request(Method::POST, OFFLOAD, full(Bytes::from(frame)));
    with(request, "content-type", headers::FRAME_MEDIA_TYPE)
}

async fn well(node: &Node) -> Answer {
    node.send(with(offload(frame(live())), "midspan-split-id", &live().to_string())).await
}

#[tokio::test]
async fn a_frame_is_resumed() {
    let cloud = Setup::cloud().start().await;
    let answer = well(&cloud).await;
    assert_eq!(answer.response().output("logits").unwrap().shape, [2, 10]);
    assert_eq!(answer.logits().len(), 20);
    assert_eq!(cloud.send(offload(frame(live()))).await.logits(), answer.logits());
}

#[tokio::test]
async fn an_unknown_split_is_refused_before_decoding() {
    let cloud = Setup::cloud().start().await;
    let other = SplitId([7; 32]);
    let mut garbage = frame(other);
    garbage[64..].fill(0xff);
    for frame in [frame(other), garbage] {
        let asked = with(offload(frame), "midspan-split-id", &other.to_string());
        let answer = cloud.send(asked).await;
        let text = answer.error(409);
        assert!(text.contains(&other.to_string()), "{text}");
        assert_eq!(answer.json()["live"], serde_json::json!([live().to_string()]));
    }
    assert_eq!(well(&cloud).await.status, 200);
}

#[tokio::test]
async fn damaged_frames_are_refused() {
    let cloud = Setup::cloud().start().await;
    let good = frame(live());
    let mut bad: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", vec![]),
        ("half a header", good[..40].to_vec()),
        ("a header alone", good[..64].to_vec()),
        ("cut short", good[..good.len() - 1].to_vec()),
        ("too long", [&good[..], &[0]].concat()),
        ("json", b"{\"inputs\":[]}".repeat(10)),
    ];
    for at in [0, 4, 5, 6, 7, 8, 9, 12, 15, 16, 52, 56, 60, 64, good.len() - 1] {
        let mut frame = good.clone();
        frame[at] ^= 0xff;
        bad.push(("a byte turned", frame));
    }
    for (what, frame) in bad {
        let asked = with(offload(frame), "midspan-split-id", &live().to_string());
        let answer = cloud.send(asked).await;
        assert!(!answer.error(400).is_empty(), "{what}");
        assert_eq!(well(&cloud).await.status, 200, "after {what}");
    }
}

/// Rows count by what they are once decoded, however few bytes they came in.
#[tokio::test]
async fn a_frame_of_more_rows_than_a_body_may_have_is_refused() {
    let most = 2 * ROW * 4;
    for (limit, status) in [(most, 200), (most - 1, 400)] {
        let limits = format!("body = \"{limit}B\"");
        let cloud = Setup { limits: &limits, ..Setup::cloud() }.start().await;
        let small = frame(live());
        assert!(small.len() < limit / 4);
        let answer = cloud.send(offload(small)).await;
        assert_eq!(answer.status, status, "{limit}");
        if status == 400 {
            let text = format!("frame decodes to {most} bytes, at most {limit} are taken");
            assert_eq!(answer.error(400), text);
        }
    }
}

#[tokio::test]
async fn the_header_must_agree_with_the_frame() {
    let cloud = Setup::cloud().start().await;
    let other = SplitId([7; 32]).to_string();
    for stated in [other.as_str(), "", "nonsense"] {
        let text =
            cloud.send(with(offload(frame(live())), "midspan-split-id", stated)).await.error(400);
        assert!(text.contains("midspan-split-id differs"), "{text}");
    }
    let context = |model: &str, regions: &[&str]| {
        let regions = regions.iter().map(|region| (*region).to_owned()).collect();
        let context = Context { model: model.into(), regions, ..Context::default() };
        with(offload(frame(live())), "midspan-context", &context.encode())
    };
    cloud.send(context("other", &[])).await.error(400);
    cloud.send(context("fashion", &["far"])).await.error(403);
    assert_eq!(cloud.send(context("fashion", &["home"])).await.status, 200);
}

#[tokio::test]
async fn an_edge_resumes_nothing() {
    let edge = Setup::default().start().await;
    let answer = edge.send(offload(frame(live()))).await;
    answer.error(409);
    assert_eq!(answer.json()["live"], serde_json::json!([]));
}
