//! The driver against a scripted server on loopback.

mod server;

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use midspan_protocol::AnsweredBy;

use self::server::{Script, Server};
use super::*;
use crate::{
    emulator::{Link, LinkSpec},
    outcome::FailureKind,
    workload::{BodyForm, Labelled, Rate},
};

/// One image per script; its label is its index modulo 4.
fn workload(scripts: usize, requests: usize, form: BodyForm) -> Arc<Workload> {
    let set = Labelled {
        input: "image".into(),
        shape: vec![1, 2],
        images: (0..scripts).map(|n| vec![n as u8, 0]).collect(),
        labels: (0..scripts).map(|n| n as u32 % 4).collect(),
    };
    Arc::new(Workload::new(&set, requests, 11, form).unwrap())
}

fn options(server: &Server) -> LiveOptions {
    let endpoint = format!("http://{}", server.address).parse().unwrap();
    LiveOptions { concurrency: NonZeroUsize::new(3).unwrap(), ..LiveOptions::new(endpoint, "m") }
}

fn one_at_a_time(server: &Server) -> LiveOptions {
    LiveOptions { concurrency: NonZeroUsize::MIN, ..options(server) }
}

async fn ask(workload: &Arc<Workload>, options: &LiveOptions) -> Run {
    run(Arc::clone(workload), options, &|_, _| {}, &CancellationToken::new()).await.unwrap()
}

const MIXED: [Script; 5] = [
    Script::Answer(0, "exit:1", "", "edge-a"),
    Script::Answer(3, "local", "", "edge-b"),
    Script::Answer(2, "cloud", "", "edge-a"),
    Script::Answer(3, "exit:1", "uplink", "edge-a"),
    Script::Answer(1, "", "", ""),
];

#[tokio::test]
async fn every_answer_is_parsed_whatever_the_protocol_and_form() {
    let (server, _arrivals) = Server::start(MIXED.to_vec()).await;
    for (protocol, form) in [
        (Protocol::H1, BodyForm::Binary),
        (Protocol::H1, BodyForm::Json),
        (Protocol::H2, BodyForm::Binary),
        (Protocol::H2, BodyForm::Json),
    ] {
        let workload = workload(5, 50, form);
        let options = LiveOptions { protocol, ..options(&server) };
        let calls = Mutex::new(Vec::new());
        let note = |done, errors| calls.lock().unwrap().push((done, errors));
        let cancel = CancellationToken::new();
        let run = run(Arc::clone(&workload), &options, &note, &cancel).await.unwrap();
        assert_eq!(calls.into_inner().unwrap(), (1..=50).map(|n| (n, 0)).collect::<Vec<_>>());
        assert_eq!(run.outcomes.len(), 50);
        for (index, outcome) in run.outcomes.iter().enumerate() {
            let planned = workload.get(index).unwrap();
            assert_eq!((outcome.index, outcome.image), (index, planned.image));
            assert_eq!(outcome.label, planned.image as u32 % 4);
            let Script::Answer(class, place, degraded, node) = MIXED[outcome.image] else {
                unreachable!("all scripts answer")
            };
            let answer = outcome.result.as_ref().unwrap();
            assert_eq!((answer.predicted, answer.place), (class, AnsweredBy::parse(place)));
            assert_eq!(answer.degraded.as_deref().unwrap_or(""), degraded);
            assert_eq!(answer.node.as_deref().unwrap_or(""), node);
            assert!(outcome.latency_us > 0 && outcome.late_us == 0);
        }
        // Images 0, 2 and 3 are answered rightly, 1 and 4 wrongly.
        let Report { accuracy, edge_share, answers, stopped, .. } = run.report;
        assert_eq!((accuracy, edge_share), (Some(0.6), Some(0.4)));
        assert_eq!((answers, stopped), (50, None));
        let kinds: Vec<_> = run.report.kinds.iter().map(|k| (&k.kind[..], k.count)).collect();
        let wanted = ["exit:1", "local", "cloud", "degraded", "unknown"].map(|kind| (kind, 10));
        assert_eq!(kinds, wanted);
    }
    server.stop().await;
}

#[tokio::test]
async fn paths_and_headers_are_those_of_the_protocol() {
    let (server, _arrivals) = Server::start(MIXED.to_vec()).await;
    let mut options = one_at_a_time(&server);
    ask(&workload(5, 1, BodyForm::Binary), &options).await;
    options.endpoint = format!("http://{}/site/?x=1", server.address).parse().unwrap();
    options.version = Some("3".into());
    options.exit = Some(ExitMode::Never);
    ask(&workload(5, 1, BodyForm::Json), &options).await;
    let wanted = [
        "/v2/models/m/infer - application/octet-stream",
        "/site/v2/models/m/versions/3/infer never application/json",
    ];
    assert_eq!(server.seen(), wanted);
    server.stop().await;
}

#[tokio::test]
async fn failures_are_told_apart() {
    let scripts = vec![
        Script::Status(503, r#"{"error": "queue is full"}"#),
        Script::Status(200, "not inference"),
        Script::Hang,
        Script::Abort,
        Script::AbortBody,
        Script::Answer(1, "local", "", ""),
        Script::Answer(2, "moon", "", ""),
    ];
    let (server, _arrivals) = Server::start(scripts).await;
    let kinds = [
        Some(FailureKind::Status(503)),
        Some(FailureKind::BadAnswer),
        Some(FailureKind::Timeout),
        Some(FailureKind::Reset),
        Some(FailureKind::Reset),
        None,
        Some(FailureKind::BadAnswer),
    ];
    for protocol in [Protocol::H1, Protocol::H2] {
        let mut options = LiveOptions { protocol, ..options(&server) };
        options.timeout = Duration::from_millis(300);
        let run = ask(&workload(7, 14, BodyForm::Binary), &options).await;
        assert_eq!(run.outcomes.len(), 14);
        for outcome in &run.outcomes {
            let kind = outcome.result.as_ref().err().map(|failure| failure.kind);
            assert_eq!(kind, kinds[outcome.image], "{protocol} {:?}", outcome.result);
        }
        let count = |kind: &str| run.report.errors.iter().find(|e| e.kind == kind).unwrap().count;
        let counts = ["reset", "bad_answer", "timeout", "status:503"].map(count);
        assert_eq!(counts, [4, 4, 2, 2]);
        let busy = run.report.errors.iter().find(|e| e.kind == "status:503").unwrap();
        assert_eq!(busy.sample, "queue is full");
    }
    let options = one_at_a_time(&server);
    server.stop().await;
    let run = ask(&workload(7, 1, BodyForm::Binary), &options).await;
    assert_eq!(run.outcomes[0].result.as_ref().unwrap_err().kind, FailureKind::Connect);
}

#[tokio::test]
async fn a_failure_ends_a_run_that_is_not_to_go_on() {
    let mut scripts = vec![Script::Answer(0, "local", "", ""); 20];
    scripts[7] = Script::Status(500, "");
    let (server, _arrivals) = Server::start(scripts).await;
    let options = LiveOptions { keep_going: false, ..one_at_a_time(&server) };
    let workload = workload(20, 20, BodyForm::Binary);
    let position = (0..20).find(|&n| workload.get(n).unwrap().image == 7).unwrap();
    assert!(position < 18, "the seed leaves something to stop");
    let run = ask(&workload, &options).await;
    assert_eq!(run.report.stopped, Some(Stopped::Failure));
    // The worker may have sent another one before it heard of the failure.
    assert!((position + 1..=position + 3).contains(&run.outcomes.len()), "{run:?}");
    server.stop().await;
}

#[tokio::test]
async fn cancelling_abandons_what_is_in_flight_and_reports_the_rest() {
    let mut scripts = vec![Script::Answer(0, "local", "", ""); 10];
    scripts[4] = Script::Hang;
    let (server, _arrivals) = Server::start(scripts).await;
    let mut options = options(&server);
    options.timeout = Duration::from_secs(3600);
    options.pace = Pace::Even(Rate::per_second(1e5).unwrap());
    let cancel = CancellationToken::new();
    let last = AtomicUsize::new(0);
    let note = |done, _| {
        last.store(done, Relaxed);
        if done == 9 {
            cancel.cancel();
        }
    };
    let workload = workload(10, 10, BodyForm::Binary);
    let run = run(workload, &options, &note, &cancel).await.unwrap();
    assert_eq!(run.report.stopped, Some(Stopped::Cancelled));
    assert_eq!((run.outcomes.len(), last.into_inner()), (9, 9));
    assert!(run.outcomes.iter().all(|outcome| outcome.result.is_ok() && outcome.image != 4));
    server.stop().await;
}

#[tokio::test]
async fn nothing_is_sent_after_the_time_is_up() {
    let (server, _arrivals) = Server::start(MIXED.to_vec()).await;
    for pace in [Pace::Closed, Pace::Poisson(Rate::per_second(0.001).unwrap())] {
        let mut options = LiveOptions { pace, ..options(&server) };
        options.max_duration =
            if pace == Pace::Closed { Duration::ZERO } else { Duration::from_millis(20) };
        let run = ask(&workload(5, 5, BodyForm::Binary), &options).await;
        assert_eq!((run.outcomes.len(), run.report.stopped), (0, Some(Stopped::Duration)));
    }
    assert_eq!(server.seen(), [""; 0]);
    server.stop().await;
}

#[tokio::test]
async fn an_open_loop_counts_from_the_intended_time() {
    let (server, mut arrivals) = Server::start(vec![Script::Gate]).await;
    let rate = Rate::per_second(1e5).unwrap();
    let options = LiveOptions { pace: Pace::Even(rate), ..one_at_a_time(&server) };
    let workload = workload(1, 6, BodyForm::Binary);
    let hold_the_first = async {
        let arrived = arrivals.recv().await.unwrap();
        while arrived.elapsed() < Duration::from_millis(40) {
            tokio::task::yield_now().await;
        }
        let held = arrived.elapsed();
        for _ in 1..6 {
            server.open_gate();
            arrivals.recv().await.unwrap();
        }
        server.open_gate();
        held
    };
    let (run, held) = tokio::join!(ask(&workload, &options), hold_the_first);
    assert_eq!(run.outcomes.len(), 6);
    for outcome in &run.outcomes {
        // Request n was meant to leave n / rate after the first and could not before the gate.
        let after = Duration::from_secs_f64(outcome.index as f64 / rate.get());
        let latency = Duration::from_micros(outcome.latency_us + 1);
        assert!(latency >= held - after, "{outcome:?} held {held:?}");
        let late = Duration::from_micros(outcome.late_us + 1);
        assert!(outcome.index == 0 || late >= held - after, "{outcome:?} held {held:?}");
    }
    assert!(run.report.late.count >= 5, "overload shows: {:?}", run.report.late);
    server.stop().await;
}

#[tokio::test]
async fn links_are_read_before_and_after() {
    let (server, _arrivals) = Server::start(MIXED.to_vec()).await;
    let any = "127.0.0.1:0".parse().unwrap();
    let link = Link::bind(any, server.address, LinkSpec::default()).await.unwrap();
    let mut options = options(&server);
    options.endpoint = format!("http://{}", link.local_addr()).parse().unwrap();
    let workload = workload(5, 25, BodyForm::Binary);
    ask(&workload, &options).await;
    let warm = link.counters();
    let counters = LinksServer::start(link, 2).await;
    options.links = Some(counters.uri.clone());
    let run = ask(&workload, &options).await;
    let now = counters.link.counters();
    let uplink = run.report.uplink.unwrap();
    assert_eq!(uplink.bytes_up, now.up_bytes - warm.up_bytes);
    assert_eq!(uplink.bytes_down, now.down_bytes - warm.down_bytes);
    let sent: usize = (0..25).map(|n| workload.get(n).unwrap().body.body.len()).sum();
    assert!(uplink.bytes_up > sent as u64);
    assert_eq!(uplink.hard_cases, 5);
    assert_eq!(uplink.bytes_per_hard_case, Some(uplink.bytes_up as f64 / 5.0));

    // The third reading, before a run, is refused: nothing is sent.
    let cancel = CancellationToken::new();
    let seen = server.seen().len();
    let error = run_error(&workload, &options, &cancel).await;
    assert!(error.ends_with("/links: status 503 Service Unavailable"), "{error}");
    assert_eq!(server.seen().len(), seen);
    counters.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn a_run_survives_the_loss_of_its_link_counters() {
    let (server, _arrivals) = Server::start(MIXED.to_vec()).await;
    let any = "127.0.0.1:0".parse().unwrap();
    let link = Link::bind(any, server.address, LinkSpec::default()).await.unwrap();
    let counters = LinksServer::start(link, 1).await;
    let options = LiveOptions { links: Some(counters.uri.clone()), ..options(&server) };
    let run = ask(&workload(5, 5, BodyForm::Binary), &options).await;
    assert_eq!((run.report.answers, run.report.uplink), (5, None));
    assert!(run.report.notes[0].contains("status 503"), "{:?}", run.report.notes);
    counters.stop().await;
    server.stop().await;
}

async fn run_error(
    workload: &Arc<Workload>,
    options: &LiveOptions,
    cancel: &CancellationToken,
) -> String {
    run(Arc::clone(workload), options, &|_, _| {}, cancel).await.unwrap_err().to_string()
}

#[tokio::test]
async fn unusable_options_are_refused_before_anything_is_sent() {
    let workload = workload(1, 1, BodyForm::Binary);
    let cancel = CancellationToken::new();
    let mut out = String::new();
    for (endpoint, model, version) in [
        ("https://127.0.0.1:1", "m", "1"),
        ("/v2", "m", "1"),
        ("http://127.0.0.1:1", "a/b", "1"),
        ("http://127.0.0.1:1", "", "1"),
        ("http://127.0.0.1:1", "m", "1?x"),
    ] {
        let mut options = LiveOptions::new(endpoint.parse().unwrap(), model);
        options.version = Some(version.into());
        out += &run_error(&workload, &options, &cancel).await;
        out.push('\n');
    }
    let mut options = LiveOptions::new("http://127.0.0.1:1".parse().unwrap(), "m");
    options.concurrency = NonZeroUsize::new(MAX_CONCURRENCY + 1).unwrap();
    out += &run_error(&workload, &options, &cancel).await;
    expect_test::expect![[r#"
        endpoint 'https://127.0.0.1:1/': expected http://host:port (TLS endpoints are not supported)
        endpoint '/v2': expected http://host:port (TLS endpoints are not supported)
        model or version 'a/b': expected letters, digits and -._~
        model or version '': expected letters, digits and -._~
        model or version '1?x': expected letters, digits and -._~
        concurrency 4097: at most 4096"#]]
    .assert_eq(&out);
}

/// Serves a link's counters, a limited number of times.
struct LinksServer {
    uri: Uri,
    link: Arc<Link>,
    stop: CancellationToken,
    tasks: tokio_util::task::TaskTracker,
}

impl LinksServer {
    async fn start(link: Link, times: usize) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/links", listener.local_addr().unwrap()).parse().unwrap();
        let (link, stop) = (Arc::new(link), CancellationToken::new());
        let tasks = tokio_util::task::TaskTracker::new();
        let (shared, left) = (Arc::clone(&link), Arc::new(AtomicUsize::new(times)));
        let serve = async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let service = hyper::service::service_fn(|request: http::Request<_>| {
                    let _: hyper::body::Incoming = request.into_body();
                    let spent = left.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_err();
                    let status = LinksStatus { links: vec![shared.status("uplink")] };
                    let body = serde_json::to_string(&status).unwrap();
                    let answer = http::Response::builder().status(if spent { 503 } else { 200 });
                    let answer = answer.body(http_body_util::Full::<bytes::Bytes>::from(body));
                    std::future::ready(answer)
                });
                let io = hyper_util::rt::TokioIo::new(stream);
                // A client that leaves early is no failure of the test.
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
            }
        };
        tasks.spawn(stop.clone().run_until_cancelled_owned(serve));
        Self { uri, link, stop, tasks }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
