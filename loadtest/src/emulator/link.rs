//! The relay's sockets: accepts, dials the target, runs both directions, resets. What happens to
//! bytes in between is [`super::pump`]'s business.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio::{
    net::{TcpListener, TcpStream},
    select,
    sync::{Semaphore, watch},
    time::{Duration, Instant, sleep},
    try_join,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    LinkSpec, Outage,
    pump::{Direction, End, Lane, Pump, State},
};
use crate::{links::LinkStatus, rng::Rng};

/// Connections a link carries at once; more wait in the kernel's backlog.
const MAX_CONNECTIONS: usize = 4096;
/// Pause after a failed accept (out of file descriptors, mostly), so that it does not spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// What went over a link so far: TCP payload, without packet headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that dialling sides sent towards the target.
    pub up_bytes: u64,
    /// Bytes that the target sent back.
    pub down_bytes: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Of these, the ones that are open.
    pub active: u64,
}

/// A running link. Dropping it ends it at once; [`Link::shutdown`] also waits for its tasks.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    tracker: TaskTracker,
    local: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    seed: u64,
    state: watch::Sender<State>,
    up: Lane,
    down: Lane,
    connections: AtomicU64,
    active: AtomicU64,
    cancel: CancellationToken,
}

impl Link {
    /// Listens on `listen` (port 0 picks one) and relays every connection to `target`. A new
    /// connection first waits one round trip, as its handshake would; its jitter is seeded with 0.
    ///
    /// # Errors
    /// When `listen` cannot be bound.
    pub async fn bind(listen: SocketAddr, target: SocketAddr, spec: LinkSpec) -> io::Result<Self> {
        Self::bind_seeded(listen, target, spec, 0).await
    }

    /// [`Link::bind`] with a seed for the jitter.
    ///
    /// # Errors
    /// When `listen` cannot be bound.
    pub async fn bind_seeded(
        listen: SocketAddr,
        target: SocketAddr,
        spec: LinkSpec,
        seed: u64,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let local = listener.local_addr()?;
        let now = Instant::now();
        let state = State { spec, outage: Outage::None, epoch: 0, restored: now };
        let shared = Arc::new(Shared {
            target,
            seed,
            state: watch::Sender::new(state),
            up: Lane::new(Direction::Up, now),
            down: Lane::new(Direction::Down, now),
            connections: AtomicU64::new(0),
            active: AtomicU64::new(0),
            cancel: CancellationToken::new(),
        });
        let tracker = TaskTracker::new();
        tracker.spawn(accept(Arc::clone(&shared), listener, tracker.clone()));
        Ok(Self { shared, tracker, local })
    }

    /// Where the link listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// What went over it so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            up_bytes: self.shared.up.bytes(),
            down_bytes: self.shared.down.bytes(),
            connections: self.shared.connections.load(Relaxed),
            active: self.shared.active.load(Relaxed),
        }
    }

    /// What the link is like now.
    #[must_use]
    pub fn spec(&self) -> LinkSpec {
        self.shared.state.borrow().spec
    }

    /// Changes the link for all bytes that enter it from now on.
    pub fn set_spec(&self, spec: LinkSpec) {
        self.shared.state.send_modify(|state| state.spec = spec);
    }

    /// What is broken about it now.
    #[must_use]
    pub fn outage(&self) -> Outage {
        self.shared.state.borrow().outage
    }

    /// Breaks or restores the link.
    pub fn set_outage(&self, outage: Outage) {
        self.shared.state.send_modify(|state| {
            if state.outage == Outage::Blackhole && outage == Outage::None {
                state.epoch += 1;
                state.restored = Instant::now();
                self.shared.up.restart(state.restored);
                self.shared.down.restart(state.restored);
            }
            state.outage = outage;
        });
    }

    /// The link's entry in a [`crate::links::LinksStatus`].
    #[must_use]
    pub fn status(&self, name: impl Into<String>) -> LinkStatus {
        let Counters { up_bytes, down_bytes, .. } = self.counters();
        let (spec, outage) = (self.spec(), self.outage());
        LinkStatus { name: name.into(), spec, outage, up_bytes, down_bytes }
    }

    /// Ends all connections and waits until every task of the link is gone.
    pub async fn shutdown(self) {
        self.shared.cancel.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.cancel.cancel();
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener, tracker: TaskTracker) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut numbers = Rng::new(shared.seed);
    loop {
        let (slot, client) = select! {
            biased;
            () = shared.cancel.cancelled() => return,
            next = next_connection(&shared, &listener, &slots) => next,
        };
        shared.connections.fetch_add(1, Relaxed);
        let open = Open::new(&shared);
        let (shared, seed) = (Arc::clone(&shared), numbers.next());
        tracker.spawn(async move {
            let _held = (slot, open);
            connection(&shared, client, seed).await;
        });
    }
}

async fn next_connection(
    shared: &Shared,
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (Option<tokio::sync::OwnedSemaphorePermit>, TcpStream) {
    // The semaphore is never closed, so a permit always comes.
    let slot = Arc::clone(slots).acquire_owned().await.ok();
    let mut state = shared.state.subscribe();
    loop {
        heard(&mut state, |state| state.outage != Outage::Blackhole).await;
        select! {
            biased;
            () = heard(&mut state, |state| state.outage == Outage::Blackhole) => {}
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => return (slot, client),
                Err(error) => {
                    tracing::warn!(%error, "link cannot accept");
                    sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
}

/// Waits until `wanted` holds; for ever when the link is gone, whose token then ends the task.
async fn heard(state: &mut watch::Receiver<State>, wanted: fn(&State) -> bool) {
    if state.wait_for(wanted).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn connection(shared: &Shared, mut client: TcpStream, seed: u64) {
    let mut server = None;
    let mut state = shared.state.subscribe();
    let reset = select! {
        biased;
        () = shared.cancel.cancelled() => false,
        () = heard(&mut state, |state| state.outage == Outage::Refuse) => true,
        relayed = relay(shared, &mut client, &mut server, seed) => relayed
            .inspect_err(|error| tracing::debug!(%error, target = %shared.target, "link resets"))
            .is_err(),
    };
    if reset {
        for stream in std::iter::once(&client).chain(&server) {
            if let Err(error) = stream.set_zero_linger() {
                tracing::debug!(%error, "link closes in place of a reset");
            }
        }
    }
}

async fn relay(
    shared: &Shared,
    client: &mut TcpStream,
    server: &mut Option<TcpStream>,
    seed: u64,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    let handshake = shared.state.borrow().spec.rtt;
    sleep(handshake).await;
    heard(&mut shared.state.subscribe(), |state| state.outage != Outage::Blackhole).await;
    let server = server.insert(TcpStream::connect(shared.target).await?);
    server.set_nodelay(true)?;
    let (client_end, server_end) = (End::default(), End::default());
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let mut seeds = Rng::new(seed);
    let subscribe = || shared.state.subscribe();
    let up = Pump::new(&shared.up, subscribe(), &client_end, &server_end, seeds.next());
    let down = Pump::new(&shared.down, subscribe(), &server_end, &client_end, seeds.next());
    try_join!(
        up.run(&mut from_client, &mut to_server),
        down.run(&mut from_server, &mut to_client)
    )?;
    Ok(())
}

/// Counts an open connection for as long as it lives.
#[derive(Debug)]
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.active.fetch_add(1, Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests;
