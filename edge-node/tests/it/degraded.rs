//! Whatever a cloud does, the app gets an answer: the exit's, marked with the reason. When the
//! cloud is well again, it is used again.

use http::{Response, StatusCode};
use midspan_net::{body::full, reply};
use midspan_protocol::{Context, headers};

use crate::{
    fixture::{Answer, Node, Setup, classes, eventually, infer, with},
    stub::{self, BreakOff, Stub},
};

const QUICK: &str = "timeout = \"150ms\"\nprobe_interval = \"20ms\"\nprobe_timeout = \"50ms\"";

#[track_caller]
fn assert_degraded(answer: &Answer, exit: &Answer, reason: &str) {
    assert_eq!(answer.status, 200, "{reason}: {answer:?}");
    assert_eq!(answer.header(headers::DEGRADED), reason);
    assert_eq!(answer.header(headers::ANSWERED_BY), "exit:1", "{reason}");
    assert_eq!(answer.header(headers::CERTIFIED), "false", "{reason}");
    assert_eq!(answer.logits(), exit.logits(), "{reason}: the exit's answer");
}

async fn assert_recovers(edge: &Node, after: &str) {
    eventually(&format!("the cloud is used again after {after}"), async || {
        let answer = edge.infer(&[0, 1], "never").await;
        assert_eq!(answer.status, 200);
        answer.header(headers::ANSWERED_BY) == "cloud"
            && !answer.headers.contains_key(headers::DEGRADED)
            && classes(&answer.logits()) == [stub::CLASS; 2]
    })
    .await;
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Hangs,
    HangsAfterTheHead,
    Breaks,
    BreaksMidBody,
    Status(u16),
    Garbage,
    WrongLength,
    WrongRows,
    WrongShape,
    WrongName,
}

async fn faulty(fault: Fault) -> stub::Outcome {
    Ok(match fault {
        Fault::Hangs => std::future::pending().await,
        Fault::HangsAfterTheHead => {
            Response::new(midspan_net::body::boxed(http_body_util::StreamBody::new(
                futures_util::stream::pending::<Result<_, std::convert::Infallible>>(),
            )))
        }
        Fault::Breaks => return Err(BreakOff),
        Fault::BreaksMidBody => Response::new(stub::broken(b"{\"model_name\":")),
        Fault::Status(status) => reply::error(StatusCode::from_u16(status).unwrap(), "scripted"),
        Fault::Garbage => Response::new(full(&b"\x00\xff garbage"[..])),
        Fault::WrongLength => {
            let mut response = stub::logits(2, 10);
            let name = headers::INFERENCE_HEADER_CONTENT_LENGTH;
            response.headers_mut().insert(name, 100_000.into());
            response
        }
        Fault::WrongRows => stub::logits(3, 10),
        Fault::WrongShape => stub::logits(2, 9),
        Fault::WrongName => reply::json(
            StatusCode::OK,
            "{\"model_name\":\"fashion\",\"outputs\":[{\"name\":\"other\",\"shape\":[1],\
             \"datatype\":\"FP32\",\"data\":[1]}]}",
        ),
    })
}

#[tokio::test]
async fn every_fault_of_a_cloud_is_covered_by_the_exit() {
    let cloud = Stub::start();
    let clouds = vec![(cloud.addr, "home")];
    let edge = Setup { clouds, offload: QUICK, ..Setup::default() }.start().await;
    let exit = edge.infer(&[0, 1], "force").await;
    assert_recovers(&edge, "the start").await;
    for (fault, reason) in [
        (Fault::Hangs, "cloud_timeout"),
        (Fault::HangsAfterTheHead, "cloud_timeout"),
        (Fault::Breaks, "cloud_lost"),
        (Fault::BreaksMidBody, "cloud_lost"),
        (Fault::Status(500), "cloud_failed"),
        (Fault::Status(502), "cloud_failed"),
        (Fault::Status(503), "cloud_refused"),
        (Fault::Status(400), "cloud_refused"),
        (Fault::Status(409), "split_mismatch"),
        (Fault::Garbage, "cloud_garbage"),
        (Fault::WrongLength, "cloud_garbage"),
        (Fault::WrongRows, "cloud_garbage"),
        (Fault::WrongShape, "cloud_garbage"),
        (Fault::WrongName, "cloud_garbage"),
    ] {
        cloud.script(move |_| faulty(fault));
        let answer = edge.infer(&[0, 1], "never").await;
        assert_degraded(&answer, &exit, reason);
        cloud.recover();
        assert_recovers(&edge, &format!("{fault:?}")).await;
    }
}

#[tokio::test]
async fn an_answer_keeps_its_sure_rows_when_the_cloud_is_lost() {
    let cloud = Stub::start();
    let edge = Setup { clouds: vec![(cloud.addr, "home")], ..Setup::default() }.start().await;
    let indices: Vec<usize> = (100..132).collect();
    let well = edge.infer(&indices, "auto").await;
    cloud.script(|_| async { Err(BreakOff) });
    let lost = edge.infer(&indices, "auto").await;
    assert_eq!(lost.header(headers::DEGRADED), "cloud_lost");
    assert!(lost.list("midspan_places").iter().all(|place| place == "exit:1"));
    let (before, after) = (well.logits(), lost.logits());
    let places = well.list("midspan_places");
    assert!(places.iter().any(|place| place == "cloud"), "{places:?}");
    for (row, place) in places.iter().enumerate() {
        let range = row * 10..(row + 1) * 10;
        let same = before[range.clone()] == after[range];
        assert_eq!(same, place == "exit:1", "row {row} was answered by {place}");
    }
}

#[tokio::test]
async fn nowhere_to_go_is_a_reason_too() {
    let edge = Setup::default().start().await;
    let exit = edge.infer(&[0], "force").await;
    assert_degraded(&edge.infer(&[0], "never").await, &exit, "no_cloud");
    // Nobody listens there.
    let refused = stub::bind().local_addr().unwrap();
    let clouds = vec![(refused, "home")];
    let edge = Setup { clouds, offload: QUICK, ..Setup::default() }.start().await;
    for _ in 0..5 {
        assert_degraded(&edge.infer(&[0], "never").await, &exit, "cloud_unreachable");
    }
}

#[tokio::test]
async fn a_cloud_that_comes_later_is_used() {
    // Bound but served by nobody: connections are made and nothing answers.
    let listener = stub::bind();
    let clouds = vec![(listener.local_addr().unwrap(), "home")];
    let edge = Setup { clouds, offload: QUICK, ..Setup::default() }.start().await;
    let exit = edge.infer(&[0, 1], "force").await;
    eventually("probes find it dead", async || {
        let info = edge.get("/v2/midspan/node").await.json();
        info["clouds"][0]["health"] == "dead"
    })
    .await;
    assert_degraded(&edge.infer(&[0, 1], "never").await, &exit, "cloud_unreachable");
    let cloud = Stub::on(listener);
    assert_recovers(&edge, "its start").await;
    drop(cloud);
}

#[tokio::test]
async fn regions_bound_where_rows_may_go() {
    let (near, far) = (Stub::start(), Stub::start());
    let clouds = vec![(near.addr, "near"), (far.addr, "far")];
    let edge = Setup { clouds, ..Setup::default() }.start().await;
    let exit = edge.infer(&[0], "force").await;
    let within = |regions: &[&str]| {
        let regions = regions.iter().map(|region| (*region).to_owned()).collect();
        let context = Context { model: "fashion".into(), regions, ..Context::default() };
        with(with(infer(&[0]), "midspan-exit", "never"), "midspan-context", &context.encode())
    };
    let answer = edge.send(within(&["home"])).await;
    assert_degraded(&answer, &exit, "region_not_allowed");
    assert_eq!((near.asked(), far.asked()), (0, 0));
    for _ in 0..5 {
        let answer = edge.send(within(&["home", "far"])).await;
        assert_eq!(answer.header(headers::ANSWERED_BY), "cloud");
    }
    assert_eq!((near.asked(), far.asked()), (0, 5));
    far.script(|_| async { Err(BreakOff) });
    let answer = edge.send(within(&["home", "far"])).await;
    assert_degraded(&answer, &exit, "cloud_lost");
    assert_eq!(near.asked(), 0, "a lost cloud is no reason to leave the region");
}
