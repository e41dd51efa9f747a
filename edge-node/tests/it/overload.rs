//! More than the node can do: a full queue refuses, a deadline is kept, and both say so.

use futures_util::future::join_all;
use midspan_net::transport::HttpVersion;
use midspan_protocol::{LoadReport, headers};

use crate::fixture::{Setup, eventually, exchange, infer, pictures, pool, with};

/// Enough rows that a run takes longer than a request's arrival.
const ROWS: usize = 256;
const REQUESTS: usize = 24;

#[tokio::test]
async fn a_full_queue_refuses_and_is_used_again() {
    let node = Setup { limits: "queue = 1", ..Setup::default() }.start().await;
    let app = pool(node.addr, HttpVersion::H1);
    let rows: Vec<usize> = (0..ROWS).collect();
    let flood = (0..REQUESTS).map(|_| exchange(&app, with(infer(&rows), "midspan-exit", "force")));
    let answers = join_all(flood).await;
    let (served, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|a| a.status == 200);
    assert!(!served.is_empty() && !refused.is_empty(), "{} served", served.len());
    for answer in refused {
        assert!(answer.error(503).contains("the queue is full"), "{answer:?}");
    }
    for answer in served {
        assert_eq!(answer.logits().len(), ROWS * 10);
    }
    node.assert_well("a flood").await;
}

#[tokio::test]
async fn what_cannot_be_in_time_is_told_so() {
    let node = Setup::default().start().await;
    let app = pool(node.addr, HttpVersion::H1);
    let rows: Vec<usize> = (0..ROWS).collect();
    let patient =
        (0..REQUESTS).map(|_| exchange(&app, with(infer(&rows), "midspan-exit", "force")));
    let hurried = (0..REQUESTS).map(|_| {
        let asked = with(infer(&rows), "midspan-exit", "force");
        exchange(&app, with(asked, "midspan-deadline-ms", "1"))
    });
    let (patient, hurried) = tokio::join!(join_all(patient), join_all(hurried));
    assert!(patient.iter().all(|answer| answer.status == 200), "nobody is starved");
    let late = hurried.iter().filter(|answer| answer.status == 504);
    assert!(late.clone().count() > 0, "one millisecond is enough for nobody here");
    for answer in late {
        assert!(answer.error(504).contains("deadline"), "{answer:?}");
    }
    assert!(hurried.iter().all(|answer| matches!(answer.status.as_u16(), 200 | 504)));
    node.assert_well("a flood").await;
    eventually("nothing is in flight", async || {
        let live = node.get("/v2/health/live").await;
        LoadReport::decode(live.header(headers::LOAD)).unwrap().rif == 0
    })
    .await;
    for bad in ["0", "-5", "soon"] {
        node.send(with(infer(&[0]), "midspan-deadline-ms", bad)).await.error(400);
    }
}

#[tokio::test]
async fn a_deadline_is_kept_while_a_long_run_holds_the_worker() {
    let node = Setup::default().start().await;
    let app = pool(node.addr, HttpVersion::H1);
    // Warm, so that neither is measured with the first run's work in it.
    node.assert_well("the start").await;
    let many: Vec<usize> = (0..4_000).map(|index| index % pictures().len()).collect();
    let long = with(infer(&many), "midspan-exit", "force");
    let long = tokio::spawn(async move { exchange(&app, long).await });
    eventually("the long run is in", async || {
        let live = node.get("/v2/health/live").await;
        LoadReport::decode(live.header(headers::LOAD)).unwrap().rif == 1
    })
    .await;
    let mut late = 0;
    while !long.is_finished() {
        let asked = with(infer(&[0]), "midspan-exit", "force");
        let answer = node.send(with(asked, "midspan-deadline-ms", "20")).await;
        assert!(matches!(answer.status.as_u16(), 200 | 504), "{answer:?}");
        late += usize::from(answer.status == 504 && !long.is_finished());
    }
    assert!(late > 1, "the deadline passed, and nobody said so before the long run ended");
    assert_eq!(long.await.unwrap().logits().len(), 40_000);
}
