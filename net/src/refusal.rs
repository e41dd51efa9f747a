//! The protocol's error body on hyper's own refusals. hyper answers a head that it cannot parse
//! (400), or that is too large (431, 414), with an empty body and offers no hook; here, between
//! hyper and the socket, such an answer gets its body. Every other byte passes through.
//!
//! How it is recognised: hyper flushes after the last byte of each answer. While no request went
//! to the service since such a flush, whatever hyper writes is its own. An answer of the service
//! can therefore never be mistaken for a refusal, whatever its bytes. The ordinary path pays one
//! load and comparison per write. A refusal that hyper writes together with the end of an earlier
//! answer, which a full socket buffer can cause, keeps its empty body.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::exchange::Exchange;

/// What hyper says of the body that it does not send.
const NO_BODY: &[u8] = b"content-length: 0\r\n";

/// Plain bytes of one connection: those already read to learn its version come first.
pub(crate) struct Wire<S> {
    io: S,
    read: Bytes,
    /// Where refusals are recognised: HTTP/1.1 only.
    refusals: Option<Refusals>,
}

struct Refusals {
    exchange: Exchange,
    /// Requests handed to the service when all answers had been written.
    settled: u64,
    /// What goes out in place of hyper's refusal.
    instead: Bytes,
}

impl<S> Wire<S> {
    /// Everything passes through.
    pub(crate) fn plain(io: S, read: Bytes) -> Self {
        Self { io, read, refusals: None }
    }

    /// hyper's own refusals get a body. `exchange` must be entered for every call of the service.
    pub(crate) fn http1(io: S, read: Bytes, exchange: Exchange) -> Self {
        let refusals = Refusals { exchange, settled: 0, instead: Bytes::new() };
        Self { io, read, refusals: Some(refusals) }
    }
}

impl Refusals {
    /// Takes over `bytes` if they are hyper's refusal.
    fn take(&mut self, bytes: &[u8]) -> bool {
        if self.exchange.calls() != self.settled || !self.instead.is_empty() {
            return false;
        }
        let Some(instead) = with_body(bytes) else { return false };
        self.instead = instead;
        self.exchange.set_linger(true);
        true
    }
}

/// hyper's refusal with the protocol's error body, or none if `bytes` are something else.
fn with_body(bytes: &[u8]) -> Option<Bytes> {
    let status = bytes.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    let message = match status {
        b"400" => "the request is not valid HTTP/1.1",
        b"414" => "the request's target is too long",
        b"431" => "the request's head is too large, or has too many fields",
        [b'4' | b'5', _, _] => "the request cannot be served",
        _ => return None,
    };
    let start = bytes.windows(NO_BODY.len()).position(|part| part == NO_BODY)?;
    let body = midspan_protocol::error_body(message);
    let length = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    bytes.ends_with(b"\r\n\r\n").then(|| {
        [&bytes[..start], length.as_bytes(), &bytes[start + NO_BODY.len()..], &body].concat().into()
    })
}

impl<S: AsyncWrite + Unpin> Wire<S> {
    /// Writes what stands in place of hyper's refusal.
    fn poll_instead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(refusals) = &mut self.refusals else { return Poll::Ready(Ok(())) };
        while !refusals.instead.is_empty() {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, &refusals.instead))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            refusals.instead.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let length = self.read.len().min(buf.remaining());
        buf.put_slice(&self.read.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.refusals.as_mut().is_some_and(|refusals| refusals.take(buf)) {
            return Poll::Ready(Ok(buf.len()));
        }
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A head without a body is one piece.
        if let ([head], Some(refusals)) = (bufs, &mut self.refusals)
            && refusals.take(head)
        {
            return Poll::Ready(Ok(head.len()));
        }
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(cx))?;
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        if let Some(refusals) = &mut self.refusals
            && refusals.exchange.is_settled()
        {
            refusals.settled = refusals.exchange.calls();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
