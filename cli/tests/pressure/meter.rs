//! Bytes that a sender got rid of, and how a test tells that it is stalled rather than slow.

use std::time::Duration;

use tokio::sync::watch;

use crate::process::Process;

/// Without a byte for this long, the process under test is asked whether it lives.
const POLL: Duration = Duration::from_millis(20);
/// Answers of a living process between which no byte moved.
const QUIET: u32 = 20;

/// Counts bytes; clones count together.
#[derive(Clone, Default)]
pub(crate) struct Meter(watch::Sender<usize>);

impl Meter {
    pub(crate) fn add(&self, bytes: usize) {
        self.0.send_modify(|count| *count += bytes);
    }

    pub(crate) fn get(&self) -> usize {
        *self.0.borrow()
    }

    /// Waits until the count stands still; returns it.
    ///
    /// No event says "this socket will not become writable". What can be observed is that the
    /// process which ought to read does its work meanwhile: its serving thread, the same that
    /// would move the bytes, answers many requests in a row and not one byte moves.
    pub(crate) async fn settled(&self, process: &Process) -> usize {
        let mut seen = self.0.subscribe();
        let mut ping = process.connect().await;
        let settling = async {
            let mut quiet = 0;
            while quiet < QUIET {
                if tokio::time::timeout(POLL, seen.changed()).await.is_ok() {
                    quiet = 0;
                    continue;
                }
                ping.live().await;
                quiet += 1;
            }
        };
        crate::in_time("the sender stalls", settling).await;
        self.get()
    }
}
