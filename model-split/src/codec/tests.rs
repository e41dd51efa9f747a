//! Wire bytes against a frame written with numpy (`tests/golden/make.py`), round trips, and
//! frames that must be refused before anything is allocated. Frames without a coder are here,
//! those with one in `coders`.

mod coders;
mod golden;

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
    encode_as(&tensor.view(), codec, precision, ID, Coding::Plain).unwrap()
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

fn bits_of(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn broken_rows_travel_raw_with_all_their_bits() {
    let codec = codec(&[3]);
    let odd = f32::from_bits(0xffc1_2345);
    let values = [1.0, odd, -7.5, 0.0, 0.0, 6.0, f32::INFINITY, f32::NEG_INFINITY, -0.0];
    let frame = write(&codec, &values, Precision::Bits(8));
    let header = FrameHeader::peek(&frame).unwrap();
    assert_eq!((header.units, header.raw_units), (1, 2));
    assert_eq!(bits_of(&read(&codec, &frame)), bits_of(&values));
}

/// The same frame as programs write that know rows only.
#[test]
fn where_rows_have_channels_only_broken_channels_travel_raw() {
    let codec = codec(&[3, 2]);
    let values = [0.0, 6.0, 1.0, f32::NAN, 6.0, 0.0, 6.0, 6.0, 0.0, 0.0, f32::INFINITY, 2.0];
    let frame = write(&codec, &values, Precision::Bits(1));
    let header = FrameHeader::peek(&frame).unwrap();
    assert_eq!((header.units, header.raw_units), (3, 2));
    assert_eq!(frame.len(), 64 + 2 + 2 * (4 + 8));
    assert_eq!(bits_of(&read(&codec, &frame)), bits_of(&values));
    // Written by a program that takes whole rows for units: read as it was meant.
    let mut rows = FrameHeader { units: 1, raw_units: 1, ..header };
    let raw = values[..6].iter().flat_map(|value| value.to_le_bytes());
    let mut old = vec![0; 64];
    old.extend([0, 0b00_0011]);
    old.extend([0; 4].into_iter().chain(raw));
    frame::seal(&rows, &mut old).unwrap();
    let back = read(&codec, &old);
    assert_eq!(bits_of(&back[..6]), bits_of(&values[..6]));
    assert_eq!(back[6..], [6.0, 6.0, 0.0, 0.0, 0.0, 0.0]);
    rows.units = 4;
    let error = frame::seal(&rows, &mut old).and_then(|()| FrameHeader::peek(&old)).unwrap_err();
    assert!(matches!(error, CodecError::Header(_) | CodecError::Length { .. }), "{error}");
}

#[test]
fn each_channel_may_have_a_scale() {
    let scales = [(0.0, 7.0), (-70.0, 0.0), (1.0, 1.7)];
    let scales: Vec<Scale> = scales.iter().map(|(lo, hi)| Scale::new(*lo, *hi).unwrap()).collect();
    let codec = Codec::with_scales(ElementType::F32, vec![3, 2], scales.clone()).unwrap();
    let values = [0.0, 3.4, -70.0, -12.0, 1.0, 1.26, 9.0, -9.0, 9.0, -90.0, 9.0, -9.0];
    let back = read(&codec, &write(&codec, &values, Precision::Bits(3)));
    let expected = [0.0, 3.0, -70.0, -10.0, 1.0, 1.3, 7.0, 0.0, 0.0, -70.0, 1.7, 1.0];
    for (back, expected) in back.iter().zip(expected) {
        assert!((back - expected).abs() < 1e-5, "{back} {expected}");
    }
    let of = |row: &[usize], count: usize| {
        Codec::with_scales(ElementType::F32, row.to_vec(), scales[..count].to_vec()).is_some()
    };
    assert!(of(&[3, 2], 0) && of(&[3, 2], 1) && of(&[3, 2], 3) && of(&[3], 1));
    assert!(!of(&[3, 2], 2) && !of(&[3], 3) && !of(&[2, 3], 3));
}

/// Without a scale of the cut the ranges of the values travel.
#[test]
fn scales_travel_where_the_cut_has_none() {
    let codec = Codec::new(ElementType::F32, vec![4, 2], None).unwrap();
    let huge = f32::MAX;
    let values = [-1.0, 2.0, 5.5, 5.5, -huge, huge, f32::NAN, 0.0, 0.0, 0.0, 1.0, 8.0, 3.0, 1e-45];
    let values = [&values[..], &[0.0, 0.5]].concat();
    let frame = write(&codec, &values, Precision::Bits(2));
    let header = FrameHeader::peek(&frame).unwrap();
    assert_eq!((header.mode, header.units, header.raw_units), (Mode::Own, 4, 2));
    assert_eq!(frame.len(), 64 + 2 * 2 + 2 * 4 * 8 + 2 * (4 + 8));
    // Ends of a range, single values and raw units come back as they were.
    assert_eq!(bits_of(&read(&codec, &frame)), bits_of(&values));
    // A row says the same whatever its neighbours.
    let alone = read(&codec, &write(&codec, &values[8..], Precision::Bits(2)));
    assert_eq!(bits_of(&alone), bits_of(&values[8..]));
    // A scale that is none is refused, wherever it comes from.
    let mut hostile = frame;
    hostile[64 + 4..64 + 8].copy_from_slice(&f32::NAN.to_le_bytes());
    frame::seal(&header, &mut hostile).unwrap();
    let error = Frame::parse(&hostile).unwrap().decode(&codec).unwrap_err();
    assert_eq!(error.to_string(), "frame header: a scale is no finite range, low to high");
}

/// Every half is a tie: it goes to the even level, with every number of bits.
#[test]
fn ties_go_to_the_even_level() {
    for bits in 1..=8u8 {
        let top = (1u16 << bits) - 1;
        let scale = Scale::new(0.0, f32::from(top)).unwrap();
        let codec = Codec::new(ElementType::F32, vec![1], Some(scale)).unwrap();
        let values: Vec<f32> = (0..=2 * top).map(|half| f32::from(half) / 2.0).collect();
        let back = read(&codec, &write(&codec, &values, Precision::Bits(bits)));
        let expected: Vec<f32> = values.iter().map(|value| value.round_ties_even()).collect();
        assert_eq!(back, expected, "{bits}");
    }
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
    let error = encode(&tensor.view(), &labels, Precision::Bits(4), ID).unwrap_err();
    assert_eq!(error.to_string(), "cannot write INT64 elements at Bits(4): only raw suits them");
    // A frame on the scales of a cut that has none.
    let frame = write(&codec, &values, Precision::Bits(4));
    let unscaled = Codec::new(ElementType::F32, vec![2], None).unwrap();
    let error = Frame::parse(&frame).unwrap().decode(&unscaled).unwrap_err();
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
    let no_shorter = "frame header: coded payload is no shorter than what it decodes to";
    assert_eq!(refused(&[(5, &[1])]), no_shorter);
    assert_eq!(refused(&[(5, &[2])]), no_shorter);
    assert_eq!(refused(&[(5, &[3])]), "coder 3 is not supported");
    assert_eq!(refused(&[(6, &[4])]), "frame header: unknown mode");
    assert_eq!(refused(&[(7, &[9])]), "frame header: bits do not suit the mode");
    assert_eq!(refused(&[(7, &[0])]), "frame header: bits do not suit the mode");
    assert_eq!(refused(&[(8, &[8])]), "frame header: unknown element type");
    assert_eq!(refused(&[(8, &[7])]), "frame header: only FP32 elements are quantised");
    assert_eq!(refused(&[(9, &[1])]), "frame header: a reserved byte is not zero");
    assert_eq!(refused(&[(10, &[1])]), "frame header: one unit of a row is written as 0");
    assert_eq!(refused(&[(10, &[2])]), "frame header: units do not divide a row");
    assert_eq!(refused(&[(12, &[0; 4])]), "frame header: no rows, or rows without elements");
    assert_eq!(refused(&[(56, &[3])]), "frame header: more raw units than units");
    let huge = [0xff; 4];
    assert_eq!(refused(&[(12, &huge), (16, &huge)]), "frame header: payload is too long");
    let other_mode = "frame header: bits, units or raw units in a mode without levels";
    assert_eq!(refused(&[(6, &[0]), (7, &[0]), (10, &[3])]), other_mode);
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
fn raw_units_must_be_in_order_and_in_range() {
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
        let head = [&MAGIC[..], &[1, bytes.len() as u8 % 3, 2, 4, 1, 0, 0, 0]].concat();
        let len = head.len().min(bytes.len());
        bytes[..len].copy_from_slice(&head[..len]);
        if let Ok(frame) = Frame::parse(&bytes) {
            let _ = frame.decode(&codec(&[9]));
        }
    }
}
