//! The real program under pressure: bodies larger than it may hold, peers that do not read, peers
//! that vanish. Nothing may grow with a body's length, and nothing may stay behind.
//!
//! The router is a process of its own, so that its memory and descriptors can be counted; the node
//! behind it is mostly a stub in this process, which decides when to read.

#![expect(clippy::expect_used, reason = "a failed expectation is the test's report")]

mod backpressure;
mod client;
mod errors;
mod leaks;
mod memory;
mod meter;
mod multiplex;
mod node;
mod process;
mod raw;
mod sockets;
mod stub;

use std::time::Duration;

/// Patience for what must happen; long, because a debug build shares two cores with other tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// 100 MB: far above every buffer and limit between two sockets.
const LARGE: usize = 100_000_000;

/// Fails the test when `what` does not come true in time.
async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_elapsed) => panic!("not within {PATIENCE:?}: {what}"),
    }
}

/// Polls until `wanted` gives `None`; at the end of the patience its last complaint is the report.
async fn eventually(what: &str, mut wanted: impl AsyncFnMut() -> Option<String>) {
    let mut last = String::new();
    let polling = async {
        while let Some(complaint) = wanted().await {
            last = complaint;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let done = tokio::time::timeout(PATIENCE, polling).await;
    assert!(done.is_ok(), "not within {PATIENCE:?}: {what}: {last}");
}
