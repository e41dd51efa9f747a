//! After every class of error a kept-alive connection is usable, or the answer said that it closes
//! (conformance line C118): at the router, and at the node itself.

use crate::{
    process::Process,
    raw::{Answer, Raw},
    stub::Stub,
};

/// A request that is refused.
struct Refused {
    status: u16,
    request: &'static str,
    headers: String,
}

fn refused(status: u16, request: &'static str, headers: &str) -> Refused {
    Refused { status, request, headers: headers.to_owned() }
}

const INFER: &str = "POST /v2/models/m/infer";
const LIVE: &str = "GET /v2/health/live HTTP/1.1\r\nhost: a\r\n\r\n";
/// Above the limit of both.
const TOO_LARGE: usize = 2 << 20;

impl Refused {
    fn head(&self, framing: &str) -> String {
        let Self { request, headers, .. } = self;
        format!("{request} HTTP/1.1\r\nhost: a\r\n{headers}{framing}\r\n\r\n")
    }

    fn name(&self) -> String {
        format!("{} {} {}", self.status, self.request, self.headers.trim_end())
    }

    /// The error that came, as it should be.
    async fn error(&self, app: &mut Raw) -> Answer {
        let answer = app.answer().await;
        let answer = answer.unwrap_or_else(|| panic!("{}: closed without an answer", self.name()));
        assert_eq!(answer.status, self.status, "{}: {}", self.name(), answer.text());
        let error: serde_json::Value =
            serde_json::from_slice(&answer.body).unwrap_or_else(|_| panic!("{}", answer.text()));
        assert!(error["error"].is_string(), "{}: {error}", self.name());
        answer
    }

    /// The whole request and the next one in one piece.
    async fn pipelined(&self, process: &Process) {
        let mut app = process.connect().await;
        app.send(self.head("content-length: 20") + "{\"inputs\":[]}       " + LIVE).await;
        if self.error(&mut app).await.closes() {
            assert!(app.ended().await, "{}: said that it closes and does not", self.name());
            return;
        }
        let next = app.answer().await;
        let next = next.unwrap_or_else(|| panic!("{}: the next has no answer", self.name()));
        assert_eq!(next.status, 200, "{}: the next got {}", self.name(), next.text());
    }

    /// The error comes while the body is on its way; its complaint, if any.
    async fn early(&self, process: &Process, length: usize) -> Option<String> {
        let mut app = process.connect().await;
        app.send(self.head(&format!("content-length: {length}")) + "some").await;
        if self.error(&mut app).await.closes() {
            return (!app.ended().await).then(|| format!("{}: does not close", self.name()));
        }
        if !app.try_send(&vec![b'x'; length - "some".len()]).await || !app.try_send(LIVE).await {
            return Some(format!("{}: closed without saying so", self.name()));
        }
        match app.answer().await {
            Some(next) if next.status == 200 => None,
            Some(next) => Some(format!("{}: the next got {}", self.name(), next.text())),
            None => Some(format!("{}: closed without saying so", self.name())),
        }
    }
}

/// All of them, each early; a body that waits to be sent is small or large.
async fn all_early(process: &Process, cases: &[Refused]) {
    let mut complaints = Vec::new();
    for case in cases {
        for length in [1000, 500_000] {
            let complaint = case.early(process, length).await;
            complaints.extend(complaint.map(|text| format!("{length} bytes: {text}")));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// More than the limit, announced or not; the answer must reach an app that is still sending.
async fn too_large(process: &Process) {
    let case = refused(413, INFER, "");
    let announced = case.early(process, TOO_LARGE).await;
    assert_eq!(announced, None);
    let mut app = process.connect().await;
    app.send(case.head("transfer-encoding: chunked")).await;
    let mut left = TOO_LARGE;
    while left > 0 && app.try_send([b"8000\r\n", &[0; 0x8000][..], b"\r\n"].concat()).await {
        left -= 0x8000;
    }
    assert!(case.error(&mut app).await.closes(), "chunked");
    assert!(app.ended().await, "chunked: said that it closes and does not");
}

fn script(script: &str) -> String {
    format!("x-script: {script}\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_to_the_router_outlives_errors() {
    let stub = Stub::start();
    for protocol in ["h1", "h2"] {
        let router = Process::router_with(&stub, protocol, "1MiB").await;
        let own = [
            refused(400, INFER, "midspan-deadline-ms: soon\r\n"),
            refused(404, "POST /v2/nothing", ""),
            refused(404, "POST /v2/models/none/infer", ""),
            refused(405, "DELETE /v2/models/m/infer", ""),
        ];
        let nodes = [400, 404, 415, 500, 503]
            .map(|status| refused(status, INFER, &script(&format!("status:{status}"))));
        let late = script("gated") + "midspan-deadline-ms: 50\r\n";
        let late = refused(504, INFER, &late);
        for case in own.iter().chain(&nodes).chain([&late]) {
            case.pipelined(&router).await;
        }
        too_large(&router).await;
        router.connect().await.live().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_error_of_the_router_says_whether_it_closes() {
    let stub = Stub::start();
    let router = Process::router_with(&stub, "h1", "1MiB").await;
    let cases = [
        refused(400, INFER, "midspan-deadline-ms: soon\r\n"),
        refused(404, "POST /v2/nothing", ""),
        refused(404, "POST /v2/models/none/infer", ""),
        refused(405, "DELETE /v2/models/m/infer", ""),
        refused(504, INFER, "midspan-deadline-ms: 50\r\n"),
    ];
    all_early(&router, &cases).await;
}

/// A node may refuse before it has read a streamed body.
#[tokio::test(flavor = "multi_thread")]
async fn an_early_error_of_the_node_says_whether_it_closes() {
    let stub = Stub::start();
    for protocol in ["h1", "h2"] {
        let router = Process::router_with(&stub, protocol, "1MiB").await;
        for status in [400, 415, 503] {
            let case = refused(status, INFER, &script(&format!("early:{status}")));
            // Streamed: a body that is kept reaches the node whole.
            let complaint = case.early(&router, 500_000).await;
            assert_eq!(complaint, None, "{protocol}");
        }
    }
}

const FASHION: &str = "POST /v2/models/fashion/infer";

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_to_the_node_outlives_errors() {
    let node = Process::node(256);
    for case in [
        refused(400, FASHION, ""),
        refused(400, FASHION, "midspan-exit: perhaps\r\n"),
        refused(404, "POST /v2/nothing", ""),
        refused(404, "POST /v2/models/none/infer", ""),
        refused(405, "DELETE /v2/models/fashion/infer", ""),
        refused(415, FASHION, "content-encoding: br\r\n"),
    ] {
        case.pipelined(&node).await;
    }
    too_large_at_the_node(&node).await;
    node.connect().await.live().await;
}

async fn too_large_at_the_node(node: &Process) {
    let case = refused(413, FASHION, "");
    assert_eq!(case.early(node, TOO_LARGE).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_error_of_a_node_process_says_whether_it_closes() {
    let node = Process::node(256);
    let cases = [
        refused(400, FASHION, "midspan-exit: perhaps\r\n"),
        refused(404, "POST /v2/nothing", ""),
        refused(405, "DELETE /v2/models/fashion/infer", ""),
        refused(415, FASHION, "content-encoding: br\r\n"),
        refused(504, FASHION, "midspan-deadline-ms: 50\r\n"),
    ];
    all_early(&node, &cases).await;
}
