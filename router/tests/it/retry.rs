//! A node is lost: small requests go to another node, unseen by the app, and each node is asked
//! once. What cannot be tried again is an error that says so.

use bytes::Bytes;
use http::{Response, StatusCode};
use midspan_net::{body::full, reply, transport::HttpVersion};
use midspan_protocol::headers;

use crate::{
    fixture::{Answer, Router, Setup, VERSIONS, exchange, infer, pool},
    stub::{self, BreakOff, Stub},
};

/// Ways to lose a node that is connected.
#[derive(Clone, Copy, Debug)]
enum Loss {
    BeforeHead,
    ShortOfItsLength,
    WithoutEnd,
    Refuses,
}

const LOSSES: [Loss; 4] =
    [Loss::BeforeHead, Loss::ShortOfItsLength, Loss::WithoutEnd, Loss::Refuses];

fn half() -> midspan_net::Body {
    stub::broken(Bytes::from_static(b"{\"half"))
}

fn lose(node: &Stub, loss: Loss) {
    node.script(move |_| async move {
        match loss {
            Loss::BeforeHead => Err(BreakOff),
            Loss::ShortOfItsLength => Ok(stub::promising(half(), Some(100))),
            Loss::WithoutEnd => Ok(stub::promising(half(), None)),
            Loss::Refuses => Ok(reply::error(StatusCode::SERVICE_UNAVAILABLE, "no room")),
        }
    });
}

fn assert_second_try(answer: &Answer, what: &str) {
    assert_eq!(answer.status, 200, "{what}: {answer:?}");
    assert_eq!(answer.body, "b", "{what}");
    let timing = answer.header(headers::SERVER_TIMING);
    assert!(timing.contains("attempts;desc=\"2\""), "{what}: {timing}");
}

#[tokio::test]
async fn a_small_request_survives_the_loss_of_its_node() {
    for version in VERSIONS {
        for loss in LOSSES {
            let what = format!("{version:?} {loss:?}");
            let (a, b) = (Stub::start("a"), Stub::start("b"));
            let router = Setup { nodes: version, ..Setup::default() }.start(&[&a, &b]).await;
            let session = router.session_of(&a).await;
            b.asked();
            lose(&a, loss);
            assert_second_try(&router.infer(&session).await, &what);
            assert_eq!((a.asked(), b.asked()), (1, 1), "{what}");
            a.recover();
            assert_eq!(router.infer(&session).await.body, "a", "one loss is forgiven: {what}");
        }
    }
}

#[tokio::test]
async fn a_node_that_is_gone_is_passed_over() {
    for version in VERSIONS {
        let (mut a, b) = (Stub::start("a"), Stub::start("b"));
        let router = Setup { nodes: version, ..Setup::default() }.start(&[&a, &b]).await;
        let session = router.session_of(&a).await;
        b.asked();
        a.stop().await;
        assert_second_try(&router.infer(&session).await, "gone");
        assert_eq!(b.asked(), 1);
        router.idle().await;
    }
}

#[tokio::test]
async fn a_large_request_is_sent_once() {
    for version in VERSIONS {
        let (a, b) = (Stub::start("a"), Stub::start("b"));
        let setup = Setup { nodes: version, limits: "replay_body = \"1KiB\"", ..Setup::default() };
        let router = setup.start(&[&a, &b]).await;
        let session = router.session_of(&a).await;
        b.asked();
        for length in [1025, 1 << 20] {
            lose(&a, Loss::BeforeHead);
            let lost = router.send(infer(&session, vec![b'x'; length])).await;
            let text = lost.error(503);
            assert!(text.contains("node 'a' was lost"), "{text}");
            assert_eq!((a.asked(), b.asked()), (1, 0), "{length} bytes are not kept");
            a.recover();
            assert_eq!(router.send(infer(&session, vec![b'x'; length])).await.body, "a");
            a.asked();
        }
        lose(&a, Loss::BeforeHead);
        assert_eq!(router.send(infer(&session, vec![b'x'; 1024])).await.body, "b", "kept");
    }
}

#[tokio::test]
async fn a_server_error_is_an_answer() {
    let (a, b) = (Stub::start("a"), Stub::start("b"));
    let router = Setup::default().start(&[&a, &b]).await;
    let session = router.session_of(&a).await;
    b.asked();
    a.script(|_| async { Ok(reply::error(StatusCode::INTERNAL_SERVER_ERROR, "model failed")) });
    let answer = router.infer(&session).await;
    assert_eq!(answer.error(500), "model failed");
    assert_eq!((a.asked(), b.asked()), (1, 0));
}

async fn two_refusing(router: &Router, session: &str) -> String {
    router.infer(session).await.error(503)
}

#[tokio::test]
async fn when_nobody_can_the_app_is_told_to_come_back() {
    for version in VERSIONS {
        let (mut a, mut b) = (Stub::start("a"), Stub::start("b"));
        let router = Setup { nodes: version, ..Setup::default() }.start(&[&a, &b]).await;
        let session = router.session_of(&a).await;
        lose(&a, Loss::Refuses);
        lose(&b, Loss::Refuses);
        assert_eq!(two_refusing(&router, &session).await, "no room", "a node's own words");
        assert_eq!((a.asked(), b.asked() > 0), (1, true));
        a.stop().await;
        b.stop().await;
        let text = two_refusing(&router, &session).await;
        assert!(text.contains("was lost"), "{text}");
        router.idle().await;
    }
}

#[tokio::test]
async fn retries_stop_when_their_budget_is_used_up() {
    for (limits, retried) in [
        ("retry_min_per_second = 0\nretry_percent = 0", false),
        ("retry_min_per_second = 0\nretry_percent = 100", true),
        ("retry_min_per_second = 10\nretry_percent = 0", true),
    ] {
        let (a, b) = (Stub::start("a"), Stub::start("b"));
        let router = Setup { limits, ..Setup::default() }.start(&[&a, &b]).await;
        let session = router.session_of(&a).await;
        b.asked();
        lose(&a, Loss::BeforeHead);
        let answer = router.infer(&session).await;
        assert_eq!(answer.status == 200, retried, "{limits}: {answer:?}");
        assert_eq!((a.asked(), b.asked()), (1, usize::from(retried)), "{limits}");
        if !retried {
            answer.error(503);
        }
    }
}

#[tokio::test]
async fn a_share_of_requests_bounds_the_retries() {
    let (a, b) = (Stub::start("a"), Stub::start("b"));
    let limits = "retry_min_per_second = 0\nretry_percent = 20";
    let router = Setup { limits, ..Setup::default() }.start(&[&a, &b]).await;
    let deposits = 1 + router.session_of(&a).await[1..].parse::<usize>().unwrap();
    b.asked();
    // Refusals, not losses: a node that breaks off again and again would be ejected.
    lose(&a, Loss::Refuses);
    lose(&b, Loss::Refuses);
    const REQUESTS: usize = 40;
    let app = pool(router.apps, HttpVersion::H1);
    for index in 0..REQUESTS {
        exchange(&app, infer(&format!("t{index}"), "{}")).await.error(503);
    }
    let retries = a.asked() + b.asked() - REQUESTS;
    let allowed = (deposits + REQUESTS) / 5;
    assert!(retries > 0 && retries <= allowed, "{retries} of {allowed}");
}

#[tokio::test]
async fn kept_bodies_share_one_budget() {
    let (a, b) = (Stub::start("a"), Stub::start("b"));
    let limits = "replay_body = \"1KiB\"\nreplay_total = \"1KiB\"";
    let router = Setup { limits, ..Setup::default() }.start(&[&a, &b]).await;
    let session = router.session_of(&a).await;
    b.asked();
    let (entered, mut has_entered) = tokio::sync::mpsc::unbounded_channel();
    let release = std::sync::Arc::new(tokio::sync::Notify::new());
    let released = std::sync::Arc::clone(&release);
    a.script(move |_| {
        let (entered, released) = (entered.clone(), std::sync::Arc::clone(&released));
        async move {
            entered.send(()).unwrap();
            released.notified().await;
            Ok(Response::new(full("first")))
        }
    });
    let app = pool(router.apps, HttpVersion::H1);
    let first = infer(&session, vec![b'x'; 1024]);
    let first = tokio::spawn(async move { exchange(&app, first).await });
    has_entered.recv().await.unwrap();
    // The first holds the whole budget, so whatever comes now has one try.
    lose(&a, Loss::BeforeHead);
    lose(&b, Loss::BeforeHead);
    router.send(infer(&session, vec![b'x'; 512])).await.error(503);
    assert_eq!(a.asked() + b.asked(), 2);
    b.recover();
    release.notify_one();
    assert_eq!(first.await.unwrap().body, "first");
    assert_eq!(router.send(infer(&session, vec![b'x'; 512])).await.body, "b", "given back");
}
