//! The rules of inference messages, one by one.

use prost::Message as _;

use super::*;

fn input(name: &str, datatype: &str, shape: &[i64]) -> InferInputTensor {
    InferInputTensor {
        name: name.into(),
        datatype: datatype.into(),
        shape: shape.to_vec(),
        ..InferInputTensor::default()
    }
}

fn typed(datatype: &str, shape: &[i64], contents: InferTensorContents) -> ModelInferRequest {
    let input = InferInputTensor { contents: Some(contents), ..input("x", datatype, shape) };
    ModelInferRequest { inputs: vec![input], ..ModelInferRequest::default() }
}

fn raw(datatype: &str, shape: &[i64], raw: &[&'static [u8]]) -> ModelInferRequest {
    ModelInferRequest {
        inputs: vec![input("x", datatype, shape)],
        raw_input_contents: raw.iter().map(|bytes| Bytes::from_static(bytes)).collect(),
        ..ModelInferRequest::default()
    }
}

#[track_caller]
fn data(request: ModelInferRequest) -> Bytes {
    request.into_request().unwrap().inputs[0].data.clone()
}

#[track_caller]
fn refused(request: ModelInferRequest, words: &str) {
    let text = request.into_request().unwrap_err().to_string();
    assert!(text.contains(words), "{text}");
}

/// Contents with one field set.
macro_rules! contents {
    ($field:ident: $values:expr) => {
        InferTensorContents { $field: $values.to_vec(), ..InferTensorContents::default() }
    };
}

#[test]
fn typed_and_raw_are_the_same() {
    let strings = [Bytes::from_static(b"a\xff"), Bytes::new()];
    for (request, expected) in [
        (typed("BOOL", &[2], contents!(bool_contents: [true, false])), &[1_u8, 0][..]),
        (typed("INT8", &[2], contents!(int_contents: [-128, 127])), &[128, 127]),
        (typed("INT16", &[1], contents!(int_contents: [-2])), &[254, 255]),
        (typed("INT32", &[1], contents!(int_contents: [i32::MIN])), &[0, 0, 0, 128]),
        (typed("INT64", &[1], contents!(int64_contents: [-1])), &[255; 8]),
        (typed("UINT8", &[1], contents!(uint_contents: [255])), &[255]),
        (typed("UINT16", &[1], contents!(uint_contents: [258])), &[2, 1]),
        (typed("UINT32", &[1], contents!(uint_contents: [u32::MAX])), &[255; 4]),
        (typed("UINT64", &[1], contents!(uint64_contents: [u64::MAX])), &[255; 8]),
        (typed("FP32", &[1, 1], contents!(fp32_contents: [1.0])), &[0, 0, 128, 63]),
        (typed("FP64", &[], contents!(fp64_contents: [1.0])), &[0, 0, 0, 0, 0, 0, 240, 63]),
        (
            typed("BYTES", &[2], contents!(bytes_contents: strings)),
            &[2, 0, 0, 0, b'a', 255, 0, 0, 0, 0],
        ),
        (typed("FP32", &[0, 3], InferTensorContents::default()), &[]),
    ] {
        let [described] = request.inputs.clone().try_into().unwrap();
        let raw = ModelInferRequest {
            inputs: vec![InferInputTensor { contents: None, ..described }],
            raw_input_contents: vec![Bytes::copy_from_slice(expected)],
            ..ModelInferRequest::default()
        };
        assert_eq!(data(request.clone()), expected, "{request:?}");
        assert_eq!(data(raw), expected, "{request:?}");
    }
}

#[test]
fn raw_contents_share_the_message() {
    let mut request = raw("UINT8", &[3], &[b"abc"]);
    request.inputs.push(input("y", "FP16", &[1]));
    request.raw_input_contents.push(Bytes::from_static(&[0, 60]));
    let wire: Bytes = request.encode_to_vec().into();
    let decoded = ModelInferRequest::decode(wire.clone()).unwrap().into_request().unwrap();
    for tensor in &decoded.inputs {
        assert!(wire.as_ptr_range().contains(&tensor.data.as_ptr()), "{}", tensor.name);
    }
    assert_eq!(decoded.inputs[1].datatype, Datatype::Fp16);
}

#[test]
fn raw_and_typed_do_not_mix() {
    let mut both = typed("FP32", &[1], contents!(fp32_contents: [1.0]));
    both.raw_input_contents = vec![Bytes::from_static(&[0; 4])];
    refused(both, "input 'x': has both contents and an entry in raw_input_contents");
    refused(
        raw("FP32", &[1], &[&[0; 4], &[0; 4]]),
        "raw_input_contents has 2 entries for 1 inputs",
    );
    let mut fewer = raw("FP32", &[1], &[&[0; 4]]);
    fewer.inputs.push(input("y", "FP32", &[1]));
    refused(fewer, "raw_input_contents has 1 entries for 2 inputs");
    let none = ModelInferRequest {
        raw_input_contents: vec![Bytes::new()],
        ..ModelInferRequest::default()
    };
    refused(none, "1 entries for 0 inputs");
    // An empty message in the contents says nothing.
    let mut empty = typed("FP32", &[1], InferTensorContents::default());
    empty.raw_input_contents = vec![Bytes::from_static(&[0; 4])];
    assert_eq!(data(empty).len(), 4);
}

#[test]
fn sizes_and_counts_follow_the_shape() {
    refused(raw("FP32", &[2], &[&[0; 4]]), "expected 8 bytes for its shape, got 4");
    refused(raw("BYTES", &[2], &[&[1, 0, 0, 0, 9]]), "expected 2 BYTES elements, got 1");
    refused(raw("BYTES", &[1], &[&[9, 0, 0, 0, 9]]), "reaches beyond the data");
    refused(raw("BOOL", &[1], &[&[2]]), "neither 0 nor 1");
    refused(
        typed("FP32", &[2], contents!(fp32_contents: [1.0])),
        "expected 2 elements for its shape, got 1",
    );
    refused(typed("FP32", &[1], InferTensorContents::default()), "expected 1 elements");
    let nothing = ModelInferRequest {
        inputs: vec![input("x", "FP32", &[1])],
        ..ModelInferRequest::default()
    };
    refused(nothing, "expected 1 elements for its shape, got 0");
    refused(raw("FP32", &[-1, 2], &[&[0; 8]]), "a dimension is -1");
    refused(raw("FP32", &[i64::MAX, 8], &[&[0; 8]]), "elements than can be addressed");
    refused(typed("FP32", &[1 << 32, 1 << 20], InferTensorContents::default()), "elements");
    refused(raw("FP32", &[1; 33], &[&[0; 4]]), "33 dimensions");
}

#[test]
fn each_datatype_has_its_field() {
    for datatype in ["BOOL", "INT64", "UINT8", "UINT64", "FP32", "FP64", "BYTES"] {
        let wrong = contents!(int_contents: [1]);
        refused(typed(datatype, &[1], wrong), "not in int_contents");
    }
    refused(typed("INT32", &[1], contents!(uint_contents: [1])), "belong in int_contents");
    refused(typed("INT8", &[1], contents!(int_contents: [300])), "300 is out of range for INT8");
    refused(typed("INT16", &[1], contents!(int_contents: [-32769])), "out of range for INT16");
    refused(typed("UINT8", &[1], contents!(uint_contents: [256])), "out of range for UINT8");
    refused(typed("UINT16", &[1], contents!(uint_contents: [65536])), "out of range for UINT16");
    for half in ["FP16", "BF16"] {
        refused(
            typed(half, &[1], contents!(fp32_contents: [1.0])),
            "send it in raw_input_contents",
        );
        assert_eq!(data(raw(half, &[1], &[&[0, 60]])), &[0, 60][..]);
    }
    refused(raw("fp32", &[1], &[&[0; 4]]), "unknown datatype 'fp32'");
    refused(raw("", &[1], &[&[0; 4]]), "unknown datatype ''");
}

#[test]
fn names_are_not_repeated() {
    let mut twice = raw("UINT8", &[1], &[b"a", b"b"]);
    twice.inputs.push(input("x", "UINT8", &[1]));
    refused(twice, "input 'x': sent twice");
    let mut outputs = raw("UINT8", &[1], &[b"a"]);
    let output = InferRequestedOutputTensor { name: "y".into(), ..Default::default() };
    outputs.outputs = vec![output.clone(), output];
    refused(outputs, "output 'y': requested twice");
}

#[test]
fn parameters_keep_their_types() {
    let choices = [
        ("b", ParameterChoice::BoolParam(true), Parameter::Bool(true)),
        ("d", ParameterChoice::DoubleParam(0.5), Parameter::Float(0.5)),
        ("i", ParameterChoice::Int64Param(-5), Parameter::Int(-5)),
        ("s", ParameterChoice::StringParam("t".into()), Parameter::Text("t".into())),
        ("u", ParameterChoice::Uint64Param(5), Parameter::Int(5)),
        ("v", ParameterChoice::Uint64Param(u64::MAX), Parameter::Uint(u64::MAX)),
    ];
    let map = choices.clone().map(|(name, choice, _)| {
        (name.to_owned(), InferParameter { parameter_choice: Some(choice) })
    });
    let parameters = parameters_in(map.into()).unwrap();
    let expected = choices.map(|(name, _, value)| (name.to_owned(), value));
    assert_eq!(parameters, Parameters(expected.into()));
    assert_eq!(parameters_in(parameters_out(parameters.clone())).unwrap(), parameters);
    let one = |name: &str, choice| {
        HashMap::from([(name.to_owned(), InferParameter { parameter_choice: choice })])
    };
    let request = |parameters| ModelInferRequest { parameters, ..Default::default() };
    refused(request(one("p", None)), "parameter 'p' has no value");
    let yes = Some(ParameterChoice::BoolParam(true));
    refused(request(one("triton_x", yes.clone())), "parameter 'triton_x' is reserved");
    let asked = request(one(EMPTY_FINAL_RESPONSE, yes.clone())).into_request().unwrap();
    assert!(asked.parameters.is_empty());
    let mut shared = raw("UINT8", &[1], &[b"a"]);
    shared.inputs[0].parameters = one("shared_memory_region", yes.clone());
    refused(shared, "input 'x': is in shared memory");
    let mut shared = raw("UINT8", &[1], &[b"a"]);
    let parameters = one("shared_memory_region", yes);
    shared.outputs = vec![InferRequestedOutputTensor { name: "y".into(), parameters }];
    refused(shared, "output 'y': is in shared memory");
}

#[test]
fn requests_and_responses_round_trip() {
    let tensor = Tensor::from_f32("x", vec![1, 2], &[1.0, f32::NAN]).unwrap();
    let strings = Bytes::from_static(&[1, 0, 0, 0, b'a']);
    let strings = Tensor::new("s", Datatype::Bytes, vec![1], strings).unwrap();
    let mut parameters = Parameters::default();
    parameters.set("p", Parameter::Text("v".into()));
    let request = InferRequest {
        id: Some("7".into()),
        parameters: parameters.clone(),
        inputs: vec![tensor.clone(), strings.clone()],
        outputs: vec![RequestedOutput { name: "y".into(), parameters: parameters.clone() }],
    };
    for version in [None, Some("2".to_owned())] {
        let model = ModelName { name: "m".into(), version };
        let message = ModelInferRequest::new(&model, request.clone());
        assert_eq!(message.model(), model);
        let wire = message.encode_to_vec();
        let decoded = ModelInferRequest::decode(wire.as_slice()).unwrap();
        assert_eq!(decoded.into_request().unwrap(), request);
    }
    let response = InferResponse {
        model_name: "m".into(),
        model_version: None,
        id: None,
        parameters,
        outputs: vec![tensor, strings],
    };
    let message = ModelInferResponse::from(response.clone());
    assert_eq!(message.raw_output_contents.len(), 2);
    assert!(message.outputs.iter().all(|output| output.contents.is_none()));
    assert_eq!((message.id.as_str(), message.model_version.as_str()), ("", ""));
    assert_eq!(message.into_response().unwrap(), response);
}

#[test]
fn hostile_names_are_clipped() {
    let long = "é".repeat(100_000);
    let mut request = raw("FP32", &[1], &[&[0; 4]]);
    request.inputs[0].name.clone_from(&long);
    request.inputs[0].datatype.clone_from(&long);
    assert!(request.into_request().unwrap_err().to_string().len() < 1_000);
}
