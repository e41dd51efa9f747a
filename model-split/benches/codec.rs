//! Time to write and read frames of the default model's cut (8x7x7) and of a larger one, at the
//! precisions that are offered. One row each: what an edge node does per hard request.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use midspan_runtime::{ElementType, Tensor};
use midspan_split::codec::Scale;
use midspan_split::{Codec, Frame, Precision, SplitId, encode};

/// Values in 0 to 6 without a pattern, the same in every run.
fn values(count: usize) -> Vec<f32> {
    let mut state = 1u32;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 * 6.0
    };
    (0..count).map(|_| next()).collect()
}

#[expect(clippy::expect_used, reason = "shapes and scales are constants")]
fn codec(criterion: &mut Criterion) {
    for row in [[8, 7, 7], [80, 14, 14]] {
        let count = row.iter().product();
        let scale = Scale::new(0.0, 6.0);
        let codec = Codec::new(ElementType::F32, row.to_vec(), scale).expect("a sound codec");
        let shape = vec![1, row[0], row[1], row[2]];
        let tensor = Tensor::from_f32s(shape, &values(count)).expect("as many values");
        let mut group = criterion.benchmark_group(format!("{}x{}x{}", row[0], row[1], row[2]));
        group.throughput(Throughput::Elements(count as u64));
        let precisions = [Precision::Bits(4), Precision::Bits(8), Precision::Half, Precision::Raw];
        for precision in precisions {
            let id = SplitId([7; 32]);
            let write = || encode(&tensor.view(), &codec, precision, id).expect("rows of the cut");
            group
                .bench_function(format!("encode {precision:?}"), |b| b.iter(|| black_box(write())));
            let frame = write();
            group.bench_function(format!("decode {precision:?}"), |b| {
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
