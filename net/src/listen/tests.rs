//! Ports, drains, limits.

use super::*;
use crate::body;

#[test]
fn a_port_in_use_is_an_error_even_for_shared_listeners() {
    let taken = StdListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    for count in [1, 2] {
        let error = bind(addr, count).unwrap_err().to_string();
        assert!(error.contains(&addr.to_string()), "{error}");
    }
    drop(taken);
    assert_eq!(bind(addr, 2).unwrap().len(), 2);
}

#[tokio::test]
async fn a_drain_finishes_the_request_under_way_and_takes_no_more() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let tasks = Tasks::default();
    let listener = bind("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
    let addr = listener.local_addr().unwrap();
    let gate = Arc::new(tokio::sync::Notify::new());
    let arrived = Arc::new(tokio::sync::Notify::new());
    let (handler_gate, handler_arrived) = (Arc::clone(&gate), Arc::clone(&arrived));
    serve(listener, Limits::default(), &tasks, move |_request, peer| {
        let (gate, arrived) = (Arc::clone(&handler_gate), Arc::clone(&handler_arrived));
        async move {
            arrived.notify_one();
            gate.notified().await;
            Response::new(body::full(format!("loopback {}", peer.is_loopback())))
        }
    })
    .unwrap();
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    arrived.notified().await;
    tasks.start_drain();
    gate.notify_one();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("loopback true"), "{answer}");
    assert!(tasks.drain(Duration::from_secs(5)).await);
    assert!(TcpStream::connect(addr).await.is_err());
}
