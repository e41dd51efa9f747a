//! Limits, and where a collected body lies in memory.

use std::collections::VecDeque;

use http_body_util::StreamBody;

use super::*;

fn chunks(parts: &[&'static [u8]]) -> Body {
    let frame = |part: &&'static [u8]| Ok::<_, BodyError>(Frame::data(Bytes::from_static(part)));
    let frames: Vec<_> = parts.iter().map(frame).collect();
    boxed(StreamBody::new(futures_util::stream::iter(frames)))
}

/// A body that says beforehand how long it is, or lies.
struct Announced {
    frames: VecDeque<Bytes>,
    length: Option<u64>,
}

impl http_body::Body for Announced {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(self.frames.pop_front().map(|data| Ok(Frame::data(data))))
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// `body` in frames of `size` bytes; each frame lies `shift` bytes after a multiple of 64.
fn framed(body: &[u8], size: usize, shift: usize, announce: bool) -> Announced {
    let place = |part: &[u8]| {
        let mut memory: Vec<u8> = Vec::with_capacity(part.len() + 2 * ALIGNMENT);
        let pad = memory.as_ptr().addr().wrapping_neg() % ALIGNMENT + shift;
        memory.resize(pad, 0);
        memory.extend_from_slice(part);
        Bytes::from(memory).split_off(pad)
    };
    let frames = body.chunks(size).map(place).collect();
    Announced { frames, length: announce.then_some(body.len() as u64) }
}

fn sample(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[tokio::test]
async fn collect_is_exact_at_the_limit() {
    assert_eq!(collect(chunks(&[b"ab", b"c"]), 3).await.unwrap(), "abc");
    assert_eq!(collect(chunks(&[b"abc"]), 3).await.unwrap(), "abc");
    for parts in [&[&b"ab"[..], b"cd"][..], &[b"", b"abcd"], &[b"a", b"b", b"c", b"", b"d"]] {
        let error = collect(chunks(parts), 3).await.unwrap_err();
        assert!(matches!(error, BodyError::TooLarge { limit: 3 }), "{error}");
    }
    assert_eq!(collect(empty(), 0).await.unwrap(), "");
    let promised = Announced { frames: VecDeque::new(), length: Some(4) };
    assert!(matches!(collect(promised, 3).await, Err(BodyError::TooLarge { limit: 3 })));
}

#[tokio::test]
async fn the_binary_part_starts_at_a_multiple_of_64_whatever_the_framing() {
    let body = sample(200_000);
    for json_len in (0..=65).chain([199_999]) {
        for size in [100, 4096, 16_384, 70_000, 199_999] {
            for announce in [true, false] {
                let framed = framed(&body, size, 0, announce);
                let whole = collect_aligned(framed, body.len(), Some(json_len)).await.unwrap();
                assert_eq!(whole, body);
                let at = whole[json_len..].as_ptr().addr();
                assert_eq!(at % ALIGNMENT, 0, "{json_len} in frames of {size}");
            }
        }
    }
}

#[tokio::test]
async fn a_single_frame_is_copied_only_when_it_lies_badly() {
    let body = sample(100);
    for shift in 0..16 {
        for json_len in 0..16 {
            let framed = framed(&body, body.len(), shift, true);
            let frame = framed.frames[0].clone();
            let whole = collect_aligned(framed, 100, Some(json_len)).await.unwrap();
            assert_eq!(whole, body);
            let passed_on = whole.as_ptr() == frame.as_ptr();
            assert_eq!(passed_on, (shift + json_len) % 8 == 0, "{shift} {json_len}");
            assert_eq!(whole[json_len..].as_ptr().addr() % 8, 0);
        }
    }
    // Nothing binary follows, or nobody knows where: there is nothing to align.
    for json_len in [None, Some(100), Some(101), Some(usize::MAX)] {
        let framed = framed(&body, body.len(), 1, true);
        let frame = framed.frames[0].clone();
        let whole = collect_aligned(framed, 100, json_len).await.unwrap();
        assert_eq!(whole.as_ptr(), frame.as_ptr());
    }
}

#[tokio::test]
async fn a_panic_is_a_stream_error() {
    let frames =
        futures_util::stream::poll_fn(|_| -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            panic!("producer")
        });
    let error = collect(boxed(StreamBody::new(frames)), 10).await.unwrap_err();
    assert!(error.to_string().contains("ended early"), "{error}");
}
