//! Large bodies in both directions: the same bytes arrive, and a slow reader slows the sender down
//! instead of filling the router's memory.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use midspan_net::body::{boxed, collect, full};

use crate::{
    fixture::{Setup, VERSIONS, exchange, head, infer, infer_body, pool},
    stub::{self, BreakOff, Stub},
};

const LIMITS: &str = "deadline = \"60s\"";
const LARGE: usize = 32 << 20;

/// Bytes that differ everywhere.
fn noise(length: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

#[tokio::test]
async fn thirty_two_mebibytes_go_and_come_back_the_same() {
    let sent = noise(LARGE);
    for (nodes, app) in VERSIONS.into_iter().zip(VERSIONS) {
        let a = Stub::start("a");
        let router = Setup { nodes, limits: LIMITS, ..Setup::default() }.start(&[&a]).await;
        a.script(|request| async move {
            let body = collect(request.into_body(), LARGE).await.map_err(|_| BreakOff)?;
            Ok(Response::new(full(body)))
        });
        let app = pool(router.apps, app);
        let chunks = (0..LARGE).step_by(100_000);
        let chunks = chunks.map(|at| sent.slice(at..LARGE.min(at + 100_000))).collect();
        for body in [full(sent.clone()), stub::parts(chunks)] {
            let answer = exchange(&app, infer_body("s", body)).await;
            assert_eq!(answer.status, 200);
            assert!(answer.body == sent, "{nodes:?}: the bytes differ");
        }
    }
}

#[tokio::test]
async fn a_reader_that_stops_stops_the_sender() {
    const CHUNK: usize = 64 << 10;
    const TOTAL: usize = 128 << 20;
    // What kernels and windows on the way may hold.
    const ON_THE_WAY: usize = 64 << 20;
    for (nodes, app) in VERSIONS.into_iter().zip(VERSIONS) {
        let a = Stub::start("a");
        let router = Setup { nodes, limits: LIMITS, ..Setup::default() }.start(&[&a]).await;
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&sent);
        a.script(move |_| {
            let counter = Arc::clone(&counter);
            async move {
                let chunk = Bytes::from(vec![7; CHUNK]);
                let frames = (0..TOTAL / CHUNK).map(move |_| {
                    counter.fetch_add(CHUNK, Ordering::SeqCst);
                    Ok::<_, Infallible>(Frame::data(chunk.clone()))
                });
                Ok(Response::new(boxed(StreamBody::new(futures_util::stream::iter(frames)))))
            }
        });
        let mut response = head(&pool(router.apps, app), infer("s", "{}")).await.unwrap();
        // A plateau: a thousand round trips through the router without a byte more.
        let (mut last, mut unchanged) = (0, 0);
        while unchanged < 1_000 {
            router.fleet().await;
            let now = sent.load(Ordering::SeqCst);
            unchanged = if now == last { unchanged + 1 } else { 0 };
            last = now;
        }
        assert!(last <= ON_THE_WAY, "{app:?}: {last} bytes were sent to nobody");
        let mut read = 0;
        while let Some(frame) = response.body_mut().frame().await {
            read += frame.unwrap().data_ref().map_or(0, Bytes::len);
        }
        assert_eq!(read, TOTAL, "{app:?}: reading on brings the rest");
        router.idle().await;
    }
}
