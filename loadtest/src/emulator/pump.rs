//! One direction of one connection: takes bytes from the sender, holds them for as long as the
//! link would, and hands them on in order, end of stream and reset included. The one place where
//! the emulator waits. It knows readers and writers, not sockets, so that it runs under paused time.

use std::{
    collections::VecDeque,
    future::pending,
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    select,
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::{
    BitsPerSecond, LinkSpec, Outage,
    shaper::{Shaper, one_way, quantum, window},
};
use crate::rng::Rng;

/// What a held item counts at least, so that a queue of tiny chunks is bounded too.
const MIN_COST: usize = 64;

/// What the operator last said of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) spec: LinkSpec,
    pub(super) outage: Outage,
    /// Counts the ends of blackholes.
    pub(super) epoch: u64,
    /// When the last blackhole ended.
    pub(super) restored: Instant,
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Up,
    Down,
}

/// What all connections share in one direction.
#[derive(Debug)]
pub(super) struct Lane {
    direction: Direction,
    shaper: Mutex<Shaper>,
    bytes: AtomicU64,
}

impl Lane {
    pub(super) fn new(direction: Direction, now: Instant) -> Self {
        Self { direction, shaper: Mutex::new(Shaper::new(now)), bytes: AtomicU64::new(0) }
    }

    /// Bytes taken from senders so far; a byte is counted before its receiver can see it.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(super) fn restart(&self, now: Instant) {
        self.shaper.lock().unwrap_or_else(PoisonError::into_inner).restart(now);
    }

    fn rate(&self, spec: &LinkSpec) -> Option<BitsPerSecond> {
        match self.direction {
            Direction::Up => spec.up,
            Direction::Down => spec.down,
        }
    }

    fn reserve(&self, now: Instant, bytes: usize, spec: &LinkSpec) -> Instant {
        let mut shaper = self.shaper.lock().unwrap_or_else(PoisonError::into_inner);
        shaper.reserve(now, bytes, self.rate(spec))
    }
}

/// What both directions of a connection know of one of its sockets.
#[derive(Debug, Default)]
pub(super) struct End {
    /// It was reset; the kernel tells only whichever call comes first, so it is noted here.
    broken: AtomicBool,
    /// Its end of stream was read.
    drained: AtomicBool,
}

enum Item {
    Data(Bytes),
    Fin,
    Reset,
}

/// Waits its turn in the queue, so jitter cannot reorder: what is behind a late item is late too.
struct Held {
    at: Instant,
    item: Item,
}

impl Held {
    fn data(&self) -> &[u8] {
        if let Item::Data(data) = &self.item { data } else { &[] }
    }

    fn cost(&self) -> usize {
        self.data().len().max(MIN_COST)
    }
}

enum Step {
    Again,
    Closed,
    Wrote(io::Result<usize>),
    Read(io::Result<usize>),
}

/// One direction of one connection, from `source` to `target`.
pub(super) struct Pump<'a> {
    lane: &'a Lane,
    state: watch::Receiver<State>,
    source: &'a End,
    target: &'a End,
    rng: Rng,
    epoch: u64,
    queue: VecDeque<Held>,
    held: usize,
}

impl<'a> Pump<'a> {
    pub(super) fn new(
        lane: &'a Lane,
        state: watch::Receiver<State>,
        source: &'a End,
        target: &'a End,
        seed: u64,
    ) -> Self {
        let epoch = state.borrow().epoch;
        let (rng, queue) = (Rng::new(seed), VecDeque::new());
        Self { lane, state, source, target, rng, epoch, queue, held: 0 }
    }

    /// Runs until the end of stream was handed on.
    ///
    /// # Errors
    /// When the connection has to be reset on both sides.
    pub(super) async fn run<R, W>(mut self, reader: &mut R, writer: &mut W) -> io::Result<()>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut buffer = Vec::new();
        loop {
            let state = *self.state.borrow_and_update();
            self.resend_after_outage(&state);
            let silent = state.outage == Outage::Blackhole;
            let head = self.queue.front();
            let now = Instant::now();
            let due = head.is_some_and(|head| !silent && head.at <= now);
            match head.map(|head| &head.item) {
                Some(Item::Fin) if due => {
                    self.hand_on_end(writer).await;
                    return Ok(());
                }
                Some(Item::Reset) if due => return Err(io::ErrorKind::ConnectionReset.into()),
                _ => {}
            }
            let waiting = head.is_some() && !silent && !due;
            let (at, data) = head.map_or((now, &[][..]), |head| (head.at, head.data()));
            let rate = self.lane.rate(&state.spec);
            let room = !self.source.drained.load(Relaxed) && self.held < window(rate, &state.spec);
            buffer.resize(quantum(rate), 0);
            let step = select! {
                biased;
                changed = self.state.changed() => changed.map_or(Step::Closed, |()| Step::Again),
                wrote = writer.write(data), if due => Step::Wrote(wrote),
                () = sleep_until(at), if waiting => Step::Again,
                read = reader.read(&mut buffer), if room => Step::Read(read),
            };
            match step {
                Step::Again => {}
                Step::Closed => return Ok(()),
                Step::Wrote(Ok(count)) if count > 0 => self.wrote(count),
                Step::Wrote(result) => return Err(self.target_is_gone(&state, result).await),
                Step::Read(result) => self.took(&state, result, &buffer),
            }
        }
    }

    /// What was on the way when a blackhole began is sent anew when it ends, bandwidth included.
    fn resend_after_outage(&mut self, state: &State) {
        if self.epoch == state.epoch {
            return;
        }
        self.epoch = state.epoch;
        for held in &mut self.queue {
            let sent = self.lane.reserve(state.restored, held.data().len(), &state.spec);
            held.at = sent + one_way(&state.spec, &mut self.rng);
        }
    }

    fn wrote(&mut self, count: usize) {
        let Some(head) = self.queue.front_mut() else { return };
        let Item::Data(data) = &mut head.item else { return };
        if count < data.len() {
            let before = data.len().max(MIN_COST);
            data.advance(count);
            self.held -= before - data.len().max(MIN_COST);
            return;
        }
        self.held -= head.cost();
        self.queue.pop_front();
    }

    fn took(&mut self, state: &State, result: io::Result<usize>, buffer: &[u8]) {
        let item = match result {
            Ok(count) if count > 0 => {
                self.lane.bytes.fetch_add(count as u64, Relaxed);
                Item::Data(Bytes::copy_from_slice(&buffer[..count]))
            }
            Ok(_) if !self.source.broken.load(Relaxed) => Item::Fin,
            _ => {
                self.source.broken.store(true, Relaxed);
                Item::Reset
            }
        };
        if !matches!(item, Item::Data(_)) {
            self.source.drained.store(true, Relaxed);
        }
        let mut held = Held { at: Instant::now(), item };
        // During a blackhole nothing occupies the line: the end of it schedules what is held.
        if state.outage != Outage::Blackhole {
            held.at = self.lane.reserve(held.at, held.data().len(), &state.spec)
                + one_way(&state.spec, &mut self.rng);
        }
        self.held += held.cost();
        self.queue.push_back(held);
    }

    async fn hand_on_end<W: AsyncWrite + Unpin>(&self, writer: &mut W) {
        // Fails only on a target that was reset, which the other direction reports.
        if let Err(error) = writer.shutdown().await {
            tracing::debug!(%error, direction = ?self.lane.direction, "end of stream not taken");
        }
    }

    /// The target refuses bytes. Its peer must learn of it as late as a reset would take. The other
    /// direction does that, in order with what the target sent before, unless it has ended.
    async fn target_is_gone(&mut self, state: &State, result: io::Result<usize>) -> io::Error {
        let error = result.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
        let known = self.target.broken.swap(true, Relaxed);
        if known || !self.target.drained.load(Relaxed) {
            pending::<()>().await;
        }
        sleep(one_way(&state.spec, &mut self.rng)).await;
        error
    }
}

#[cfg(test)]
mod tests;
