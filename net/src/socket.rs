//! A connection's socket with the patience of a server: it fails when the peer takes no bytes for
//! too long, and when told to it reads on after its own end, so that a peer that is still sending
//! gets the answer rather than a reset. What the bytes mean is not known here.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use crate::exchange::Exchange;

/// Reads after the end between two turns of the event loop.
const READS: usize = 32;

/// How long a peer is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// While it takes no bytes of an answer.
    pub(crate) stall: Duration,
    /// For it to stop sending, after the answer's end.
    pub(crate) linger: Duration,
}

/// See the module.
pub(crate) struct Socket<S> {
    inner: S,
    patience: Patience,
    exchange: Exchange,
    /// Made at the first wait, used again.
    timer: Option<Pin<Box<Sleep>>>,
    waiting: Waiting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// For nothing; the timer means nothing.
    No,
    /// For the peer to take bytes.
    Write,
    /// For the peer to stop sending; our end is shut down.
    Linger,
}

impl<S> Socket<S> {
    pub(crate) fn new(inner: S, patience: Patience, exchange: Exchange) -> Self {
        Self { inner, patience, exchange, timer: None, waiting: Waiting::No }
    }

    /// Starts to wait, unless the same wait goes on, and says whether it took too long.
    fn wait(&mut self, cx: &mut Context<'_>, what: Waiting, time: Duration) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(time)));
        if self.waiting != what {
            self.waiting = what;
            timer.as_mut().reset(Instant::now() + time);
        }
        timer.as_mut().poll(cx)
    }

    fn judge<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = Waiting::No;
            return written;
        }
        let stall = self.patience.stall;
        ready!(self.wait(cx, Waiting::Write, stall));
        let problem = format!("the peer took no bytes for {stall:?}");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, problem)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.waiting != Waiting::Linger {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
            if !this.exchange.lingers() {
                return Poll::Ready(Ok(()));
            }
        }
        let time = this.patience.linger;
        if this.wait(cx, Waiting::Linger, time).is_ready() {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..READS {
            let mut space = [0; 4096];
            let mut unread = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut this.inner).poll_read(cx, &mut unread)) {
                Ok(()) if !unread.filled().is_empty() => {}
                // Its end, or its reset: nothing more to wait for.
                _ => return Poll::Ready(Ok(())),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
