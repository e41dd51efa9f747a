//! Message bodies: one boxed type between the hops, bounded collection into memory that tensors can
//! be read from, and panics turned into stream errors so that a truncated body never looks complete.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};

pub use self::gather::{ALIGNMENT, Gather};
use self::gather::{EARNED, is_readable};

mod gather;

/// A request or response body between hops.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The peer reset the stream, closed the connection, or broke the framing.
    #[error("the body ended early: {0}")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// More bytes than the limit.
    #[error("the body is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The configured limit, bytes.
        limit: usize,
    },
    /// The deadline passed while the body was on its way.
    #[error("the deadline passed while the body was on its way")]
    Deadline,
    /// The producer panicked.
    #[error("the producer of the body failed")]
    Panicked,
}

impl BodyError {
    /// Wraps a transport's error.
    pub fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Broken(error.into())
    }
}

/// A body that is already here.
#[must_use]
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// No body.
#[must_use]
pub fn empty() -> Body {
    full(Bytes::new())
}

/// Boxes any body, guarded against panics of its producer.
pub fn boxed<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    Guarded { inner: Some(Box::pin(body.map_err(BodyError::broken))) }.boxed_unsync()
}

/// Reads a body whole, at most `limit` bytes.
///
/// # Errors
/// [`BodyError::TooLarge`] as soon as the limit is passed, without reading on.
pub async fn collect<B>(body: B, limit: usize) -> Result<Bytes, BodyError>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    collect_aligned(body, limit, None).await
}

/// Reads a body whole, at most `limit` bytes, so that the binary part after `json_len` bytes of
/// JSON can be read where it lies: it starts at a multiple of 8 bytes in memory, of [`ALIGNMENT`]
/// when it was gathered. Every byte is copied at most once if the peer announced the length (the
/// first 64 KiB twice if they come in more than 16 frames); see [`Gather`] for what happens if it
/// did not. A body of a single frame that suits is passed on as it is, and so is any when
/// `json_len` is not known. `json_len` need not be true: it is never a length to allocate.
///
/// # Errors
/// [`BodyError::TooLarge`] as soon as the limit is passed, without reading on.
pub async fn collect_aligned<B>(
    mut body: B,
    limit: usize,
    json_len: Option<usize>,
) -> Result<Bytes, BodyError>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(BodyError::TooLarge { limit });
    }
    let mut gather = Gather::new(limit, json_len, announced);
    let mut held = Held::default();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(BodyError::broken)?.into_data() else { continue };
        if data.len() > limit - gather.len() - held.length {
            return Err(BodyError::TooLarge { limit });
        }
        if gather.is_empty() && held.has_room() {
            held.push(data);
        } else {
            held.pour(&mut gather)?;
            gather.push(&data)?;
        }
    }
    if gather.is_empty()
        && let Some(only) = held.only()
        && is_readable(&only, json_len)
    {
        return Ok(only);
    }
    held.pour(&mut gather)?;
    Ok(gather.finish())
}

/// The first frames, kept as they came until it is known how much memory the body deserves.
#[derive(Default)]
struct Held {
    frames: Vec<Bytes>,
    length: usize,
}

impl Held {
    /// Frames that are kept at most: many small ones would take more than their bytes.
    const MOST: usize = 16;

    fn has_room(&self) -> bool {
        self.length < EARNED && self.frames.len() < Self::MOST
    }

    fn push(&mut self, frame: Bytes) {
        self.length += frame.len();
        if !frame.is_empty() {
            self.frames.push(frame);
        }
    }

    /// The frame that is the whole body, if one is.
    fn only(&self) -> Option<Bytes> {
        match self.frames.as_slice() {
            [] => Some(Bytes::new()),
            [only] => Some(only.clone()),
            _ => None,
        }
    }

    /// Copies the frames into a buffer and lets them go.
    fn pour(&mut self, gather: &mut Gather) -> Result<(), BodyError> {
        gather.make_room(self.length);
        self.length = 0;
        self.frames.drain(..).try_for_each(|frame| gather.push(&frame))
    }
}

/// Fails the stream when the inner body panics, instead of taking the connection's task down.
struct Guarded<B> {
    inner: Option<Pin<Box<B>>>,
}

impl<B> http_body::Body for Guarded<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(inner) = self.inner.as_mut() else { return Poll::Ready(None) };
        let polled = catch_unwind(AssertUnwindSafe(|| inner.as_mut().poll_frame(cx)));
        match polled {
            Ok(poll) => Poll::Ready(ready!(poll)),
            Err(_panic) => {
                self.inner = None;
                Poll::Ready(Some(Err(BodyError::Panicked)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(SizeHint::default, |inner| inner.size_hint())
    }
}

#[cfg(test)]
mod tests;
