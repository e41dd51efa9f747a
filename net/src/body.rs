//! Message bodies: one boxed type between the hops, bounded collection, and panics turned into
//! stream errors so that a truncated body never looks complete.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};

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
pub async fn collect<B>(mut body: B, limit: usize) -> Result<Bytes, BodyError>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(BodyError::TooLarge { limit });
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(BodyError::broken)?.into_data() else { continue };
        if first.len() + rest.len() + data.len() > limit {
            return Err(BodyError::TooLarge { limit });
        }
        if first.is_empty() && rest.is_empty() {
            first = data; // One frame is the common case: no copy.
        } else {
            if rest.is_empty() {
                let expected = usize::try_from(body.size_hint().lower()).unwrap_or(0).min(limit);
                rest.reserve(first.len() + data.len() + expected);
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
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
mod tests {
    use http_body_util::StreamBody;

    use super::*;

    fn chunks(parts: &'static [&'static [u8]]) -> Body {
        let frames =
            parts.iter().map(|part| Ok::<_, BodyError>(Frame::data(Bytes::from_static(part))));
        boxed(StreamBody::new(futures_util::stream::iter(frames)))
    }

    #[tokio::test]
    async fn collect_is_exact_at_the_limit() {
        assert_eq!(collect(chunks(&[b"ab", b"c"]), 3).await.unwrap(), "abc");
        assert_eq!(collect(chunks(&[b"abc"]), 3).await.unwrap(), "abc");
        assert!(matches!(
            collect(chunks(&[b"ab", b"cd"]), 3).await,
            Err(BodyError::TooLarge { limit: 3 })
        ));
        assert_eq!(collect(empty(), 0).await.unwrap(), "");
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
}
