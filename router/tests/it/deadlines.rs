//! Deadlines: each hop gets what is left, and an app that waits gets an answer when it is over.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use midspan_net::{body::collect, transport::HttpVersion};

use crate::{
    fixture::{PATIENCE, Setup, VERSIONS, exchange, head, infer, pool, with},
    stub::{self, Stub},
};

fn hang(node: &Stub) {
    node.script(|_| std::future::pending());
}

fn forwarded(node: &Stub) -> u64 {
    node.last_head()["midspan-deadline-ms"].to_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_node_that_hangs_costs_the_deadline_and_no_more() {
    for nodes in VERSIONS {
        let (a, b) = (Stub::start("a"), Stub::start("b"));
        let router = Setup { nodes, ..Setup::default() }.start(&[&a, &b]).await;
        let session = router.session_of(&a).await;
        b.asked();
        hang(&a);
        for app in VERSIONS {
            let started = Instant::now();
            let asked = with(infer(&session, "{}"), "midspan-deadline-ms", "120");
            let answer = exchange(&pool(router.apps, app), asked).await;
            assert!(started.elapsed() >= Duration::from_millis(120));
            let text = answer.error(504);
            assert!(text.contains("120 ms"), "{text}");
            assert!((1..=120).contains(&forwarded(&a)), "{}", forwarded(&a));
            assert_eq!((a.asked(), b.asked()), (1, 0), "no time is left for another node");
        }
        router.idle().await;
    }
}

#[tokio::test]
async fn the_router_has_a_deadline_of_its_own_and_a_longest_one() {
    let a = Stub::start("a");
    let limits = "deadline = \"80ms\"\nmax_deadline = \"160ms\"";
    let router = Setup { limits, ..Setup::default() }.start(&[&a]).await;
    hang(&a);
    for (asked, least) in [(None, 80), (Some("3600000"), 160), (Some("18446744073709551615"), 160)]
    {
        let request = infer("s", "{}");
        let request = match asked {
            Some(asked) => with(request, "midspan-deadline-ms", asked),
            None => request,
        };
        let started = Instant::now();
        router.send(request).await.error(504);
        assert!(started.elapsed() >= Duration::from_millis(least), "{asked:?}");
        assert!(forwarded(&a) <= least, "{asked:?}: {}", forwarded(&a));
    }
}

#[tokio::test]
async fn a_deadline_that_is_none_is_refused() {
    let a = Stub::start("a");
    let router = Setup::default().start(&[&a]).await;
    for bad in ["0", "-1", "soon", "1.5", ""] {
        let answer = router.send(with(infer("s", "{}"), "midspan-deadline-ms", bad)).await;
        assert!(answer.error(400).contains("midspan-deadline-ms"), "{bad}");
    }
    assert_eq!(a.asked(), 0);
}

#[tokio::test]
async fn an_answer_that_stops_coming_ends_at_the_deadline() {
    let a = Stub::start("a");
    let limits = "replay_body = \"1KiB\"";
    let router = Setup { limits, ..Setup::default() }.start(&[&a]).await;
    // Within what is read before the head goes out: still an error of its own.
    a.script(|_| async { Ok(Response::new(stub::stuck(Bytes::from_static(b"some")))) });
    let asked = || with(infer("s", "{}"), "midspan-deadline-ms", "100");
    router.send(asked()).await.error(504);
    // Beyond it: the stream breaks.
    a.script(|_| async { Ok(Response::new(stub::stuck(Bytes::from(vec![0; 2048])))) });
    for app in [HttpVersion::H1, HttpVersion::H2] {
        let response = head(&pool(router.apps, app), asked()).await.unwrap();
        assert_eq!(response.status(), 200);
        let read = tokio::time::timeout(PATIENCE, collect(response.into_body(), 1 << 20)).await;
        assert!(read.expect("no hang").is_err(), "{app:?}");
    }
    router.idle().await;
}
