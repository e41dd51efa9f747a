//! Well-formed, foreign and broken answers.

use expect_test::expect;
use midspan_protocol::response::OutputForm;

use super::*;

fn response(shape: Vec<u64>, scores: &[f32]) -> InferResponse {
    let outputs = vec![
        Tensor::from_f32("first", vec![1, 1], &[0.0]).unwrap(),
        Tensor::from_f32("logits", shape, scores).unwrap(),
    ];
    InferResponse { model_name: "m".into(), outputs, ..InferResponse::default() }
}

fn check(response: &InferResponse, extra: &[(&str, &str)], output: Option<&str>) -> String {
    let mut out = String::new();
    for form in [OutputForm::binary(), OutputForm::default()] {
        let encoded = response.encode(&form).unwrap();
        let mut builder = http::Response::builder();
        if let Some(length) = encoded.json_length {
            builder = builder.header(headers::INFERENCE_HEADER_CONTENT_LENGTH, length);
        }
        for (name, value) in extra {
            builder = builder.header(*name, *value);
        }
        let (head, ()) = builder.body(()).unwrap().into_parts();
        let shown = format!("{:?}\n", read(&head, &encoded.body, output));
        if out != shown {
            out += &shown;
        }
    }
    out
}

#[test]
fn both_forms_give_the_same_answer() {
    let ours = [
        ("midspan-answered-by", "exit:1"),
        ("midspan-degraded", "uplink"),
        ("midspan-node", "edge-a"),
        ("server-timing", "exec;dur=1"),
    ];
    let out = check(&response(vec![1, 4], &[-3.0, 2.5, 2.5, -0.0]), &ours, Some("logits"));
    expect![[r#"
        Ok(Answer { predicted: 1, place: Some(Exit(1)), degraded: Some("uplink"), node: Some("edge-a") })
    "#]].assert_eq(&out);
}

#[test]
fn foreign_servers_and_broken_answers() {
    let good = response(vec![3], &[1.0, 2.0, f32::INFINITY]);
    let mut out = check(&good, &[], Some("logits"));
    out += &check(&good, &[], None);
    out += &check(&good, &[], Some("probabilities"));
    out += &check(&good, &[("midspan-answered-by", "moon")], None);
    out += &check(&good, &[("midspan-node", &"n".repeat(200))], None);
    out += &check(&response(vec![2, 2], &[0.0; 4]), &[], Some("logits"));
    out += &check(&response(vec![1, 0], &[]), &[], Some("logits"));
    let mut nan = response(vec![1, 2], &[0.0, 0.0]);
    nan.outputs[1] = Tensor::from_f32("logits", vec![1, 2], &[0.0, f32::NAN]).unwrap();
    let encoded = nan.encode(&OutputForm::binary()).unwrap();
    let builder = http::Response::builder();
    let (head, ()) = builder
        .header(headers::INFERENCE_HEADER_CONTENT_LENGTH, encoded.json_length.unwrap())
        .body(())
        .unwrap()
        .into_parts();
    out += &format!("{:?}\n", read(&head, &encoded.body, Some("logits")));
    expect![[r#"
        Ok(Answer { predicted: 2, place: None, degraded: None, node: None })
        Ok(Answer { predicted: 0, place: None, degraded: None, node: None })
        Err(Failure { kind: BadAnswer, detail: "no output 'probabilities'" })
        Err(Failure { kind: BadAnswer, detail: "midspan-answered-by: 'moon' is no place" })
        Err(Failure { kind: BadAnswer, detail: "midspan-node: 200 bytes; at most 128 are accepted" })
        Err(Failure { kind: BadAnswer, detail: "output 'logits': expected the scores of one row, got shape [2, 2]" })
        Err(Failure { kind: BadAnswer, detail: "output 'logits': no scores" })
        Err(Failure { kind: BadAnswer, detail: "output 'logits': score 1 is not a number" })
    "#]].assert_eq(&out);
}

#[test]
fn statuses_carry_the_error_text() {
    let mut out = String::new();
    for body in [r#"{"error": "queue is full", "reason": "busy"}"#, "<html>\nno\u{1b}[31m", ""] {
        let (head, ()) = http::Response::builder().status(503).body(()).unwrap().into_parts();
        out += &format!("{}\n", read(&head, &Bytes::from(body), None).unwrap_err());
    }
    let (head, ()) = http::Response::new(()).into_parts();
    out += &format!("{}\n", read(&head, &Bytes::from("{"), None).unwrap_err());
    expect![[r#"
        status:503: queue is full
        status:503: <html> no [31m
        status:503: (empty body)
        bad_answer: JSON: expected a string, found the end at byte 1
    "#]]
    .assert_eq(&out);
}
