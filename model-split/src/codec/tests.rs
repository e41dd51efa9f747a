//! Wire bytes against a frame written with numpy (`tests/golden/make.py`), round trips, and
//! frames that must be refused before anything is allocated.

use proptest::prelude::*;

use super::*;

const ID: SplitId = {
    let mut bytes = [0; 32];
    let mut index = 0;
    while index < 32 {
        bytes[index] = index as u8;
        index += 1;
    }
    SplitId(bytes)
};

fn codec(row: &[usize]) -> Codec {
    Codec::new(ElementType::F32, row.to_vec(), Scale::new(0.0, 6.0)).unwrap()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (chunks, _) = bytes.as_chunks::<4>();
    chunks.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect()
}

fn write(codec: &Codec, values: &[f32], precision: Precision) -> Vec<u8> {
    let mut shape = vec![values.len() / codec.elements() as usize];
    shape.extend_from_slice(codec.row_shape());
    let tensor = Tensor::from_f32s(shape, values).unwrap();
    encode(&tensor.view(), codec, precision, ID).unwrap()
}

fn read(codec: &Codec, frame: &[u8]) -> Vec<f32> {
    Frame::parse(frame).unwrap().decode(codec).unwrap().f32s().unwrap().into_owned()
}

#[test]
fn wire_bytes_are_pinned() {
    let golden = include_bytes!("../../tests/golden/frame-v1.bin");
    let rows = floats(include_bytes!("../../tests/golden/frame-v1.rows.f32"));
    let back = floats(include_bytes!("../../tests/golden/frame-v1.back.f32"));
    let codec = codec(&[8, 7, 7]);
    let frame = write(&codec, &rows, Precision::Bits(4));
    assert_eq!(frame.len(), 64 + 2 * 196);
    assert_eq!(frame, golden);
    assert_eq!(read(&codec, golden), back);
}

#[test]
fn one_row_of_the_default_model_takes_260_bytes_at_4_bits() {
    assert_eq!(write(&codec(&[8, 7, 7]), &[1.0; 392], Precision::Bits(4)).len(), 260);
}

#[test]
fn a_row_does_not_depend_on_its_neighbours() {
    let codec = codec(&[11]);
    let row: Vec<f32> = (0..11).map(|index| index as f32 * 0.6).collect();
    let broken = [f32::NAN; 11];
    let alone = write(&codec, &row, Precision::Bits(3));
    let batch = write(&codec, &[&broken[..], &row, &[9.0; 11]].concat(), Precision::Bits(3));
    let len = 2 * 3;
    assert_eq!(alone[64..64 + len], batch[64 + len..64 + 2 * len]);
    assert_eq!(read(&codec, &batch)[11..22], read(&codec, &alone));
}

#[test]
fn broken_rows_travel_raw_with_all_their_bits() {
    let codec = codec(&[3]);
    let odd = f32::from_bits(0xffc1_2345);
    let values = [1.0, odd, -7.5, 0.0, 0.0, 6.0, f32::INFINITY, f32::NEG_INFINITY, -0.0];
    let frame = write(&codec, &values, Precision::Bits(8));
    assert_eq!(FrameHeader::peek(&frame).unwrap().raw_rows, 2);
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&read(&codec, &frame)), bits(&values));
}

#[test]
fn half_and_raw_are_there_for_reference() {
    let codec = codec(&[2]);
    let values = [0.1, 65504.0, f32::NEG_INFINITY, -0.0];
    assert_eq!(read(&codec, &write(&codec, &values, Precision::Raw)), values);
    let halves = read(&codec, &write(&codec, &values, Precision::Half));
    assert_eq!(halves, [0.099_975_586, 65504.0, f32::NEG_INFINITY, -0.0]);
    let labels = Codec::new(ElementType::I64, vec![2], None).unwrap();
    let tensor = Tensor::new(ElementType::I64, vec![1, 2], (0..16).collect()).unwrap();
    let frame = encode(&tensor.view(), &labels, Precision::Raw, ID).unwrap();
    assert_eq!(Frame::parse(&frame).unwrap().decode(&labels).unwrap(), tensor);
    assert!(encode(&tensor.view(), &labels, Precision::Half, ID).is_err());
    let unscaled = Codec::new(ElementType::F32, vec![1], None).unwrap();
    let tensor = Tensor::from_f32s(vec![1, 1], &[1.0]).unwrap();
    let error = encode(&tensor.view(), &unscaled, Precision::Bits(4), ID).unwrap_err();
    assert_eq!(error.to_string(), "cannot write FP32 elements at Bits(4): the cut has no scale");
}

#[test]
fn scales_without_a_sound_step_are_refused() {
    for (lo, hi) in [(0.0, 0.0), (1.0, 0.0), (f32::NAN, 1.0), (0.0, f32::INFINITY)] {
        assert!(Scale::new(lo, hi).is_none(), "{lo} {hi}");
    }
    assert!(Scale::new(f32::MIN, f32::MAX).is_none());
    assert!(Scale::new(0.0, f32::MIN_POSITIVE).is_none());
}

/// Sets header bytes of a good frame of two rows and sees what is said of it.
fn refused(changes: &[(usize, &[u8])]) -> String {
    let mut frame = write(&codec(&[9]), &[1.0; 18], Precision::Bits(4));
    for (at, bytes) in changes {
        frame[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    let error = Frame::parse(&frame).map(|_| ()).unwrap_err().to_string();
    if let Err(peeked) = FrameHeader::peek(&frame) {
        assert_eq!(peeked.to_string(), error);
    }
    error
}

#[test]
fn hostile_headers_are_refused_for_what_they_are() {
    assert_eq!(refused(&[(0, b"GET ")]), "not a frame: it starts with [47, 45, 54, 20]");
    assert_eq!(refused(&[(4, &[2])]), "frame version 2 is not supported, only 1");
    assert_eq!(refused(&[(5, &[1])]), "coder zstd is not supported");
    assert_eq!(refused(&[(5, &[9])]), "coder 9 is not supported");
    assert_eq!(refused(&[(6, &[3])]), "frame header: unknown mode");
    assert_eq!(refused(&[(7, &[9])]), "frame header: bits do not suit the mode");
    assert_eq!(refused(&[(7, &[0])]), "frame header: bits do not suit the mode");
    assert_eq!(refused(&[(8, &[8])]), "frame header: unknown element type");
    assert_eq!(refused(&[(8, &[7])]), "frame header: only FP32 elements are quantised");
    assert_eq!(refused(&[(10, &[1])]), "frame header: reserved bytes are not zero");
    assert_eq!(refused(&[(12, &[0; 4])]), "frame header: no rows, or rows without elements");
    assert_eq!(refused(&[(56, &[3])]), "frame header: more raw rows than rows");
    let huge = [0xff; 4];
    assert_eq!(refused(&[(12, &huge), (16, &huge)]), "frame header: payload is too long");
    assert_eq!(refused(&[(12, &[3])]), "frame payload has 16 bytes, its header asks for 24");
    assert!(refused(&[(20, &[0xee])]).starts_with("frame checksum"));
    assert!(refused(&[(70, &[0xee])]).starts_with("frame checksum"));
}

#[test]
fn lengths_are_exact() {
    let frame = write(&codec(&[9]), &[1.0; 18], Precision::Bits(4));
    for len in 0..frame.len() {
        assert!(Frame::parse(&frame[..len]).is_err(), "{len}");
    }
    let longer = [&frame[..], b"x"].concat();
    assert!(matches!(Frame::parse(&longer), Err(CodecError::Length { expected: 16, got: 17 })));
}

#[test]
fn frames_of_another_cut_are_refused() {
    let frame = write(&codec(&[9]), &[1.0; 18], Precision::Bits(4));
    let error = Frame::parse(&frame).unwrap().decode(&codec(&[18])).unwrap_err();
    assert_eq!(error.to_string(), "frame has rows of 9 FP32, this cut has rows of 18 FP32");
    let tensor = Tensor::from_f32s(vec![2, 3, 3], &[0.0; 18]).unwrap();
    assert!(encode(&tensor.view(), &codec(&[9]), Precision::Raw, ID).is_err());
    let none = Tensor::from_f32s(vec![0, 9], &[]).unwrap();
    assert!(encode(&none.view(), &codec(&[9]), Precision::Raw, ID).is_err());
}

/// Reseals a frame whose raw rows were tampered with.
#[test]
fn raw_rows_must_be_in_order_and_in_range() {
    let codec = codec(&[1]);
    let frame = write(&codec, &[f32::NAN, f32::NAN, 1.0], Precision::Bits(1));
    let header = FrameHeader::peek(&frame).unwrap();
    let first = 64 + 3;
    for (first_index, second_index, good) in
        [(0u8, 1u8, true), (1, 0, false), (0, 0, false), (0, 3, false)]
    {
        let mut frame = frame.clone();
        frame[first] = first_index;
        frame[first + 8] = second_index;
        frame::seal(&header, &mut frame).unwrap();
        let decoded = Frame::parse(&frame).unwrap().decode(&codec);
        assert_eq!(decoded.is_ok(), good, "{first_index} {second_index}");
    }
}

proptest! {
    #[test]
    fn values_come_back_within_half_a_step(
        bits in 1u8..=8,
        elements in 1usize..40,
        rows in 1usize..4,
        seed in proptest::collection::vec(-1.0f32..7.0, 160),
    ) {
        let codec = codec(&[elements]);
        let values = &seed[..elements * rows];
        let step = Scale::new(0.0, 6.0).unwrap().step(bits);
        let frame = write(&codec, values, Precision::Bits(bits));
        let back = read(&codec, &frame);
        for (value, back) in values.iter().zip(&back) {
            prop_assert!((value.clamp(0.0, 6.0) - back).abs() <= step * 0.5001, "{} {}", value, back);
        }
        // What was quantised once is quantised to itself.
        prop_assert_eq!(write(&codec, &back, Precision::Bits(bits)), frame);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Frame::parse(&bytes);
        let head = [&MAGIC[..], &[1, 0, 2, 4, 1, 0, 0, 0]].concat();
        let len = head.len().min(bytes.len());
        bytes[..len].copy_from_slice(&head[..len]);
        if let Ok(frame) = Frame::parse(&bytes) {
            let _ = frame.decode(&codec(&[9]));
        }
    }
}
