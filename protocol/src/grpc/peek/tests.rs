//! Messages whole, cut at every byte, compressed, damaged, and too large.

use std::io::Write as _;

use flate2::Compression;

use super::*;
use crate::grpc::method::GrpcMethod;

const LIMIT: usize = 1 << 20;

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn text(number: u32, value: &[u8]) -> Vec<u8> {
    [varint(u64::from(number) << 3 | 2), varint(value.len() as u64), value.to_vec()].concat()
}

fn number(number: u32, value: u64) -> Vec<u8> {
    [varint(u64::from(number) << 3), varint(value)].concat()
}

fn model(name: &str, version: Option<&str>) -> ModelName {
    ModelName { name: name.into(), version: version.map(Into::into) }
}

fn peek(
    method: GrpcMethod,
    coding: Coding,
    body: &[u8],
    step: usize,
) -> Result<ModelName, PeekError> {
    let mut peek = Peek::new(method.fields().unwrap(), coding, LIMIT);
    for chunk in body.chunks(step.max(1)) {
        if let Progress::Known(model) = peek.push(chunk)? {
            return Ok(model);
        }
    }
    Err(PeekError::CutShort)
}

/// The outcome, which must not depend on where the bytes are cut.
#[track_caller]
fn outcome(method: GrpcMethod, message: &[u8]) -> Result<ModelName, PeekError> {
    let body = frame(message);
    let whole = peek(method, Coding::Identity, &body, body.len());
    for step in [1, 2, 3, 5, 7, 4096] {
        assert_eq!(peek(method, Coding::Identity, &body, step), whole, "in pieces of {step}");
    }
    for cut in (0..body.len()).take(300) {
        let mut peek = Peek::new(method.fields().unwrap(), Coding::Identity, LIMIT);
        let progress = match peek.push(&body[..cut]) {
            Ok(Progress::More) => peek.push(&body[cut..]),
            decided => decided,
        };
        match (progress, &whole) {
            (Ok(Progress::More), Err(PeekError::CutShort)) => {}
            (Ok(Progress::Known(got)), Ok(whole)) => assert_eq!(got, *whole, "cut at {cut}"),
            (got, whole) => assert_eq!(got.err(), whole.clone().err(), "cut at {cut}"),
        }
    }
    whole
}

fn infer(message: &[u8]) -> Result<ModelName, PeekError> {
    outcome(GrpcMethod::ModelInfer, message)
}

fn compressed(coding: &Coding, message: &[u8]) -> Vec<u8> {
    let (mut zlib, mut gzip);
    let packed = if *coding == Coding::Gzip {
        gzip = write::GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(message).unwrap();
        gzip.finish().unwrap()
    } else {
        zlib = write::ZlibEncoder::new(Vec::new(), Compression::best());
        zlib.write_all(message).unwrap();
        zlib.finish().unwrap()
    };
    let mut body = frame(&packed).to_vec();
    body[0] = 1;
    body
}

#[test]
fn fields_come_in_any_order_and_the_last_counts() {
    let (name, version, id) = (text(1, b"m"), text(2, b"7"), text(3, b"42"));
    let tensor = text(7, &[1; 300]);
    let odd = [number(9, u64::MAX), vec![0x51], vec![0; 8], vec![0x55], vec![0; 4]].concat();
    for order in [
        vec![&name, &version, &id, &tensor],
        vec![&tensor, &id, &version, &name],
        vec![&odd, &tensor, &version, &odd, &name, &odd],
    ] {
        let message: Vec<u8> = order.into_iter().flatten().copied().collect();
        assert_eq!(infer(&message), Ok(model("m", Some("7"))));
    }
    let twice = [name.clone(), version, text(1, b"other"), tensor, text(2, b"")].concat();
    assert_eq!(infer(&twice), Ok(model("other", None)));
    assert_eq!(infer(&text(1, "mödel a".as_bytes())), Ok(model("mödel a", None)));
    // A tag and a length may be written with more bytes than they need.
    assert_eq!(infer(&[0x8a, 0x80, 0x00, 0x81, 0x00, b'm']), Ok(model("m", None)));
}

#[test]
fn each_method_has_its_own_fields() {
    let load = [text(1, b"repository"), text(2, b"m")].concat();
    assert_eq!(outcome(GrpcMethod::RepositoryModelLoad, &load), Ok(model("m", None)));
    assert_eq!(outcome(GrpcMethod::ModelStatistics, b""), Ok(model("", None)));
    assert_eq!(outcome(GrpcMethod::ModelReady, b""), Err(PeekError::Missing));
    assert_eq!(infer(&text(1, b"")), Err(PeekError::Missing));
}

#[test]
fn only_the_first_message_is_looked_at() {
    let body = [frame(&text(1, b"first")), frame(&text(1, b"second"))].concat();
    for step in [1, 3, body.len()] {
        let got = peek(GrpcMethod::ModelStreamInfer, Coding::Identity, &body, step);
        assert_eq!(got, Ok(model("first", None)));
    }
}

#[test]
fn the_window_ends_the_search() {
    let large = |before: &[&[u8]], length: usize, after: &[&[u8]]| {
        [before.concat(), text(7, &vec![0; length]), after.concat()].concat()
    };
    let (name, other) = (text(1, b"m"), text(1, b"other"));
    // Known before a tensor that fills the window: the tensor is not waited for.
    let message = large(&[&name], WINDOW, &[&other]);
    assert_eq!(infer(&message), Ok(model("m", None)));
    let body = frame(&message);
    let first = peek(GrpcMethod::ModelInfer, Coding::Identity, &body[..16], 16);
    assert_eq!(first, Ok(model("m", None)), "sixteen bytes are enough");
    assert_eq!(infer(&large(&[], WINDOW, &[&name])), Err(PeekError::Beyond));
    // Every position of the name around the window's end, the message ending there or going on.
    for length in WINDOW - 16..WINDOW + 4 {
        let message = large(&[], length, &[&name]);
        let fits = message.len() <= WINDOW;
        let expected = if fits { Ok(model("m", None)) } else { Err(PeekError::Beyond) };
        let body = frame(&message);
        for step in [1, 1000, body.len()] {
            let got = peek(GrpcMethod::ModelInfer, Coding::Identity, &body, step);
            assert_eq!(got, expected, "{} bytes in pieces of {step}", message.len());
        }
        let longer = large(&[], length, &[&name, &text(7, &[0; 64])]);
        let expected = match message.len() <= WINDOW {
            true => Ok(model("m", None)),
            false => Err(PeekError::Beyond),
        };
        assert_eq!(peek(GrpcMethod::ModelInfer, Coding::Identity, &frame(&longer), 4096), expected);
    }
}

#[test]
fn malformed_messages_are_refused_where_they_are_cut() {
    let malformed = |message: &[u8]| match infer(message) {
        Err(PeekError::Malformed(_)) => {}
        other => panic!("{other:?} of {}", message.escape_ascii()),
    };
    let good = [text(1, b"m"), number(9, 300), text(7, b"abc")].concat();
    let borders = [0, 3, 6, 11];
    for cut in 0..good.len() {
        match borders.contains(&cut) {
            true => assert_eq!(infer(&good[..cut]).is_ok(), cut > 0),
            false => malformed(&good[..cut]),
        }
    }
    for bad in [
        &[0x00, 0x01][..],                                                // field 0
        &[0x0b],                                                          // a group
        &[0x0c],                                                          // a group's end
        &[0x0e, 0x00],                                                    // wire type 6
        &[0x0f, 0x00],                                                    // wire type 7
        &[0x08, 0x01],                                                    // the name as a number
        &[0x15, 0, 0, 0, 0],                                              // the version as a float
        &[0xff; 10],                                                      // a tag without end
        &[0xff, 0xff, 0xff, 0xff, 0x7f],                                  // a tag of 35 bits
        &[0x48, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], // 65 bits
        &[0x3a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], // a length of 2^64-1
    ] {
        malformed(bad);
    }
    assert_eq!(infer(&text(1, &[0xff, 0xfe])), Err(PeekError::NotUtf8));
    let long = vec![b'm'; MAX_NAME];
    assert_eq!(infer(&text(1, &long)).unwrap().name.len(), MAX_NAME);
    assert_eq!(infer(&text(1, &[long, vec![b'm']].concat())), Err(PeekError::NameTooLong(1025)));
}

#[test]
fn prefixes_are_checked_before_anything_is_read() {
    let first = |prefix: [u8; 5], coding| {
        Peek::new(GrpcMethod::ModelInfer.fields().unwrap(), coding, LIMIT).push(&prefix)
    };
    let [_, a, b, c] = (LIMIT as u32).to_be_bytes();
    assert_eq!(first([0, 0, a, b, c], Coding::Identity), Ok(Progress::More));
    assert_eq!(
        first([0, 0, a, b, c + 1], Coding::Identity),
        Err(PeekError::TooLarge { length: LIMIT + 1, limit: LIMIT })
    );
    let all = u32::MAX as usize;
    let huge = first([1, 255, 255, 255, 255], Coding::Gzip);
    assert_eq!(huge, Err(PeekError::TooLarge { length: all, limit: LIMIT }));
    assert_eq!(first([2, 0, 0, 0, 1], Coding::Identity), Err(PeekError::Flag(2)));
    assert_eq!(first([1, 0, 0, 0, 1], Coding::Identity), Err(PeekError::Uncoded));
    let snappy = Coding::parse(Some("snappy"));
    assert_eq!(first([1, 0, 0, 0, 1], snappy), Err(PeekError::Coding("snappy".into())));
    assert_eq!(peek(GrpcMethod::ModelInfer, Coding::Identity, b"", 1), Err(PeekError::CutShort));
}

#[test]
fn compressed_messages_are_read_as_far_as_the_window() {
    for coding in [Coding::Gzip, Coding::Deflate] {
        let get = |body: &[u8], step| peek(GrpcMethod::ModelInfer, coding.clone(), body, step);
        let message = [text(7, &[5; 5_000]), text(1, b"m"), text(2, b"1")].concat();
        let body = compressed(&coding, &message);
        for step in [1, 2, 7, body.len()] {
            assert_eq!(get(&body, step), Ok(model("m", Some("1"))), "{coding:?} {step}");
        }
        let plain = frame(&text(1, b"plain"));
        assert_eq!(get(&plain, 64), Ok(model("plain", None)), "the flag decides");
        // A bomb: 64 MiB of zeros in 64 KiB.
        let bomb = compressed(&coding, &text(7, &vec![0; 64 << 20]));
        assert!(bomb.len() < 100 << 10);
        assert_eq!(get(&bomb, bomb.len()), Err(PeekError::Beyond));
        let named = [text(1, b"m"), text(7, &vec![0; 1 << 20])].concat();
        assert_eq!(get(&compressed(&coding, &named), 512), Ok(model("m", None)));
        // Damaged, cut short, empty.
        for at in [5, body.len() / 2, body.len() - 1] {
            let mut damaged = body.clone();
            damaged[at] ^= 0x55;
            let got = get(&damaged, damaged.len());
            assert!(got.is_err(), "{coding:?} at {at}: {got:?}");
        }
        let mut short = frame(&body[5..body.len() - 6]).to_vec();
        short[0] = 1;
        assert!(matches!(get(&short, short.len()), Err(PeekError::Corrupt(_))), "{coding:?}");
        assert!(matches!(get(&[1, 0, 0, 0, 0], 5), Err(PeekError::Corrupt(_))), "{coding:?}");
    }
}

#[test]
fn a_compressed_stream_that_yields_nothing_is_given_up() {
    // A gzip header with an endless file name.
    let mut packed = vec![0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 0];
    packed.resize(LIMIT / 2, b'x');
    let mut body = frame(&packed).to_vec();
    body[0] = 1;
    for step in [1000, body.len()] {
        let got = peek(GrpcMethod::ModelInfer, Coding::Gzip, &body, step);
        assert!(matches!(got, Err(PeekError::Beyond | PeekError::Corrupt(_))), "{got:?}");
    }
}

#[test]
fn whole_messages_are_decompressed_within_their_limit() {
    let get = |body: Vec<u8>, coding: &Coding, limit| message(&body.into(), coding, limit);
    for coding in [Coding::Gzip, Coding::Deflate] {
        let body = compressed(&coding, &[7; 100]);
        assert_eq!(get(body.clone(), &coding, 100).unwrap(), vec![7; 100]);
        assert!(matches!(get(body, &coding, 99), Err(PeekError::TooLarge { .. })));
    }
    let plain = frame(b"abc").to_vec();
    assert_eq!(get(plain.clone(), &Coding::Identity, 3).unwrap(), "abc");
    assert_eq!(get(plain[..7].to_vec(), &Coding::Identity, 3), Err(PeekError::CutShort));
    assert_eq!(get(vec![], &Coding::Identity, 3), Err(PeekError::CutShort));
    let two = [plain.clone(), plain].concat();
    assert!(matches!(get(two, &Coding::Identity, 3), Err(PeekError::Malformed(_))));
}
