//! What probes bring: nodes that come, nodes that go, models that appear.

use http::Method;
use midspan_net::body::{empty, full};

use crate::{
    fixture::{Setup, eventually, request},
    stub::{self, Stub},
};

#[tokio::test]
async fn a_node_that_starts_later_is_found() {
    // Bound but served by nobody: connections are made and nothing answers.
    let listener = stub::bind();
    let addr = listener.local_addr().unwrap();
    let setup = Setup { probe_timeout: "50ms", ..Setup::probing() };
    let router = setup.start_cold(&[("late", addr)]).await;
    let ready = async || router.send(request(Method::GET, "/v2/health/ready", empty())).await;
    eventually("it counts as dead", async || router.node("late").await.health == "dead").await;
    ready().await.error_or_health();
    let cold = router.infer("s").await.error(503);
    assert!(cold.contains("just started"), "{cold}");
    let late = Stub::on("late", listener);
    eventually("it is found", async || router.infer("s").await.status == 200).await;
    assert_eq!(router.infer("s").await.body, "late");
    assert_eq!(router.node("late").await.models, ["m/1"]);
    assert_eq!(ready().await.status, 200);
    drop(late);
}

impl crate::fixture::Answer {
    /// A health document says `ready` and why not, beside the protocol's `error`.
    fn error_or_health(&self) {
        assert_eq!(self.status, 503, "{self:?}");
        assert_eq!(self.json()["ready"], false);
        assert_eq!(self.json()["error"], "no node is ready");
    }
}

#[tokio::test]
async fn a_node_that_stops_is_marked_dead_and_may_come_back() {
    let listener = stub::bind();
    let again = listener.try_clone().unwrap();
    let (mut a, b) = (Stub::on("a", listener), Stub::start("b"));
    let setup = Setup { probe_timeout: "50ms", ..Setup::probing() };
    let router = setup.start(&[&a, &b]).await;
    let session = router.session_of(&a).await;
    a.stop().await;
    eventually("it is dead", async || router.node("a").await.health == "dead").await;
    assert_eq!(router.node("b").await.health, "healthy");
    assert_eq!(router.infer(&session).await.body, "b");
    let a = Stub::on("a", again);
    eventually("it is back", async || {
        matches!(router.node("a").await.health.as_str(), "slow_start" | "healthy")
    })
    .await;
    eventually("it serves", async || {
        router.infer(&session).await;
        a.asked() > 0
    })
    .await;
}

#[tokio::test]
async fn a_restart_with_other_models_is_noticed() {
    let a = Stub::start("a");
    let router = Setup::probing().start(&[&a]).await;
    let infer = async |model: &str| {
        let path = format!("/v2/models/{model}/infer");
        router.send(request(Method::POST, &path, full("{}"))).await.status.as_u16()
    };
    assert_eq!((infer("m").await, infer("n").await), (200, 404));
    let epoch = router.fleet().await.epoch;
    a.restart_with(&["m", "n"]);
    eventually("the new model is served", async || infer("n").await == 200).await;
    assert!(router.fleet().await.epoch > epoch);
    a.restart_with(&["n"]);
    eventually("the old one is not", async || infer("m").await != 200).await;
    assert_eq!(infer("n").await, 200);
}

#[tokio::test]
async fn a_node_that_loads_one_model_serves_the_others() {
    let a = Stub::start("a");
    let router = Setup::probing().start(&[&a]).await;
    a.set_unready(true);
    a.lists(&[("m", "READY"), ("n", "LOADING")]);
    eventually("the model that loads is known", async || {
        router.node("a").await.models == ["m/1", "n/1"]
    })
    .await;
    assert_eq!(router.node("a").await.health, "healthy");
    assert_eq!(router.infer("s").await.status, 200);
}
