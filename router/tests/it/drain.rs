//! Stopping: what is under way is finished, nothing new is taken, and `run` returns.

use std::sync::Arc;

use http::{Method, Response};
use midspan_net::body::{empty, full};
use tokio::{
    net::TcpStream,
    sync::{Notify, mpsc},
};

use crate::{
    fixture::{Setup, VERSIONS, eventually, exchange, head, infer, pool, request},
    stub::Stub,
};

#[tokio::test]
async fn a_request_under_way_is_finished() {
    for version in VERSIONS {
        let a = Stub::start("a");
        let setup = Setup { drain: "20s", threads: 2, nodes: version, ..Setup::default() };
        let mut router = setup.start(&[&a]).await;
        let (entered, mut has_entered) = mpsc::unbounded_channel();
        let release = Arc::new(Notify::new());
        let released = Arc::clone(&release);
        a.script(move |_| {
            let (entered, released) = (entered.clone(), Arc::clone(&released));
            async move {
                entered.send(()).unwrap();
                released.notified().await;
                Ok(Response::new(full("late")))
            }
        });
        let app = pool(router.apps, version);
        let waiting = tokio::spawn(async move { exchange(&app, infer("s", "{}")).await });
        has_entered.recv().await.unwrap();
        let apps = router.apps;
        router.stop();
        eventually("nothing new is taken", async || {
            if TcpStream::connect(apps).await.is_err() {
                return true;
            }
            let ready = request(Method::GET, "/v2/health/ready", empty());
            head(&pool(apps, version), ready).await.is_ok_and(|ready| ready.status() == 503)
        })
        .await;
        assert!(!waiting.is_finished());
        release.notify_one();
        let answer = waiting.await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.body), (200, "late".into()));
        router.stopped().await.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_never_ends_does_not_hold_the_process() {
    for version in VERSIONS {
        let a = Stub::start("a");
        let mut router = Setup { drain: "100ms", ..Setup::default() }.start(&[&a]).await;
        let (entered, mut has_entered) = mpsc::unbounded_channel();
        a.script(move |_| {
            entered.send(()).unwrap();
            std::future::pending()
        });
        let app = pool(router.apps, version);
        let waiting = tokio::spawn(async move { head(&app, infer("s", "{}")).await });
        has_entered.recv().await.unwrap();
        router.stop();
        router.stopped().await.unwrap();
        assert!(waiting.await.unwrap().is_err(), "{version:?}");
    }
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_the_process() {
    for version in VERSIONS {
        let a = Stub::start("a");
        let mut router = Setup { drain: "20s", ..Setup::default() }.start(&[&a]).await;
        let app = pool(router.apps, version);
        assert_eq!(exchange(&app, infer("s", "{}")).await.status, 200);
        let _silent = TcpStream::connect(router.apps).await.unwrap();
        router.stop();
        let started = std::time::Instant::now();
        router.stopped().await.unwrap();
        assert!(started.elapsed().as_secs() < 15, "{version:?}: waited for nobody");
    }
}
