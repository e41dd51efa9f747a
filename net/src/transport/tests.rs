//! The promise every transport keeps: a producer's failure mid-body is an error at the reader, and
//! an abandoned request is noticed by the server.

use std::sync::Arc;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::Notify;

use super::*;
use crate::{Limits, Tasks, body::BodyError, listen};

async fn pool(version: HttpVersion, tasks: &Tasks, path_log: Arc<Notify>) -> Pooled {
    let listener = listen::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
    let addr = listener.local_addr().unwrap();
    listen::serve(listener, Limits::default(), tasks, move |request, _peer| {
        let gone = Gone(Arc::clone(&path_log));
        async move {
            match request.uri().path() {
                "/panic" => panic!("handler"),
                "/hang" => {
                    let _gone = gone;
                    std::future::pending().await
                }
                "/half" => Response::new(half(true)),
                "/half-unsized" => Response::new(half(false)),
                "/echo" => {
                    let body = body::collect(request.into_body(), 1 << 20).await;
                    Response::new(body::full(body.unwrap_or_default()))
                }
                path => Response::new(body::full(path.to_owned())),
            }
        }
    })
    .unwrap();
    let authority = addr.to_string().parse().unwrap();
    Pooled::new(authority, PoolOptions { version, ..PoolOptions::default() })
}

struct Gone(Arc<Notify>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Sends something, then panics; with or without a promised length.
fn half(sized: bool) -> Body {
    let mut sent = false;
    let frames = futures_util::stream::poll_fn(move |_| {
        assert!(!sent, "producer fails mid-body");
        sent = true;
        std::task::Poll::Ready(Some(Ok::<_, BodyError>(Frame::data(Bytes::from_static(b"half")))))
    });
    if sized {
        body::boxed(Sized(StreamBody::new(frames)))
    } else {
        body::boxed(StreamBody::new(frames))
    }
}

struct Sized<B>(B);

impl<B: http_body::Body + Unpin> http_body::Body for Sized<B> {
    type Data = B::Data;
    type Error = B::Error;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }
    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(100)
    }
}

fn get(path: &str) -> Request<Body> {
    Request::builder().uri(path).body(body::empty()).unwrap()
}

#[tokio::test]
async fn a_panic_mid_body_is_an_error_at_the_client() {
    for version in [HttpVersion::H1, HttpVersion::H2] {
        let tasks = Tasks::default();
        let pool = pool(version, &tasks, Arc::default()).await;
        for path in ["/half", "/half-unsized"] {
            // The failure may arrive with the head or after it; a complete answer never.
            if let Ok(response) = pool.send(get(path)).await {
                let outcome = body::collect(response.into_body(), 1000).await;
                assert!(outcome.is_err(), "{version:?} {path}: {outcome:?}");
            }
        }
        let response = pool.send(get("/fine")).await.unwrap();
        assert_eq!(body::collect(response.into_body(), 1000).await.unwrap(), "/fine");
    }
}

#[tokio::test]
async fn a_panic_before_the_head_is_a_json_500() {
    for version in [HttpVersion::H1, HttpVersion::H2] {
        let tasks = Tasks::default();
        let pool = pool(version, &tasks, Arc::default()).await;
        let response = pool.send(get("/panic")).await.unwrap();
        assert_eq!(response.status(), http::StatusCode::INTERNAL_SERVER_ERROR);
        let body = body::collect(response.into_body(), 1000).await.unwrap();
        assert!(serde_json::from_slice::<serde_json::Value>(&body).unwrap()["error"].is_string());
    }
}

#[tokio::test]
async fn an_abandoned_request_is_cancelled_at_the_server() {
    for version in [HttpVersion::H1, HttpVersion::H2] {
        let tasks = Tasks::default();
        let gone = Arc::new(Notify::new());
        let pool = pool(version, &tasks, Arc::clone(&gone)).await;
        {
            let mut sending = pool.send(get("/hang"));
            let echo = pool.send(get("/echo"));
            // The second answer proves that the first request had time to be sent.
            tokio::select! {
                biased;
                _ = &mut sending => panic!("answered"),
                answer = echo => { assert!(answer.is_ok()); }
            }
        }
        // Under h1 the second exchange used its own connection; keep polling until seen.
        tokio::time::timeout(Duration::from_secs(10), gone.notified()).await.expect("cancelled");
    }
}

#[tokio::test]
async fn a_refused_connection_is_told_apart() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let authority = listener.local_addr().unwrap().to_string().parse().unwrap();
    drop(listener);
    let pool = Pooled::new(authority, PoolOptions::default());
    let error = pool.send(get("/")).await.unwrap_err();
    assert!(matches!(error, TransportError::Connect { .. }), "{error}");
}
