//! What the router refuses itself, always in the protocol's form; and nodes that say they are
//! leaving.

use http::{Method, header};
use midspan_net::body::{empty, full};

use crate::{
    fixture::{Setup, VERSIONS, eventually, exchange, pool, request},
    stub::Stub,
};

#[tokio::test]
async fn refusals_are_json_on_every_path() {
    let a = Stub::start("a");
    let router = Setup::default().start(&[&a]).await;
    for version in VERSIONS {
        let app = pool(router.apps, version);
        for (method, path, status, words) in [
            (Method::GET, "/", 404, "no such path"),
            (Method::GET, "/v2/nope", 404, "no such path: /v2/nope"),
            (Method::GET, "/v3", 404, "no such path"),
            (Method::GET, "/metrics", 404, "no such path"),
            (Method::GET, "/v2/midspan/node", 404, "no such path"),
            (Method::POST, "/v2/midspan/models/m/versions/1/offload", 404, "no such path"),
            (Method::POST, "/v2/models/ghost/infer", 404, "Request for unknown model: 'ghost'"),
            (Method::GET, "/v2/models/ghost", 404, "Request for unknown model: 'ghost'"),
            (Method::POST, "/v2/models/m/versions/9/infer", 404, "Request for unknown model: 'm"),
            (Method::GET, "/v2/models/m/infer", 405, "/v2/models/m/infer takes POST"),
            (Method::DELETE, "/v2/models/m", 405, "/v2/models/m takes GET, HEAD"),
            (Method::POST, "/v2/health/live", 405, "takes GET"),
            (Method::GET, "/v2/models/%2E%2E/infer", 400, "'%2E%2E' is no model name"),
            (Method::POST, "/v2/models/a%00b/infer", 400, "is no model name"),
        ] {
            let body = if method == Method::POST { full("{}") } else { empty() };
            let answer = exchange(&app, request(method.clone(), path, body)).await;
            let text = answer.error(status);
            assert!(text.contains(words), "{method} {path}: {text}");
            let allow = answer.header(header::ALLOW);
            assert_eq!(status == 405, !allow.is_empty(), "{method} {path}: '{allow}'");
        }
    }
    router.admin("/nope").await.error(404);
    assert_eq!(a.asked(), 0);
}

#[tokio::test]
async fn a_node_that_drains_gets_nothing_new() {
    let (a, b) = (Stub::start("a"), Stub::start("b"));
    let router = Setup::probing().start(&[&a, &b]).await;
    let session = router.session_of(&a).await;
    let health = async |node: &Stub| router.node(&node.name).await.health;
    a.set_draining(true);
    eventually("a drains", async || health(&a).await == "draining").await;
    a.asked();
    assert_eq!(router.infer(&session).await.body, "b");
    assert_eq!(a.asked(), 0);
    b.set_draining(true);
    eventually("b drains", async || health(&b).await == "draining").await;
    b.asked();
    let text = router.infer(&session).await.error(503);
    assert!(text.contains("no node can serve model 'm' now"), "{text}");
    let ready = router.send(request(Method::GET, "/v2/health/ready", empty())).await;
    assert_eq!((ready.status.as_u16(), &ready.json()["ready"]), (503, &false.into()));
    assert_eq!(a.asked() + b.asked(), 0);
    a.set_draining(false);
    eventually("a is back", async || router.infer(&session).await.body == "a").await;
}

#[tokio::test]
async fn a_port_in_use_is_an_error() {
    let a = Stub::start("a");
    for (apps, admin) in [(a.addr.to_string(), "127.0.0.1:0"), ("127.0.0.1:0".into(), "")] {
        let admin = if admin.is_empty() { a.addr.to_string() } else { admin.to_owned() };
        let text = format!(
            "[listen]\napps = \"{apps}\"\nadmin = \"{admin}\"\nthreads = 2\n\
             [[node]]\nname = \"a\"\naddress = \"{}\"\n",
            a.addr
        );
        let config = midspan_net::config::parse::<midspan_router::RawConfig>(
            "test.toml",
            &text,
            std::path::Path::new("."),
        );
        let config = config.unwrap();
        let run = || midspan_router::run(config, std::future::ready(()), |_, _| {});
        let error = std::thread::spawn(run).join().unwrap().unwrap_err();
        assert!(error.to_string().contains(&format!("cannot listen on {}", a.addr)), "{error}");
    }
}
