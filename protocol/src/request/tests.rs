//! Whole request bodies, good and hostile.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn parse(json: &str) -> Result<InferRequest, ProtocolError> {
    InferRequest::parse(&Bytes::copy_from_slice(json.as_bytes()), None)
}

fn check(json: &str, expected: Expect) {
    expected.assert_eq(&parse(json).unwrap_err().to_string());
}

#[test]
fn a_json_request_becomes_binary_tensors() {
    let request = parse(
        r#"{"id":"42","model_name":"ignored","parameters":{"priority":1,"x":true,"y":"z","f":1.5},
            "inputs":[{"name":"a","shape":[1,2],"datatype":"FP32","data":[[1,2.5]]}],
            "outputs":[{"name":"o","parameters":{"binary_data":true}}]}"#,
    )
    .unwrap();
    assert_eq!(request.id.as_deref(), Some("42"));
    assert_eq!(request.inputs[0].to_f32().unwrap(), [1.0, 2.5]);
    assert_eq!(request.parameters.get("priority").and_then(crate::Parameter::as_u64), Some(1));
    assert_eq!(request.outputs[0].parameters.get("binary_data").unwrap().as_bool(), Some(true));
}

#[test]
fn errors_name_the_cause() {
    check("", expect!["request JSON: EOF while parsing a value at line 1 column 0"]);
    check("{}", expect!["request JSON: missing field `inputs` at line 1 column 2"]);
    check(
        r#"{"inputs":[{"name":"a","shape":[1],"data":[1]}]}"#,
        expect!["request JSON: missing field `datatype` at line 1 column 46"],
    );
    check(
        r#"{"inputs":[{"name":"a","shape":[-1],"datatype":"FP32","data":[1]}]}"#,
        expect!["request JSON: invalid value: integer `-1`, expected u64 at line 1 column 34"],
    );
    check(
        r#"{"inputs":[{"name":"a","shape":[2],"datatype":"FP32","data":[1]}]}"#,
        expect!["input 'a': expected 2 elements for its shape, got 1"],
    );
    check(
        r#"{"inputs":[{"name":"a","shape":[1],"datatype":"fp32","data":[1]}]}"#,
        expect!["input 'a': unknown datatype 'fp32'"],
    );
    check(
        r#"{"inputs":[],"parameters":{"a":{}}}"#,
        expect![
            "request JSON: invalid type: map, expected a parameter: string, number or boolean at line 1 column 33"
        ],
    );
    check(
        r#"{"inputs":[],"parameters":{"triton_x":1}}"#,
        expect!["request JSON: parameter 'triton_x' is reserved at line 1 column 40"],
    );
    let input = r#"{"name":"a","shape":[1],"datatype":"FP32","data":[1]}"#;
    check(&format!(r#"{{"inputs":[{input},{input}]}}"#), expect!["input 'a': sent twice"]);
    check(
        &format!(r#"{{"inputs":[{input}],"outputs":[{{"name":"o"}},{{"name":"o"}}]}}"#),
        expect!["output 'o': requested twice"],
    );
}

#[test]
fn hostile_bodies_are_refused() {
    for body in [
        "{",
        "[]",
        "{\"inputs\":null}",
        "{\"inputs\":{}}",
        "\u{feff}{}",
        "{\"inputs\":[]} x",
        "{\"id\":42,\"inputs\":[]}",
        "{\"id\":\"a\",\"id\":\"b\",\"inputs\":[]}",
        r#"{"inputs":[{"name":"a","shape":["1"],"datatype":"FP32","data":[1]}]}"#,
        r#"{"inputs":[{"name":"a","shape":[1.5],"datatype":"FP32","data":[1]}]}"#,
        r#"{"inputs":[{"name":"a","shape":[16,1152921504606846978],"datatype":"FP32","data":[1]}]}"#,
    ] {
        assert!(parse(body).is_err(), "{body}");
    }
    assert!(parse(&"[".repeat(250_000)).is_err());
    assert!(InferRequest::parse(&Bytes::from_static(b"\xff\xfe"), None).is_err());
}

#[test]
fn bare_nan_is_accepted_in_float_data() {
    let request =
        parse(r#"{"inputs":[{"name":"a","shape":[2],"datatype":"FP32","data":[NaN,-Infinity]}]}"#)
            .unwrap();
    let values = request.inputs[0].to_f32().unwrap();
    assert!(values[0].is_nan() && values[1] == f32::NEG_INFINITY);
}

fn binary(size: &str, blob: &[u8]) -> Result<InferRequest, ProtocolError> {
    let json = format!(
        r#"{{"inputs":[{{"name":"a","shape":[2],"datatype":"FP32","parameters":{{"binary_data_size":{size}}}}}]}}"#
    );
    let mut body = json.clone().into_bytes();
    body.extend_from_slice(blob);
    InferRequest::parse(&body.into(), Some(json.len()))
}

#[test]
fn binary_sizes_must_fit() {
    assert!(binary("8", &[0; 8]).is_ok());
    for (size, blob) in [
        ("8", 7),
        ("8", 9),
        ("4", 4),
        ("-1", 8),
        ("true", 8),
        ("\"8\"", 8),
        ("9223372036854775808", 8),
    ] {
        assert!(binary(size, &vec![0; blob]).is_err(), "{size} {blob}");
    }
    let body = Bytes::from_static(b"{\"inputs\":[]}");
    assert!(InferRequest::parse(&body, Some(99)).is_err());
    assert!(InferRequest::parse(&body, Some(5)).is_err());
    assert!(InferRequest::parse(&body, Some(0)).is_err());
}

proptest! {
    #[test]
    fn encode_then_parse_is_identity(values in proptest::collection::vec(any::<f32>(), 0..20), binary: bool) {
        let tensor = Tensor::from_f32("a", vec![values.len() as u64], &values).unwrap();
        let request = InferRequest { id: Some("é\u{2028}\"".into()), inputs: vec![tensor], ..Default::default() };
        let encoded = request.encode(binary).unwrap();
        let parsed = InferRequest::parse(&encoded.body, encoded.json_length).unwrap();
        let bits = |r: &InferRequest| r.inputs[0].to_f32().unwrap().iter()
            .map(|v| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() }).collect::<Vec<_>>();
        prop_assert_eq!(bits(&parsed), bits(&request));
        prop_assert_eq!(parsed.id, request.id);
    }

    #[test]
    fn arbitrary_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..200), length in proptest::option::of(0_usize..300)) {
        let _outcome = InferRequest::parse(&body.into(), length);
    }
}
