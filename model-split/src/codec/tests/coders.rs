//! Frames with an entropy coder: round trips of every precision, coder and form of rows, that a
//! coder changes no value, and coded payloads that must be refused.

use super::*;
use crate::codec::coder::Symbols;

/// Numbers in 0 to 1 without a pattern, the same in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        ((self.0 >> 33) as f64 + 0.5) / (1u64 << 31) as f64
    }

    /// Channels of their own mean and spread, as activations have.
    fn activation(&mut self, rows: usize, channels: usize, unit: usize) -> Vec<f32> {
        let mut values = Vec::new();
        for _ in 0..rows * channels {
            let (mean, spread) = (6.0 * self.next() - 3.0, 0.5 + self.next());
            for _ in 0..unit {
                let uniform = self.next() - 0.5;
                let laplace = -uniform.signum() * (1.0 - 2.0 * uniform.abs()).ln();
                values.push((mean + spread * laplace) as f32);
            }
        }
        values
    }
}

fn tensor_of(codec: &Codec, values: &[f32]) -> Tensor {
    let rows = values.len() / codec.elements() as usize;
    let shape = std::iter::once(rows).chain(codec.row_shape().iter().copied()).collect();
    Tensor::from_f32s(shape, values).unwrap()
}

/// The frame with its payload coded by this coder, whatever its length: longer ones have no frame.
pub(super) fn coded(
    tensor: &Tensor,
    codec: &Codec,
    precision: Precision,
    coder: Coder,
) -> Option<Vec<u8>> {
    let plain = encode_as(&tensor.view(), codec, precision, ID, Coding::Plain).unwrap();
    let mut header = FrameHeader::peek(&plain).unwrap();
    if coder == Coder::None {
        return Some(plain);
    }
    let payload = &plain[HEADER_LEN..];
    let coded = match (coder, header.mode) {
        (Coder::Zstd, _) => coder::zstd(payload).unwrap(),
        (_, Mode::Raw) => {
            let size = codec.element().size().unwrap();
            coder::order0(Symbols::Bytes { bytes: payload, size }, payload.len())?
        }
        (_, Mode::Half) => {
            coder::order0(Symbols::Bytes { bytes: payload, size: 2 }, payload.len())?
        }
        (_, Mode::Affine | Mode::Own) => {
            header.units = codec.units();
            let planes = usize::try_from(header.levels_len().unwrap().0).unwrap();
            let (planes, behind) = payload.split_at(planes);
            let levels = planes::read(planes, codec.elements() as usize, header.bits);
            let unit = header.unit() as usize;
            let symbols = Symbols::Levels { levels: &levels, bits: header.bits, unit, behind };
            coder::order0(symbols, payload.len())?
        }
    };
    header.coder = coder;
    let mut out = vec![0; HEADER_LEN];
    out.extend_from_slice(&coded);
    frame::seal(&header, &mut out).ok().map(|()| out)
}

fn precisions() -> impl Iterator<Item = Precision> {
    (1..=8).map(Precision::Bits).chain([Precision::Half, Precision::Raw])
}

fn codecs(row: &[usize]) -> Vec<Codec> {
    let scale = |at: usize| Scale::new(-3.0 - at as f32, 4.0).unwrap();
    let make = |scales: Vec<Scale>| Codec::with_scales(ElementType::F32, row.to_vec(), scales);
    let channels = usize::from(units(row));
    [0, 1, channels].iter().map(|count| make((0..*count).map(scale).collect()).unwrap()).collect()
}

/// Every precision, coder and kind of scale, rows with and without channels, few elements and
/// many, with a channel that travels raw: what a coder writes decodes to what no coder does.
#[test]
fn a_coder_changes_no_value() {
    let mut noise = Noise(1);
    let mut tried = 0;
    let forms: [(usize, &[usize]); 6] =
        [(1, &[8, 7, 7]), (3, &[5, 29]), (2, &[333]), (7, &[1, 40]), (2, &[16, 14, 14]), (1, &[1])];
    for (rows, row) in forms {
        let channels = usize::from(units(row));
        let unit = row.iter().product::<usize>() / channels;
        let mut values = noise.activation(rows, channels, unit);
        for broken in [false, true] {
            if broken {
                values[unit / 2] = f32::NAN;
            }
            for (codec, precision) in
                codecs(row).iter().flat_map(|codec| precisions().map(move |at| (codec, at)))
            {
                let tensor = tensor_of(codec, &values);
                let plain = coded(&tensor, codec, precision, Coder::None).unwrap();
                let expected = Frame::parse(&plain).unwrap().decode(codec).unwrap();
                let mut least = plain.len();
                for coder in [Coder::Zstd, Coder::Order0] {
                    let Some(frame) = coded(&tensor, codec, precision, coder) else { continue };
                    let parsed = Frame::parse(&frame).unwrap();
                    assert_eq!(parsed.header().coder, coder);
                    let got = parsed.decode(codec).unwrap();
                    assert_eq!(got.bytes(), expected.bytes(), "{row:?} {precision:?} {coder:?}");
                    least = least.min(frame.len());
                    tried += 1;
                }
                let smallest = encode(&tensor.view(), codec, precision, ID).unwrap();
                assert_eq!(smallest.len(), least, "{row:?} {precision:?}");
                let got = Frame::parse(&smallest).unwrap().decode(codec).unwrap();
                assert_eq!(got.bytes(), expected.bytes());
            }
        }
    }
    assert!(tried > 300, "{tried} coded frames");
}

#[test]
fn activations_shrink_by_the_order_0_coder() {
    let codec = Codec::new(ElementType::F32, vec![16, 14, 14], Scale::new(-12.0, 12.0)).unwrap();
    let values = Noise(3).activation(1, 16, 196);
    let frame = encode(&tensor_of(&codec, &values).view(), &codec, Precision::Bits(5), ID).unwrap();
    assert_eq!(FrameHeader::peek(&frame).unwrap().coder, Coder::Order0);
    assert!(frame.len() < 64 + 196 * 16 * 5 / 8 * 7 / 10, "{} bytes", frame.len());
}

#[test]
fn integers_travel_lossless_and_smaller() {
    for element in [ElementType::I64, ElementType::U8, ElementType::F16, ElementType::Bool] {
        let codec = Codec::new(element, vec![24], None).unwrap();
        let size = element.size().unwrap();
        let bytes = (0..3 * 24 * size).map(|at| if at % size == 0 { at as u8 % 2 } else { 0 });
        let tensor = Tensor::new(element, vec![3, 24], bytes.collect()).unwrap();
        let frame = encode(&tensor.view(), &codec, Precision::Raw, ID).unwrap();
        assert!(frame.len() < 64 + 3 * 24 * size, "{element} {}", frame.len());
        assert_eq!(Frame::parse(&frame).unwrap().decode(&codec).unwrap(), tensor);
        let frame = coded(&tensor, &codec, Precision::Raw, Coder::Order0).unwrap();
        assert_eq!(Frame::parse(&frame).unwrap().decode(&codec).unwrap(), tensor);
    }
}

#[test]
fn noise_travels_without_a_coder() {
    let codec = Codec::new(ElementType::F32, vec![4, 50], Scale::new(0.0, 1.0)).unwrap();
    let mut noise = Noise(5);
    let values: Vec<f32> = (0..400).map(|_| noise.next() as f32).collect();
    let frame = encode(&tensor_of(&codec, &values).view(), &codec, Precision::Bits(8), ID).unwrap();
    assert_eq!(FrameHeader::peek(&frame).unwrap().coder, Coder::None);
    assert_eq!(frame, write(&codec, &values, Precision::Bits(8)));
}

/// The values of a row do not depend on its neighbours, however the batch is coded.
#[test]
fn a_row_decodes_alike_alone_and_in_any_batch() {
    for codec in codecs(&[6, 30]) {
        let values = Noise(9).activation(5, 6, 30);
        let decode = |values: &[f32]| {
            let frame = encode(&tensor_of(&codec, values).view(), &codec, Precision::Bits(5), ID);
            bits_of(&read(&codec, &frame.unwrap()))
        };
        let batch = decode(&values);
        for (row, expected) in values.chunks(180).zip(batch.chunks(180)) {
            assert_eq!(decode(row), expected);
        }
    }
}

/// A few bytes may stand for many rows: who reads them says how many he takes.
#[test]
fn a_bomb_is_refused() {
    let codec = codec(&[64]);
    for coder in [Coder::Zstd, Coder::Order0] {
        let mut values = [0.0; 64 * 64];
        values[7] = 6.0;
        let frame = coded(&tensor_of(&codec, &values), &codec, Precision::Bits(8), coder).unwrap();
        assert!(frame.len() < 150, "{}", frame.len());
        let parsed = Frame::parse(&frame).unwrap();
        assert_eq!(parsed.header().tensor_len(), 64 * 64 * 4);
        let error = parsed.decode_within(&codec, 64 * 64 * 4 - 1).unwrap_err();
        assert_eq!(error.to_string(), "frame decodes to 16384 bytes, at most 16383 are taken");
        assert!(parsed.decode_within(&codec, 64 * 64 * 4).is_ok());
        // More rows than were written, as far as the header can say.
        for rows in [65, 1 << 12] {
            let header = FrameHeader { rows, ..parsed.header().clone() };
            let mut more = frame.clone();
            frame::seal(&header, &mut more).unwrap();
            let error = Frame::parse(&more).unwrap().decode(&codec).unwrap_err();
            assert!(matches!(error, CodecError::Coded { .. }), "{error}");
        }
        let header = FrameHeader { rows: 1 << 24, ..parsed.header().clone() };
        let mut most = frame;
        frame::seal(&header, &mut most).unwrap();
        let error = Frame::parse(&most).unwrap().decode(&codec).unwrap_err();
        assert!(matches!(error, CodecError::Large { .. }), "{error}");
    }
}

/// What is said of an order-0 payload of 64 levels at two bits in eight units, with these bytes in
/// the place of what was written.
fn refused_payload(payload: &[u8]) -> String {
    let codec = codec(&[8, 8]);
    let tensor = tensor_of(&codec, &[0.0; 64]);
    let frame = coded(&tensor, &codec, Precision::Bits(2), Coder::Order0).unwrap();
    let header = FrameHeader::peek(&frame).unwrap();
    let mut frame = vec![0; HEADER_LEN];
    frame.extend_from_slice(payload);
    frame::seal(&header, &mut frame).unwrap();
    let error = Frame::parse(&frame).unwrap().decode(&codec).unwrap_err().to_string();
    error.strip_prefix("frame payload, coder order-0: ").unwrap().to_owned()
}

#[test]
fn hostile_coded_payloads_are_refused_for_what_they_are() {
    // Symbol 0 takes all: three zeros after its number, then the state it started from, no words.
    let good = [0, 0, 0, 0, 0x80, 0, 0, 0];
    let with = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        refused_payload(&bytes)
    };
    let codec = codec(&[8, 8]);
    let frame = coded(&tensor_of(&codec, &[0.0; 64]), &codec, Precision::Bits(2), Coder::Order0);
    assert_eq!(frame.unwrap()[HEADER_LEN..], good);
    assert_eq!(refused_payload(&[]), "it is empty");
    assert_eq!(with(0, 2), "its form is unknown");
    assert_eq!(refused_payload(&[1, 0]), "its centres break off");
    assert_eq!(refused_payload(&good[..1]), "its table breaks off");
    assert_eq!(with(1, 4), "its table names a symbol that there is not");
    assert_eq!(with(2, 0b1), "its table has a frequency of too many digits");
    assert_eq!(with(2, 0b111_0111), "its table has a frequency of too many digits");
    assert_eq!(with(2, 0b1000), "its table is not padded with zeros");
    assert_eq!(refused_payload(&[0, 0, 0b110_1111, 0]), "its table adds up to more than 4096");
    assert_eq!(with(4, 0), "a state is out of range");
    assert_eq!(with(6, 0x80), "a state is out of range");
    assert_eq!(with(4, 0x81), "its words do not end where its symbols do");
    assert_eq!(with(7, 1), "its words break off");
    assert_eq!(with(7, 0x80), "a length has no end");
    let longer = [&good[..], &[0]].concat();
    assert_eq!(refused_payload(&longer), "scales and raw units behind it have another length");
}

/// A changed byte is seen, or what it decodes to is of the right form: never a panic.
#[test]
fn damaged_payloads_end_in_an_error_or_a_tensor() {
    let codec = codec(&[8, 49]);
    let mut noise = Noise(11);
    let tensor = tensor_of(&codec, &noise.activation(2, 8, 49));
    for (precision, coder) in precisions().flat_map(|at| [(at, Coder::Zstd), (at, Coder::Order0)]) {
        let Some(frame) = coded(&tensor, &codec, precision, coder) else { continue };
        let header = FrameHeader::peek(&frame).unwrap();
        let mut errors = 0;
        for _ in 0..60 {
            let mut frame = frame.clone();
            let at = HEADER_LEN + (noise.next() * (frame.len() - HEADER_LEN) as f64) as usize;
            frame[at] ^= 1 << (noise.next() * 8.0) as u32;
            frame::seal(&header, &mut frame).unwrap();
            match Frame::parse(&frame).unwrap().decode(&codec) {
                Ok(tensor) => assert_eq!(tensor.shape(), [2, 8, 49]),
                Err(_) => errors += 1,
            }
        }
        assert!(errors > 0, "{precision:?} {coder:?}");
    }
}

proptest! {
    #[test]
    fn any_levels_come_back(
        levels in proptest::collection::vec(any::<u8>(), 1..6000),
        bits in 1u8..=8,
        unit in 1usize..40,
        skew in 0u8..8,
    ) {
        let unit = unit.min(levels.len());
        let count = levels.len() / unit * unit;
        let levels: Vec<u8> =
            levels[..count].iter().map(|level| (level >> (8 - bits)) >> (skew % bits)).collect();
        let symbols = Symbols::Levels { levels: &levels, bits, unit, behind: b"behind" };
        if let Some(coded) = coder::order0(symbols, 1 << 20) {
            let (back, behind) = coder::read_levels(&coded, count, bits, unit).unwrap();
            prop_assert_eq!(back, levels);
            prop_assert_eq!(behind, b"behind");
        }
    }

    #[test]
    fn any_elements_come_back(bytes in proptest::collection::vec(0u8..20, 8..3000), size in 1usize..9) {
        let bytes = &bytes[..bytes.len() / size * size];
        let coded = coder::order0(Symbols::Bytes { bytes, size }, bytes.len()).unwrap();
        prop_assert_eq!(coder::read_bytes(&coded, bytes.len() / size, size).unwrap(), bytes);
    }
}
