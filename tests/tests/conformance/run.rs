//! Sends the cases: each to the node and to the router, over HTTP/1.1 with a second request on the
//! same connection, and over HTTP/2; then holds the two answers against each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    answer::Answer,
    case::{Act, At, Call, Case},
    harness::{Hop, Pair, Setup, Side},
    models,
    sweep::{H2, Sweep},
    wire,
};

/// Larger bodies are not sent twice for the sake of pipelining.
const SMALL_BODY: usize = 64 << 10;

/// Runs every case. Returns the extensions that each hop lists.
pub(crate) async fn run(cases: Vec<Case>, sweep: &Sweep) -> BTreeMap<Hop, BTreeSet<String>> {
    let mut listed = BTreeMap::new();
    for at in [At::Main, At::Small, At::Slow, At::Control] {
        let (setup, models) = described(at);
        let mine: Vec<&Case> = cases.iter().filter(|case| case.at == at).collect();
        match Pair::start(setup, &models).await {
            Ok(pair) => {
                let sides = Hop::BOTH.map(|hop| pair.side(hop, sweep));
                for case in mine {
                    one(case, &sides, sweep).await;
                }
                if at == At::Main {
                    for side in &sides {
                        listed.insert(side.hop, extensions(side).await.unwrap_or_default());
                    }
                }
                drop(sides);
                pair.end().await;
            }
            Err(why) => {
                for (case, hop) in mine.iter().flat_map(|case| Hop::BOTH.map(|hop| (case, hop))) {
                    let why = format!("{at:?} does not start: {why}");
                    sweep.note(case.id, hop, &case.what, Err(why));
                }
            }
        }
    }
    listed
}

fn described(at: At) -> (Setup, Vec<system_tests::onnx_models::TestModel>) {
    let long = "deadline = \"60s\"\nmax_deadline = \"2m\"\nbody = \"128MiB\"";
    match at {
        At::Main => (Setup { limits: long, ..Setup::default() }, models::all()),
        At::Small => {
            let limits = "deadline = \"60s\"\nmax_deadline = \"2m\"\nbody = \"1MiB\"";
            (Setup { limits, ..Setup::default() }, models::few())
        }
        At::Slow => {
            let node_limits = "queue = 4";
            (Setup { limits: long, node_limits, ..Setup::default() }, models::few())
        }
        At::Control => {
            let top = "model_control = true";
            (Setup { top, limits: long, ..Setup::default() }, models::few())
        }
    }
}

async fn extensions(side: &Side) -> Result<BTreeSet<String>, String> {
    let json = side.call(&Call::get("/v2")).await?.json()?;
    let list = json["extensions"].as_array().ok_or("no list of extensions")?;
    Ok(list.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect())
}

async fn one(case: &Case, sides: &[Side; 2], sweep: &Sweep) {
    match &case.act {
        Act::Call(call) => {
            exchange(case, call, sides, sweep, false).await;
            if !case.h1_only {
                exchange(case, call, sides, sweep, true).await;
            }
        }
        Act::Script(script) => {
            for side in sides {
                let outcome = script(side.clone()).await;
                sweep.note(case.id, side.hop, &case.what, outcome);
            }
        }
        Act::Alone(script) => {
            for hop in Hop::BOTH {
                let outcome = script(hop, sweep.clone()).await;
                sweep.note(case.id, hop, &case.what, outcome);
            }
        }
    }
}

/// One request to both hops, over one version of HTTP.
async fn exchange(case: &Case, call: &Call, sides: &[Side; 2], sweep: &Sweep, h2: bool) {
    let what = if h2 { format!("{H2}{}", case.what) } else { case.what.clone() };
    let mut answers = Vec::with_capacity(2);
    for side in sides {
        let answer =
            if h2 { side.call_h2(call).await } else { kept_alive(side, call, &what).await };
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => {
                sweep.note(case.id, side.hop, &what, Err(why));
                continue;
            }
        };
        sweep.saw(side.hop, &what, &call.method, &answer);
        let mut outcome = Ok(());
        for check in &case.checks {
            outcome = outcome.and_then(|()| check(&answer));
        }
        let outcome = outcome.map_err(|why| format!("{why}; got {}", answer.brief()));
        sweep.note(case.id, side.hop, &what, outcome);
        answers.push(answer);
    }
    if let ([node, router], None) = (answers.as_slice(), case.differs) {
        let same = node.compare(router).map_err(|why| format!("not transparent: {why}"));
        sweep.note(case.id, Hop::Router, &what, same);
    }
}

/// Sends over HTTP/1.1 and checks that the connection can be used again, or was said to close.
async fn kept_alive(side: &Side, call: &Call, what: &str) -> Result<Answer, String> {
    let mut connection = side.wire().await?;
    let answer = connection.exchange(call).await?;
    let outcome = again(&mut connection, &answer, None).await;
    side.sweep.note("C118", side.hop, &format!("after {what}"), outcome);
    if answer.status >= 400 && call.body.len() <= SMALL_BODY {
        let outcome = pipelined(side, call).await;
        side.sweep.note("C118", side.hop, &format!("pipelined after {what}"), outcome);
    }
    Ok(answer)
}

/// Both requests in one write.
async fn pipelined(side: &Side, call: &Call) -> Result<(), String> {
    let next = Call::get("/v2/health/live");
    let mut connection = side.wire().await?;
    let plain = Call { framing: crate::case::Framing::Length, ..call.clone() };
    let mut bytes = wire::bytes(&plain);
    bytes.extend_from_slice(&wire::bytes(&next));
    connection.write(&bytes).await?;
    let first = connection.read(&call.method).await?;
    again(&mut connection, &first, Some(next)).await
}

/// A further request on the connection that gave `answer`; `sent` when it is on its way already.
async fn again(
    connection: &mut wire::Wire,
    answer: &Answer,
    sent: Option<Call>,
) -> Result<(), String> {
    if answer.header_has("connection", "close") {
        let ends = connection.ends().await;
        return if ends { Ok(()) } else { Err("says close and stays open".into()) };
    }
    let next = match sent {
        Some(call) => connection.read(&call.method).await,
        None => connection.exchange(&Call::get("/v2/health/live")).await,
    };
    let next = next.map_err(|why| format!("then: {why}"))?;
    if next.status == 200 { Ok(()) } else { Err(format!("then: {}", next.brief())) }
}
