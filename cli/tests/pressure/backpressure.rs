//! Who does not read holds up who sends, through the router, after a bounded number of bytes; and
//! once it reads, everything arrives.

use tokio::task::JoinSet;

use crate::{
    LARGE,
    client::{Unread, Version, upload},
    in_time,
    meter::Meter,
    process::Process,
    sockets,
    stub::Stub,
};

/// What the router and the two HTTP stacks at the ends may hold. The kernel's buffers come on top:
/// it lets a receive buffer grow as it sees fit, so what is in them is counted, not guessed.
const HELD: usize = 1_000_000;
/// With the kernel's part; a body that is not held up passes this long before it ends.
const TAKEN: usize = 40_000_000;

/// The complaint, if `sent` bytes are too many.
fn too_many(way: &str, sent: usize, router: &Process, stub: &Stub) -> Option<String> {
    let held = sent.saturating_sub(sockets::queued([router.addr, stub.addr]));
    eprintln!("{way}: stalls after {} kB, {} kB of it not the kernel's", sent / 1000, held / 1000);
    (held >= HELD || sent >= TAKEN).then(|| format!("{way}: {sent} bytes taken, {held} held"))
}

async fn upwards(client: Version, node: Version) -> Option<String> {
    let stub = Stub::start();
    let router = Process::router(&stub, node.key()).await;
    let meter = Meter::default();
    let mut sending = JoinSet::new();
    sending.spawn(upload(client, router.addr, "gated", LARGE, meter.clone()));
    stub.holds(1).await;
    let sent = meter.settled(&router).await;
    let complaint = too_many(&format!("app {client:?} to node {node:?}"), sent, &router, &stub);
    stub.open();
    let text = in_time("the rest arrives", sending.join_next()).await.expect("one");
    assert_eq!(text.expect("no panic"), LARGE.to_string());
    complaint
}

async fn downwards(client: Version, node: Version) -> Option<String> {
    let stub = Stub::start();
    let router = Process::router(&stub, node.key()).await;
    let unread = Unread::ask(client, router.addr, LARGE).await;
    let sent = stub.sent().settled(&router).await;
    let complaint = too_many(&format!("node {node:?} to app {client:?}"), sent, &router, &stub);
    assert_eq!(unread.read().await, LARGE);
    complaint
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_read_holds_up_the_app() {
    let mut complaints = Vec::new();
    for client in Version::BOTH {
        for node in Version::BOTH {
            complaints.extend(upwards(client, node).await);
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_that_does_not_read_holds_up_the_node() {
    let mut complaints = Vec::new();
    for client in Version::BOTH {
        for node in Version::BOTH {
            complaints.extend(downwards(client, node).await);
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
