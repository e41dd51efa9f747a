//! 6a of the table: server, health, metadata, routing.

use futures_util::FutureExt as _;
use http::Method;
use serde_json::{Value, json};

use crate::{
    answer::Answer,
    case::{At, Call, Case, Outcome, alone, call, ensure, get, infer, one, post, script},
    harness::{GET, Hop, Pair, Setup, Side, eventually},
    models,
    sweep::Sweep,
    wire::{Wire, head},
};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        get("C1", "/v2").ok().header("content-type", "application/json").check(server),
        get("C3", "/v2/").ok().check(server),
        get("C4", "/v2/health/live").ok().at("/live", true),
        get("C5", "/v2/health/ready").ok().at("/live", true).at("/ready", true),
        alone("C6", "ready while draining", |hop, sweep| draining(hop, sweep).boxed_local()),
    ];
    cases.extend(ready());
    cases.extend(metadata());
    cases.extend(routing());
    cases.extend(names());
    cases.extend(repository());
    cases
}

fn ready() -> Vec<Case> {
    let simple = json!({"name": "simple", "ready": true});
    vec![
        get("C7", "/v2/models/simple/ready").ok().at("", simple.clone()),
        get("C8", "/v2/models/simple/versions/1/ready").ok().at("", simple.clone()),
        get("C8", "/v2/models/versioned/versions/v10/ready").ok().at("/ready", true),
        script("C9", "unloaded: neither ready nor inferred", At::Control, |side| {
            unloaded(side).boxed_local()
        }),
        get("C10", "/v2/models/nope/ready").err(404),
        get("C10", "/v2/models/nope/versions/1/ready").err(404),
        get("C22", "/v2/models/simple/ready?test_1=1").ok().at("", simple),
    ]
}

fn metadata() -> Vec<Case> {
    let tensor = |name: &str| json!({"name": name, "datatype": "INT32", "shape": [-1, 16]});
    vec![
        get("C11", "/v2/models/simple")
            .ok()
            .at("/name", "simple")
            .at("/inputs", json!([tensor("INPUT0"), tensor("INPUT1")]))
            .at("/outputs", json!([tensor("OUTPUT0"), tensor("OUTPUT1")])),
        get("C12", "/v2/models/id2_fp32").ok().at("/inputs/0/shape", json!([-1, -1])),
        get("C12", "/v2/models/fixed").ok().at("/inputs/0/shape", json!([1, 2])),
        get("C13", "/v2/models/simple").ok().at("/platform", "onnx_onnxv1"),
        get("C14", "/v2/models/versioned").ok().at("/versions", json!(["1", "v10"])),
        script("C14", "each listed version works", At::Main, |side| versions(side).boxed_local()),
        get("C15", "/v2/models/nope").err(404).check(|answer| {
            let text = answer.error()?;
            ensure!(text.starts_with("Request for unknown model"), "says '{text}'");
            Ok(())
        }),
        get("C18", "/v2/models/id_scalar").ok().at("/inputs/0/shape", json!([])),
    ]
}

fn routing() -> Vec<Case> {
    let body = one("FP32", "[1]", "[1]");
    let mut cases = Vec::new();
    for version in ["999", "abc", "99999999999999999999", "V10", "v1"] {
        let id = if version == "999" { "C16" } else { "C17" };
        let path = format!("/v2/models/versioned/versions/{version}");
        cases.push(get(id, &path).err(404));
        cases.push(get(id, &format!("{path}/ready")).err(404));
        cases.push(post(id, &format!("{path}/infer"), body.clone()).err(404));
    }
    cases.extend([
        get("C19", "/v2/models/id_fp32/infer").err(405).lists("allow", "POST"),
        post("C19", "/v2/health/ready", "").err(405).lists("allow", "GET"),
        post("C19", "/v2/health/live", "{}").err(405).lists("allow", "GET"),
        call("C19", Call::new(Method::DELETE, "/v2/models/simple", "")).err(405),
        call("C20", Call::new(Method::HEAD, "/v2/health/ready", "")).ok().check(|answer| {
            ensure!(answer.body.is_empty(), "has a body");
            Ok(())
        }),
    ]);
    for path in ["/v2/nope", "/", "/v1/models/simple", "/v2/models/simple/nope", "/v2/health"] {
        cases.push(get("C21", path).err(404));
    }
    cases
}

fn names() -> Vec<Case> {
    let body = one("FP32", "[2]", "[1,2]");
    let name = "/v2/models/m%C3%B6del%20a";
    let mut cases = vec![
        get("C23", name).ok().at("/name", "mödel a"),
        get("C23", &format!("{name}/ready")).ok().at("/name", "mödel a"),
        post("C23", &format!("{name}/infer"), body).ok().at("/model_name", "mödel a"),
        get("C25", "/v2/models/Simple").err(404),
        get("C25", "/v2/models/SIMPLE/ready").err(404),
        infer("C25", "ID_FP32", one("FP32", "[1]", "[1]")).err(404),
    ];
    for segment in ["%FF", "%2E%2E", "%00", "a%00b", "..%2F..%2Fetc%2Fpasswd", "%2Fetc", "%C3"] {
        for tail in ["", "/ready", "/versions/1", "/config", "/stats"] {
            let path = format!("/v2/models/{segment}{tail}");
            cases.push(get("C24", &path).check(|answer| {
                ensure!(matches!(answer.status, 400 | 404), "expected 400 or 404");
                answer.error().map(drop)
            }));
        }
    }
    cases
}

fn repository() -> Vec<Case> {
    const OWN: &str = "a router lists the models of a fleet, a node its own";
    let index = "/v2/repository/index";
    vec![
        post("C26", index, "").ok().check(indexed).opaque(OWN),
        post("C26", index, "{}").ok().check(indexed).opaque(OWN),
        post("C27", index, r#"{"ready":true}"#).ok().check(indexed).opaque(OWN),
        post("C27", index, r#"{"ready":false}"#).ok().check(indexed).opaque(OWN),
        post("C27", index, r#"{"ready":1}"#).err(400),
        post("C27", index, r#"{"ready":"#).err(400),
        post("C27", "/v2/repository/models/simple/unload", "{}")
            .err(403)
            .says("model_control")
            .opaque("each names its own configuration"),
        script("C27", "an unloaded model is in the index, but not ready", At::Control, |side| {
            index_of_unloaded(side).boxed_local()
        }),
        script("C28", "counts rise by rows and by runs", At::Main, |side| {
            statistics(side).boxed_local()
        }),
        get("C28", "/v2/models/nope/stats").err(404),
        get("C28", "/v2/models/versioned/versions/1/stats")
            .ok()
            .at("/model_stats/0/version", "1")
            .absent("/model_stats/1")
            .opaque("a sum over nodes, at another time"),
        get("C29", "/v2/models/simple/config").ok().at("/name", "simple").check(|answer| {
            let size = answer.json()?["max_batch_size"].clone();
            ensure!(size.is_u64(), "max_batch_size is {size}");
            Ok(())
        }),
        get("C29", "/v2/models/simple/versions/1/config").ok().at("/name", "simple"),
        get("C29", "/v2/models/nope/config").err(404),
    ]
}

fn server(answer: &Answer) -> Outcome {
    let json = answer.json()?;
    for member in ["name", "version"] {
        ensure!(json[member].is_string(), "{member} is {}", json[member]);
    }
    let list = json["extensions"].as_array().ok_or("extensions is no array")?;
    ensure!(list.iter().all(Value::is_string), "extensions are {list:?}");
    Ok(())
}

fn indexed(answer: &Answer) -> Outcome {
    let json = answer.json()?;
    let list = json.as_array().ok_or("no array")?;
    for entry in list {
        for member in ["name", "version", "state", "reason"] {
            ensure!(entry[member].is_string(), "{member} is missing in {entry}");
        }
    }
    let versions = |name: &str| list.iter().filter(|entry| entry["name"] == name).count();
    ensure!(versions("simple") == 1 && versions("versioned") == 2, "lists {json}");
    ensure!(list.iter().all(|entry| entry["state"] == "READY"), "all are ready, {json}");
    Ok(())
}

async fn versions(side: Side) -> Outcome {
    let metadata = side.call(&Call::get("/v2/models/versioned")).await?.json()?;
    for version in metadata["versions"].as_array().ok_or("versions is no array")? {
        let version = version.as_str().ok_or("a version is no string")?;
        let path = format!("/v2/models/versioned/versions/{version}");
        ensure!(side.call(&Call::get(&path)).await?.status == 200, "{path}");
        let infer = Call::new(Method::POST, &format!("{path}/infer"), one("FP32", "[1]", "[1]"));
        let json = side.call(&infer).await?.json()?;
        ensure!(json["model_version"] == version, "{path}: {json}");
    }
    Ok(())
}

async fn statistics(side: Side) -> Outcome {
    let path = "/v2/models/simple/stats";
    let stats = async || -> Result<Value, String> {
        let answer = side.call(&Call::get(path)).await?;
        let json = answer.json()?;
        let list = json["model_stats"].as_array();
        ensure!(list.is_some_and(|l| l.len() == 1), "{path} is {}", answer.brief());
        Ok(json["model_stats"][0].clone())
    };
    let count = |stats: &Value, pointer: &str| -> Result<u64, String> {
        let value = stats.pointer(pointer).and_then(Value::as_u64);
        value.ok_or_else(|| format!("no number {pointer} in {stats}"))
    };
    let before = stats().await?;
    let row: Vec<u8> = vec![1; 48];
    let data = json!(row);
    let body = json!({"inputs": [
        {"name": "INPUT0", "datatype": "INT32", "shape": [3, 16], "data": data},
        {"name": "INPUT1", "datatype": "INT32", "shape": [3, 16], "data": data},
    ]});
    let answer = side.call(&Call::infer("simple", body.to_string())).await?;
    ensure!(answer.status == 200, "{}", answer.brief());
    let after = stats().await?;
    ensure!(after["name"] == "simple" && after["version"] == "1", "{after}");
    for (pointer, rise) in [
        ("/inference_count", 3),
        ("/execution_count", 1),
        ("/inference_stats/success/count", 1),
        ("/inference_stats/fail/count", 0),
    ] {
        let (before, after) = (count(&before, pointer)?, count(&after, pointer)?);
        ensure!(after == before + rise, "{pointer}: {before}, then {after}");
    }
    for part in ["success", "fail", "queue", "compute_input", "compute_infer", "compute_output"] {
        count(&after, &format!("/inference_stats/{part}/ns"))?;
    }
    ensure!(count(&after, "/last_inference")? > 0, "last_inference is 0");
    let all = side.call(&Call::get("/v2/models/stats")).await?.json()?;
    let all = all["model_stats"].as_array().ok_or("no model_stats")?;
    let names: Vec<&Value> = all.iter().map(|stats| &stats["name"]).collect();
    ensure!(names.len() > 1 && names.contains(&&json!("simple")), "all: {names:?}");
    Ok(())
}

/// Loads or unloads a model and says what came back.
async fn control(side: &Side, model: &str, verb: &str) -> Outcome {
    let path = format!("/v2/repository/models/{model}/{verb}");
    let answer = side.call(&Call::new(Method::POST, &path, "{}")).await?;
    ensure!(answer.status == 200, "{path}: {}", answer.brief());
    Ok(())
}

async fn unloaded(side: Side) -> Outcome {
    let infer = Call::infer("id_fp32", one("FP32", "[1]", "[1]"));
    control(&side, "id_fp32", "unload").await?;
    for call in [Call::get("/v2/models/id_fp32/ready"), infer.clone()] {
        let answer = side.call(&call).await?;
        ensure!(answer.status == 503, "unloaded, {}: {}", call.path, answer.brief());
        answer.error()?;
        ensure!(answer.headers.contains_key("retry-after"), "no Retry-After");
    }
    control(&side, "id_fp32", "load").await?;
    // The router learns it from the node's next report.
    let loaded = async || side.call(&infer).await.is_ok_and(|answer| answer.status == 200);
    eventually("the loaded model answers", loaded).await?;
    let ready = side.call(&Call::get("/v2/models/id_fp32/ready")).await?;
    ensure!(ready.status == 200, "loaded: {}", ready.brief());
    let unknown = Call::new(Method::POST, "/v2/repository/models/nope/load", "{}");
    let unknown = side.call(&unknown).await?;
    ensure!(matches!(unknown.status, 400 | 404), "an unknown model: {}", unknown.brief());
    unknown.error().map(drop)
}

async fn index_of_unloaded(side: Side) -> Outcome {
    control(&side, "simple", "unload").await?;
    let index = async |body: &str| -> Result<Option<Value>, String> {
        let call = Call::new(Method::POST, "/v2/repository/index", body.to_owned());
        let json = side.call(&call).await?.json()?;
        let list = json.as_array().ok_or("no array")?;
        Ok(list.iter().find(|entry| entry["name"] == "simple").cloned())
    };
    let gone = async || {
        let state = index("{}").await.ok().flatten().map(|entry| entry["state"].clone());
        state.is_some_and(|state| state != "READY") && index(r#"{"ready":true}"#).await == Ok(None)
    };
    eventually("listed as not ready, and not among the ready", gone).await?;
    control(&side, "simple", "load").await?;
    let back = async || matches!(index(r#"{"ready":true}"#).await, Ok(Some(_)));
    eventually("among the ready again", back).await
}

/// C6. Heads that were begun before the drain are answered during it; afterwards the router that
/// has lost its only node is alive, but not ready.
async fn draining(hop: Hop, sweep: Sweep) -> Outcome {
    let mut pair = Pair::start(Setup::default(), &models::few()).await?;
    let side = pair.side(hop, &sweep);
    if hop == Hop::Router {
        pair.stop(Hop::Node);
        let ready = Call::get("/v2/health/ready");
        let lost = async || side.call(&ready).await.is_ok_and(|answer| answer.status == 503);
        eventually("without a node a router is not ready", lost).await?;
        not_ready(&side.call(&ready).await?)?;
        side.alive().await?;
    }
    let mut begun = Vec::new();
    for path in ["/v2/health/ready", "/v2/health/live"] {
        let head = head(&Call::get(path));
        let (first, rest) = head.split_at(head.len() / 2);
        let mut connection = side.wire().await?;
        connection.write(first).await?;
        begun.push((connection, rest.to_vec()));
    }
    // Accepted after the two, so they are being read when this one is answered.
    side.alive().await?;
    pair.stop(hop);
    eventually("the port is closed", async || Wire::connect(side.addr).await.is_err()).await?;
    let [ready, live] = begun.as_mut_slice() else { unreachable!() };
    ready.0.write(&ready.1).await?;
    let answer = ready.0.read(&GET).await?;
    sweep.saw(hop, "ready while draining", &GET, &answer);
    not_ready(&answer)?;
    live.0.write(&live.1).await?;
    let answer = live.0.read(&GET).await?;
    ensure!(answer.status == 200 && answer.json()?["live"] == true, "{}", answer.brief());
    drop((begun, side));
    pair.end().await;
    Ok(())
}

fn not_ready(answer: &Answer) -> Outcome {
    ensure!(answer.status == 503, "expected 503, got {}", answer.brief());
    answer.error()?;
    ensure!(answer.json()?["ready"] == false, "{}", answer.brief());
    ensure!(answer.headers.contains_key("retry-after"), "no Retry-After");
    Ok(())
}
