//! A process of its own: what bodies hold whose peers announce much and send little, with the
//! allocator that the program uses. Memory is read from the kernel, so nothing else may run beside
//! it.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is the test's report")]

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use midspan_net::{BodyError, body::collect_aligned};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PEERS: usize = 64;
const PROMISED: usize = 64 << 20;

/// Sends this many frames of 4 KiB of what it promised, then nothing.
struct Stalled(usize);

impl http_body::Body for Stalled {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(left) = self.0.checked_sub(1) else { return Poll::Pending };
        self.0 = left;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[7; 4096])))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(PROMISED as u64)
    }
}

/// A figure of this process in KiB, by its name in the kernel's table.
fn figure(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn promises_take_addresses_but_no_memory() {
    let mut context = Context::from_waker(Waker::noop());
    // What one body of 64 MiB that has sent so much may take, KiB: its bytes and some pages, or
    // a page of 2 MiB where its start and its end lie, as the allocator asks for huge ones.
    for (frames, most) in [(2, 64), (17, 2 * 2048 + 64)] {
        let (addresses, memory) = (figure("VmSize:"), figure("RssAnon:"));
        let mut reading: Vec<_> = (0..PEERS)
            .map(|_| Box::pin(collect_aligned(Stalled(frames), PROMISED, Some(100))))
            .collect();
        for future in &mut reading {
            assert!(future.as_mut().poll(&mut context).is_pending());
        }
        let addresses = figure("VmSize:").saturating_sub(addresses);
        let memory = figure("RssAnon:").saturating_sub(memory);
        println!("{PEERS} bodies of {frames} frames: {addresses} KiB of addresses, {memory} KiB");
        let reserved = addresses > PEERS * PROMISED / 1024;
        assert_eq!(reserved, frames * 4096 >= 64 << 10, "{addresses} KiB of addresses");
        assert!(memory < PEERS * most, "{PEERS} bodies of {frames} frames take {memory} KiB");
    }
}
