//! Targets of the model-split crate: activation frames, bundle manifests and pictures.

use midspan_runtime::Tensor;
use midspan_split::{
    Codec, Frame, FrameHeader, Manifest, Precision,
    codec::{HEADER_LEN, Mode, Scale},
    encode,
    preprocess::{Colour, Filter, Fit, Layout, Preprocess, Resize},
};

use super::Outcome::{self, Refused, Taken};

/// Most elements of a row for which a codec is made here.
const MOST_ELEMENTS: u32 = 4096;

/// [`FrameHeader::peek`], [`Frame::parse`] and decoding, of the bytes as they are and again with
/// their checksum put right, without which no change would get past it.
pub(super) fn frame(data: &[u8]) -> Outcome {
    let outcome = one_frame(data);
    let mut sealed = data.to_vec();
    if let Some((head, payload)) = sealed.split_first_chunk_mut::<HEADER_LEN>() {
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&head[..60]), payload);
        head[60..].copy_from_slice(&checksum.to_le_bytes());
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
    if header.elements > MOST_ELEMENTS {
        return Taken;
    }
    let scale = Scale::new(-1.5, 4.0);
    let codec = Codec::new(header.element, vec![header.elements as usize], scale);
    let Some(codec) = codec else { panic!("a header of elements that no codec has") };
    let Ok(rows) = frame.decode(&codec) else { return Refused };
    assert_eq!(rows.shape(), [header.rows as usize, header.elements as usize]);
    let precision = match header.mode {
        Mode::Raw => Precision::Raw,
        Mode::Half => Precision::Half,
        Mode::Affine => Precision::Bits(header.bits),
    };
    let write = |rows: &Tensor| match encode(&rows.view(), &codec, precision, header.split_id) {
        Ok(bytes) => bytes,
        Err(error) => panic!("decoded rows are not written again: {error}"),
    };
    let read = |bytes: &[u8]| match Frame::parse(bytes).and_then(|frame| frame.decode(&codec)) {
        Ok(rows) => rows,
        Err(error) => panic!("own frame is refused: {error}"),
    };
    let written = write(&rows);
    if header.mode == Mode::Raw {
        assert_eq!(written, data, "a raw frame has one form only");
    }
    // Levels are fixed points of quantising. Raw rows are what their sender put there, so that
    // only those of this program's own frames come back as they were.
    let again = read(&written);
    if header.raw_rows == 0 && header.mode == Mode::Affine {
        assert_eq!(again.bytes(), rows.bytes(), "a level is not its own level");
    }
    assert_eq!(write(&again), written, "writing is not stable");
    Taken
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
