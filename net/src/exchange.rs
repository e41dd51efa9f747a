//! What the service and the socket of one connection tell each other: how many requests were
//! handed to the service, how many of their answers are not yet taken over by hyper, and whether
//! the client may still be sending. All of it is used by one task at a time under HTTP/1.1.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::{Body, BodyError};

/// One connection's state; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exchange(Arc<State>);

#[derive(Debug, Default)]
struct State {
    calls: AtomicU64,
    open: AtomicU64,
    linger: AtomicBool,
}

impl Exchange {
    /// A request goes to the service; its answer is open until the value is dropped.
    pub(crate) fn enter(&self) -> Open {
        self.0.calls.fetch_add(1, Relaxed);
        self.0.open.fetch_add(1, Relaxed);
        Open(self.clone())
    }

    /// Requests handed to the service so far.
    pub(crate) fn calls(&self) -> u64 {
        self.0.calls.load(Relaxed)
    }

    /// Whether hyper has all of every answer.
    pub(crate) fn is_settled(&self) -> bool {
        self.0.open.load(Relaxed) == 0
    }

    /// Says whether the client may be sending what nobody will read.
    pub(crate) fn set_linger(&self, linger: bool) {
        self.0.linger.store(linger, Relaxed);
    }

    pub(crate) fn lingers(&self) -> bool {
        self.0.linger.load(Relaxed)
    }
}

/// An answer that is not complete.
pub(crate) struct Open(Exchange);

impl Open {
    pub(crate) fn exchange(&self) -> &Exchange {
        &self.0
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Relaxed);
    }
}

/// An answer's body, whose end closes the exchange.
pub(crate) struct Answer {
    body: Body,
    _open: Open,
}

impl Answer {
    pub(crate) fn new(body: Body, open: Open) -> Self {
        Self { body, _open: open }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
