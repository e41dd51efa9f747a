//! Streams that share a connection: one that stands still must not hold up the others.

use http_body_util::BodyExt;
use midspan_net::body::{boxed, empty, full};
use tokio::task::JoinSet;

use crate::{
    LARGE,
    client::{H2, Unread, Version, upload},
    in_time,
    meter::Meter,
    process::Process,
    stub::{Stub, zeros},
};

/// Apps that ask for a large answer and do not read it share the router's connection to the node
/// with everybody else.
#[tokio::test(flavor = "multi_thread")]
async fn apps_that_do_not_read_leave_the_link_to_others() {
    let stub = Stub::start();
    let router = Process::router(&stub, "h2").await;
    let mut unread = Vec::new();
    for _ in 0..16 {
        unread.push(Unread::ask(Version::H1, router.addr, LARGE).await);
    }
    stub.sent().settled(&router).await;
    let asking = Unread::ask(Version::H1, router.addr, 1_000_000);
    let other = in_time("another app's answer begins", asking).await;
    assert_eq!(in_time("another app's answer", other.read()).await, 1_000_000);
}

/// One app's upload that a node does not read shares the app's connection with its other requests.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_held_up_leaves_the_connection_to_others() {
    let stub = Stub::start();
    let router = Process::router(&stub, "h1").await;
    let mut client = H2::connect(router.addr).await;
    let meter = Meter::default();
    let mut held = JoinSet::new();
    for _ in 0..4 {
        held.spawn(client.infer("gated", boxed(zeros(LARGE, meter.clone()))));
    }
    stub.holds(4).await;
    meter.settled(&router).await;
    let other = client.infer("", full(vec![0; 1000]));
    let answer = in_time("another stream's answer", other).await.expect("an answer");
    let body = answer.into_body().collect().await.expect("its body").to_bytes();
    assert_eq!(body, "1000");
    held.shutdown().await;
    // The connection is of use after the reset too.
    let other = client.infer("", empty());
    assert_eq!(in_time("an answer", other).await.expect("an answer").status(), 200);
}

/// A node that does not read one upload answers others over the same link.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_held_up_leaves_the_link_to_others() {
    let stub = Stub::start();
    let router = Process::router(&stub, "h2").await;
    let meter = Meter::default();
    let mut held = JoinSet::new();
    for _ in 0..4 {
        held.spawn(upload(Version::H1, router.addr, "gated", LARGE, meter.clone()));
    }
    stub.holds(4).await;
    meter.settled(&router).await;
    let other = upload(Version::H1, router.addr, "", 1000, Meter::default());
    assert_eq!(in_time("another app's answer", other).await, "1000");
    held.shutdown().await;
}
