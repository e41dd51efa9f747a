//! gRPC inferences as data: every datatype in both forms, and everything that can be wrong with a
//! message.

use bytes::Bytes;
use midspan_protocol::grpc::inference::{
    InferTensorContents, ModelInferRequest, ModelInferResponse,
    model_infer_request::InferInputTensor,
};
use tonic::Code;

use crate::{
    case::{Outcome, ensure},
    e_grpc::Reply,
};

/// One inference.
pub(crate) struct Infer {
    pub(crate) id: &'static str,
    pub(crate) what: String,
    pub(crate) request: ModelInferRequest,
    pub(crate) want: Want,
}

/// What must come back.
pub(crate) enum Want {
    /// The outputs' elements, raw, and the request's id.
    Blobs(Vec<Bytes>),
    /// This code, with a message.
    Fails(Code),
}

impl Want {
    pub(crate) fn check(
        &self,
        request: &ModelInferRequest,
        reply: &Reply<ModelInferResponse>,
    ) -> Outcome {
        match (self, reply) {
            (Self::Blobs(expected), Ok(response)) => {
                let got = blobs(response)?;
                ensure!(got == *expected, "outputs {got:?}, expected {expected:?}");
                ensure!(response.id == request.id, "the id is '{}'", response.id);
                ensure!(response.model_name == request.model_name, "another model's name");
                Ok(())
            }
            (Self::Fails(code), Err((got, message))) => {
                ensure!(got == code, "expected {code:?}, got {got:?}: {message}");
                ensure!(!message.is_empty(), "no message");
                Ok(())
            }
            (Self::Blobs(_), Err(error)) => Err(format!("failed: {error:?}")),
            (Self::Fails(code), Ok(_)) => Err(format!("expected {code:?}, was answered")),
        }
    }
}

/// The outputs' elements in raw form, whichever form they came in.
pub(crate) fn blobs(response: &ModelInferResponse) -> Result<Vec<Bytes>, String> {
    if !response.raw_output_contents.is_empty() {
        return Ok(response.raw_output_contents.clone());
    }
    let typed = response.outputs.iter().map(|output| {
        let contents = output.contents.as_ref().ok_or("an output in neither form")?;
        Ok(raw(&output.datatype, contents))
    });
    typed.collect()
}

/// The raw form of typed contents.
fn raw(datatype: &str, contents: &InferTensorContents) -> Bytes {
    let c = contents;
    let narrow = |width: usize| {
        c.int_contents.iter().flat_map(move |v| v.to_le_bytes()[..width].to_vec()).collect()
    };
    let unsigned = |width: usize| {
        c.uint_contents.iter().flat_map(move |v| v.to_le_bytes()[..width].to_vec()).collect()
    };
    match datatype {
        "BOOL" => c.bool_contents.iter().map(|v| u8::from(*v)).collect(),
        "INT8" => narrow(1),
        "INT16" => narrow(2),
        "INT32" => narrow(4),
        "UINT8" => unsigned(1),
        "UINT16" => unsigned(2),
        "UINT32" => unsigned(4),
        "INT64" => c.int64_contents.iter().flat_map(|v| v.to_le_bytes()).collect(),
        "UINT64" => c.uint64_contents.iter().flat_map(|v| v.to_le_bytes()).collect(),
        "FP32" => c.fp32_contents.iter().flat_map(|v| v.to_le_bytes()).collect(),
        "FP64" => c.fp64_contents.iter().flat_map(|v| v.to_le_bytes()).collect(),
        "BYTES" => {
            let prefixed = |element: &Bytes| {
                let length = u32::try_from(element.len()).expect("a short element").to_le_bytes();
                [&length[..], element].concat()
            };
            c.bytes_contents.iter().flat_map(prefixed).collect()
        }
        other => panic!("{other} has no typed contents"),
    }
}

pub(crate) fn input(
    name: &str,
    datatype: &str,
    shape: &[i64],
    contents: Option<InferTensorContents>,
) -> InferInputTensor {
    InferInputTensor {
        name: name.to_owned(),
        datatype: datatype.to_owned(),
        shape: shape.to_vec(),
        contents,
        ..InferInputTensor::default()
    }
}

pub(crate) fn request(model: &str, inputs: Vec<InferInputTensor>) -> ModelInferRequest {
    let (model_name, id) = (model.to_owned(), "42".to_owned());
    ModelInferRequest { model_name, id, inputs, ..ModelInferRequest::default() }
}

/// Two elements of every datatype that has a typed field.
fn typed() -> Vec<(&'static str, InferTensorContents)> {
    let none = InferTensorContents::default;
    let int = |values: [i32; 2]| InferTensorContents { int_contents: values.to_vec(), ..none() };
    let uint = |values: [u32; 2]| InferTensorContents { uint_contents: values.to_vec(), ..none() };
    let texts = vec![Bytes::from_static(b"\xff\0a"), Bytes::new()];
    vec![
        ("BOOL", InferTensorContents { bool_contents: vec![true, false], ..none() }),
        ("INT8", int([-128, 127])),
        ("INT16", int([i16::MIN.into(), i16::MAX.into()])),
        ("INT32", int([i32::MIN, i32::MAX])),
        ("INT64", InferTensorContents { int64_contents: vec![i64::MIN, i64::MAX], ..none() }),
        ("UINT8", uint([0, 255])),
        ("UINT16", uint([1, u16::MAX.into()])),
        ("UINT32", uint([2, u32::MAX])),
        ("UINT64", InferTensorContents { uint64_contents: vec![3, u64::MAX], ..none() }),
        ("FP32", InferTensorContents { fp32_contents: vec![1.5, f32::NEG_INFINITY], ..none() }),
        ("FP64", InferTensorContents { fp64_contents: vec![-0.0, 5e-324], ..none() }),
        ("BYTES", InferTensorContents { bytes_contents: texts, ..none() }),
    ]
}

fn floats(values: &[f32]) -> InferTensorContents {
    InferTensorContents { fp32_contents: values.to_vec(), ..InferTensorContents::default() }
}

/// The same request with raw contents.
fn with_raw(mut request: ModelInferRequest, blobs: &[&[u8]]) -> ModelInferRequest {
    request.raw_input_contents = blobs.iter().map(|b| Bytes::copy_from_slice(b)).collect();
    request
}

/// Every inference of the table.
pub(crate) fn infers() -> Vec<Infer> {
    let mut cases = answered();
    cases.extend(refused());
    cases
}

fn answered() -> Vec<Infer> {
    let mut cases = Vec::new();
    for (datatype, contents) in typed() {
        let id = if datatype == "BYTES" { "C132" } else { "C126" };
        let model = format!("id_{}", datatype.to_lowercase());
        let blob = raw(datatype, &contents);
        let want = || Want::Blobs(vec![blob.clone()]);
        let inputs = |contents| vec![input("x", datatype, &[2], contents)];
        let bare = with_raw(request(&model, inputs(None)), &[&blob]);
        let what = format!("{datatype} raw");
        cases.push(Infer { id, what, request: bare, want: want() });
        let request = request(&model, inputs(Some(contents)));
        cases.push(Infer { id, what: format!("{datatype} typed"), request, want: want() });
    }
    for datatype in ["FP16", "BF16"] {
        let model = format!("id_{}", datatype.to_lowercase());
        let blob: &[u8] = b"\x01\0\x01\x7e";
        let request = with_raw(request(&model, vec![input("x", datatype, &[2], None)]), &[blob]);
        let want = Want::Blobs(vec![Bytes::from_static(b"\x01\0\x01\x7e")]);
        cases.push(Infer { id: "C126", what: format!("{datatype} raw"), request, want });
    }
    let rows = |value: i32| vec![value; 16];
    let contents = |value| InferTensorContents { int_contents: rows(value), ..Default::default() };
    let inputs = [("INPUT0", 7), ("INPUT1", 2)];
    let inputs = inputs.map(|(name, value)| input(name, "INT32", &[1, 16], Some(contents(value))));
    let want = [9, 5].map(|value| raw("INT32", &contents(value)));
    cases.push(Infer {
        id: "C126",
        what: "two inputs".to_owned(),
        request: request("simple", inputs.to_vec()),
        want: Want::Blobs(want.to_vec()),
    });
    let empty = with_raw(request("id_fp32", vec![input("x", "FP32", &[0], None)]), &[b""]);
    let want = Want::Blobs(vec![Bytes::new()]);
    cases.push(Infer { id: "C126", what: "no elements".to_owned(), request: empty, want });
    cases
}

fn refused() -> Vec<Infer> {
    let fp32 =
        |shape: &[i64], contents| request("id_fp32", vec![input("x", "FP32", shape, contents)]);
    let two: &[u8] = b"\0\0\xc0\x3f\0\0\0\xc0";
    let int8 = |value| {
        let contents = InferTensorContents { int_contents: vec![value], ..Default::default() };
        request("id_int8", vec![input("x", "INT8", &[1], Some(contents))])
    };
    let uint8 = InferTensorContents { uint_contents: vec![256], ..Default::default() };
    let doubles = InferTensorContents { fp64_contents: vec![1.0], ..Default::default() };
    let both = InferTensorContents { fp64_contents: vec![1.0], ..floats(&[1.0]) };
    let half = |datatype: &str| {
        let model = format!("id_{}", datatype.to_lowercase());
        request(&model, vec![input("x", datatype, &[1], Some(floats(&[1.0])))])
    };
    let pair = || {
        let tensor = |name| input(name, "INT32", &[1, 16], None);
        request("simple", vec![tensor("INPUT0"), tensor("INPUT1")])
    };
    let row: &[u8] = &[1; 64];
    let twice = vec![input("x", "FP32", &[1], None), input("x", "FP32", &[1], None)];
    let cases = [
        ("C127", "raw and typed", with_raw(fp32(&[1], Some(floats(&[1.5]))), &[&two[..4]])),
        ("C128", "fewer raw entries than inputs", with_raw(pair(), &[row])),
        ("C128", "more raw entries than inputs", with_raw(pair(), &[row, row, row])),
        ("C129", "too few raw bytes", with_raw(fp32(&[2], None), &[&two[..7]])),
        ("C129", "too many raw bytes", with_raw(fp32(&[1], None), &[two])),
        ("C129", "too few elements", fp32(&[3], Some(floats(&[1.0, 2.0])))),
        ("C129", "too many elements", fp32(&[1], Some(floats(&[1.0, 2.0])))),
        ("C130", "doubles for FP32", fp32(&[1], Some(doubles))),
        ("C130", "two fields", fp32(&[1], Some(both))),
        ("C130", "FP16 typed", half("FP16")),
        ("C130", "BF16 typed", half("BF16")),
        ("C131", "300 for INT8", int8(300)),
        ("C131", "-129 for INT8", int8(-129)),
        (
            "C131",
            "256 for UINT8",
            request("id_uint8", vec![input("x", "UINT8", &[1], Some(uint8))]),
        ),
        ("C132", "a length beyond the blob", {
            let tensor = input("x", "BYTES", &[1], None);
            with_raw(request("id_bytes", vec![tensor]), &[b"\x09\0\0\0a"])
        }),
        ("C135", "a negative dimension", with_raw(fp32(&[-1], None), &[two])),
        ("C135", "a product beyond memory", with_raw(fp32(&[i64::MAX, 8], None), &[two])),
        ("C135", "a wrong rank", with_raw(fp32(&[1, 2], None), &[two])),
        ("C135", "no inputs", request("id_fp32", vec![])),
        ("C135", "no data", fp32(&[1], None)),
        ("C135", "empty contents", fp32(&[1], Some(InferTensorContents::default()))),
        ("C135", "an unknown datatype", {
            with_raw(request("id_fp32", vec![input("x", "FLOAT", &[1], None)]), &[&two[..4]])
        }),
        ("C135", "another datatype", {
            with_raw(request("id_fp32", vec![input("x", "INT32", &[1], None)]), &[&two[..4]])
        }),
        ("C135", "an unknown input", {
            with_raw(request("id_fp32", vec![input("z", "FP32", &[1], None)]), &[&two[..4]])
        }),
        ("C135", "an input twice", with_raw(request("id_fp32", twice), &[&two[..4], &two[..4]])),
    ];
    let refuse = |(id, what, request): (_, &str, _)| Infer {
        id,
        what: what.to_owned(),
        request,
        want: Want::Fails(Code::InvalidArgument),
    };
    cases.into_iter().map(refuse).collect()
}
