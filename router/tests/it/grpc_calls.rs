//! Calls of one message each way: what passes, what is refused, what is sent again, what the
//! router answers itself.

use std::{io::Write, time::Duration};

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use midspan_net::{
    body::{boxed, collect, full},
    transport::HttpVersion,
};
use midspan_protocol::{Context, grpc::peek::frame, headers};

use crate::{
    fixture::{Setup, VERSIONS, eventually, exchange as plain, head, pool, request, with},
    grpc::{answer, call, call_at, client, exchange, infer, naming, only, text},
    stub::{self, BreakOff, Stub},
};

/// The node answers with the bytes that it got.
fn echo(node: &Stub) {
    node.script(|request| async move {
        let body = collect(request.into_body(), 32 << 20).await.map_err(|_| BreakOff)?;
        Ok(answer(body, 0))
    });
}

#[tokio::test]
async fn a_call_passes_both_ways_with_its_trailers() {
    for nodes in VERSIONS {
        let a = Stub::start("a");
        let router = Setup { nodes, ..Setup::default() }.start(&[&a]).await;
        echo(&a);
        let sent = frame(&[text(2, b"1"), text(1, b"m"), text(7, &[9; 1000])].concat());
        let mut asked = call("ModelInfer", full(sent.clone()));
        for (name, value) in [
            ("grpc-timeout", "4S"),
            ("x-metadata", "kept"),
            ("midspan-exit", "never"),
            ("midspan-context", "forged"),
            ("midspan-router", "evil"),
        ] {
            asked = with(asked, name, value);
        }
        let reply = exchange(&client(&router), asked).await;
        assert_eq!((reply.status(), &reply.body), (0, &sent));
        assert_eq!(reply.trailers["x-trailer"], "kept");
        assert!(reply.head.contains_key(headers::DECISION), "{reply:?}");
        assert!(!reply.head.contains_key(headers::LOAD), "{reply:?}");
        let seen = a.last_head();
        assert_eq!(seen["te"], "trailers");
        assert_eq!(seen["content-type"], "application/grpc");
        assert_eq!(
            (&seen["x-metadata"], &seen["midspan-exit"]),
            (&"kept".parse().unwrap(), &"never".parse().unwrap())
        );
        assert_eq!(seen.get_all("midspan-router").iter().collect::<Vec<_>>(), ["r1"]);
        assert_eq!(seen.get_all("grpc-timeout").iter().count(), 1);
        let left = seen["grpc-timeout"].to_str().unwrap().strip_suffix('m').unwrap();
        assert!((1..=4_000).contains(&left.parse::<u64>().unwrap()), "{left}");
        assert_eq!(seen["midspan-deadline-ms"], left);
        let context = Context::decode(seen["midspan-context"].as_bytes()).unwrap();
        assert_eq!((context.model.as_str(), context.tenant), ("m", None));
        // Other calls about a model go the same way, without policy.
        let ready = exchange(&client(&router), call("ModelReady", full(sent.clone()))).await;
        assert_eq!((ready.status(), &ready.body), (0, &sent));
        assert!(!a.last_head().contains_key("midspan-context"));
        router.idle().await;
    }
}

#[tokio::test]
async fn the_model_is_found_wherever_it_stands() {
    let (a, b) = (Stub::start("a"), Stub::start("b"));
    b.restart_with(&["m", "n"]);
    let router = Setup::default().start(&[&a, &b]).await;
    let of = |node: &Stub| {
        let name = node.name.clone();
        node.script(move |request| {
            let name = name.clone();
            async move {
                collect(request.into_body(), 32 << 20).await.map_err(|_| BreakOff)?;
                Ok(answer(name, 0))
            }
        });
    };
    of(&a);
    of(&b);
    let app = client(&router);
    let to_n = async |message: Vec<u8>, pieces: usize| {
        let body = frame(&message);
        let pieces = body.chunks(pieces).map(Bytes::copy_from_slice).collect();
        exchange(&app, call("ModelInfer", stub::parts(pieces))).await
    };
    let tensor = text(7, &[0; 5_000]);
    // Many tiny frames are an attack to HTTP/2; a few are not.
    for (pieces, length) in [(1, 100), (2, 100), (100, 5_000), (4_096, 5_000), (100_000, 5_000)] {
        let late =
            [text(7, &vec![0; length]), text(3, b"id"), text(2, b"1"), text(1, b"n")].concat();
        assert_eq!(to_n(late, pieces).await.body, "b", "pieces of {pieces}");
    }
    // The last of two names counts, as it does for the node.
    let twice = [text(1, b"ghost"), tensor.clone(), text(1, b"n")].concat();
    assert_eq!(to_n(twice, 100_000).await.body, "b");
    // Beyond what is looked at a second name is not seen: the node refuses it by the context.
    let bypass = [text(1, b"n"), text(7, &[0; 70_000]), text(1, b"ghost")].concat();
    assert_eq!(to_n(bypass, 100_000).await.body, "b");
    let context = Context::decode(b.last_head()["midspan-context"].as_bytes()).unwrap();
    assert_eq!(context.model, "n");
    let hidden = [text(7, &[0; 70_000]), text(1, b"n")].concat();
    let hidden = to_n(hidden, 100_000).await;
    assert!(hidden.refused(3).contains("no model is named in the first 65536 bytes"));
    // Compressed.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&[tensor, text(1, b"n")].concat()).unwrap();
    let mut body = frame(&gzip.finish().unwrap()).to_vec();
    body[0] = 1;
    let packed = with(call("ModelInfer", full(body)), "grpc-encoding", "gzip");
    assert_eq!(exchange(&app, packed).await.body, "b");
    assert_eq!(b.last_head()["grpc-encoding"], "gzip");
}

#[tokio::test]
async fn refusals_are_trailers_only() {
    let a = Stub::start("a");
    let router = Setup { limits: "body = \"1MiB\"", ..Setup::default() }.start(&[&a]).await;
    let app = client(&router);
    let infer = |body: Bytes| call("ModelInfer", full(body));
    let huge = Bytes::from_static(&[0, 0, 0x10, 0, 1, 0x0a]);
    let flagged = Bytes::from_static(&[1, 0, 0, 0, 1, 0]);
    for (asked, status, words) in [
        (infer(naming("ghost")), 5, "Request for unknown model: 'ghost' is not found"),
        (infer(naming("m\u{e9}")), 5, "'m%C3%A9'"),
        (infer(frame(&[text(1, b"m"), text(2, b"9")].concat())), 5, "'m version 9'"),
        (infer(frame(&text(3, b"id"))), 3, "names no model"),
        (infer(frame(&[0x0a, 9, b'm'])), 3, "malformed"),
        (infer(frame(&[0x4b])), 3, "groups"),
        (infer(Bytes::from_static(&[0, 0, 0])), 3, "ended before its message"),
        (infer(Bytes::new()), 3, "ended before its message"),
        (infer(huge), 8, "1048577 bytes"),
        (infer(flagged.clone()), 3, "grpc-encoding"),
        (with(infer(flagged.clone()), "grpc-encoding", "snappy"), 12, "'snappy'"),
        (with(infer(flagged), "grpc-encoding", "gzip"), 3, "cannot be read"),
        (with(infer(naming("m")), "grpc-timeout", "soon"), 3, "grpc-timeout"),
        (call("TraceSetting", full(frame(b""))), 12, "TraceSetting is not offered"),
        (call_at("/other.Service/Call", full(frame(b""))), 12, "/other.Service/Call"),
        (call("RepositoryModelLoad", full(frame(&text(2, b"m")))), 7, "model_control"),
    ] {
        let path = asked.uri().clone();
        let reply = exchange(&app, asked).await;
        let text = reply.refused(status);
        assert!(text.contains(words), "{path}: {text}");
    }
    // What is no call of gRPC is answered as REST answers.
    let path = "/inference.GRPCInferenceService/ModelInfer";
    for version in VERSIONS {
        let json = request(Method::POST, path, full("{}"));
        plain(&pool(router.apps, version), json).await.error(415);
    }
    plain(&pool(router.apps, HttpVersion::H1), infer(naming("m"))).await.error(415);
    assert_eq!(a.asked(), 0);
    router.idle().await;
}

#[tokio::test]
async fn a_message_may_have_the_limit_and_no_more() {
    let a = Stub::start("a");
    let router = Setup { limits: "body = \"3MiB\"", ..Setup::default() }.start(&[&a]).await;
    echo(&a);
    let sized = |length: usize| {
        let name = text(1, b"m");
        let tensor = text(7, &vec![1; length - name.len() - 5]);
        frame(&[name, tensor].concat())
    };
    let app = client(&router);
    let whole = sized(3 << 20);
    assert_eq!(whole.len(), (3 << 20) + 5);
    let reply = exchange(&app, call("ModelInfer", full(whole.clone()))).await;
    assert_eq!(reply.status(), 0);
    assert!(reply.body == whole && reply.trailers["x-trailer"] == "kept");
    a.asked();
    exchange(&app, call("ModelInfer", full(sized((3 << 20) + 1)))).await.refused(8);
    assert_eq!(a.asked(), 0);
    router.idle().await;
}

#[tokio::test]
async fn what_a_node_did_not_begin_another_may_do() {
    for nodes in VERSIONS {
        let (a, b) = (Stub::start("a"), Stub::start("b"));
        let router = Setup { nodes, ..Setup::default() }.start(&[&a, &b]).await;
        let session = router.session_of(&a).await;
        b.script(|_| async { Ok(answer("b", 0)) });
        let app = client(&router);
        let ask = async || {
            b.asked();
            let reply = exchange(&app, infer(&session)).await;
            (reply.status(), reply.body, b.asked())
        };
        a.script(|_| async { Ok(answer("a", 0)) });
        assert_eq!(ask().await, (0, "a".into(), 0));
        a.script(|_| async { Ok(only(14, "full")) });
        assert_eq!(ask().await, (0, "b".into(), 1), "refused in the head");
        a.script(|_| async { Ok(answer("", 14)) });
        assert_eq!(ask().await, (0, "b".into(), 1), "refused in the trailers");
        a.script(|_| async { Err(BreakOff) });
        assert_eq!(ask().await, (0, "b".into(), 1), "lost");
        a.script(|_| async { Ok(answer("partly", 14)) });
        assert_eq!(ask().await, (14, "partly".into(), 0), "it had begun");
        a.script(|_| async { Ok(only(3, "wrong")) });
        assert_eq!(ask().await.0, 3, "the caller's fault is an answer");
        a.script(|_| async { Ok(only(14, "no room")) });
        b.script(|_| async { Ok(only(14, "no room")) });
        let reply = exchange(&app, infer(&session)).await;
        assert_eq!(reply.refused(14), "no room", "a node's own words");
        router.idle().await;
    }
}

#[tokio::test]
async fn a_node_that_fails_inside_loses_its_reputation_unless_only_its_model_did() {
    for (status, reports) in [(13, false), (13, true), (14, false), (3, false)] {
        let (a, b) = (Stub::start("a"), Stub::start("b"));
        let router = Setup::default().start(&[&a, &b]).await;
        let session = router.session_of(&a).await;
        a.script(move |_| async move {
            let mut answer = answer("x", status);
            if !reports {
                answer.headers_mut().insert(headers::LOAD, "none".parse().unwrap());
            }
            Ok(answer)
        });
        let app = client(&router);
        let reply = exchange(&app, infer(&session)).await;
        assert_eq!(reply.status(), status);
        let id = reply.head[headers::DECISION].to_str().unwrap().to_owned();
        a.script(|_| async { Ok(answer("x", 0)) });
        let reply = exchange(&app, infer(&session)).await;
        assert_ne!(reply.head[headers::DECISION], id.as_str());
        let id = reply.head[headers::DECISION].to_str().unwrap();
        let record = router.admin(&format!("/decisions/{id}")).await.json();
        let candidates = record["candidates"].as_array().unwrap();
        let of_a = candidates.iter().find(|candidate| candidate["node"] == "a").unwrap();
        let errors = of_a["cost_us"]["errors"].as_u64().unwrap();
        assert_eq!(errors > 0, status == 13 && !reports, "{status} {reports}: {errors}");
    }
}

#[tokio::test]
async fn a_node_that_hangs_costs_the_calls_deadline() {
    let a = Stub::start("a");
    let limits = "deadline = \"5s\"\nmax_deadline = \"150ms\"\nreplay_body = \"1KiB\"";
    let limits = limits.replace("5s", "100ms").leak();
    let router = Setup { limits, ..Setup::default() }.start(&[&a]).await;
    let app = client(&router);
    a.script(|_| std::future::pending());
    for (stated, words) in [(None, "100 ms"), (Some("20m"), "20 ms"), (Some("9H"), "150 ms")] {
        let asked = match stated {
            Some(stated) => with(infer("s"), "grpc-timeout", stated),
            None => infer("s"),
        };
        let started = std::time::Instant::now();
        let reply = exchange(&app, asked).await;
        assert!(reply.refused(4).contains(words), "{reply:?}");
        assert!(started.elapsed() >= Duration::from_millis(20));
    }
    // Half-way through an answer: a status, not a broken stream.
    a.script(|_| async {
        let body = stub::stuck(Bytes::from(vec![0; 4_096]));
        Ok(crate::grpc::stream_answer(boxed(body.map_err(|error| error))))
    });
    let reply = exchange(&app, infer("s")).await;
    assert_eq!((reply.status(), reply.body.len()), (4, 4_096));
    router.idle().await;
}

#[tokio::test]
async fn the_router_speaks_for_the_fleet() {
    let a = Stub::start("a");
    a.lists(&[("m", "READY"), ("n", "UNAVAILABLE")]);
    let router = Setup::probing().start(&[&a]).await;
    let app = client(&router);
    let ask = async |method: &str, message: &[u8]| {
        let reply = exchange(&app, call(method, full(frame(message)))).await;
        assert_eq!(reply.status(), 0, "{method}: {reply:?}");
        reply.body
    };
    assert_eq!(ask("ServerLive", b"").await, frame(&[8, 1]));
    assert_eq!(ask("ServerReady", b"").await, frame(&[8, 1]));
    assert!(ask("ServerMetadata", b"").await.starts_with(&frame(&[0; 1])[..4]));
    let entry = |name: &[u8], state: &[u8], reason: &[u8]| {
        let fields = [text(1, name), text(2, b"1"), text(3, state)].concat();
        let reason = if reason.is_empty() { Vec::new() } else { text(4, reason) };
        text(1, &[fields, reason].concat())
    };
    let (m, n) = (entry(b"m", b"READY", b""), entry(b"n", b"UNAVAILABLE", b"unloaded"));
    assert_eq!(ask("RepositoryIndex", b"").await, frame(&[m.clone(), n].concat()));
    assert_eq!(ask("RepositoryIndex", &[0x10, 1]).await, frame(&m));
    assert_eq!(ask("SystemSharedMemoryStatus", b"").await, frame(b""));
    assert_eq!(ask("CudaSharedMemoryStatus", b"").await, frame(b""));
    let check = "/grpc.health.v1.Health/Check";
    for service in ["", "inference.GRPCInferenceService"] {
        let asked = call_at(check, full(frame(&text(1, service.as_bytes()))));
        let reply = exchange(&app, asked).await;
        assert_eq!((reply.status(), reply.body), (0, frame(&[8, 1])));
    }
    let unknown = call_at(check, full(frame(&text(1, b"nope"))));
    exchange(&app, unknown).await.refused(5);
    let none = call("ServerLive", full(""));
    exchange(&app, none).await.refused(3);
    assert_eq!(a.asked(), 0, "nobody else was asked");
    a.set_draining(true);
    eventually("nothing is ready", async || {
        exchange(&app, call("ServerReady", full(frame(b"")))).await.body == frame(b"")
    })
    .await;
    let reply = exchange(&app, call_at(check, full(frame(b"")))).await;
    assert_eq!(reply.body, frame(&[8, 2]));
}

#[tokio::test]
async fn a_watch_tells_each_change_and_ends_with_the_drain() {
    let a = Stub::start("a");
    let mut router = Setup::probing().start(&[&a]).await;
    let asked = call_at("/grpc.health.v1.Health/Watch", full(frame(b"")));
    let mut response = head(&client(&router), asked).await.unwrap();
    let body = response.body_mut();
    let next = async |body: &mut midspan_net::Body| {
        let frame = tokio::time::timeout(crate::fixture::PATIENCE, body.frame()).await;
        frame.expect("a change in time").unwrap().unwrap()
    };
    let state = async |body: &mut midspan_net::Body| next(body).await.into_data().unwrap();
    assert_eq!(state(body).await, frame(&[8, 1]));
    a.set_draining(true);
    assert_eq!(state(body).await, frame(&[8, 2]));
    a.set_draining(false);
    assert_eq!(state(body).await, frame(&[8, 1]));
    router.stop();
    assert_eq!(state(body).await, frame(&[8, 2]));
    let trailers = next(body).await.into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "14");
    drop(response);
    router.stopped().await.unwrap();
}
