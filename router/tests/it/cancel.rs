//! An app that goes away cancels its work down the line, and what it held is given back.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use tokio::sync::{Notify, mpsc};

use crate::{
    fixture::{PATIENCE, Setup, VERSIONS, eventually, head, infer, pool},
    stub::{self, Stub},
};

/// Tells when it is dropped.
struct Gone(Arc<Notify>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test]
async fn a_client_that_leaves_cancels_the_node() {
    for nodes in VERSIONS {
        for app in VERSIONS {
            let a = Stub::start("a");
            let router = Setup { nodes, ..Setup::default() }.start(&[&a]).await;
            let (entered, mut has_entered) = mpsc::unbounded_channel();
            let gone = Arc::new(Notify::new());
            let watched = Arc::clone(&gone);
            a.script(move |_| {
                let gone = Gone(Arc::clone(&watched));
                entered.send(()).unwrap();
                async move {
                    let _gone = gone;
                    std::future::pending().await
                }
            });
            let app = pool(router.apps, app);
            let waiting = tokio::spawn(async move { head(&app, infer("s", "{}")).await.is_ok() });
            has_entered.recv().await.unwrap();
            let fleet = router.fleet().await;
            assert_eq!((fleet.in_flight, fleet.nodes[0].own_requests), (1, 1));
            waiting.abort();
            assert!(waiting.await.unwrap_err().is_cancelled());
            let left = tokio::time::timeout(PATIENCE, gone.notified()).await;
            left.unwrap_or_else(|_| panic!("nodes {nodes:?}: the node works for nobody"));
            router.idle().await;
            a.recover();
            assert_eq!(router.infer("s").await.body, "a");
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_mid_answer_cancels_the_stream() {
    for nodes in VERSIONS {
        for app in VERSIONS {
            let a = Stub::start("a");
            let limits = "replay_body = \"1KiB\"";
            let router = Setup { nodes, limits, ..Setup::default() }.start(&[&a]).await;
            let gone = Arc::new(Notify::new());
            let watched = Arc::clone(&gone);
            a.script(move |_| {
                let gone = Gone(Arc::clone(&watched));
                let body = stub::stuck(Bytes::from(vec![1; 4096]));
                let body = body.map_frame(move |frame| {
                    let _lives_with_the_body = &gone;
                    frame
                });
                async move { Ok(Response::new(midspan_net::body::boxed(body))) }
            });
            let app = pool(router.apps, app);
            let mut response = head(&app, infer("s", "{}")).await.unwrap();
            let first = response.body_mut().frame().await.unwrap().unwrap();
            assert!(first.is_data());
            eventually("the transfer holds its place", async || {
                router.node("a").await.own_requests == 1
            })
            .await;
            drop(response);
            let left = tokio::time::timeout(PATIENCE, gone.notified()).await;
            left.unwrap_or_else(|_| panic!("nodes {nodes:?}: the node sends to nobody"));
            router.idle().await;
        }
    }
}
