//! Apps that are slow, that vanish, that reset their streams: afterwards the router holds nothing
//! of them, and neither does the node.

use http_body_util::BodyExt;
use midspan_net::body::{empty, full};
use tokio::task::JoinSet;

use crate::{
    LARGE,
    client::{H2, Version},
    eventually,
    process::Process,
    raw::{Leave, Raw, head},
    stub::{Stub, stuck},
};

/// Apps at once in each trouble.
const APPS: usize = 20;
/// What is kept in memory for another try is below this, what is streamed above.
const KEPT: usize = 1000;
const STREAMED: usize = 1_000_000;

/// Nothing of any request is left, at the router or at the node; connections of apps are closed.
async fn nothing_is_left(router: &Process, stub: &Stub) {
    eventually("nothing is left", async || {
        let status = router.status().await;
        let leases = status.nodes.iter().map(|node| node.own_requests).sum::<u32>();
        let left = (
            router.metric("midspan_router_in_flight").await,
            router.metric("midspan_router_replay_bytes").await,
            (status.in_flight, leases),
            router.open().accepted(router.addr),
            stub.busy(),
        );
        (left != (0.0, 0.0, (0, 0), 0, 0))
            .then(|| format!("in flight, replay bytes, leases, connections, at the node: {left:?}"))
    })
    .await;
}

async fn in_flight(router: &Process, count: usize) {
    eventually("requests in flight", async || {
        let now = router.metric("midspan_router_in_flight").await;
        (now != count as f64).then(|| format!("{now}, not {count}"))
    })
    .await;
}

/// A byte at a time: every step of every app is followed by one answer of the router.
async fn slow_bodies(router: &Process) {
    const LENGTH: usize = 12;
    let mut ping = router.connect().await;
    let mut apps = Vec::new();
    for _ in 0..APPS {
        let mut app = router.connect().await;
        app.send(head("", LENGTH)).await;
        apps.push(app);
    }
    in_flight(router, APPS).await;
    let kept = router.metric("midspan_router_replay_bytes").await;
    assert_eq!(kept, (APPS * LENGTH) as f64);
    for _ in 0..LENGTH {
        for app in &mut apps {
            app.send([0]).await;
        }
        ping.live().await;
    }
    for app in &mut apps {
        assert_eq!(app.answer().await.expect("an answer").text(), LENGTH.to_string());
    }
}

/// Apps that take an answer in small bites; half of them to the end, half of them leave.
async fn slow_readers(router: &Process) {
    const LENGTH: usize = 6_000_000;
    let mut ping = router.connect().await;
    let mut apps = Vec::new();
    for _ in 0..APPS {
        let mut app = router.connect().await;
        app.send(head(&format!("large:{LENGTH}"), 0)).await;
        apps.push(app);
    }
    for app in &mut apps {
        assert_eq!(app.head().await.expect("an answer").0, 200);
    }
    for _ in 0..10 {
        for app in &mut apps {
            assert!(app.bite().await);
        }
        ping.live().await;
    }
    for (index, app) in apps.into_iter().enumerate() {
        if index % 2 == 0 {
            app.leave(Leave::Fin);
        } else {
            assert!(app.drained(LENGTH).await, "the answer broke off");
        }
    }
}

/// Where an app is when it goes.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Head,
    KeptBody,
    StreamedBody,
    Waiting,
    Answer,
}

async fn vanish(router: &Process, stub: &Stub, moment: Moment, how: Leave) {
    let mut apps = Vec::new();
    for _ in 0..APPS {
        let mut app = router.connect().await;
        match moment {
            Moment::Head => app.send("POST /v2/models/m/infer HTTP/1.1\r\nho").await,
            Moment::KeptBody => app.send(head("", KEPT) + "some").await,
            Moment::StreamedBody => app.send(head("", STREAMED) + "some").await,
            Moment::Waiting => app.send(head("gated", 0)).await,
            Moment::Answer => {
                app.send(head(&format!("large:{LARGE}"), 0)).await;
                assert_eq!(app.head().await.expect("an answer").0, 200);
            }
        }
        apps.push(app);
    }
    match moment {
        Moment::Head => {
            eventually("the connections are there", async || {
                let now = router.open().accepted(router.addr);
                (now != APPS).then(|| now.to_string())
            })
            .await;
        }
        Moment::KeptBody | Moment::Answer => in_flight(router, APPS).await,
        Moment::StreamedBody | Moment::Waiting => stub.holds(APPS).await,
    }
    apps.into_iter().for_each(|app: Raw| app.leave(how));
    nothing_is_left(router, stub).await;
}

/// Streams that are reset at each moment, on a connection that goes on.
async fn resets(router: &Process, stub: &Stub) {
    let mut app = H2::connect(router.addr).await;
    let mut streams = JoinSet::new();
    for _ in 0..APPS {
        streams.spawn(app.infer("", stuck()));
    }
    in_flight(router, APPS).await;
    streams.shutdown().await;
    in_flight(router, 0).await;

    for _ in 0..APPS {
        streams.spawn(app.infer("gated", empty()));
    }
    stub.holds(APPS).await;
    streams.shutdown().await;
    in_flight(router, 0).await;

    let mut answers = Vec::new();
    for _ in 0..APPS {
        let answer = app.infer(&format!("large:{LARGE}"), empty()).await;
        answers.push(answer.expect("an answer"));
    }
    in_flight(router, APPS).await;
    drop(answers);
    in_flight(router, 0).await;

    let answer = app.infer("", full("abc")).await.expect("an answer");
    let body = answer.into_body().collect().await.expect("its body").to_bytes();
    assert_eq!(body, "3");
}

/// Connections that close over open streams.
async fn lost_connections(router: &Process, stub: &Stub) {
    let mut apps = Vec::new();
    let mut streams = JoinSet::new();
    for _ in 0..4 {
        let mut app = H2::connect(router.addr).await;
        streams.spawn(app.infer("", stuck()));
        streams.spawn(app.infer("gated", empty()));
        apps.push(app);
    }
    in_flight(router, 8).await;
    drop(apps);
    while let Some(lost) = streams.join_next().await {
        let answer = lost.expect("no panic");
        assert!(answer.is_err(), "{answer:?}");
    }
    nothing_is_left(router, stub).await;
}

async fn every_trouble(router: &Process, stub: &Stub) {
    slow_bodies(router).await;
    nothing_is_left(router, stub).await;
    slow_readers(router).await;
    nothing_is_left(router, stub).await;
    for how in [Leave::Fin, Leave::Reset] {
        for moment in
            [Moment::Head, Moment::KeptBody, Moment::StreamedBody, Moment::Waiting, Moment::Answer]
        {
            vanish(router, stub, moment, how).await;
        }
    }
    resets(router, stub).await;
    nothing_is_left(router, stub).await;
    lost_connections(router, stub).await;
}

async fn leaves_nothing(node: Version) {
    let stub = Stub::start();
    let router = Process::router(&stub, node.key()).await;
    every_trouble(&router, &stub).await;
    let (resident, links) = (router.resident(), router.open().dialled(stub.addr));
    for _ in 0..2 {
        every_trouble(&router, &stub).await;
    }
    let grown = router.resident().saturating_sub(resident);
    let links_after = router.open().dialled(stub.addr);
    eprintln!("{node:?}: {} kB more, links {links} then {links_after}", grown / 1000);
    assert!(grown < 6_000_000, "{node:?}: {grown} bytes more after the same troubles again");
    // An idle pool keeps what was needed at once, and one more probes.
    let most = if node == Version::H1 { APPS + 1 } else { 2 };
    assert!(links_after <= most, "{node:?}: {links_after} connections to one node");
}

#[tokio::test(flavor = "multi_thread")]
async fn apps_leave_nothing_behind() {
    leaves_nothing(Version::H1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apps_leave_nothing_behind_with_h2_to_the_node() {
    leaves_nothing(Version::H2).await;
}
