//! What the router holds of bodies: a bounded part of each, whatever its length.

use tokio::task::JoinSet;

use crate::{
    LARGE,
    client::{Version, upload},
    meter::Meter,
    process::Process,
    stub::Stub,
};

const MB: usize = 1_000_000;

/// A router that has done everything once, so that what it allocates for good is there.
async fn warm(stub: &Stub, client: Version, node: Version) -> Process {
    let router = Process::router(stub, node.key()).await;
    for length in [10, 200_000] {
        let text = upload(client, router.addr, "", length, Meter::default()).await;
        assert_eq!(text, length.to_string());
    }
    router
}

async fn one(client: Version, node: Version) -> Option<String> {
    let stub = Stub::start();
    let router = warm(&stub, client, node).await;
    router.reset_peak();
    let before = router.resident();
    let text = upload(client, router.addr, "", LARGE, Meter::default()).await;
    assert_eq!(text, LARGE.to_string());
    let grown = router.peak().saturating_sub(before);
    eprintln!("100 MB, {client:?} to {node:?}: grown by {} kB", grown / 1000);
    (grown >= 4 * MB).then(|| format!("{client:?} to {node:?}: {grown} bytes for one request"))
}

/// Fifty at once: first all held up by the node, which is when every buffer on the way is full,
/// then all at full speed.
async fn fifty(client: Version, node: Version) -> Option<String> {
    const COUNT: usize = 50;
    const EACH: usize = 10 * MB;
    let stub = Stub::start();
    let router = warm(&stub, client, node).await;
    router.reset_peak();
    let before = router.resident();
    let meter = Meter::default();
    let mut clients = JoinSet::new();
    for _ in 0..COUNT {
        clients.spawn(upload(client, router.addr, "gated", EACH, meter.clone()));
    }
    stub.holds(COUNT).await;
    let sent = meter.settled(&router).await;
    let held = router.peak().saturating_sub(before);
    stub.open();
    while let Some(text) = clients.join_next().await {
        assert_eq!(text.expect("no panic"), EACH.to_string());
    }
    let grown = router.peak().saturating_sub(before);
    eprintln!(
        "50 at once, {client:?} to {node:?}: {} MB sent when held up, grown by {} kB then, {} kB \
         in all",
        sent / MB,
        held / 1000,
        grown / 1000
    );
    (grown >= COUNT * MB).then(|| format!("{client:?} to {node:?}: {grown} bytes for {COUNT}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_large_body_costs_a_few_buffers() {
    let mut complaints = Vec::new();
    for client in Version::BOTH {
        for node in Version::BOTH {
            complaints.extend(one(client, node).await);
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_large_bodies_cost_a_few_buffers_each() {
    let mut complaints = Vec::new();
    for client in Version::BOTH {
        for node in Version::BOTH {
            complaints.extend(fifty(client, node).await);
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
