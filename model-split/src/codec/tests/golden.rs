//! One frame of every mode and coder, pinned in `tests/golden/frames` with what it decodes to.
//! `tests/golden/frames.py` reads them after the description alone. `MIDSPAN_BLESS=1` writes them
//! anew: that changes the wire, so that nodes of two versions no longer understand each other.

use std::fs;
use std::path::PathBuf;

use super::coders::coded;
use super::*;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/frames").join(name)
}

/// The file's bytes, which are `bytes` where they are to be written anew.
fn pinned(name: &str, bytes: &[u8]) -> Vec<u8> {
    if std::env::var("MIDSPAN_BLESS").is_ok_and(|value| value == "1") {
        fs::create_dir_all(path("")).unwrap();
        fs::write(path(name), bytes).unwrap();
    }
    fs::read(path(name)).unwrap()
}

/// Sums of six bytes without a pattern, from -12 to 12 in steps of 1/64: the same bits everywhere.
fn values(count: usize) -> Vec<f32> {
    let mut state = 1u32;
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as i32
    };
    let mut sum = || (0..6).map(|_| byte()).sum::<i32>();
    (0..count).map(|at| (sum() - 765) as f32 / 64.0 + (at / 55 % 3) as f32 - 1.0).collect()
}

#[test]
fn frames_are_pinned() {
    let row = [20, 55];
    let tensor = Tensor::from_f32s(vec![2, 20, 55], &values(2200)).unwrap();
    let mut broken = values(2200);
    (broken[56], broken[2199]) = (f32::NAN, f32::INFINITY);
    let broken = Tensor::from_f32s(vec![2, 20, 55], &broken).unwrap();
    let numbers = values(2200).iter().flat_map(|value| (*value as i64).to_le_bytes()).collect();
    let numbers = Tensor::new(ElementType::I64, vec![2, 20, 55], numbers).unwrap();
    let scale = |at: usize| Scale::new(-8.0 - (at % 4) as f32, 8.0).unwrap();
    let floats = |count: usize| {
        let scales = (0..count).map(scale).collect();
        Codec::with_scales(ElementType::F32, row.to_vec(), scales).unwrap()
    };
    let integers = Codec::new(ElementType::I64, row.to_vec(), None).unwrap();
    let modes = [
        ("raw", &tensor, floats(0), Precision::Raw),
        ("integers", &numbers, integers, Precision::Raw),
        ("half", &tensor, floats(0), Precision::Half),
        ("tensor-5-bit", &tensor, floats(1), Precision::Bits(5)),
        ("channel-3-bit-broken", &broken, floats(20), Precision::Bits(3)),
        ("own-6-bit-broken", &broken, floats(0), Precision::Bits(6)),
    ];
    for (mode, tensor, codec, precision) in modes {
        for (name, coder) in
            [("none", Coder::None), ("zstd", Coder::Zstd), ("order-0", Coder::Order0)]
        {
            let name = format!("{mode}-{name}.bin");
            // These planes are no shorter by zstd, so that there is no such frame.
            if coder == Coder::Zstd && matches!(precision, Precision::Bits(_)) {
                continue;
            }
            let frame = coded(tensor, &codec, precision, coder).unwrap();
            let golden = pinned(&name, &frame);
            // What another version of zstd writes is as good as long as it is read alike.
            assert!(coder == Coder::Zstd || golden == frame, "{name}");
            let back = Frame::parse(&golden).unwrap().decode(&codec).unwrap();
            assert!(pinned(&format!("{mode}.back"), back.bytes()) == back.bytes(), "{name}");
        }
    }
}
