//! A node with the embedded model: apps that vanish leave no request in flight and no connection,
//! and a full queue leaves connections usable.

use futures_util::future::join_all;
use http_body_util::BodyExt;
use midspan_net::body::full;
use midspan_protocol::LoadReport;
use tokio::task::JoinSet;

use crate::{
    client::H2,
    eventually,
    process::Process,
    raw::{Leave, Raw},
    stub::stuck,
};

const APPS: usize = 20;
const PATH: &str = "/v2/models/fashion/infer";
const LIVE: &str = "GET /v2/health/live HTTP/1.1\r\nhost: a\r\n\r\n";

/// A binary inference of `rows` grey pictures: the JSON's length and the body.
fn inference(rows: usize) -> (usize, Vec<u8>) {
    let bytes = rows * 28 * 28 * 4;
    let json = format!(
        "{{\"inputs\":[{{\"name\":\"image\",\"shape\":[{rows},1,28,28],\"datatype\":\"FP32\",\
         \"parameters\":{{\"binary_data_size\":{bytes}}}}}]}}"
    );
    let mut body = json.clone().into_bytes();
    body.extend(std::iter::repeat_n(0.5_f32.to_le_bytes(), bytes / 4).flatten());
    (json.len(), body)
}

fn request(rows: usize) -> (String, Vec<u8>) {
    let (json, body) = inference(rows);
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\
         inference-header-content-length: {json}\r\n\r\n",
        body.len()
    );
    (head, body)
}

/// The load that the node reports.
async fn load(asking: &mut Raw) -> LoadReport {
    let answer = asking.get("/v2/health/ready").await;
    let line = answer.head.lines().find_map(|line| line.strip_prefix("midspan-load: "));
    line.and_then(LoadReport::decode).unwrap_or_else(|| panic!("no load in {}", answer.head))
}

async fn in_flight(asking: &mut Raw, wanted: usize) {
    eventually("requests in flight at the node", async || {
        let load = load(asking).await;
        (load.rif as usize != wanted).then(|| format!("{load:?}, not {wanted}"))
    })
    .await;
}

/// Nothing in flight, nothing queued, and no connection but the one that asks.
async fn nothing_is_left(node: &Process, asking: &mut Raw) {
    eventually("nothing is left", async || {
        let load = load(asking).await;
        let left = (load.rif, load.wait_us, node.open().accepted(node.addr));
        (left != (0, 0, 1)).then(|| format!("in flight, wait, connections: {left:?}"))
    })
    .await;
}

/// A byte at a time at the end of a body, with an answer of the node after each.
async fn slow_bodies(node: &Process, asking: &mut Raw) {
    const LAST: usize = 8;
    let (head, body) = request(1);
    let (most, last) = body.split_at(body.len() - LAST);
    let mut apps = Vec::new();
    for _ in 0..APPS {
        let mut app = node.connect().await;
        app.send(&head).await;
        app.send(most).await;
        apps.push(app);
    }
    in_flight(asking, APPS).await;
    for byte in last {
        for app in &mut apps {
            app.send([*byte]).await;
        }
        asking.live().await;
    }
    for app in &mut apps {
        let answer = app.answer().await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

async fn vanish(node: &Process, asking: &mut Raw, how: Leave) {
    let (head, body) = request(200);
    for sent in [20, head.len(), head.len() + 10_000, head.len() + body.len()] {
        let whole = [head.as_bytes(), &body].concat();
        let mut apps = Vec::new();
        for _ in 0..APPS {
            let mut app = node.connect().await;
            app.send(&whole[..sent]).await;
            apps.push(app);
        }
        // Whole requests are queued by now, and some of them under way.
        if sent > 20 && sent < whole.len() {
            in_flight(asking, APPS).await;
        }
        apps.into_iter().for_each(|app| app.leave(how));
        nothing_is_left(node, asking).await;
    }
}

async fn resets(node: &Process, asking: &mut Raw) {
    let mut app = H2::connect(node.addr).await;
    let mut streams = JoinSet::new();
    for _ in 0..APPS {
        streams.spawn(app.send(PATH, &[], stuck()));
    }
    in_flight(asking, APPS).await;
    streams.shutdown().await;
    in_flight(asking, 0).await;
    let (json, body) = inference(200);
    let length = [("inference-header-content-length", json.to_string())];
    for _ in 0..APPS {
        streams.spawn(app.send(PATH, &length, full(body.clone())));
    }
    streams.shutdown().await;
    in_flight(asking, 0).await;
    let (json, body) = inference(1);
    let length = [("inference-header-content-length", json.to_string())];
    let answer = app.send(PATH, &length, full(body)).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    answer.into_body().collect().await.expect("its body");
}

#[tokio::test(flavor = "multi_thread")]
async fn apps_leave_nothing_behind_at_a_node() {
    let node = Process::node(256);
    let mut asking = node.connect().await;
    let mut resident = None;
    for _ in 0..3 {
        slow_bodies(&node, &mut asking).await;
        for how in [Leave::Fin, Leave::Reset] {
            vanish(&node, &mut asking, how).await;
        }
        resets(&node, &mut asking).await;
        nothing_is_left(&node, &mut asking).await;
        resident.get_or_insert(node.resident());
    }
    let grown = node.resident().saturating_sub(resident.expect("three rounds"));
    eprintln!("node: {} kB more", grown / 1000);
    assert!(grown < 20_000_000, "{grown} bytes more after the same troubles again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_leaves_connections_usable() {
    let node = Process::node(1);
    let (head, body) = request(200);
    let burst = (0..APPS).map(async |_| {
        let mut app = node.connect().await;
        app.send([head.as_bytes(), &body, LIVE.as_bytes()].concat()).await;
        let first = app.answer().await.expect("an answer");
        let next = app.answer().await.expect("the connection is kept");
        assert_eq!(next.status, 200, "after {}", first.status);
        (first.status, first.head.contains("\r\nretry-after: "))
    });
    let answers = join_all(burst).await;
    assert!(answers.contains(&(503, true)), "{answers:?}");
    assert!(answers.iter().all(|answer| matches!(answer, (200, _) | (503, true))), "{answers:?}");
    let mut asking = node.connect().await;
    nothing_is_left(&node, &mut asking).await;
}
