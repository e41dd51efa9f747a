//! Targets of the model-split crate: activation frames, bundle manifests and pictures.

use midspan_runtime::{ElementType, Tensor};
use midspan_split::{
    Codec, CodecError, Coding, Frame, FrameHeader, Manifest, Precision, SplitId,
    codec::{Coder, HEADER_LEN, Mode, Scale},
    encode_as,
    preprocess::{Colour, Filter, Fit, Layout, Preprocess, Resize},
};

use super::Outcome::{self, Refused, Taken};

/// Largest tensor, in bytes, that is decoded here.
const MOST: u64 = 1 << 20;

/// [`FrameHeader::peek`], [`Frame::parse`] and decoding, of the bytes as they are and again with
/// their length and checksum put right, without which no change would get past them. Then the bytes
/// as the values of a tensor, written and read with each coding.
pub(super) fn frame(data: &[u8]) -> Outcome {
    let outcome = one_frame(data);
    let mut sealed = data.to_vec();
    if let Some((head, payload)) = sealed.split_first_chunk_mut::<HEADER_LEN>() {
        head[52..56].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&head[..60]), payload);
        head[60..].copy_from_slice(&checksum.to_le_bytes());
        round_trip(head, payload);
        one_frame(&sealed);
    }
    outcome
}

fn one_frame(data: &[u8]) -> Outcome {
    let peeked = FrameHeader::peek(data);
    let Ok(frame) = Frame::parse(data) else { return Refused };
    let header = frame.header();
    assert_eq!(peeked.as_ref(), Ok(header), "peek and parse read the same header");
    assert_eq!(frame.payload(), &data[HEADER_LEN..]);
    let (elements, units) = (header.elements as usize, usize::from(header.units));
    let row = if units == 1 { vec![elements] } else { vec![units, elements / units] };
    let scale = Scale::new(-1.5, 4.0);
    let Some(codec) = Codec::new(header.element, row.clone(), scale) else {
        panic!("a header of elements that no codec has")
    };
    let rows = match frame.decode_within(&codec, MOST) {
        Ok(rows) => rows,
        // Too large to be judged here, and nothing is wrong so far.
        Err(CodecError::Large { bytes, most: MOST }) if bytes > MOST => return Taken,
        Err(_) => return Refused,
    };
    assert!(rows.bytes().len() as u64 <= MOST, "more than was allowed");
    assert_eq!(rows.bytes().len() as u64, header.tensor_len());
    assert_eq!(rows.shape(), [&[header.rows as usize][..], &row].concat());
    let precision = match header.mode {
        Mode::Raw => Precision::Raw,
        Mode::Half => Precision::Half,
        Mode::Affine | Mode::Own => Precision::Bits(header.bits),
    };
    let unscaled = Codec::new(header.element, row, None);
    let codec = if header.mode == Mode::Own { unscaled.unwrap_or(codec) } else { codec };
    let plain = write(&rows, &codec, precision, header.split_id, Coding::Plain);
    if header.mode == Mode::Raw && header.coder == Coder::None {
        assert_eq!(plain, data, "a raw frame has one form only");
    }
    let again = read(&plain, &codec);
    let smallest = write(&rows, &codec, precision, header.split_id, Coding::Smallest);
    assert!(smallest.len() <= plain.len(), "a coder made a frame longer");
    assert_eq!(read(&smallest, &codec).bytes(), again.bytes(), "a coder changed a value");
    // Levels are fixed points of quantising, on scales that do not change with the values. Raw
    // units are what their sender put there, so that only those of this program's own frames come
    // back as they were.
    if header.mode != Mode::Own {
        if header.raw_units == 0 && header.mode == Mode::Affine {
            assert_eq!(again.bytes(), rows.bytes(), "a level is not its own level");
        }
        let stable = write(&again, &codec, precision, header.split_id, Coding::Plain);
        assert_eq!(stable, plain, "writing is not stable");
    }
    Taken
}

/// Writes bytes as a tensor of whatever type, form and precision the header's first bytes choose,
/// and reads it again with each coding.
fn round_trip(head: &[u8; HEADER_LEN], payload: &[u8]) {
    const ELEMENTS: [ElementType; 4] =
        [ElementType::F32, ElementType::F32, ElementType::U8, ElementType::I64];
    let element = ELEMENTS[usize::from(head[0] % 4)];
    let size = element.size().unwrap_or(1);
    let (units, unit) = (usize::from(head[1] % 5) + 1, usize::from(head[2] % 40) + 1);
    let row = if head[3] & 1 == 0 { vec![units, unit] } else { vec![units * unit] };
    let row_len = units * unit * size;
    let rows = payload.len() / row_len;
    let precision = match head[4] % 11 {
        _ if element != ElementType::F32 => Precision::Raw,
        0 => Precision::Raw,
        9 => Precision::Half,
        10 => Precision::Bits(1),
        bits => Precision::Bits(bits),
    };
    let scale = Scale::new(-2.0, f32::from(head[6]) + 1.0).filter(|_| head[5] & 1 == 0);
    let shape = [&[rows][..], &row].concat();
    let Some(codec) = Codec::new(element, row, scale).filter(|_| rows > 0) else { return };
    let Ok(tensor) = Tensor::new(element, shape, payload[..rows * row_len].to_vec()) else {
        panic!("bytes of whole rows are no tensor")
    };
    let id = SplitId([head[7]; 32]);
    let plain = read(&write(&tensor, &codec, precision, id, Coding::Plain), &codec);
    let smallest = read(&write(&tensor, &codec, precision, id, Coding::Smallest), &codec);
    assert_eq!(plain.bytes(), smallest.bytes(), "a coder changed a value");
    if precision == Precision::Raw {
        assert_eq!(plain, tensor);
    }
}

fn write(rows: &Tensor, codec: &Codec, at: Precision, id: SplitId, coding: Coding) -> Vec<u8> {
    match encode_as(&rows.view(), codec, at, id, coding) {
        Ok(bytes) => bytes,
        Err(error) => panic!("rows are not written: {error}"),
    }
}

fn read(bytes: &[u8], codec: &Codec) -> Tensor {
    match Frame::parse(bytes).and_then(|frame| frame.decode(codec)) {
        Ok(rows) => rows,
        Err(error) => panic!("own frame is refused: {error}"),
    }
}

/// [`Manifest::parse`] and what is derived of a valid manifest.
pub(super) fn manifest(data: &[u8]) -> Outcome {
    let Ok(manifest) = Manifest::parse(data) else { return Refused };
    let Ok(json) = manifest.to_json() else { panic!("a valid manifest is not written") };
    let again = Manifest::parse(&json).unwrap_or_else(|error| panic!("own JSON: {error}"));
    assert_eq!(again, manifest);
    assert_eq!(again.to_json().ok(), Some(json), "canonical JSON has one form only");
    for cut in 0..manifest.stages.len() {
        let last = cut + 1 == manifest.stages.len();
        assert_eq!(manifest.split_id(cut).is_none(), last, "cut {cut}");
        assert_eq!(manifest.precision(cut).is_none(), last, "cut {cut}");
        assert!(!last || manifest.codec(cut).is_none());
    }
    assert_eq!(manifest.codec(manifest.stages.len()), None);
    Taken
}

/// [`Preprocess::picture`] down to 8 x 8 pixels; the first byte chooses colour, filter and fit.
pub(super) fn picture(data: &[u8]) -> Outcome {
    const SIDE: u32 = 8;
    let Some((choice, encoded)) = data.split_first() else { return Refused };
    let bit = |at: u8| choice >> at & 1 == 1;
    let (colour, channels) = if bit(0) { (Colour::Rgb, 3) } else { (Colour::Grey, 1) };
    let preprocess = Preprocess {
        colour,
        resize: Some(Resize {
            width: SIDE,
            height: SIDE,
            filter: if bit(1) { Filter::Bicubic } else { Filter::Bilinear },
            fit: if bit(2) { Fit::Cover } else { Fit::Stretch },
        }),
        crop: bit(3).then_some(midspan_split::preprocess::Size { width: SIDE, height: SIDE }),
        scale: vec![1.0 / 255.0; channels],
        bias: vec![0.0; channels],
        layout: Layout::Nchw,
    };
    assert_eq!(preprocess.validate(), Ok(()));
    let Ok(tensor) = preprocess.picture(encoded) else { return Refused };
    let (side, shape) = (SIDE as usize, tensor.shape());
    assert_eq!(shape.get(..2), Some([1, channels].as_slice()));
    match (bit(2), bit(3)) {
        (true, false) => assert!(shape[2] >= side && shape[3] >= side, "{shape:?}"),
        _ => assert_eq!(shape.get(2..), Some([side, side].as_slice())),
    }
    let values = tensor.f32s().unwrap_or_else(|error| panic!("{error}"));
    assert!(values.iter().all(|value| (0.0..=1.0).contains(value)));
    Taken
}
