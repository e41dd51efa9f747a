//! An answer of gRPC on its way to the app: messages as they come, and the trailers. However the
//! node ends, the app gets a status; when the app leaves, all that was held for it is dropped.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};
use http_body_util::StreamBody;
use midspan_net::{
    Body, BodyError,
    body::{boxed, empty, full},
};
use midspan_router_core::{Event, FailureKind, Lease, Slot};
use tokio::time::{Instant, Sleep, sleep_until};

use super::attempt::lost;
use crate::{
    admit::Terms,
    grpc::status::{Code, equivalent, status_in, trailers},
    listen::InFlight,
    replay::Live,
    shard::Shard,
};

/// Who answers, and what bounds the answer.
pub(super) struct Watch {
    pub(super) shard: Arc<Shard>,
    pub(super) slot: Slot,
    pub(super) node: String,
    pub(super) terms: Terms,
    /// The longest time in which nothing moves, in either direction.
    pub(super) idle: Option<Duration>,
    /// Whether the answer is one of gRPC, which must end with a status.
    pub(super) grpc: bool,
}

/// The answer as it passes.
pub(super) struct Relay {
    prefix: Option<Bytes>,
    rest: Body,
    deadline: Pin<Box<Sleep>>,
    idle: Option<(Duration, Pin<Box<Sleep>>)>,
    /// Pieces that had moved when the idle timer was set.
    moved_then: usize,
    moved: usize,
    watch: Watch,
    /// What is held until the end.
    held: Option<(Lease, InFlight, Option<Live>)>,
}

impl Relay {
    pub(super) fn new(
        prefix: Bytes,
        rest: Body,
        watch: Watch,
        live: Option<Live>,
        lease: Lease,
    ) -> Self {
        let timer = |at: Instant| Box::pin(sleep_until(at));
        Self {
            prefix: Some(prefix).filter(|prefix| !prefix.is_empty()),
            rest,
            deadline: timer(watch.terms.until.into()),
            idle: watch.idle.map(|idle| (idle, timer(Instant::now() + idle))),
            moved_then: 0,
            moved: 0,
            held: Some((lease, InFlight::enter(&watch.shard), live)),
            watch,
        }
    }

    /// Lets go of everything; nothing follows.
    fn close(&mut self) {
        self.held = None;
        self.rest = empty();
    }

    /// Ends the answer with a status of the router's.
    fn end(&mut self, code: Code, message: &str) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.close();
        Poll::Ready(Some(Ok(Frame::trailers(trailers(code, message)))))
    }

    fn failed(&self, kind: FailureKind) {
        self.watch.shard.fleet.observe(Event::Failed { slot: self.watch.slot, kind });
    }

    /// The node's own end.
    fn ended(&mut self, trailers: &HeaderMap) {
        let status = status_in(trailers).map(equivalent);
        if status.is_none_or(|status| status == http::StatusCode::INTERNAL_SERVER_ERROR) {
            self.failed(FailureKind::ServerError);
        }
        self.close();
    }

    /// Pieces that have moved in either direction.
    fn moves(&self) -> usize {
        let up = self.held.as_ref().and_then(|held| held.2.as_ref()).map_or(0, Live::moved);
        self.moved.wrapping_add(up)
    }

    /// Whether nothing has moved for the whole of the idle time; it is noticed within twice that.
    fn is_idle(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            let moves = self.moves();
            let Some((idle, timer)) = &mut self.idle else { return false };
            if timer.as_mut().poll(cx).is_pending() {
                return false;
            }
            if moves == self.moved_then {
                return true;
            }
            self.moved_then = moves;
            timer.as_mut().reset(Instant::now() + *idle);
        }
    }
}

impl HttpBody for Relay {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if this.held.is_none() {
            return Poll::Ready(None);
        }
        if this.deadline.as_mut().poll(cx).is_ready() {
            let late = this.watch.terms.late().to_string();
            return this.end(Code::DeadlineExceeded, &late);
        }
        if let Some(prefix) = this.prefix.take() {
            return Poll::Ready(Some(Ok(Frame::data(prefix))));
        }
        match Pin::new(&mut this.rest).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.moved = this.moved.wrapping_add(1);
                if let Some(trailers) = frame.trailers_ref() {
                    let trailers = trailers.clone();
                    this.ended(&trailers);
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(Some(Err(error))) => {
                this.failed(FailureKind::Reset);
                let error = lost(&this.watch.node, &error.to_string());
                return this.end(Code::Unavailable, &error.to_string());
            }
            Poll::Ready(None) if this.watch.grpc => {
                this.failed(FailureKind::ServerError);
                let node = &this.watch.node;
                let message = format!("node '{node}' ended its answer without a status");
                return this.end(Code::Internal, &message);
            }
            Poll::Ready(None) => {
                this.close();
                return Poll::Ready(None);
            }
            Poll::Pending => {}
        }
        if this.is_idle(cx) {
            let idle = this.watch.idle.unwrap_or_default();
            return this.end(Code::DeadlineExceeded, &format!("nothing moved for {idle:?}"));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none()
    }
}

/// An answer that was read whole.
pub(crate) fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Body {
    let Some(trailers) = trailers else { return full(bytes) };
    let data = Some(bytes).filter(|bytes| !bytes.is_empty()).map(Frame::data);
    let frames = data.into_iter().chain([Frame::trailers(trailers)]);
    boxed(StreamBody::new(futures_util::stream::iter(frames.map(Ok::<_, Infallible>))))
}
