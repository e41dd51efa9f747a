//! One current-thread runtime per core: connections never move between threads and nothing on the
//! request path is shared but what the caller shares on purpose.

use std::{future::Future, io, thread};

/// Runs `body(0..count)`, each on its own thread and runtime, and waits for all. The first error
/// or panic wins.
///
/// # Errors
/// When a thread or runtime cannot be made, or a body returns an error.
pub fn run<F, Fut>(count: usize, name: &str, body: F) -> io::Result<()>
where
    F: Fn(usize) -> Fut + Send + Sync,
    Fut: Future<Output = io::Result<()>>,
{
    let body = &body;
    thread::scope(|scope| {
        let mut handles = Vec::with_capacity(count);
        for index in 0..count {
            let handle = thread::Builder::new().name(format!("{name}-{index}")).spawn_scoped(
                scope,
                move || -> io::Result<()> {
                    tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()?
                        .block_on(body(index))
                },
            )?;
            handles.push(handle);
        }
        handles.into_iter().try_for_each(|handle| {
            handle.join().unwrap_or_else(|_panic| Err(io::Error::other("a runtime thread failed")))
        })
    })
}

/// Cores that this process may use.
#[must_use]
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
