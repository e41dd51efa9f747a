//! Processes die, links break: no request fails, and what is less than the full path says so.

use std::time::{Duration, Instant};

use midspan_load::{
    emulator::{LinkSpec, Outage},
    live::Run,
};

use crate::fleet::{Fleet, Meanwhile};

fn fast() -> LinkSpec {
    "up=none,down=none,rtt=4ms".parse().expect("a link")
}

fn degraded(run: &Run) -> usize {
    let answers = run.outcomes.iter().filter_map(|outcome| outcome.result.as_ref().ok());
    answers.filter(|answer| answer.degraded.is_some()).count()
}

fn hard(run: &Run) -> usize {
    run.report.hard_cases()
}

fn none_failed(run: &Run) {
    assert_eq!(run.report.answers, run.report.requests, "{}", run.report.render());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_cloud_degrades_and_comes_back() {
    let mut fleet = Fleet::start(fast()).await;
    let healthy = fleet.drive(200, &|_, _| {}).await;
    none_failed(&healthy);
    assert!(degraded(&healthy) == 0 && hard(&healthy) > 0);

    fleet.cloud().kill();
    let without = fleet.drive(400, &|_, _| {}).await;
    none_failed(&without);
    assert!(degraded(&without) > 0 && hard(&without) == 0, "{}", without.report.render());

    fleet.cloud().restart();
    fleet
        .until("the cloud is back", |status| {
            let clouds = status.nodes.iter().flat_map(|node| &node.clouds);
            clouds.into_iter().all(|cloud| cloud.health != "dead" && cloud.health != "ejected")
        })
        .await;
    let again = fleet.drive(400, &|_, _| {}).await;
    none_failed(&again);
    assert_eq!(degraded(&again), 0, "{}", again.report.render());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_killed_under_load_fails_no_request() {
    let mut fleet = Fleet::start(fast()).await;
    let mut cloud = fleet.cloud.take().expect("a cloud");
    let kill = Meanwhile::each(300, move |count| match count {
        1 => cloud.kill(),
        3 => cloud.restart(),
        _ => {}
    });
    let run = fleet.drive(1500, &|done, _| kill.progress(done)).await;
    kill.finish();
    none_failed(&run);
    assert!(degraded(&run) > 0 && hard(&run) > 0, "{}", run.report.render());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_killed_twenty_times_fails_no_request() {
    let mut fleet = Fleet::start(fast()).await;
    let mut edge = fleet.edges.remove(0);
    // At uneven moments: the driver's own progress sets them, and it is not in step with anything.
    let kill = Meanwhile::each(137, move |count| {
        if count <= 20 {
            edge.kill();
            edge.restart();
        }
    });
    let run = fleet.drive(3000, &|done, _| kill.progress(done)).await;
    assert!(kill.finish() >= 20);
    none_failed(&run);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_uplink_is_bounded_by_the_offload_deadline() {
    let fleet = Fleet::start(fast()).await;
    fleet.link.set_outage(Outage::Blackhole);
    let started = Instant::now();
    let run = fleet.drive(200, &|_, _| {}).await;
    none_failed(&run);
    assert!(degraded(&run) > 0 && hard(&run) == 0, "{}", run.report.render());
    let worst = run.outcomes.iter().map(|outcome| outcome.latency_us).max().expect("outcomes");
    // The offload's timeout is 500 ms; the rest is room for a busy machine, far below a hang.
    assert!(worst < 5_000_000, "{worst} us");
    assert!(started.elapsed() < Duration::from_secs(60));

    fleet.link.set_outage(Outage::None);
    fleet
        .until("the cloud is back", |status| {
            let clouds = status.nodes.iter().flat_map(|node| &node.clouds);
            clouds.into_iter().all(|cloud| cloud.health != "dead" && cloud.health != "ejected")
        })
        .await;
    let again = fleet.drive(200, &|_, _| {}).await;
    none_failed(&again);
    assert!(hard(&again) > 0, "{}", again.report.render());
}
