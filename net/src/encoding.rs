//! Content codings: compressed request bodies decoded within the body limit, and answers
//! compressed as the client accepts them. Only gzip and deflate, which is the zlib format (RFC
//! 9110); one coding at a time. Bodies without a coding pass through [`body::collect`] untouched.
//!
//! Work above [`INLINE`] bytes runs on a blocking thread, so that one large body does not hold up
//! the connections that share its event loop.

use std::io::Write as _;

use bytes::Bytes;
use flate2::{
    Compression, Decompress, FlushDecompress, Status,
    write::{GzEncoder, ZlibEncoder},
};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt;

use crate::{
    Body,
    body::{self, BodyError},
    reply,
};

/// What [`decode`] takes and [`encode`] makes, as `Accept-Encoding` of a 415.
pub const SUPPORTED: HeaderValue = HeaderValue::from_static("gzip, deflate");

/// Bytes, decoded or to be encoded, that are handled on the event loop: below a millisecond.
const INLINE: usize = 64 << 10;

/// Compressed bytes that are decoded at a time on the event loop; each can become a thousand.
const SLICE: usize = 256;

/// Members of one gzip body: each costs a decoder's setup, however short it is.
const MAX_MEMBERS: usize = 4096;

/// Space that the decoder gets at a time, at least.
const STEP: usize = 16 << 10;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// As it is.
    Identity,
    /// `gzip`, also known as `x-gzip`.
    Gzip,
    /// `deflate`: the zlib format.
    Deflate,
}

/// Why a request body could not be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// A coding, or more than one, that is not taken: 415 with [`SUPPORTED`].
    #[error("content-encoding {0} is not supported; send gzip, deflate or none")]
    Unsupported(String),
    /// No stream of the coding, or one that ends early: 400.
    #[error("the body is no complete {coding} stream: {problem}")]
    Corrupt {
        /// The coding that the request names.
        coding: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The body did not arrive, or is larger than the limit once decoded.
    #[error(transparent)]
    Body(#[from] BodyError),
}

impl DecodeError {
    /// The status that says so to the client.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unsupported(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Body(BodyError::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(BodyError::Deadline) => StatusCode::GATEWAY_TIMEOUT,
            Self::Corrupt { .. } | Self::Body(_) => StatusCode::BAD_REQUEST,
        }
    }
}

impl Coding {
    /// The coding's name in a header; none for identity, which is never named.
    #[must_use]
    pub fn header(self) -> Option<HeaderValue> {
        match self {
            Self::Identity => None,
            Self::Gzip | Self::Deflate => Some(HeaderValue::from_static(self.as_str())),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [("gzip", Self::Gzip), ("x-gzip", Self::Gzip), ("deflate", Self::Deflate)]
            .into_iter()
            .chain([("identity", Self::Identity)])
            .find(|(known, _)| name.eq_ignore_ascii_case(known))
            .map(|(_, coding)| coding)
    }

    /// The coding of a body with these headers.
    ///
    /// # Errors
    /// [`DecodeError::Unsupported`]: unknown, or applied on top of another, which only a bomb
    /// needs.
    pub fn of_body(headers: &HeaderMap) -> Result<Self, DecodeError> {
        let mut found = Self::Identity;
        for value in headers.get_all(header::CONTENT_ENCODING) {
            let unsupported = || {
                DecodeError::Unsupported(format!("{:?}", String::from_utf8_lossy(value.as_bytes())))
            };
            let list = value.to_str().map_err(|_| unsupported())?;
            for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                match (found, Self::from_name(name)) {
                    (_, Some(Self::Identity)) => {}
                    (Self::Identity, Some(coding)) => found = coding,
                    _ => return Err(unsupported()),
                }
            }
        }
        Ok(found)
    }

    /// The coding that an answer to a request with these headers should have: the one with the
    /// highest weight, at equal weights gzip before deflate before identity. Identity is the answer
    /// to what cannot be served.
    #[must_use]
    pub fn negotiate(headers: &HeaderMap) -> Self {
        let mut weights: [Option<u16>; 3] = [None; 3];
        let mut others = None;
        for value in headers.get_all(header::ACCEPT_ENCODING) {
            for item in value.to_str().unwrap_or_default().split(',') {
                let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
                let Some(weight) = weight(parameters) else { continue };
                match (name.trim(), Self::from_name(name.trim())) {
                    ("*", _) => others = Some(weight),
                    (_, Some(coding)) => weights[coding as usize] = Some(weight),
                    _ => {}
                }
            }
        }
        let of = |coding: Self| weights[coding as usize].or(others).unwrap_or(0);
        let mut best = Self::Identity;
        let mut most = weights[Self::Identity as usize].unwrap_or(0);
        for coding in [Self::Deflate, Self::Gzip] {
            if of(coding) > 0 && of(coding) >= most {
                (best, most) = (coding, of(coding));
            }
        }
        best
    }
}

/// `;q=0.5` in thousandths, 1000 when there is none; none when malformed.
fn weight(parameters: &str) -> Option<u16> {
    for parameter in parameters.split(';') {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        if name.trim().eq_ignore_ascii_case("q") {
            let q: f32 = value.trim().parse().ok()?;
            // In range, so that the cast is exact to a thousandth.
            return (0.0..=1.0).contains(&q).then(|| (q * 1000.0).round() as u16);
        }
    }
    Some(1000)
}

/// Reads a request body whole and decodes what `headers` say it is coded in, holding at most
/// `limit` decoded bytes, and of the coded ones no more than arrive at a time. A body in no coding
/// is placed as [`body::collect_aligned`] says.
///
/// # Errors
/// See [`DecodeError`]; a body over the limit is refused as soon as the limit is passed.
pub async fn decode<B>(
    mut body: B,
    headers: &HeaderMap,
    limit: usize,
    json_len: Option<usize>,
) -> Result<Bytes, DecodeError>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let coding = Coding::of_body(headers)?;
    if coding == Coding::Identity {
        return Ok(body::collect_aligned(body, limit, json_len).await?);
    }
    let mut inflate = Inflate::new(coding, limit);
    while let Some(frame) = body.frame().await {
        let Ok(mut data) = frame.map_err(BodyError::broken)?.into_data() else { continue };
        while !data.is_empty() && inflate.work < INLINE {
            inflate.feed(&data.split_to(data.len().min(SLICE)))?;
        }
        if !data.is_empty() {
            let job = move || inflate.feed(&data).map(|()| inflate);
            inflate = tokio::task::spawn_blocking(job).await.map_err(|_| BodyError::Panicked)??;
        }
    }
    inflate.finish()
}

/// [`decode`] for a body that is here already. It runs where it is called, for as long as it takes.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode_whole(body: &Bytes, headers: &HeaderMap, limit: usize) -> Result<Bytes, DecodeError> {
    let coding = Coding::of_body(headers)?;
    if coding != Coding::Identity {
        let mut inflate = Inflate::new(coding, limit);
        inflate.feed(body)?;
        return inflate.finish();
    }
    if body.len() > limit {
        return Err(BodyError::TooLarge { limit }.into());
    }
    Ok(body.clone())
}

/// Compresses a whole answer. For speed, not for the last byte: the fastest level.
pub async fn encode(plain: Bytes, coding: Coding) -> Bytes {
    if coding == Coding::Identity || plain.is_empty() {
        return plain; // Nothing to gain.
    }
    if plain.len() <= INLINE {
        return encode_whole(&plain, coding);
    }
    let kept = plain.clone();
    // A runtime that is shutting down takes no more work.
    let job = tokio::task::spawn_blocking(move || encode_whole(&plain, coding));
    job.await.unwrap_or_else(|_| encode_whole(&kept, coding))
}

/// Puts an answer that is whole into `coding`, which its request prefers.
pub async fn answer(response: Response<Body>, coding: Coding) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    reply::vary(&mut head.headers, "accept-encoding");
    let Some(name) = coding.header() else { return Response::from_parts(head, body) };
    let empty = http_body::Body::is_end_stream(&body);
    if empty || head.headers.contains_key(header::CONTENT_ENCODING) {
        return Response::from_parts(head, body);
    }
    let Ok(plain) = body::collect(body, usize::MAX).await else {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        return reply::error(status, "internal error: the answer broke off");
    };
    head.headers.insert(header::CONTENT_ENCODING, name);
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, body::full(encode(plain, coding).await))
}

/// [`encode`] where it is called, for as long as it takes.
#[must_use]
pub fn encode_whole(plain: &[u8], coding: Coding) -> Bytes {
    let out = Vec::with_capacity(plain.len() / 4 + 64);
    let level = Compression::fast();
    // A vector takes every write, so that these cannot fail.
    let written = match coding {
        Coding::Identity => Ok(plain.to_vec()),
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(out, level);
            encoder.write_all(plain).and_then(|()| encoder.finish())
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(out, level);
            encoder.write_all(plain).and_then(|()| encoder.finish())
        }
    };
    written.unwrap_or_default().into()
}

/// A decoder that is fed pieces and stops at the limit.
struct Inflate {
    stream: Decompress,
    coding: Coding,
    out: Vec<u8>,
    limit: usize,
    /// Bytes taken and made so far.
    work: usize,
    /// Between two members: before the first byte, or after a member's last.
    between: bool,
    members: usize,
}

impl Inflate {
    fn new(coding: Coding, limit: usize) -> Self {
        let stream = Self::stream(coding);
        Self { stream, coding, out: Vec::new(), limit, work: 0, between: true, members: 0 }
    }

    fn stream(coding: Coding) -> Decompress {
        match coding {
            Coding::Gzip => Decompress::new_gzip(15),
            Coding::Identity | Coding::Deflate => Decompress::new(true),
        }
    }

    fn corrupt(&self, problem: impl Into<String>) -> DecodeError {
        DecodeError::Corrupt { coding: self.coding.as_str(), problem: problem.into() }
    }

    fn feed(&mut self, mut input: &[u8]) -> Result<(), DecodeError> {
        while !input.is_empty() {
            if self.between {
                self.start()?;
            }
            self.grow();
            let (taken, made) = (self.stream.total_in(), self.stream.total_out());
            let status = self
                .stream
                .decompress_vec(input, &mut self.out, FlushDecompress::None)
                .map_err(|error| self.corrupt(error.to_string()))?;
            if self.out.len() > self.limit {
                return Err(BodyError::TooLarge { limit: self.limit }.into());
            }
            // The differences fit: they are lengths of slices.
            let taken = (self.stream.total_in() - taken) as usize;
            let made = (self.stream.total_out() - made) as usize;
            self.work += taken + made;
            input = input.get(taken..).unwrap_or_default();
            match status {
                Status::StreamEnd => self.between = true,
                Status::Ok | Status::BufError if taken + made > 0 => {}
                Status::Ok | Status::BufError => return Err(self.corrupt("it does not go on")),
            }
        }
        Ok(())
    }

    /// Begins a member; gzip files may be concatenated, zlib streams not.
    fn start(&mut self) -> Result<(), DecodeError> {
        if self.members > 0 {
            if self.coding != Coding::Gzip {
                return Err(self.corrupt("more bytes follow its end"));
            }
            if self.members == MAX_MEMBERS {
                return Err(self.corrupt(format!("it has more than {MAX_MEMBERS} members")));
            }
            self.stream = Self::stream(self.coding);
        }
        self.members += 1;
        self.between = false;
        Ok(())
    }

    /// Makes space for more output, one byte over the limit at most: so passing it is seen.
    fn grow(&mut self) {
        if self.out.len() == self.out.capacity() {
            let more = self.out.len().max(STEP);
            self.out.reserve_exact(more.min(self.limit.saturating_add(1) - self.out.len()));
        }
    }

    /// The decoded body.
    fn finish(mut self) -> Result<Bytes, DecodeError> {
        // Output that found no space when the last input was taken.
        while !self.between {
            self.grow();
            let made = self.stream.total_out();
            let status = self
                .stream
                .decompress_vec(&[], &mut self.out, FlushDecompress::None)
                .map_err(|error| self.corrupt(error.to_string()))?;
            if self.out.len() > self.limit {
                return Err(BodyError::TooLarge { limit: self.limit }.into());
            }
            self.between = status == Status::StreamEnd;
            if !self.between && self.stream.total_out() == made {
                return Err(self.corrupt("it ends early"));
            }
        }
        if self.members == 0 {
            return Err(self.corrupt("it is empty"));
        }
        Ok(self.out.into())
    }
}

#[cfg(test)]
mod tests;
