//! Codings in both directions: exact at the limit, bounded against bombs, broken streams told apart
//! from large ones.

use std::io::Read as _;

use flate2::read::{GzDecoder, ZlibDecoder};
use http_body_util::StreamBody;

use super::*;
use crate::{Body, Limits, Tasks, listen, reply};

fn coded(name: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_ENCODING, HeaderValue::from_static(name))])
}

fn accepting(list: &str) -> HeaderMap {
    HeaderMap::from_iter([(header::ACCEPT_ENCODING, list.parse().unwrap())])
}

fn pieces(bytes: &[u8], size: usize) -> Body {
    let parts: Vec<_> = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
    let frames = parts.into_iter().map(|part| Ok::<_, BodyError>(http_body::Frame::data(part)));
    body::boxed(StreamBody::new(futures_util::stream::iter(frames)))
}

/// Bytes that do not compress to nothing.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8 & 0x3f
    };
    (0..length).map(|_| next()).collect()
}

async fn decoded(bytes: &[u8], name: &'static str, limit: usize) -> Result<Bytes, DecodeError> {
    decode(pieces(bytes, 7_000), &coded(name), limit, None).await
}

#[tokio::test]
async fn what_is_encoded_decodes_at_every_size_and_cut() {
    for length in [1, 100, INLINE, INLINE + 1, 3 << 20] {
        let plain = Bytes::from(noise(length));
        for (coding, name) in [(Coding::Gzip, "x-gzip"), (Coding::Deflate, "DEFLATE")] {
            let wire = encode(plain.clone(), coding).await;
            for size in [1.max(length / 1000), 100_000] {
                let answer = decode(pieces(&wire, size), &coded(name), length, None).await.unwrap();
                assert!(answer == plain, "{name} {length}");
            }
        }
    }
    assert_eq!(encode(Bytes::new(), Coding::Gzip).await, "");
    assert_eq!(encode(Bytes::from_static(b"x"), Coding::Identity).await, "x");
}

#[tokio::test]
async fn other_programs_read_what_is_encoded() {
    let plain = noise(200_000);
    let mut out = Vec::new();
    let wire = encode(plain.clone().into(), Coding::Gzip).await;
    GzDecoder::new(&wire[..]).read_to_end(&mut out).unwrap();
    assert!(out == plain && wire.len() < plain.len());
    out.clear();
    let wire = encode(plain.clone().into(), Coding::Deflate).await;
    ZlibDecoder::new(&wire[..]).read_to_end(&mut out).unwrap();
    assert!(out == plain);
}

#[tokio::test]
async fn the_limit_counts_decoded_bytes_exactly() {
    let plain = Bytes::from(noise(200_000));
    let wire = encode(plain, Coding::Gzip).await;
    assert_eq!(decoded(&wire, "gzip", 200_000).await.unwrap().len(), 200_000);
    let error = decoded(&wire, "gzip", 199_999).await.unwrap_err();
    assert!(matches!(error, DecodeError::Body(BodyError::TooLarge { limit: 199_999 })), "{error}");
    assert_eq!(error.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let error = decode(pieces(b"abcd", 2), &coded("identity"), 3, None).await.unwrap_err();
    assert_eq!(error.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_bomb_is_stopped_at_the_limit() {
    // Each layer's worth: a megabyte that would become a gigabyte.
    let zeros = encode(vec![0; 64 << 20].into(), Coding::Gzip).await;
    let bomb = zeros.repeat(16);
    let error = decoded(&bomb, "gzip", 1 << 20).await.unwrap_err();
    assert_eq!(error.status(), StatusCode::PAYLOAD_TOO_LARGE);

    let mut inflate = Inflate::new(Coding::Gzip, 1 << 20);
    assert!(inflate.feed(&bomb).is_err());
    assert!(inflate.out.capacity() <= (1 << 20) + STEP, "{}", inflate.out.capacity());
}

#[tokio::test]
async fn members_of_a_gzip_body_are_joined_and_bounded() {
    let mut wire = encode(Bytes::from_static(b"one "), Coding::Gzip).await.to_vec();
    wire.extend(encode(Bytes::from_static(b"two"), Coding::Gzip).await);
    assert_eq!(decode(pieces(&wire, 1), &coded("gzip"), 100, None).await.unwrap(), "one two");

    let empty = encode_whole(b"", Coding::Gzip);
    let error = decoded(&empty.repeat(MAX_MEMBERS + 1), "gzip", 100).await.unwrap_err();
    assert!(error.to_string().contains("4096 members"), "{error}");
    assert_eq!(decoded(&empty.repeat(MAX_MEMBERS), "gzip", 0).await.unwrap(), "");
}

#[tokio::test]
async fn broken_streams_are_the_clients_mistake() {
    for (coding, name) in [(Coding::Gzip, "gzip"), (Coding::Deflate, "deflate")] {
        let wire = encode(noise(300_000).into(), coding).await;
        let mut flipped = wire.to_vec();
        *flipped.last_mut().unwrap() ^= 1;
        let trailing = [&wire[..], b"more"].concat();
        for (what, bytes) in [
            ("one byte short", &wire[..wire.len() - 1]),
            ("half", &wire[..wire.len() / 2]),
            ("header only", &wire[..2]),
            ("nothing", b""),
            ("no stream", br#"{"inputs":[]}"#),
            ("wrong checksum", &flipped),
            ("trailing bytes", &trailing),
        ] {
            let error = decoded(bytes, name, 1 << 20).await.unwrap_err();
            assert!(matches!(error, DecodeError::Corrupt { .. }), "{name}, {what}: {error}");
            assert_eq!(error.status(), StatusCode::BAD_REQUEST);
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}

#[tokio::test]
async fn unknown_and_stacked_codings_are_refused_unread() {
    for name in ["br", "foo", "gzip, gzip", "deflate, gzip", "zstd, identity"] {
        let unread = StreamBody::new(futures_util::stream::poll_fn(
            |_| -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, BodyError>>> {
                panic!("read")
            },
        ));
        let error = decode(unread, &coded(name), 10, None).await.unwrap_err();
        assert_eq!(error.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE, "{name}");
        assert!(error.to_string().contains(name), "{error}");
    }
    let mut twice = coded("gzip");
    twice.append(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    assert!(Coding::of_body(&twice).is_err());
    assert_eq!(Coding::of_body(&coded("identity, gzip")).unwrap(), Coding::Gzip);
    assert_eq!(Coding::of_body(&HeaderMap::new()).unwrap(), Coding::Identity);
}

#[test]
fn negotiation_follows_the_weights() {
    for (list, expected) in [
        ("gzip", Coding::Gzip),
        ("GZip ; Q=0.5", Coding::Gzip),
        ("deflate", Coding::Deflate),
        ("gzip, deflate, br", Coding::Gzip),
        ("gzip;q=0.5, deflate;q=0.8", Coding::Deflate),
        ("gzip;q=0", Coding::Identity),
        ("gzip;q=0, deflate", Coding::Deflate),
        ("gzip;q=0.000, *;q=0", Coding::Identity),
        ("*", Coding::Gzip),
        ("*;q=0.1, gzip;q=0", Coding::Deflate),
        ("identity, gzip;q=0.5", Coding::Identity),
        ("identity;q=0.5, gzip", Coding::Gzip),
        ("identity;q=0", Coding::Identity),
        ("br, zstd", Coding::Identity),
        ("gzip;q=nonsense", Coding::Identity),
        ("gzip;q=2", Coding::Identity),
        ("", Coding::Identity),
        (",,;", Coding::Identity),
    ] {
        assert_eq!(Coding::negotiate(&accepting(list)), expected, "{list}");
    }
    assert_eq!(Coding::negotiate(&HeaderMap::new()), Coding::Identity);
    let mut two = accepting("br");
    two.append(header::ACCEPT_ENCODING, HeaderValue::from_static("deflate"));
    assert_eq!(Coding::negotiate(&two), Coding::Deflate);
}

#[tokio::test]
async fn a_compressed_exchange_over_a_socket() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let tasks = Tasks::default();
    let listener = listen::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
    let addr = listener.local_addr().unwrap();
    listen::serve(listener, Limits::default(), &tasks, |request, _peer| async move {
        let (head, body) = request.into_parts();
        let coding = Coding::negotiate(&head.headers);
        match decode(body, &head.headers, 1 << 20, None).await {
            Ok(bytes) => {
                let mut answer = http::Response::new(body::full(encode(bytes, coding).await));
                reply::vary(answer.headers_mut(), "accept-encoding");
                let coding = coding.header().unwrap();
                answer.headers_mut().insert(header::CONTENT_ENCODING, coding);
                answer
            }
            Err(error) => reply::error(error.status(), &error.to_string()),
        }
    })
    .unwrap();
    let plain = noise(100_000);
    let wire = encode(plain.clone().into(), Coding::Gzip).await;
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-encoding: gzip\r\n\
         accept-encoding: deflate\r\ncontent-length: {}\r\n\r\n",
        wire.len()
    );
    stream.write_all(&[head.as_bytes(), &wire].concat()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8_lossy(&answer[..end]);
    assert!(head.contains("content-encoding: deflate"), "{head}");
    assert!(head.contains("vary: accept-encoding"), "{head}");
    let mut out = Vec::new();
    ZlibDecoder::new(&answer[end..]).read_to_end(&mut out).unwrap();
    assert!(out == plain);
}
