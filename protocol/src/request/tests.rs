//! Whole request bodies, good and hostile.

mod errors;

use proptest::prelude::*;

use super::*;
use crate::Datatype;

fn parse(json: &str) -> Result<InferRequest, ProtocolError> {
    InferRequest::parse(&Bytes::copy_from_slice(json.as_bytes()), None)
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
fn members_come_in_any_order_and_null_is_absent() {
    let values = [1.5, f32::INFINITY];
    for input in [
        r#"{"name":"a","shape":[2],"datatype":"FP32","data":[1.5,Infinity]}"#,
        r#"{"data":[1.5,Infinity],"datatype":"FP32","name":"a","shape":[2]}"#,
        r#"{"data":[1.5, "Infinity"],"shape":[2],"parameters":null,"datatype":"FP32","name":"a"}"#,
        r#"{"extra":{"x":[{}]},"shape":[2],"data":[1.5,Infinity],"n\u0061me":"a","datatype":"FP32"}"#,
    ] {
        let body = format!(
            " {{ \"outputs\" : null , \"inputs\" : [ {input} ] , \"id\":null,\"parameters\":null}}\n"
        );
        let request = parse(&body).unwrap();
        assert_eq!(request.inputs[0].to_f32().unwrap(), values);
        assert_eq!((&request.id, request.outputs.len()), (&None, 0));
    }
}

#[test]
fn typed_parameters_are_read_and_bad_ones_refused() {
    let with = |parameters: &str| parse(&format!(r#"{{"inputs":[],"parameters":{parameters}}}"#));
    let request =
        with(r#"{"priority":2,"timeout":1500,"sequence_id":"s","sequence_end":true}"#).unwrap();
    assert_eq!(request.priority(), Ok(Some(2)));
    assert_eq!(request.timeout(), Ok(Some(std::time::Duration::from_micros(1500))));
    let id = SequenceId::Text("s".into());
    assert_eq!(request.sequence(), Ok(Some(Sequence { id, start: false, end: true })));
    let request =
        with(r#"{"priority":0,"timeout":0,"sequence_id":0,"sequence_start":true}"#).unwrap();
    assert_eq!((request.priority(), request.timeout()), (Ok(None), Ok(None)));
    assert_eq!(request.sequence(), Ok(None));
    let request =
        with(r#"{"sequence_id":18446744073709551615,"priority":18446744073709551615}"#).unwrap();
    let id = SequenceId::Number(u64::MAX);
    assert_eq!(request.sequence(), Ok(Some(Sequence { id, start: false, end: false })));
    assert_eq!(request.priority(), Ok(Some(u32::MAX)));
    for bad in [
        r#"{"priority":-1}"#,
        r#"{"priority":"1"}"#,
        r#"{"priority":1.5}"#,
        r#"{"timeout":"5"}"#,
        r#"{"timeout":-5}"#,
        r#"{"sequence_id":-1}"#,
        r#"{"sequence_id":true}"#,
        r#"{"sequence_start":1}"#,
        r#"{"binary_data_output":"true"}"#,
    ] {
        let error = with(bad).unwrap_err().to_string();
        let name = bad.split('"').nth(1).unwrap();
        assert!(error.contains(&format!("parameter '{name}' is n")), "{bad}: {error}");
    }
    let output = |parameters: &str| {
        parse(&format!(r#"{{"inputs":[],"outputs":[{{"name":"o","parameters":{parameters}}}]}}"#))
    };
    let request = output(r#"{"classification":2,"binary_data":false}"#).unwrap();
    assert_eq!(request.outputs[0].classification(), Ok(Some(2)));
    for bad in [r#"{"classification":0}"#, r#"{"classification":"2"}"#, r#"{"binary_data":1}"#] {
        assert!(output(bad).is_err(), "{bad}");
    }
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

#[test]
fn binary_inputs_are_cut_in_request_order_beside_json_ones() {
    let json = r#"{"inputs":[
        {"name":"s","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":11}},
        {"name":"j","shape":[1],"datatype":"INT64","data":[-7]},
        {"name":"e","shape":[0],"datatype":"FP32","parameters":{"binary_data_size":0}},
        {"name":"h","shape":[],"datatype":"FP16","parameters":{"binary_data_size":2}}]}"#;
    let mut body = json.as_bytes().to_vec();
    body.extend_from_slice(b"\x03\0\0\0\xff\0a\0\0\0\0\x01\x02");
    let body = Bytes::from(body);
    let request = InferRequest::parse(&body, Some(json.len())).unwrap();
    assert_eq!(request.inputs[0].to_byte_strings().unwrap(), [&b"\xff\0a"[..], b""]);
    assert_eq!(request.inputs[1].data, (-7_i64).to_le_bytes()[..]);
    assert_eq!((request.inputs[2].elements(), request.inputs[3].elements()), (0, 1));
    assert_eq!(request.inputs[3].data, [1, 2][..]);
    assert!(body.as_ptr_range().contains(&request.inputs[3].data.as_ptr()), "copied");
    assert!(InferRequest::parse(&body, Some(json.len() - 1)).is_err());
}

fn raw(body: &[u8], datatype: Datatype, shape: &[Option<u64>]) -> Result<Vec<u64>, String> {
    let input = RawInput { name: "x", datatype, shape };
    let request = InferRequest::parse_raw(&Bytes::copy_from_slice(body), input)
        .map_err(|error| error.to_string())?;
    assert_eq!(request.parameters.flag("binary_data_output"), Ok(Some(true)));
    let [tensor] = &request.inputs[..] else { panic!("not one input") };
    assert!(tensor.data.ends_with(body));
    Ok(tensor.shape.clone())
}

#[test]
fn a_raw_body_is_the_one_input() {
    let any = None;
    for (length, shape, expected) in [
        (8, &[Some(2)][..], Ok(&[2][..])),
        (8, &[any], Ok(&[2])),
        (4, &[], Ok(&[])),
        (0, &[any], Ok(&[0])),
        (24, &[any, Some(3)], Ok(&[2, 3])),
        (8, &[any, any], Err("at most one variable dimension, this has 2")),
        (10, &[any], Err("10 bytes are no multiple of the 4")),
        (4, &[any, Some(0)], Err("leaves the variable dimension open")),
        (4, &[Some(u64::MAX), Some(2)], Err("more elements than can be addressed")),
    ] {
        let got = raw(&vec![0; length], Datatype::Fp32, shape);
        match expected {
            Ok(shape) => assert_eq!(got.as_deref(), Ok(shape)),
            Err(part) => assert!(got.as_ref().is_err_and(|e| e.contains(part)), "{got:?}"),
        }
    }
    for shape in [&[Some(1)][..], &[any], &[any, Some(1)]] {
        assert_eq!(raw(b"text", Datatype::Bytes, shape), Ok(vec![1; shape.len()]));
    }
    assert_eq!(raw(b"", Datatype::Bytes, &[any]), Ok(vec![1]));
    for shape in [&[Some(2)][..], &[any, any], &[]] {
        assert!(raw(b"text", Datatype::Bytes, shape).is_err());
    }
    assert!(raw(&[2], Datatype::Bool, &[any]).is_err());
}

fn tensor() -> impl Strategy<Value = Tensor> {
    let types = [
        Datatype::Bool,
        Datatype::Uint8,
        Datatype::Int16,
        Datatype::Uint32,
        Datatype::Int64,
        Datatype::Uint64,
        Datatype::Fp16,
        Datatype::Bf16,
        Datatype::Fp32,
        Datatype::Fp64,
        Datatype::Bytes,
    ];
    let shape = proptest::collection::vec(0_u64..4, 0..4);
    (any::<String>(), proptest::sample::select(types.to_vec()), shape, any::<u64>()).prop_map(
        |(name, datatype, shape, mut bits)| {
            let mut data = Vec::new();
            for _ in 0..shape.iter().product::<u64>() {
                bits = bits.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let bytes = bits.to_le_bytes();
                match datatype {
                    Datatype::Bool => data.push(bytes[0] & 1),
                    Datatype::Bytes => {
                        data.extend_from_slice(&[bytes[0] & 3, 0, 0, 0]);
                        data.extend_from_slice(&bytes[1..][..usize::from(bytes[0] & 3)]);
                    }
                    other => data.extend_from_slice(&bytes[..other.size().unwrap()]),
                }
            }
            Tensor::new(name, datatype, shape, data.into()).unwrap()
        },
    )
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
    fn every_datatype_survives_the_binary_form(tensor in tensor(), id in any::<Option<String>>()) {
        let request = InferRequest { id, inputs: vec![tensor], ..Default::default() };
        let encoded = request.encode(true).unwrap();
        prop_assert_eq!(InferRequest::parse(&encoded.body, encoded.json_length), Ok(request));
    }

    #[test]
    fn a_raw_body_never_panics_and_keeps_its_bytes(
        tensor in tensor(),
        shape in proptest::collection::vec(proptest::option::of(0_u64..4), 0..4),
    ) {
        let input = RawInput { name: "x", datatype: tensor.datatype, shape: &shape };
        if let Ok(request) = InferRequest::parse_raw(&tensor.data, input) {
            prop_assert!(request.inputs[0].data.ends_with(&tensor.data));
            prop_assert_eq!(request.inputs[0].shape.len(), shape.len());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..200), length in proptest::option::of(0_usize..300)) {
        let _outcome = InferRequest::parse(&body.into(), length);
    }
}
