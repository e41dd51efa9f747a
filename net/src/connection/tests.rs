//! Connections over real sockets: what hyper refuses by itself, what a slow or impatient client
//! gets, and that nothing is left behind.

use tokio::{
    io::AsyncWriteExt,
    sync::{Notify, mpsc},
};

use super::*;
use crate::{body, listen};

/// A server whose handler knows a few paths, and what it saw.
struct Server {
    addr: SocketAddr,
    tasks: Tasks,
    seen: mpsc::UnboundedReceiver<String>,
}

fn server(limits: Limits) -> Server {
    let tasks = Tasks::default();
    let listener = listen::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
    let addr = listener.local_addr().unwrap();
    let (sender, seen) = mpsc::unbounded_channel();
    listen::serve(listener, limits, &tasks, move |request, _peer| {
        let _ended = sender.send(request.uri().path().to_owned());
        handle(request)
    })
    .unwrap();
    Server { addr, tasks, seen }
}

async fn handle(request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    match head.uri.path() {
        // Answers before it reads a byte of the body.
        "/early" => reply::refusal(StatusCode::PAYLOAD_TOO_LARGE, "too large", None, true),
        "/large" => Response::new(body::full(vec![b'x'; 32 << 20])),
        "/forged" => Response::new(body::full(
            "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        )),
        "/read-404" => {
            let read = body::collect(body, 1 << 20).await.is_ok();
            reply::error(StatusCode::NOT_FOUND, if read { "read" } else { "broken" })
        }
        "/empty-404" => {
            let mut response = Response::new(body::empty());
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
        _ => match body::collect(body, 1 << 20).await {
            Ok(bytes) => Response::new(body::full(format!("read {}", bytes.len()))),
            Err(error) => reply::refusal(StatusCode::BAD_REQUEST, &error.to_string(), None, true),
        },
    }
}

/// Sends `request`, then reads until the server ends the connection.
async fn exchange(addr: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// The error of an answer whose head says what a client needs to read it.
fn error_of(answer: &str, status: u16) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    for line in [
        "content-type: application/json".to_owned(),
        format!("content-length: {}", body.len()),
        "connection: close".to_owned(),
    ] {
        assert!(
            head.split("\r\n").filter(|other| **other == line).count() == 1,
            "{line}: {answer}"
        );
    }
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_hyper_refuses_has_the_protocols_error_body() {
    let mut server = server(Limits::default());
    let many: String = (0..101).map(|n| format!("x-{n}: 1\r\n")).collect();
    let long = "a".repeat(64 << 10);
    for (what, request, status) in [
        ("no HTTP", "nonsense\r\n\r\n".to_owned(), 400),
        ("a TLS hello", "\x16\x03\x01\x02\x01\x01\r\n\r\n".to_owned(), 400),
        ("an unknown version", "GET / HTTP/4.2\r\n\r\n".to_owned(), 400),
        ("a bad field name", "GET / HTTP/1.1\r\nho st: x\r\n\r\n".to_owned(), 400),
        ("a large field", format!("GET / HTTP/1.1\r\nx: {long}\r\n\r\n"), 431),
        ("a long target", format!("GET /{long} HTTP/1.1\r\n\r\n"), 431),
        ("many fields", format!("GET / HTTP/1.1\r\n{many}\r\n"), 431),
        (
            "two lengths",
            "POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd".to_owned(),
            400,
        ),
        ("a signed length", "POST / HTTP/1.1\r\ncontent-length: +3\r\n\r\nabc".to_owned(), 400),
        (
            "an unknown transfer coding",
            "POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\nabc".to_owned(),
            400,
        ),
    ] {
        let answer = exchange(server.addr, request.as_bytes()).await;
        let error = error_of(&answer, status);
        assert!(error.starts_with("the request"), "{what}: {error}");
    }
    assert!(server.seen.try_recv().is_err(), "none of them reached the handler");
}

#[tokio::test]
async fn heads_within_the_bounds_are_served() {
    let server = server(Limits::default());
    let many: String = (0..98).map(|n| format!("x-{n}: 1\r\n")).collect();
    let long = "a".repeat((64 << 10) - 200);
    for fields in [many, format!("x: {long}\r\n")] {
        let request = format!("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{fields}\r\n");
        let answer = exchange(server.addr, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[tokio::test]
async fn a_refusal_after_good_answers_leaves_those_alone() {
    let mut server = server(Limits::default());
    let request = b"POST /one HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc\
        GET /two HTTP/1.1\r\nhost: x\r\n\r\n\
        bad request\r\n\r\n\
        GET /never HTTP/1.1\r\nhost: x\r\n\r\n";
    let answers = exchange(server.addr, request).await;
    let (good, bad) = answers.split_at(answers.find("HTTP/1.1 400").unwrap());
    assert_eq!(good.matches("HTTP/1.1 200").count(), 2, "{answers}");
    assert!(good.contains("read 3") && good.ends_with("read 0"), "{answers}");
    error_of(bad, 400);
    assert_eq!(server.seen.recv().await.unwrap(), "/one");
    assert_eq!(server.seen.recv().await.unwrap(), "/two");
    assert!(server.seen.try_recv().is_err());
}

#[tokio::test]
async fn answers_of_the_handler_are_never_taken_for_refusals() {
    let server = server(Limits::default());
    let request = b"GET /empty-404 HTTP/1.1\r\nhost: x\r\n\r\n\
        GET /forged HTTP/1.1\r\nhost: x\r\n\r\n\
        HEAD /empty-404 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answers = exchange(server.addr, request).await;
    // The first answer's, and the one inside of the second's body; to HEAD none is said.
    assert_eq!(answers.matches("content-length: 0\r\n").count(), 2, "{answers}");
    assert_eq!(answers.matches("HTTP/1.1 404").count(), 2, "{answers}");
    assert!(!answers.contains("application/json"), "{answers}");
}

#[tokio::test]
async fn broken_chunks_reach_the_handler_as_an_error() {
    let mut server = server(Limits::default());
    let request = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n\
        3\r\nabc\r\nxyz\r\n\r\n";
    let answer = exchange(server.addr, request).await;
    let error = error_of(&answer, 400);
    assert!(error.contains("ended early"), "{error}");
    assert_eq!(server.seen.recv().await.unwrap(), "/");
}

#[tokio::test]
async fn a_length_beside_chunks_does_not_count_and_ends_the_connection() {
    let mut server = server(Limits::default());
    let request = b"POST /one HTTP/1.1\r\nhost: x\r\ncontent-length: 30\r\n\
        transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
        GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
    let answer = exchange(server.addr, request).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("read 3"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert_eq!(server.seen.recv().await.unwrap(), "/one");
    assert!(server.seen.try_recv().is_err());
}

#[tokio::test]
async fn continue_is_sent_when_the_body_is_wanted_and_only_then() {
    let server = server(Limits::default());
    let head = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nexpect: 100-continue\r\n\
             content-length: 3\r\n\r\n"
        )
    };
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(head("/read").as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"abc").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("read 3"), "{answer}");

    // The client waits for a word before it sends the body, and hears the final one.
    let answer = exchange(server.addr, head("/early").as_bytes()).await;
    assert_eq!(error_of(&answer, 413), "too large");
}

#[tokio::test]
async fn a_client_that_goes_on_sending_reads_its_refusal() {
    let server = server(Limits::default());
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    let length = 8 << 20;
    let head = format!("POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    writer.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let sending = async {
        // More than the socket buffers hold: it gets through only if the server reads on.
        writer.write_all(&vec![0; length]).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let ((), read) = tokio::join!(sending, reader.read_to_string(&mut answer));
    read.unwrap();
    assert_eq!(error_of(&answer, 413), "too large");
}

#[tokio::test(start_paused = true)]
async fn lingering_ends_with_the_clients_patience_or_ours() {
    let limits = Limits { linger: Duration::from_secs(3), ..Limits::default() };
    let server = server(limits);
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    let head = b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(error_of(&answer, 413), "too large");
    // This client neither sends nor ends; only the timer frees its place.
    let before = tokio::time::Instant::now();
    assert!(server.tasks.drain(Duration::from_secs(60)).await);
    assert!(before.elapsed() <= Duration::from_secs(3));
    drop(stream);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_finish_its_head_is_cut_off() {
    let server = server(Limits::default());
    for begun in ["", "P", "PRI * HTTP/2.0\r\n", "GET / HT", "GET / HTTP/1.1\r\nhost: x\r\n"] {
        let before = tokio::time::Instant::now();
        assert_eq!(exchange(server.addr, begun.as_bytes()).await, "", "{begun}");
        let waited = before.elapsed();
        let (least, most) = (Limits::default().head_timeout, 2 * Limits::default().head_timeout);
        assert!(waited >= least && waited <= most, "{begun}: {waited:?}");
    }
}

#[tokio::test]
async fn a_drain_does_not_wait_for_the_silent() {
    let server = server(Limits::default());
    let mut silent = TcpStream::connect(server.addr).await.unwrap();
    let mut idle = TcpStream::connect(server.addr).await.unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    idle.read_exact(&mut answer).await.unwrap();
    // An error whose body was read leaves the connection usable, and nothing to wait for.
    let mut failed = TcpStream::connect(server.addr).await.unwrap();
    let request = b"POST /read-404 HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx";
    failed.write_all(request).await.unwrap();
    failed.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 404");
    until(|| server.tasks.running() == 4).await;
    assert!(server.tasks.drain(Duration::from_secs(2)).await);
    assert_eq!(silent.read(&mut answer).await.unwrap(), 0);
}

#[tokio::test]
async fn a_head_in_single_bytes_is_read() {
    let server = server(Limits::default());
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    for byte in b"PUT / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" {
        stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_peer_that_takes_no_bytes_loses_its_connection() {
    let limits = Limits { write_stall: Duration::from_millis(50), ..Limits::default() };
    let mut server = server(limits);
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert_eq!(server.seen.recv().await.unwrap(), "/large");
    // Nothing is read here until the server has given up.
    let one = || server.tasks.running() == 1;
    tokio::time::timeout(Duration::from_secs(20), until(one)).await.expect("only the listener");
    let mut answer = Vec::new();
    let outcome = stream.read_to_end(&mut answer).await;
    assert!(outcome.is_err() || answer.len() < 32 << 20);
}

/// Lets other tasks and timers run until `done`.
async fn until(done: impl Fn() -> bool) {
    while !done() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn connections_and_tasks_are_counted_and_none_is_left() {
    crate::telemetry::init_metrics().unwrap();
    let tasks = Tasks::default();
    let listener = listen::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
    let addr = listener.local_addr().unwrap();
    let arrived = Arc::new(Notify::new());
    let notify = Arc::clone(&arrived);
    let options = listen::Options { port: "counted", ..listen::Options::default() };
    listen::serve(listener, options, &tasks, move |_request, _peer| {
        let notify = Arc::clone(&notify);
        async move {
            notify.notify_one();
            std::future::pending().await
        }
    })
    .unwrap();
    let open = |count: u32| {
        let text = crate::telemetry::render();
        text.lines().any(|line| line == format!("midspan_connections{{port=\"counted\"}} {count}"))
    };
    assert!(open(0) || !crate::telemetry::render().contains("counted"));
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    arrived.notified().await;
    assert!(open(1), "{}", crate::telemetry::render());
    assert_eq!(tasks.running(), 2);
    // The client goes away mid-request.
    drop(stream);
    tokio::time::timeout(Duration::from_secs(10), until(|| open(0))).await.expect("closed");
    tokio::time::timeout(Duration::from_secs(10), until(|| tasks.running() == 1)).await.unwrap();
    assert!(tasks.drain(Duration::from_secs(1)).await);
    assert_eq!(tasks.running(), 0);
}
