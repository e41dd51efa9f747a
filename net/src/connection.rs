//! One connection: TLS when the port has it, HTTP/1.1 or HTTP/2 by ALPN or by its first bytes, the
//! bounds on a peer's patience, panics kept to one request, graceful drain.
//!
//! What bounds a slow peer: the handshake and the first bytes a time each, a head hyper's timer, a
//! request body the handler's deadline, an answer [`socket`](crate::socket)'s stall.

use std::{
    convert::Infallible, future::Future, io, net::SocketAddr, panic::AssertUnwindSafe, pin::Pin,
    sync::Arc, time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Method, Request, Response, StatusCode, Version, header};
use hyper::{
    body::{Body as _, Incoming},
    server::conn::{http1, http2},
    service::{HttpService, service_fn},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

use crate::{
    Body, Limits, Peer, Tasks,
    body::empty,
    exchange::{Answer, Exchange},
    refusal::Wire,
    reply,
    socket::{Patience, Socket},
    tls::Certificates,
};

/// Bytes that an HTTP/1.1 connection buffers each way; hyper grows to 400 KiB otherwise.
const H1_BUFFER: u32 = 64 << 10;

/// Bytes of a request body that a peer may send ahead of its reader on HTTP/2.
const H2_STREAM_WINDOW: u32 = 128 << 10;

/// The same for all streams of a connection: of several, so that one that is not read does not
/// hold up the others.
const H2_CONNECTION_WINDOW: u32 = 4 << 20;

/// What an HTTP/2 connection begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// What the stages of a connection share.
struct Context {
    limits: Limits,
    tasks: Tasks,
    exchange: Exchange,
}

/// Serves a connection to its end.
pub(crate) async fn run<H, F>(
    stream: TcpStream,
    addr: SocketAddr,
    limits: Limits,
    tls: Option<Arc<Certificates>>,
    tasks: Tasks,
    handler: H,
) where
    H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let _no_delay = stream.set_nodelay(true);
    let exchange = Exchange::default();
    let patience = Patience { stall: limits.write_stall, linger: limits.linger };
    let socket = Socket::new(stream, patience, exchange.clone());
    let peer = Peer { addr, tls: tls.is_some() };
    let service = service(handler, peer, exchange.clone());
    let context = Context { limits, tasks, exchange };
    let outcome = match tls {
        None => clear(socket, context, service).await,
        Some(certificates) => encrypted(socket, &certificates, context, service).await,
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, peer = %addr, "connection ended");
    }
}

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

async fn clear<S, H>(mut socket: S, context: Context, service: H) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: HttpService<Incoming, ResBody = Answer, Error = Infallible> + Send + 'static,
    H::Future: Send + 'static,
{
    let opening = timeout(context.limits.head_timeout, opening(&mut socket));
    let (protocol, read) = tokio::select! {
        biased;
        opened = opening => match opened? {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(()),
            Err(error) => return Err(error.into()),
        },
        () = context.tasks.drain_started() => return Ok(()),
    };
    drive(socket, protocol, read, context, service).await
}

async fn encrypted<S, H>(
    socket: S,
    certificates: &Certificates,
    context: Context,
    service: H,
) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: HttpService<Incoming, ResBody = Answer, Error = Infallible> + Send + 'static,
    H::Future: Send + 'static,
{
    let handshake =
        timeout(context.limits.handshake_timeout, certificates.acceptor().accept(socket));
    let stream = tokio::select! {
        biased;
        shaken = handshake => shaken??,
        () = context.tasks.drain_started() => return Ok(()),
    };
    // Without ALPN a client speaks HTTP/1.1 (RFC 9113, 3.2).
    let protocol = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => Protocol::Http2,
        _ => Protocol::Http1,
    };
    drive(stream, protocol, Bytes::new(), context, service).await
}

/// Reads until it is certain which protocol the client speaks; none when it says nothing at all.
async fn opening(io: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(Protocol, Bytes)>> {
    let mut bytes = [0; 1024];
    let mut length = 0;
    loop {
        let read = io.read(&mut bytes[length..]).await?;
        length += read;
        let known = length.min(PREFACE.len());
        let protocol = match (bytes[..known] == PREFACE[..known], known == PREFACE.len(), read) {
            (_, _, 0) if length == 0 => return Ok(None),
            (true, true, _) => Protocol::Http2,
            (true, false, 1..) => continue,
            _ => Protocol::Http1,
        };
        return Ok(Some((protocol, Bytes::copy_from_slice(&bytes[..length]))));
    }
}

async fn drive<S, H>(
    io: S,
    protocol: Protocol,
    read: Bytes,
    context: Context,
    service: H,
) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: HttpService<Incoming, ResBody = Answer, Error = Infallible> + Send + 'static,
    H::Future: Send + 'static,
{
    let Context { limits, tasks, exchange } = context;
    match protocol {
        Protocol::Http1 => {
            let io = TokioIo::new(Wire::http1(io, read, exchange.clone()));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits.head_timeout)
                .max_header_size(limits.head_size as usize)
                .max_buf_size(limits.head_size.max(H1_BUFFER) as usize)
                .serve_connection(io, service);
            until_drained(connection, http1::Connection::graceful_shutdown, &tasks, &exchange)
                .await?;
        }
        Protocol::Http2 => {
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(limits.streams)
                .max_header_list_size(limits.head_size)
                .initial_stream_window_size(H2_STREAM_WINDOW)
                .initial_connection_window_size(H2_CONNECTION_WINDOW)
                .keep_alive_interval(Duration::from_secs(20))
                .keep_alive_timeout(Duration::from_secs(20))
                .serve_connection(TokioIo::new(Wire::plain(io, read)), service);
            until_drained(connection, http2::Connection::graceful_shutdown, &tasks, &exchange)
                .await?;
        }
    }
    Ok(())
}

async fn until_drained<C>(
    connection: C,
    end: fn(Pin<&mut C>),
    tasks: &Tasks,
    exchange: &Exchange,
) -> C::Output
where
    C: Future,
{
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        outcome = connection.as_mut() => outcome,
        () = tasks.drain_started() => {
            if exchange.is_settled() {
                // Idle: an error of long ago is no reason to wait for its client.
                exchange.set_linger(false);
            }
            end(connection.as_mut());
            connection.await
        }
    }
}

/// The handler as hyper's service: panics become answers, every answer counts while it lasts.
fn service<H, F>(
    handler: H,
    peer: Peer,
    exchange: Exchange,
) -> impl HttpService<Incoming, ResBody = Answer, Error = Infallible, Future: Send + 'static>
+ Send
+ 'static
where
    H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    service_fn(move |request: Request<Incoming>| {
        let open = exchange.enter();
        let sending = request.version() < Version::HTTP_2 && !request.body().is_end_stream();
        let head_only = request.method() == Method::HEAD;
        let answer = AssertUnwindSafe(guarded(handler.clone(), request, peer)).catch_unwind();
        async move {
            let mut response = answer.await.unwrap_or_else(|_panic| {
                reply::error(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal error: the handler failed",
                )
            });
            if head_only {
                response = without_body(response);
            }
            if sending {
                // An error may have left the request's body unread, and then ends the connection.
                let refused = response.status().is_client_error()
                    || response.status().is_server_error()
                    || response.headers().contains_key(header::CONNECTION);
                open.exchange().set_linger(refused);
                if !response.status().is_success() {
                    // The handler may have dropped the body unread. hyper sees that when it is
                    // polled again: it takes a short rest that is here already, else it ends the
                    // connection, which the head can only say if it is written afterwards.
                    tokio::task::yield_now().await;
                }
            }
            Ok::<_, Infallible>(response.map(|body| Answer::new(body, open)))
        }
    })
}

/// The answer to HEAD: the head of the answer to GET. hyper drops the body on HTTP/1.1 only.
fn without_body(mut response: Response<Body>) -> Response<Body> {
    if let Some(length) = response.body().size_hint().exact().filter(|length| *length > 0) {
        let entry = response.headers_mut().entry(header::CONTENT_LENGTH);
        entry.or_insert_with(|| length.into());
    }
    response.map(|_body| empty())
}

/// Calls the handler inside the future, so that a panic before its first await is caught too.
async fn guarded<H, F>(handler: H, request: Request<Incoming>, peer: Peer) -> Response<Body>
where
    H: Fn(Request<Incoming>, Peer) -> F,
    F: Future<Output = Response<Body>>,
{
    handler(request, peer).await
}

#[cfg(test)]
mod tests;
