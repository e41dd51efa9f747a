//! 6d of the table: HTTP itself, codings, limits, browsers. C106, C107 and C118 are also looked
//! at after every request of the suite: see `sweep` and `run`.

use std::{fs, io::Write as _};

use flate2::{Compress, Compression, FlushCompress, write::GzEncoder, write::ZlibEncoder};
use futures_util::FutureExt as _;
use http::Method;
use serde_json::json;

use crate::{
    answer::Answer,
    case::{At, Call, Case, Outcome, call, echo, ensure, get, infer, one, script},
    harness::Side,
    wire::head,
};

/// Limit of [`At::Small`].
const SMALL: usize = 1 << 20;
const INFER: &str = "/v2/models/id_fp32/infer";

pub(crate) fn cases() -> Vec<Case> {
    let sections =
        [media(), codings(), answers(), framing(), limits(), early(), browsers(), tracing()];
    sections.into_iter().flatten().collect()
}

pub(crate) fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).and_then(|()| encoder.finish()).expect("memory can be written")
}

/// HTTP's `deflate` is zlib's format.
pub(crate) fn deflate(plain: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).and_then(|()| encoder.finish()).expect("memory can be written")
}

fn good() -> String {
    one("FP32", "[2]", "[1.5,-2]")
}

fn answered(case: Case) -> Case {
    case.ok().data(json!([1.5, -2.0]))
}

fn media() -> Vec<Case> {
    let mut cases = vec![answered(infer("C105", "id_fp32", good()))];
    for media in
        ["application/x-www-form-urlencoded", "application/json; charset=utf-8", "text/plain"]
    {
        cases.push(answered(infer("C105", "id_fp32", good()).with("content-type", media)));
    }
    cases
}

fn codings() -> Vec<Case> {
    let (plain, packed) = (good(), gzip(good().as_bytes()));
    let sent = |id, coding: &str, body: Vec<u8>| {
        infer(id, "id_fp32", body).with("content-encoding", coding).named(coding)
    };
    let mut broken = packed.clone();
    let middle = broken.len() / 2;
    broken[middle] ^= 0x5a;
    let truncated = packed[..packed.len() - 9].to_vec();
    let twice = [gzip(&plain.as_bytes()[..10]), gzip(&plain.as_bytes()[10..])].concat();
    let mut cases = vec![
        answered(sent("C108", "gzip", packed.clone())),
        answered(sent("C108", "GZIP", packed.clone())),
        answered(sent("C108", "gzip", twice)).named("gzip of two members"),
        answered(sent("C108", "deflate", deflate(plain.as_bytes()))),
        answered(sent("C108", "identity", plain.clone().into_bytes())),
        answered(sent("C108", "gzip", packed.clone()).chunked(7)),
        sent("C110", "gzip", broken).named("corrupt gzip").err(400),
        sent("C110", "gzip", truncated).named("truncated gzip").err(400),
        sent("C110", "gzip", plain.clone().into_bytes()).named("no gzip at all").err(400),
        sent("C110", "gzip", Vec::new()).named("empty gzip").err(400),
        sent("C110", "deflate", deflate(plain.as_bytes())[..12].to_vec()).err(400),
        sent("C110", "gzip", [&packed[..], b"rubbish"].concat()).named("rubbish behind").err(400),
        script("C111", "a bomb is refused in bounded memory", At::Small, |side| {
            bomb(side).boxed_local()
        }),
    ];
    for coding in ["br", "foo", "gzip, br", "zstd"] {
        let case = sent("C109", coding, plain.clone().into_bytes()).err(415);
        cases.push(case.lists("accept-encoding", "gzip").lists("accept-encoding", "deflate"));
    }
    cases
}

/// The peak of this process's memory since the last call, bytes.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    // Resets the mark.
    let _unless_forbidden = fs::write("/proc/self/clear_refs", "5");
    kib.unwrap_or(0) << 10
}

async fn bomb(side: Side) -> Outcome {
    // Blocks that need nothing of what was before them can be repeated: about a gigabyte.
    let zeros = vec![0; 1 << 20];
    let mut packer = Compress::new(Compression::fast(), false);
    let mut block = Vec::with_capacity(64 << 10);
    packer.compress_vec(&zeros, &mut block, FlushCompress::Full).map_err(|e| e.to_string())?;
    let mut body = gzip(b"")[..10].to_vec();
    while body.len() + block.len() < SMALL && body.len() / block.len() < 1024 {
        body.extend_from_slice(&block);
    }
    let call = Call::infer("id_fp32", body).with("content-encoding", "gzip");
    peak();
    let before = peak();
    let answer = side.call(&call).await?;
    let grown = peak().saturating_sub(before);
    ensure!(answer.status == 413, "expected 413, got {}", answer.brief());
    ensure!(grown < 48 << 20, "memory grew by {grown} bytes");
    side.alive().await
}

fn answers() -> Vec<Case> {
    let asked =
        |value: &str| echo("C112", "FP32", "[2]", "[1.5,-2]").with("accept-encoding", value);
    let coded = |case: Case, coding: &'static str| {
        let case = case.ok().header("content-encoding", coding).lists("vary", "accept-encoding");
        case.check(|answer| {
            let length = answer.body.len().to_string();
            ensure!(answer.header("content-length") == length, "content-length is wrong");
            let (json, _) = answer.split()?;
            ensure!(json["outputs"][0]["data"] == json!([1.5, -2.0]), "{json}");
            Ok(())
        })
    };
    let plain = |case: Case| answered(case.without("content-encoding"));
    vec![
        coded(asked("gzip"), "gzip"),
        coded(asked("deflate"), "deflate"),
        coded(asked("gzip;q=0, deflate;q=0.5"), "deflate"),
        coded(asked("br, gzip;q=0.5"), "gzip"),
        plain(asked("gzip;q=0")),
        plain(asked("identity")),
        plain(asked("br")),
        plain(asked("gzip;q=0, *;q=0.0, identity")),
        plain(echo("C112", "FP32", "[2]", "[1.5,-2]")),
        echo("C112", "FP32", "[2]", "[1]")
            .with("accept-encoding", "gzip")
            .named("an error in gzip")
            .check(|answer| {
                let decoded = Answer { body: answer.decoded()?, ..answer.clone() };
                ensure!(answer.status == 400, "expected 400");
                decoded.error().map(drop)
            }),
    ]
}

fn framing() -> Vec<Case> {
    let many = vec!["1.5"; 2_000].join(",");
    vec![
        answered(infer("C114", "id_fp32", good()).chunked(7)),
        answered(infer("C114", "id_fp32", good()).chunked(1)),
        infer("C114", "id_fp32", one("FP32", "[2000]", &format!("[{many}]")))
            .named("a thousand chunks of seven bytes")
            .chunked(7)
            .ok()
            .at("/outputs/0/shape", json!([2000])),
        script("C114", "a chunk size that is none", At::Main, |side| bad_chunk(side).boxed_local()),
        script("C115", "100 before the body", At::Main, |side| expected(side).boxed_local()),
        script("C115", "a refusal instead of 100", At::Main, |side| refused(side).boxed_local()),
        script("C107", "heads that cannot be read", At::Main, |side| bad_heads(side).boxed_local()),
    ]
}

async fn bad_chunk(side: Side) -> Outcome {
    let mut connection = side.wire().await?;
    let head = format!("POST {INFER} HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n");
    connection.write(head.as_bytes()).await?;
    connection.write(b"3\r\n{\"i\r\nxyz\r\n").await?;
    let answer = connection.read(&Method::POST).await?;
    side.sweep.saw(side.hop, "a bad chunk size", &Method::POST, &answer);
    ensure!(answer.status == 400, "expected 400, got {}", answer.brief());
    ensure!(connection.ends().await, "the connection stays open");
    side.alive().await
}

async fn expected(side: Side) -> Outcome {
    let call = Call::infer("id_fp32", good()).with("expect", "100-continue");
    let mut connection = side.wire().await?;
    connection.write(&head(&call)).await?;
    let interim = connection.read(&Method::POST).await?;
    ensure!(interim.status == 100, "expected 100, got {}", interim.brief());
    connection.write(&call.body).await?;
    let answer = connection.read(&Method::POST).await?;
    ensure!(answer.status == 200, "then {}", answer.brief());
    Ok(())
}

async fn refused(side: Side) -> Outcome {
    for (path, length, status) in [(INFER, (128 << 20) + 1, 413), ("/v2/nope", 100, 404)] {
        let mut connection = side.wire().await?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        );
        connection.write(head.as_bytes()).await?;
        let answer = connection.read(&Method::POST).await?;
        side.sweep.saw(side.hop, path, &Method::POST, &answer);
        ensure!(answer.status == status, "{path}: expected {status}, got {}", answer.brief());
    }
    Ok(())
}

/// What no handler sees is refused in the protocol's form all the same.
async fn bad_heads(side: Side) -> Outcome {
    let many: String = (0..2_000).map(|number| format!("x-{number}: y\r\n")).collect();
    let long = "x".repeat(1 << 20);
    for (what, head) in [
        ("no request line", "nonsense\r\n\r\n".to_owned()),
        ("a bad header", "GET /v2 HTTP/1.1\r\nhost t\r\n\r\n".to_owned()),
        (
            "two lengths",
            format!(
                "POST {INFER} HTTP/1.1\r\nhost: t\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{{}}"
            ),
        ),
        (
            "a length that is none",
            format!("POST {INFER} HTTP/1.1\r\nhost: t\r\ncontent-length: x\r\n\r\n"),
        ),
        ("too many headers", format!("GET /v2 HTTP/1.1\r\nhost: t\r\n{many}\r\n")),
        ("a header too long", format!("GET /v2 HTTP/1.1\r\nhost: t\r\nx: {long}\r\n\r\n")),
        ("a path too long", format!("GET /v2/{long} HTTP/1.1\r\nhost: t\r\n\r\n")),
    ] {
        let mut connection = side.wire().await?;
        let _may_be_cut_short = connection.write(head.as_bytes()).await;
        let answer = connection.read(&Method::GET).await.map_err(|why| format!("{what}: {why}"))?;
        ensure!((400..500).contains(&answer.status), "{what}: {}", answer.brief());
        answer.error().map_err(|why| format!("{what}: {why}; {}", answer.brief()))?;
    }
    side.alive().await
}

/// What is refused before its body was read, which is more than a connection holds.
fn early() -> Vec<Case> {
    let body = || padded(4 << 20);
    let sent = |path: &str| {
        call("C118", Call::new(Method::POST, path, body())).named(&format!("4 MiB to {path}"))
    };
    vec![
        sent("/v2/models/nope/infer").err(404),
        sent("/v2/nope").err(404),
        sent("/v2/models/id_fp32/ready").err(405),
        sent(INFER).with("content-encoding", "br").named("4 MiB of br").err(415),
        sent(INFER).with("midspan-exit", "perhaps").named("4 MiB and a bad header").err(400),
        sent(INFER).named("4 MiB").ok(),
        sent(INFER).named("4 MiB in chunks").chunked(65_536).ok(),
    ]
}

/// A request of exactly `length` bytes.
fn padded(length: usize) -> String {
    let body = good();
    format!("{body}{}", " ".repeat(length - body.len()))
}

fn limits() -> Vec<Case> {
    let sent =
        |body: Vec<u8>, what: &str| infer("C116", "id_fp32", body).named(what).at_pair(At::Small);
    let (at, over) = (padded(SMALL).into_bytes(), padded(SMALL + 1).into_bytes());
    let mut cases = vec![
        answered(sent(at.clone(), "at the limit")),
        answered(sent(at.clone(), "at the limit, chunked").chunked(65_536)),
        answered(sent(gzip(&at), "at the limit, gzip").with("content-encoding", "gzip")),
        sent(over.clone(), "over the limit").err(413),
        sent(over.clone(), "over the limit, chunked").chunked(65_536).err(413),
        sent(gzip(&over), "over the limit, gzip").with("content-encoding", "gzip").err(413),
        script("C116", "64 MiB by default", At::Small, |_side| defaults().boxed_local()),
    ];
    for (what, count) in [("3 MB", 750_000), ("100 MB", 25_000_000)] {
        let json = format!(
            r#"{{"inputs":[{{"name":"x","datatype":"FP32","shape":[{count}],"parameters":{{"binary_data_size":{}}}}}],"parameters":{{"binary_data_output":true}}}}"#,
            count * 4
        );
        let mut body = Vec::with_capacity(json.len() + count * 4);
        body.extend_from_slice(json.as_bytes());
        body.extend((0..count as u32).flat_map(|value| (value as f32).to_le_bytes()));
        let length = json.len();
        let expected = bytes::Bytes::from(body.clone()).slice(length..);
        let case = infer("C117", "id_fp32", body).named(what).h1_only();
        let case = case.with("inference-header-content-length", length.to_string()).ok();
        cases.push(case.check(move |answer| {
            let (_, blobs) = answer.split()?;
            ensure!(blobs == [expected.clone()], "not the same bytes");
            Ok(())
        }));
    }
    cases
}

async fn defaults() -> Outcome {
    let node = midspan_node::config::RawLimits::default().body.0;
    let router = midspan_router::config::RawLimits::default().body.0;
    ensure!((node, router) == (64 << 20, 64 << 20), "{node} at the node, {router} at the router");
    Ok(())
}

const ORIGIN: &str = "https://app.example";

fn preflight(path: &str, headers: &'static str) -> Case {
    call("C121", Call::new(Method::OPTIONS, path, ""))
        .with("origin", ORIGIN)
        .with("access-control-request-method", "POST")
        .with("access-control-request-headers", headers)
        .status(&[200, 204])
        .check(move |answer| {
            let origin = answer.header("access-control-allow-origin");
            ensure!(origin == "*" || origin == ORIGIN, "allows origin '{origin}'");
            let allowed = |name| answer.header_has("access-control-allow-headers", name);
            for name in headers.split(", ") {
                ensure!(allowed(name), "does not allow {name}");
            }
            Ok(())
        })
        .lists("access-control-allow-methods", "POST")
}

fn browsers() -> Vec<Case> {
    let exposed = |case: Case| {
        let case = case.with("origin", ORIGIN).check(|answer| {
            let origin = answer.header("access-control-allow-origin");
            ensure!(origin == "*" || origin == ORIGIN, "allows origin '{origin}'");
            Ok(())
        });
        let expose = "access-control-expose-headers";
        let case = case.lists(expose, "inference-header-content-length").lists("vary", "origin");
        case.lists(expose, "retry-after").lists(expose, "server-timing")
    };
    vec![
        preflight(INFER, "inference-header-content-length"),
        preflight(INFER, "content-type, content-encoding, inference-header-content-length"),
        preflight("/v2/models/nope/infer", "authorization, traceparent"),
        exposed(answered(infer("C122", "id_fp32", good()))),
        exposed(infer("C122", "id_fp32", "{").err(400)),
        exposed(infer("C122", "nope", good()).err(404)),
        exposed(get("C122", "/v2/nope").err(404)),
        exposed(get("C122", "/v2/models/id_fp32").ok()),
    ]
}

fn tracing() -> Vec<Case> {
    const ID: &str = "0af7651916cd43dd8448eb211c80319c";
    let traced = |value: &str| infer("C123", "id_fp32", good()).with("traceparent", value);
    let valid = answered(traced(&format!("00-{ID}-b7ad6b7169203331-01"))).check(|answer| {
        // An answer that names a trace names the caller's.
        let trace = answer.header("traceparent");
        ensure!(trace.is_empty() || trace.contains(ID), "another trace: '{trace}'");
        Ok(())
    });
    let mut cases = vec![valid];
    for invalid in ["", "nonsense", "00-0-0-01", "ff-00000000000000000000000000000000-0-00"] {
        cases.push(answered(traced(invalid)));
    }
    cases
}
