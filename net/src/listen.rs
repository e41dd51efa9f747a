//! Accepting connections: HTTP/1.1 and HTTP/2 on one port, limits, panics kept to one request,
//! graceful drain. What a request means is the handler's business.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::{IpAddr, SocketAddr, TcpListener as StdListener},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use crate::{Body, Tasks, reply};

/// Who is on the other side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The peer's socket address.
    pub addr: SocketAddr,
}

impl Peer {
    /// Whether the peer is a process of this machine; only such a peer's policy context is taken
    /// while links carry no certificate.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self.addr.ip() {
            IpAddr::V4(ip) => ip.is_loopback(),
            IpAddr::V6(ip) => {
                ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
            }
        }
    }
}

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once; further ones wait in the kernel's backlog.
    pub connections: usize,
    /// Streams at once on an HTTP/2 connection.
    pub streams: u32,
    /// Time for a request's head to arrive.
    pub head_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 4096, streams: 256, head_timeout: Duration::from_secs(10) }
    }
}

/// Binds `count` listeners on one address, so that each runtime accepts for itself.
///
/// A second SO_REUSEPORT socket binds silently beside another program's; a plain bind first makes
/// a port in use an error.
///
/// # Errors
/// With the address in the message.
pub fn bind(addr: SocketAddr, count: usize) -> io::Result<Vec<StdListener>> {
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}"))
    };
    let plain = StdListener::bind(addr).map_err(named)?;
    if count <= 1 {
        plain.set_nonblocking(true)?;
        return Ok(vec![plain]);
    }
    let addr = plain.local_addr()?;
    drop(plain);
    (0..count).map(|_| bind_shared(addr).map_err(named)).collect()
}

fn bind_shared(addr: SocketAddr) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

/// Accepts until the drain starts, then lets every connection finish its requests.
///
/// # Errors
/// When the listener cannot be registered with the runtime.
pub fn serve<H, F>(
    listener: StdListener,
    limits: Limits,
    tasks: &Tasks,
    handler: H,
) -> io::Result<()>
where
    H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let listener = TcpListener::from_std(listener)?;
    let tasks = tasks.clone();
    let places = Arc::new(Semaphore::new(limits.connections));
    tasks.clone().spawn_until_drain(async move {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let (stream, addr) = accept(&listener).await;
            let connection =
                connection(stream, Peer { addr }, limits, tasks.clone(), handler.clone());
            tasks.spawn(async move {
                connection.await;
                drop(place);
            });
        }
    });
    Ok(())
}

/// Accept errors are the process's (descriptors used up) or the peer's (gone already); neither may
/// end the loop, and the former must not spin.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

async fn connection<H, F>(stream: TcpStream, peer: Peer, limits: Limits, tasks: Tasks, handler: H)
where
    H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let _no_delay = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let answer = AssertUnwindSafe(guarded(handler.clone(), request, peer)).catch_unwind();
        async move {
            Ok::<_, Infallible>(answer.await.unwrap_or_else(|_panic| {
                reply::error(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal error: the handler failed",
                )
            }))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.head_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let outcome = tokio::select! {
        biased;
        outcome = connection.as_mut() => outcome,
        () = tasks.drain_started() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, peer = %peer.addr, "connection ended");
    }
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
