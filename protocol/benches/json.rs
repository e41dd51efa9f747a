//! JSON requests and answers: this crate's parser beside general ones, on the same bodies.
//!
//! The others are asked for less: they neither check shapes and ranges nor align the elements.

#![expect(clippy::unwrap_used, reason = "a bench stops at what it cannot measure")]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use midspan_protocol::{Datatype, InferRequest, InferResponse, Tensor, response::OutputForm};
use serde::Deserialize;

/// A request as serde would read it, without a look at shapes.
#[derive(Deserialize)]
struct Typed<T> {
    inputs: Vec<TypedInput<T>>,
}

#[derive(Deserialize)]
struct TypedInput<T> {
    data: Vec<T>,
}

/// Seeded values in 0..1, so that runs compare.
fn values(count: usize) -> Vec<f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    (0..count).map(|_| next()).collect()
}

fn body(datatype: &str, shape: &str, data: &str) -> Bytes {
    format!(
        r#"{{"id":"1","inputs":[{{"name":"x","shape":{shape},"datatype":"{datatype}","data":{data}}}]}}"#
    )
    .into()
}

fn flat(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(","))
}

/// Rows of 224 in 3 planes.
fn nested(values: &[f64]) -> String {
    let rows: Vec<String> =
        values.chunks(224).map(|row| flat(row.iter().map(|v| format!("{v:.6}")))).collect();
    let planes: Vec<String> = rows.chunks(224).map(|plane| flat(plane.iter().cloned())).collect();
    format!("[{}]", flat(planes.into_iter()))
}

fn floats(c: &mut Criterion) {
    let picture = values(3 * 224 * 224);
    let shape = "[1,3,224,224]";
    // What a program prints that holds singles as doubles: 17 significant digits.
    let long = flat(picture.iter().map(|v| f64::from(*v as f32).to_string()));
    let short = flat(picture.iter().map(|v| format!("{v:.6}")));
    for (name, body) in [
        ("fp32_17_digits", body("FP32", shape, &long)),
        ("fp32_6_digits", body("FP32", shape, &short)),
        ("fp32_nested", body("FP32", shape, &nested(&picture))),
        ("fp64_17_digits", body("FP64", shape, &flat(picture.iter().map(f64::to_string)))),
    ] {
        compare::<f32>(c, name, &body, !name.contains("nested"));
    }
}

fn integers(c: &mut Criterion) {
    let data = flat(values(10_000).iter().map(|v| ((v - 0.5) * 1e12).round().to_string()));
    compare::<i64>(c, "int64_10k", &body("INT64", "[10000]", &data), true);
    let pixels = flat(values(150_528).iter().map(|v| (v * 255.0).round().to_string()));
    compare::<u8>(c, "uint8_pixels", &body("UINT8", "[1,3,224,224]", &pixels), true);
}

fn compare<T: for<'de> Deserialize<'de>>(c: &mut Criterion, name: &str, body: &Bytes, flat: bool) {
    let mut group = c.benchmark_group(format!("parse/{name}"));
    group.throughput(Throughput::Bytes(body.len() as u64)).sample_size(20);
    group.bench_function(BenchmarkId::from_parameter("midspan"), |b| {
        b.iter(|| InferRequest::parse(black_box(body), None).unwrap());
    });
    group.bench_function(BenchmarkId::from_parameter("serde_json_value"), |b| {
        b.iter(|| collect(&serde_json::from_slice(black_box(body)).unwrap()));
    });
    group.bench_function(BenchmarkId::from_parameter("simd_json_value"), |b| {
        b.iter(|| {
            let mut copy = black_box(body).to_vec();
            collect(&simd_json::from_slice(&mut copy).unwrap())
        });
    });
    if flat {
        group.bench_function(BenchmarkId::from_parameter("serde_json_typed"), |b| {
            b.iter(|| data::<T>(serde_json::from_slice(black_box(body)).unwrap()));
        });
        group.bench_function(BenchmarkId::from_parameter("simd_json_typed"), |b| {
            b.iter(|| {
                let mut copy = black_box(body).to_vec();
                data::<T>(simd_json::from_slice(&mut copy).unwrap())
            });
        });
    }
    group.finish();
}

fn data<T>(request: Typed<T>) -> Vec<T> {
    request.inputs.into_iter().flat_map(|input| input.data).collect()
}

/// The elements of a tree, as singles.
fn collect(value: &serde_json::Value) -> Vec<f32> {
    fn walk(value: &serde_json::Value, out: &mut Vec<f32>) {
        match value {
            serde_json::Value::Array(list) => list.iter().for_each(|value| walk(value, out)),
            other => out.extend(other.as_f64().map(|value| value as f32)),
        }
    }
    let mut out = Vec::new();
    walk(&value["inputs"][0]["data"], &mut out);
    out
}

fn answers(c: &mut Criterion) {
    let singles: Vec<f32> = values(100_000).iter().map(|v| *v as f32).collect();
    let doubles: Vec<u8> = values(100_000).iter().flat_map(|v| v.to_le_bytes()).collect();
    let integers: Vec<u8> =
        values(100_000).iter().flat_map(|v| ((v * 1e12) as i64).to_le_bytes()).collect();
    let shape = vec![100_000];
    for (name, tensor) in [
        ("fp32", Tensor::from_f32("y", shape.clone(), &singles)),
        ("fp64", Tensor::new("y", Datatype::Fp64, shape.clone(), doubles.into())),
        ("int64", Tensor::new("y", Datatype::Int64, shape, integers.into())),
    ] {
        let response = InferResponse { outputs: vec![tensor.unwrap()], ..Default::default() };
        let mut group = c.benchmark_group("write");
        group.throughput(Throughput::Elements(100_000)).sample_size(20);
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter(|| black_box(&response).encode(&OutputForm::default()).unwrap());
        });
        group.finish();
    }
}

criterion_group!(benches, floats, integers, answers);
criterion_main!(benches);
