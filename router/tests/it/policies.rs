//! Each policy serves; those with affinity keep a session at one node while the fleet is idle.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use futures_util::future::join_all;
use http::Response;
use midspan_net::body::full;
use tokio::sync::Barrier;

use crate::{
    fixture::{Router, Setup, eventually},
    stub::Stub,
};

async fn places(router: &Router, sessions: impl Iterator<Item = String>) -> BTreeSet<Bytes> {
    let mut places = BTreeSet::new();
    for session in sessions {
        let answer = router.infer(&session).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        places.insert(answer.body);
    }
    places
}

/// Requests that all wait for one another spread over the fleet, so that afterwards no node is a
/// stranger whose service time must be assumed.
async fn meet_everybody(router: &Router, nodes: &[&Stub]) {
    const CROWD: usize = 30;
    let together = Arc::new(Barrier::new(CROWD));
    for node in nodes {
        let together = Arc::clone(&together);
        node.script(move |_| {
            let together = Arc::clone(&together);
            async move {
                together.wait().await;
                Ok(Response::new(full("met")))
            }
        });
    }
    let crowd = (0..CROWD).map(|index| async move { router.infer(&format!("c{index}")).await });
    for answer in join_all(crowd).await {
        assert_eq!(answer.body, "met");
    }
    for node in nodes {
        assert!(node.asked() > 0, "{} was passed over", node.name);
        node.recover();
    }
}

#[tokio::test]
async fn every_policy_serves_and_affinity_holds() {
    for policy in ["nearest", "ring_bounded", "capped_affinity"] {
        let (a, b, c) = (Stub::start("a"), Stub::start("b"), Stub::start("c"));
        let router = Setup { policy, ..Setup::probing() }.start(&[&a, &b, &c]).await;
        // Affinity yields to latency, so first the nodes must be known to be equally near.
        eventually("the nodes are near", async || {
            let near = |rtt: Option<u64>| rtt.is_some_and(|micros| micros < 1_000);
            router.fleet().await.nodes.iter().all(|node| near(node.floor_rtt_us))
        })
        .await;
        assert_eq!(router.fleet().await.policy, policy);
        if policy == "nearest" {
            places(&router, (0..30).map(|index| format!("s{index}"))).await;
            continue;
        }
        meet_everybody(&router, &[&a, &b, &c]).await;
        let all = places(&router, (0..30).map(|index| format!("s{index}"))).await;
        assert_eq!(all.len(), 3, "{policy}: sessions spread over the fleet: {all:?}");
        for session in ["one", "two", "three"] {
            let same = places(&router, (0..20).map(|_| session.to_owned())).await;
            assert_eq!(same.len(), 1, "{policy}: session {session} was at {same:?}");
        }
    }
}

#[tokio::test]
async fn routers_agree_on_the_place_of_a_session() {
    let (a, b, c) = (Stub::start("a"), Stub::start("b"), Stub::start("c"));
    let setup = Setup::default();
    let first = setup.start(&[&a, &b, &c]).await;
    let second = setup.start(&[&c, &a, &b]).await;
    for session in (0..20).map(|index| format!("s{index}")) {
        assert_eq!(first.infer(&session).await.body, second.infer(&session).await.body);
    }
}
