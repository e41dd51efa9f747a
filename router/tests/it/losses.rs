//! Large answers: the head is out before the end is here, so a node's loss must reach the app as
//! an error and never as a clean end.

use bytes::Bytes;
use midspan_net::{body::collect, transport::HttpVersion};

use crate::{
    fixture::{PATIENCE, Setup, VERSIONS, head, infer, pool},
    stub::{self, Stub},
};

const SENT: usize = 4 << 10;

async fn breaks(nodes: HttpVersion, app: HttpVersion, promised: Option<usize>) {
    let (a, b) = (Stub::start("a"), Stub::start("b"));
    let setup = Setup { nodes, limits: "replay_body = \"1KiB\"", ..Setup::default() };
    let router = setup.start(&[&a, &b]).await;
    let session = router.session_of(&a).await;
    b.asked();
    a.script(move |_| async move {
        let body = stub::broken(Bytes::from(vec![b'y'; SENT]));
        Ok(stub::promising(body, promised))
    });
    let response = head(&pool(router.apps, app), infer(&session, "{}")).await;
    let what = format!("nodes {nodes:?}, app {app:?}, promised {promised:?}");
    assert_eq!(a.asked(), 1, "{what}");
    let retried = b.asked() == 1;
    // A loss that is known before the head was written leaves nothing to read, or is retried when
    // it overtook the first bytes, as a reset on h2 may.
    if let Ok(response) = response {
        assert_eq!(response.status(), 200, "{what}");
        let read = tokio::time::timeout(PATIENCE, collect(response.into_body(), 1 << 20)).await;
        let read = read.expect("no hang").map_err(|error| error.to_string());
        let fine = if retried { read == Ok("b".into()) } else { read.is_err() };
        assert!(fine, "{what}, retried {retried}: a broken answer looked complete: {read:?}");
    }
    router.idle().await;
}

#[tokio::test]
async fn a_large_answer_that_breaks_is_broken_for_the_app() {
    for nodes in VERSIONS {
        for app in VERSIONS {
            for promised in [None, Some(2 * SENT)] {
                breaks(nodes, app, promised).await;
            }
        }
    }
}

#[tokio::test]
async fn an_answer_at_the_limit_is_still_retried() {
    for promised in [None, Some(1024)] {
        let (a, b) = (Stub::start("a"), Stub::start("b"));
        let setup = Setup { limits: "replay_body = \"1KiB\"", ..Setup::default() };
        let router = setup.start(&[&a, &b]).await;
        let session = router.session_of(&a).await;
        a.script(move |_| async move {
            let body = stub::broken(Bytes::from(vec![b'y'; 1000]));
            Ok(stub::promising(body, promised))
        });
        assert_eq!(router.infer(&session).await.body, "b", "{promised:?}");
    }
}
