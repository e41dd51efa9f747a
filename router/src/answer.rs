//! A large answer on its way to the app: what was read already, then the rest, until the deadline.
//! Holds the node's lease until the last byte, whatever way the answer ends.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use midspan_net::{Body, BodyError};
use midspan_router_core::Lease;
use tokio::time::{Sleep, sleep_until};

use crate::listen::InFlight;

/// What bounds an answer's transfer.
pub(crate) struct Pacing {
    /// When the app stops waiting.
    pub(crate) until: Instant,
    /// The node's place that the transfer takes.
    pub(crate) lease: Lease,
    /// The request counts as one until its answer has ended.
    pub(crate) in_flight: InFlight,
}

/// The streamed answer.
pub(crate) struct Rest {
    prefix: Option<Bytes>,
    rest: Body,
    deadline: Pin<Box<Sleep>>,
    _lease: Lease,
    _in_flight: InFlight,
}

impl Rest {
    pub(crate) fn new(prefix: Bytes, rest: Body, pacing: Pacing) -> Self {
        Self {
            prefix: Some(prefix).filter(|prefix| !prefix.is_empty()),
            rest,
            deadline: Box::pin(sleep_until(pacing.until.into())),
            _lease: pacing.lease,
            _in_flight: pacing.in_flight,
        }
    }
}

impl HttpBody for Rest {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(prefix) = self.prefix.take() {
            return Poll::Ready(Some(Ok(Frame::data(prefix))));
        }
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(BodyError::Deadline)));
        }
        Poll::Ready(ready!(Pin::new(&mut self.rest).poll_frame(cx)))
    }

    fn is_end_stream(&self) -> bool {
        self.prefix.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.prefix.as_ref().map_or(0, Bytes::len) as u64;
        match self.rest.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(rest.saturating_add(read)),
            None => SizeHint::new(),
        }
    }
}
