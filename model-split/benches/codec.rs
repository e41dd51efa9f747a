//! Time to write and read frames of the default model's cut (8x7x7) and of a larger one (80x14x14,
//! EfficientNet-Lite0 after block 3.0), one row each: what an edge node does per hard request. The
//! values are made up, each channel Laplace-distributed with a spread and a mean of its own, as
//! activations are. `MIDSPAN_BENCH_ROWS=file.npy`, an FP32 array `[rows, channels, ...]`, adds a
//! group with its first row.

use std::{fs, hint::black_box};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use midspan_runtime::{ElementType, Tensor};
use midspan_split::{
    Codec, Coding, Frame, Precision, SplitId,
    codec::{Coder, Scale},
    encode_as,
};

/// Numbers in 0 to 1 without a pattern, the same in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        ((self.0 >> 33) as f64 + 0.5) / (1u64 << 31) as f64
    }

    fn laplace(&mut self) -> f64 {
        let uniform = self.next() - 0.5;
        -uniform.signum() * (1.0 - 2.0 * uniform.abs()).ln()
    }
}

fn activation(channels: usize, unit: usize) -> Vec<f32> {
    let mut noise = Noise(7);
    let mut values = Vec::new();
    for _ in 0..channels {
        let (mean, spread) = (2.0 * noise.laplace(), 1.5 + 3.5 * noise.next());
        values.extend((0..unit).map(|_| (mean + spread * noise.laplace()) as f32));
    }
    values
}

/// The first row of a file of rows, and its shape; none when it is no .npy of FP32 in C order.
fn first_row(bytes: &[u8]) -> Option<(Vec<usize>, Vec<f32>)> {
    let (head, rest) = bytes.split_first_chunk::<10>()?;
    let length = usize::from(u16::from_le_bytes([head[8], head[9]]));
    let (text, data) = rest.split_at_checked(length)?;
    let text = std::str::from_utf8(text).ok().filter(|_| head.starts_with(b"\x93NUMPY\x01"))?;
    let plain = text.contains("'descr': '<f4'") && text.contains("'fortran_order': False");
    let (_, shape) = text.split_once("'shape': (").filter(|_| plain)?;
    let (_rows, row) = shape.split_once(')')?.0.split_once(',')?;
    let row: Vec<usize> = row.split(',').filter_map(|size| size.trim().parse().ok()).collect();
    let (values, _) = data.get(..4 * row.iter().product::<usize>())?.as_chunks::<4>();
    Some((row, values.iter().map(|value| f32::from_le_bytes(*value)).collect()))
}

#[expect(clippy::expect_used, reason = "shapes and scales are constants, or the operator's")]
fn codec(criterion: &mut Criterion) {
    let mut cases = vec![
        ("8x7x7".to_owned(), vec![8, 7, 7], activation(8, 49), 4),
        ("80x14x14".to_owned(), vec![80, 14, 14], activation(80, 196), 5),
    ];
    if let Ok(path) = std::env::var("MIDSPAN_BENCH_ROWS") {
        let bytes = fs::read(&path).expect("a file");
        let (row, values) = first_row(&bytes).expect("an FP32 array of rows, format 1");
        cases.push((path, row, values, 5));
    }
    for (name, row, values, bits) in cases {
        let least = values.iter().copied().fold(f32::INFINITY, f32::min);
        let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let scale = Scale::new(least, most);
        let codec = Codec::new(ElementType::F32, row.clone(), scale).expect("a sound codec");
        let shape = std::iter::once(1).chain(row).collect();
        let tensor = Tensor::from_f32s(shape, &values).expect("as many values");
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(values.len() as u64));
        let bits = Precision::Bits(bits);
        for (precision, coding) in [
            (bits, Coding::Smallest),
            (bits, Coding::Plain),
            (Precision::Half, Coding::Smallest),
            (Precision::Half, Coding::Plain),
            (Precision::Raw, Coding::Plain),
        ] {
            let write = || {
                encode_as(&tensor.view(), &codec, precision, SplitId([7; 32]), coding)
                    .expect("rows of the cut")
            };
            let frame = write();
            let read = Frame::parse(&frame).expect("a sound frame");
            let coder: Coder = read.header().coder;
            let what = format!("{precision:?} {coding:?} ({coder:?}, {} bytes)", frame.len());
            group.bench_function(format!("encode {what}"), |b| b.iter(|| black_box(write())));
            group.bench_function(format!("decode {what}"), |b| {
                b.iter(|| {
                    let frame = Frame::parse(black_box(&frame)).expect("a sound frame");
                    black_box(frame.decode(&codec).expect("of this cut"))
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, codec);
criterion_main!(benches);
