//! Keeping a request's body for another try: small ones, under one budget for the whole router.
//! A body that is not kept is streamed once.

use std::{
    future::{Future as _, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use midspan_net::{
    Body, BodyError,
    body::{boxed, full},
    telemetry::Metric,
};

use tokio::sync::oneshot;

use crate::error::RouteError;

/// Bytes that kept bodies may take in all.
pub(crate) struct ReplayBudget {
    free: AtomicUsize,
    held: metrics::Gauge,
}

impl ReplayBudget {
    pub(crate) fn new(total: usize) -> Self {
        Self { free: AtomicUsize::new(total), held: Metric::RouterReplayBytes.gauge(&[]) }
    }

    fn take(self: &Arc<Self>, bytes: usize) -> Option<Kept> {
        let taken = self
            .free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(bytes));
        taken.ok()?;
        self.held.increment(bytes as f64);
        Some(Kept { budget: Arc::clone(self), bytes })
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }
}

/// Gives its bytes back when the request is over.
pub(crate) struct Kept {
    budget: Arc<ReplayBudget>,
    bytes: usize,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.budget.free.fetch_add(self.bytes, Ordering::Relaxed);
        self.budget.held.decrement(self.bytes as f64);
    }
}

/// A request's body on its way to a node.
pub(crate) enum Upload {
    /// Kept: any number of tries.
    Whole { bytes: Bytes, _kept: Kept },
    /// One try.
    Once(Option<Body>, Arc<ClientFault>, Option<Live>),
}

/// What the client did wrong with a streamed body, seen by the sender afterwards.
#[derive(Default)]
pub(crate) struct ClientFault {
    broke: AtomicBool,
    too_large: AtomicBool,
    /// The node has taken all that the client sent so far, and waits for more.
    stalls: AtomicBool,
    /// All of it was taken.
    ended: AtomicBool,
    /// Pieces that have gone on.
    moved: AtomicUsize,
}

/// The other end of a stream's upload: while it lives the upload may go on.
pub(crate) struct Live {
    _cut: oneshot::Sender<()>,
    fault: Arc<ClientFault>,
}

impl Live {
    /// Changes whenever a piece of the client's body has gone on.
    pub(crate) fn moved(&self) -> usize {
        self.fault.moved.load(Ordering::Relaxed)
    }
}

impl Upload {
    /// Reads up to `keep` bytes. A body that ends within them and fits the budget is kept; any
    /// other is streamed, at most `limit` bytes.
    ///
    /// # Errors
    /// The client broke off or sent more than `limit`.
    pub(crate) async fn read<B>(
        mut body: B,
        keep: usize,
        limit: usize,
        budget: &Arc<ReplayBudget>,
    ) -> Result<Self, RouteError>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut prefix = Prefix::default();
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        let Some(kept) = (announced <= keep)
            .then(|| budget.take(body.size_hint().exact().map_or(keep, |_| announced)))
            .flatten()
        else {
            return Ok(Self::stream(prefix, body, limit));
        };
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| RouteError::ClientBody(error.into().to_string()))?;
            let Ok(data) = frame.into_data() else { continue };
            prefix.push(data);
            if prefix.len() > limit {
                return Err(RouteError::TooLarge { limit });
            }
            if prefix.len() > keep {
                return Ok(Self::stream(prefix, body, limit));
            }
        }
        Ok(Self::Whole { bytes: prefix.into_bytes(), _kept: kept })
    }

    /// A body without end, sent as it comes; it is cut off when its [`Live`] is dropped, so that a
    /// node is not sent to when its answer is over.
    pub(crate) fn endless<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let fault = Arc::new(ClientFault::default());
        let (sender, cut) = oneshot::channel();
        let live = Live { _cut: sender, fault: Arc::clone(&fault) };
        let streamed = Streamed {
            prefix: None,
            rest: body,
            left: usize::MAX,
            limit: usize::MAX,
            fault: Arc::clone(&fault),
            cut: Some(cut),
        };
        Self::Once(Some(boxed(streamed)), fault, Some(live))
    }

    fn stream<B>(prefix: Prefix, rest: B, limit: usize) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let fault = Arc::new(ClientFault::default());
        let prefix = Some(prefix.into_bytes()).filter(|bytes| !bytes.is_empty());
        let fault_too = Arc::clone(&fault);
        let body = Streamed { prefix, rest, left: limit, limit, fault: fault_too, cut: None };
        Self::Once(Some(boxed(body)), fault, None)
    }

    /// Whether there is one try only.
    pub(crate) fn is_once(&self) -> bool {
        matches!(self, Self::Once(..))
    }

    /// What holds a body without end open.
    pub(crate) fn live(&mut self) -> Option<Live> {
        match self {
            Self::Whole { .. } => None,
            Self::Once(_, _, live) => live.take(),
        }
    }

    /// The body for the next try; `None` when it is used up.
    pub(crate) fn next(&mut self) -> Option<Body> {
        match self {
            Self::Whole { bytes, .. } => Some(full(bytes.clone())),
            Self::Once(body, ..) => body.take(),
        }
    }

    #[cfg(test)]
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self, Self::Whole { .. })
    }

    /// Whether it is the client that keeps the node waiting.
    pub(crate) fn stalls(&self) -> bool {
        matches!(self, Self::Once(_, fault, _) if fault.stalls.load(Ordering::Relaxed))
    }

    /// Whether a part of the body may still be under way.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Once(_, fault, _) if !fault.ended.load(Ordering::Relaxed))
    }

    /// The client's fault, if a streamed body failed by it.
    pub(crate) fn fault(&self, limit: usize) -> Option<RouteError> {
        let Self::Once(_, fault, _) = self else { return None };
        if fault.too_large.load(Ordering::Relaxed) {
            return Some(RouteError::TooLarge { limit });
        }
        fault
            .broke
            .load(Ordering::Relaxed)
            .then(|| RouteError::ClientBody("the client broke off".into()))
    }
}

/// What was read before it was known whether the body is small.
#[derive(Default)]
pub(crate) struct Prefix {
    first: Bytes,
    more: BytesMut,
}

impl Prefix {
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.more.len()
    }

    pub(crate) fn push(&mut self, data: Bytes) {
        if self.first.is_empty() && self.more.is_empty() {
            self.first = data; // One frame is the common case: no copy.
            return;
        }
        if self.more.is_empty() {
            self.more.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.more.extend_from_slice(&data);
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        if self.more.is_empty() { self.first } else { self.more.freeze() }
    }
}

/// The bytes already read, then the rest of the client's body, bounded.
struct Streamed<B> {
    prefix: Option<Bytes>,
    rest: B,
    left: usize,
    limit: usize,
    fault: Arc<ClientFault>,
    cut: Option<oneshot::Receiver<()>>,
}

impl<B> HttpBody for Streamed<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if let Some(cut) = &mut this.cut
            && Pin::new(cut).poll(cx).is_ready()
        {
            return Poll::Ready(Some(Err(BodyError::Deadline)));
        }
        let frame = match this.prefix.take() {
            Some(prefix) => Frame::data(prefix),
            None => {
                let polled = Pin::new(&mut this.rest).poll_frame(cx);
                this.fault.stalls.store(polled.is_pending(), Ordering::Relaxed);
                match ready!(polled) {
                    None => {
                        this.fault.ended.store(true, Ordering::Relaxed);
                        return Poll::Ready(None);
                    }
                    Some(Ok(frame)) => frame,
                    Some(Err(error)) => {
                        this.fault.broke.store(true, Ordering::Relaxed);
                        return Poll::Ready(Some(Err(BodyError::broken(error))));
                    }
                }
            }
        };
        let length = frame.data_ref().map_or(0, Bytes::len);
        if length > this.left {
            this.fault.too_large.store(true, Ordering::Relaxed);
            return Poll::Ready(Some(Err(BodyError::TooLarge { limit: this.limit })));
        }
        this.left -= length;
        this.fault.moved.fetch_add(1, Ordering::Relaxed);
        this.fault.ended.store(this.rest.is_end_stream(), Ordering::Relaxed);
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.prefix.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        after(self.prefix.as_ref(), &self.rest.size_hint())
    }
}

/// What is known of a body's length when `prefix` of it was read already and `rest` is to come.
pub(crate) fn after(prefix: Option<&Bytes>, rest: &SizeHint) -> SizeHint {
    let read = prefix.map_or(0, Bytes::len) as u64;
    let mut hint = SizeHint::new();
    hint.set_lower(rest.lower().saturating_add(read));
    if let Some(upper) = rest.upper() {
        hint.set_upper(upper.saturating_add(read));
    }
    hint
}

/// An answer as far as it was read before its head goes out.
pub(crate) enum Download {
    /// Complete, with its trailers.
    Whole(Bytes, Option<HeaderMap>),
    /// Larger: what was read, and the rest.
    Partial(Bytes, Body),
}

/// Reads an answer whole when it has at most `keep` bytes, so that its loss can still be retried.
///
/// # Errors
/// The node broke off within these bytes.
pub(crate) async fn download(mut body: Body, keep: usize) -> Result<Download, BodyError> {
    if body.size_hint().lower() > keep as u64 {
        return Ok(Download::Partial(Bytes::new(), body));
    }
    let mut prefix = Prefix::default();
    let mut trailers = None;
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let data = match frame?.into_data() {
            Ok(data) => data,
            Err(other) => {
                trailers = other.into_trailers().ok();
                continue;
            }
        };
        prefix.push(data);
        if prefix.len() > keep {
            return Ok(Download::Partial(prefix.into_bytes(), body));
        }
    }
    Ok(Download::Whole(prefix.into_bytes(), trailers))
}

#[cfg(test)]
mod tests;
