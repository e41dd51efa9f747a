//! Writes the binary seeds of the fuzz corpus: activation frames, decision records and gRPC
//! messages. Text seeds, pictures and manifests are plain files beside them.

use std::{error::Error, fs, path::Path, sync::Arc};

use bytes::Bytes;
use midspan_protocol::{
    Datatype, InferRequest, InferResponse, ModelName, Parameter, Parameters, RequestedOutput,
    grpc::inference::{InferTensorContents, ModelInferRequest, ModelInferResponse},
};
use midspan_router_core as core;
use midspan_runtime::{ElementType, Tensor};
use midspan_split::{
    Codec, Coding, FrameHeader, Precision, SplitId,
    codec::{Coder, Scale},
    encode, encode_as,
};
use prost::Message;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let corpus = system_tests::repo::root().join("tests/fuzz/corpus");
    frames(&corpus.join("frame"))?;
    records(&corpus.join("decision_record"))?;
    messages(&corpus)
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    fs::create_dir_all(folder)?;
    Ok(fs::write(folder.join(name), bytes)?)
}

fn frames(folder: &Path) -> Result<()> {
    let codec =
        |element, scale| Codec::new(element, vec![2, 5], scale).ok_or("no codec for such rows");
    let split = SplitId([7; 32]);
    let scale = Scale::new(-1.5, 4.0);
    let values: Vec<f32> = (0..30_u8).map(|i| f32::from(i) / 5.0 - 1.5).collect();
    let rows = Tensor::from_f32s(vec![3, 2, 5], &values)?;
    let floats = codec(ElementType::F32, scale)?;
    let plain = |rows: &Tensor, codec: &Codec, precision| {
        encode_as(&rows.view(), codec, precision, split, Coding::Plain)
    };
    for (name, precision) in [
        ("ok-8-bits", Precision::Bits(8)),
        ("ok-3-bits", Precision::Bits(3)),
        ("ok-half", Precision::Half),
        ("ok-raw", Precision::Raw),
    ] {
        write(folder, name, &plain(&rows, &floats, precision)?)?;
    }
    let mut odd = values.clone();
    odd[12] = f32::NAN;
    let odd = Tensor::from_f32s(vec![3, 2, 5], &odd)?;
    let frame = plain(&odd, &floats, Precision::Bits(4))?;
    write(folder, "ok-4-bits-raw-channel", &frame)?;
    let own = plain(&odd, &codec(ElementType::F32, None)?, Precision::Bits(5))?;
    write(folder, "ok-5-bits-own-scales", &own)?;
    let bytes = Tensor::new(ElementType::U8, vec![1, 2, 5], (0..10).collect())?;
    let bytes = plain(&bytes, &codec(ElementType::U8, None)?, Precision::Raw)?;
    write(folder, "ok-bytes", &bytes)?;
    write(folder, "bad-cut-short", &frame[..frame.len() - 1])?;
    let mut damaged = frame;
    damaged[70] ^= 1;
    write(folder, "bad-damaged", &damaged)?;
    coded(folder, split)
}

/// Frames that a coder makes smaller: values near the middle of their range, repeated numbers.
fn coded(folder: &Path, split: SplitId) -> Result<()> {
    let codec = |element, scale| Codec::new(element, vec![4, 60], scale).ok_or("no codec");
    let smallest = |rows: &Tensor, codec: &Codec, precision, coder: Coder| {
        let frame = encode(&rows.view(), codec, precision, split)?;
        if FrameHeader::peek(&frame)?.coder != coder {
            return Err(format!("{precision:?} is not smallest by {coder:?}").into());
        }
        Result::Ok(frame)
    };
    let mut rng = core::Rng::new(1);
    let mut value = || (rng.next_u64() as f32 / u64::MAX as f32 * 2.0 - 1.0).powi(5) * 3.0 + 1.0;
    let values: Vec<f32> = (0..480).map(|_| value()).collect();
    let rows = Tensor::from_f32s(vec![2, 4, 60], &values)?;
    for (name, scale, precision) in [
        ("ok-order-0", Scale::new(-1.5, 4.0), Precision::Bits(6)),
        ("ok-order-0-own-scales", None, Precision::Bits(5)),
    ] {
        let codec = codec(ElementType::F32, scale)?;
        write(folder, name, &smallest(&rows, &codec, precision, Coder::Order0)?)?;
    }
    let same = Tensor::from_f32s(vec![2, 4, 60], &[1.0; 480])?;
    let floats = codec(ElementType::F32, Scale::new(-1.5, 4.0))?;
    write(
        folder,
        "ok-order-0-one-symbol",
        &smallest(&same, &floats, Precision::Bits(3), Coder::Order0)?,
    )?;
    let numbers: Vec<u8> = (0..480_u64).flat_map(|at| (at % 40).to_le_bytes()).collect();
    let numbers = Tensor::new(ElementType::I64, vec![2, 4, 60], numbers)?;
    let frame = smallest(&numbers, &codec(ElementType::I64, None)?, Precision::Raw, Coder::Zstd)?;
    write(folder, "ok-zstd-integers", &frame)?;
    write(folder, "bad-zstd-cut-short", &frame[..frame.len() - 1])
}

fn records(folder: &Path) -> Result<()> {
    let cells = Arc::new(core::Cells::new(64, core::Tuning::default())?);
    let model = core::ModelId(0);
    let mut builder = core::TopologyBuilder::new();
    for index in 0..5_u64 {
        let held = match index {
            0 => core::Held::Loadable(core::Micros(900)),
            _ => core::Held::Resident,
        };
        let region = core::RegionId::new(index as u16 % 2)?;
        let served = core::Served { model, held, service: Some(core::Micros(400)) };
        let node = core::NodeSpec::new(core::NodeKey(index), region);
        builder = builder.node(core::NodeSpec {
            models: vec![served],
            offload: (index > 2).then_some(core::Micros(2_000)),
            ..node
        });
    }
    let topology = builder.build(None, &cells)?;
    let place = core::Place::new(48.1, 11.6)?;
    let mut whole = Vec::new();
    for name in core::Policy::NAMES {
        let policy = core::Policy::from_name(name).ok_or("policy")?;
        let request = core::Request {
            client: Some(place),
            deadline: Some(core::Micros(250_000)),
            ..core::Request::new(model)
        };
        let mut inputs = core::Inputs::new(policy);
        let (mut decision, mut rng) = (core::Decision::new(), core::Rng::new(1));
        core::gather(core::Timestamp(5), &topology, &cells, &request, &mut rng, &mut inputs);
        core::choose(&inputs, 3, &mut decision);
        whole.clear();
        core::encode(&inputs, 3, &decision, &mut whole);
        write(folder, &format!("ok-{}", name.replace('_', "-")), &whole)?;
    }
    write(folder, "bad-cut-short", &whole[..whole.len() / 2])?;
    write(folder, "bad-trailing", &[whole.as_slice(), b"\0"].concat())?;
    let inputs = core::Inputs::new(core::Policy::default());
    let mut decision = core::Decision::new();
    core::choose(&inputs, 0, &mut decision);
    let mut empty = Vec::new();
    core::encode(&inputs, 0, &decision, &mut empty);
    write(folder, "ok-nobody", &empty)
}

fn messages(corpus: &Path) -> Result<()> {
    let strings = Bytes::from_static(b"\x01\0\0\0a\0\0\0\0");
    let tensors = vec![
        midspan_protocol::Tensor::from_f32("x", vec![1, 2], &[1.5, f32::NAN])?,
        midspan_protocol::Tensor::new("s", Datatype::Bytes, vec![2], strings)?,
    ];
    // One of each: a map's entries are written in no fixed order, and seeds are the same each time.
    let mut parameters = Parameters::default();
    parameters.set("p", Parameter::Float(0.5));
    let outputs = vec![RequestedOutput { name: "y".into(), parameters: parameters.clone() }];
    let request = InferRequest {
        id: Some("7".into()),
        parameters: parameters.clone(),
        inputs: tensors.clone(),
        outputs,
    };
    let model = ModelName { name: "m".into(), version: Some("2".into()) };
    let raw = ModelInferRequest::new(&model, request);
    let folder = corpus.join("grpc_request");
    write(&folder, "ok-raw", &raw.encode_to_vec())?;
    write(&folder, "ok-nothing", &[])?;
    let mut typed = raw.clone();
    typed.raw_input_contents.clear();
    let [x, s] = typed.inputs.as_mut_slice() else { return Err("two inputs".into()) };
    let fp32_contents = vec![1.5, f32::NAN];
    x.contents = Some(InferTensorContents { fp32_contents, ..Default::default() });
    let bytes_contents = vec![Bytes::from_static(b"a"), Bytes::new()];
    s.contents = Some(InferTensorContents { bytes_contents, ..Default::default() });
    write(&folder, "ok-typed", &typed.encode_to_vec())?;
    typed.raw_input_contents.clone_from(&raw.raw_input_contents);
    write(&folder, "bad-both", &typed.encode_to_vec())?;
    write(&folder, "bad-cut-short", &raw.encode_to_vec()[..20])?;

    let response = InferResponse {
        model_name: "m".into(),
        model_version: Some("2".into()),
        id: Some("7".into()),
        parameters,
        outputs: tensors,
    };
    let mut answer = ModelInferResponse::from(response);
    let folder = corpus.join("grpc_response");
    write(&folder, "ok-raw", &answer.encode_to_vec())?;
    answer.raw_output_contents.pop();
    write(&folder, "bad-too-few", &answer.encode_to_vec())
}
