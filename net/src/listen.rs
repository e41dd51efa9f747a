//! Ports: binding them, accepting connections within their limits, and what is known of a peer.
//! What happens on a connection is [`connection`]'s business, what a request means the handler's.

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr, TcpListener as StdListener},
    sync::Arc,
    time::Duration,
};

use http::{Request, Response};
use hyper::body::Incoming;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use crate::{Body, Tasks, connection, telemetry::Metric, tls::Certificates};

/// Who is on the other side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The peer's socket address.
    pub addr: SocketAddr,
    /// Whether the connection is encrypted; the peer need not have shown a certificate.
    pub tls: bool,
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

/// Bounds of a listener. A bound that a peer passes closes its connection, and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once; further ones wait in the kernel's backlog.
    pub connections: usize,
    /// Streams at once on an HTTP/2 connection.
    pub streams: u32,
    /// Largest head of a request, bytes: request line and fields. A larger one is answered with
    /// 431, as is one of more than 100 fields under HTTP/1.1. (HTTP/2's own 431 has no body.)
    pub head_size: u32,
    /// Time for a connection's first bytes, for each request's head, and between two requests of
    /// an HTTP/1.1 connection. Then it is closed without an answer.
    pub head_timeout: Duration,
    /// Time for a TLS handshake.
    pub handshake_timeout: Duration,
    /// Time during which a peer may take no bytes of what is sent to it. HTTP/2's windows are not
    /// seen: there it bounds the connection, not one stream.
    pub write_stall: Duration,
    /// Time that a client gets to stop sending a body that was refused, so that it reads the
    /// refusal rather than a reset.
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            streams: 256,
            head_size: 64 << 10,
            head_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            write_stall: Duration::from_secs(60),
            linger: Duration::from_secs(5),
        }
    }
}

/// How a port serves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The port's name in metrics.
    pub port: &'static str,
    /// Its bounds.
    pub limits: Limits,
    /// Makes the port speak TLS, and nothing else.
    pub tls: Option<Arc<Certificates>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { port: "apps", limits: Limits::default(), tls: None }
    }
}

impl From<Limits> for Options {
    fn from(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
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
    options: impl Into<Options>,
    tasks: &Tasks,
    handler: H,
) -> io::Result<()>
where
    H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let listener = TcpListener::from_std(listener)?;
    let options = options.into();
    let tasks = tasks.clone();
    let places = Arc::new(Semaphore::new(options.limits.connections));
    let connections = Metric::Connections.gauge(&[options.port]);
    tasks.clone().spawn_until_drain(async move {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let (stream, addr) = accept(&listener).await;
            let counted = Counted::enter(&connections);
            let connection = connection::run(
                stream,
                addr,
                options.limits,
                options.tls.clone(),
                tasks.clone(),
                handler.clone(),
            );
            tasks.spawn(async move {
                connection.await;
                drop((counted, place));
            });
        }
    });
    Ok(())
}

/// One more of what a gauge counts, until it is dropped.
pub(crate) struct Counted(metrics::Gauge);

impl Counted {
    pub(crate) fn enter(gauge: &metrics::Gauge) -> Self {
        gauge.increment(1);
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
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

#[cfg(test)]
mod tests;
