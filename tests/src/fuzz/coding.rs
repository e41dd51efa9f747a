//! Target of the content codings: what headers and compressed bodies may say.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use midspan_net::encoding::{Coding, DecodeError, decode_whole, encode_whole};

use super::Outcome::{self, Refused, Taken};

/// Decoded bytes at most.
const LIMIT: usize = 16 << 10;

/// A first byte that chooses what the rest is: a gzip or a deflate body, or the value of both
/// `Content-Encoding` and `Accept-Encoding`.
pub(super) fn content_coding(data: &[u8]) -> Outcome {
    let Some((kind, rest)) = data.split_first() else { return Refused };
    match kind % 3 {
        0 => body(rest, Coding::Gzip),
        1 => body(rest, Coding::Deflate),
        _ => value(rest),
    }
}

fn headers(coding: Coding) -> HeaderMap {
    coding.header().map(|name| (header::CONTENT_ENCODING, name)).into_iter().collect()
}

fn body(data: &[u8], coding: Coding) -> Outcome {
    let decoded = match decode_whole(&Bytes::copy_from_slice(data), &headers(coding), LIMIT) {
        Ok(decoded) => decoded,
        Err(DecodeError::Unsupported(name)) => panic!("own name of a coding is refused: {name}"),
        Err(_) => return Refused,
    };
    assert!(decoded.len() <= LIMIT, "{} bytes", decoded.len());
    let again = encode_whole(&decoded, coding);
    let again = decode_whole(&again, &headers(coding), decoded.len());
    assert_eq!(again.ok().as_ref(), Some(&decoded), "encoded and decoded");
    Taken
}

fn value(data: &[u8]) -> Outcome {
    let Ok(value) = HeaderValue::from_bytes(data) else { return Refused };
    let accepted = HeaderMap::from_iter([(header::ACCEPT_ENCODING, value.clone())]);
    let chosen = Coding::negotiate(&accepted);
    if chosen != Coding::Identity {
        let text = value.to_str().unwrap_or_default().to_ascii_lowercase();
        assert!(["gzip", "deflate", "*"].iter().any(|name| text.contains(name)), "{text}");
    }
    match Coding::of_body(&HeaderMap::from_iter([(header::CONTENT_ENCODING, value)])) {
        Ok(_) => Taken,
        Err(_) => Refused,
    }
}
