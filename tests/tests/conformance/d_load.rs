//! Lines of the table that need a node with more to do than it can: deadlines, priorities, a full
//! queue, clients that go away. Each waits for what it needs to see; nothing waits for a time.

use std::{cell::RefCell, rc::Rc};

use futures_util::{FutureExt as _, future::join_all};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::{
    answer::Answer,
    case::{At, Call, Case, Outcome, ensure, one, script},
    harness::Side,
    wire::{bytes, head},
};

/// Work for about half a second, and for a few dozen milliseconds, on one core.
const LONG: u32 = 15_000;
const SHORT: u32 = 1_000;

pub(crate) fn cases() -> Vec<Case> {
    let slow =
        |id, what, run: fn(Side) -> futures_util::future::LocalBoxFuture<'static, Outcome>| {
            script(id, what, At::Slow, run)
        };
    vec![
        slow("C77", "a timeout of 1 us behind a long run", |side| timeout(side).boxed_local()),
        slow("C78", "priority 1 before 2", |side| priorities(side).boxed_local()),
        slow("C119", "gone while its model runs", |side| gone_running(side).boxed_local()),
        slow("C119", "gone while it waits", |side| gone_waiting(side).boxed_local()),
        slow("C119", "gone in the middle of its body", |side| gone_sending(side).boxed_local()),
        slow("C120", "a full queue refuses", |side| full(side).boxed_local()),
    ]
}

/// So many rounds of work.
fn slow(rounds: u32, parameters: &serde_json::Value) -> Call {
    let input = json!({"name": "n", "datatype": "INT64", "shape": [1], "data": [rounds]});
    let body = json!({"parameters": parameters, "inputs": [input], "outputs": [{"name": "y"}]});
    Call::infer("slow", body.to_string())
}

/// Occupies the only worker.
async fn occupy(side: &Side) -> Result<JoinHandle<Result<Answer, String>>, String> {
    side.idle().await?;
    // Straight to the node: what is looked at is how further requests fare.
    let addr = side.node;
    let long = async move {
        crate::wire::Wire::connect(addr).await?.exchange(&slow(LONG, &json!({}))).await
    };
    #[expect(clippy::disallowed_methods, reason = "a test's task, awaited by its caller")]
    let task = tokio::spawn(long);
    side.in_flight(1).await?;
    Ok(task)
}

async fn finished(long: JoinHandle<Result<Answer, String>>) -> Outcome {
    let answer = long.await.map_err(|error| error.to_string())??;
    ensure!(answer.status == 200, "the long run: {}", answer.brief());
    Ok(())
}

async fn timeout(side: Side) -> Outcome {
    let long = occupy(&side).await?;
    let answer = side.call(&slow(1, &json!({"timeout": 1}))).await?;
    let early = !long.is_finished();
    ensure!(matches!(answer.status, 503 | 504), "expected 503 or 504, got {}", answer.brief());
    answer.error()?;
    ensure!(early, "the answer came after the run before it");
    finished(long).await?;
    side.idle().await
}

async fn priorities(side: Side) -> Outcome {
    let long = occupy(&side).await?;
    let order = Rc::new(RefCell::new(Vec::new()));
    let mut waiting = Vec::new();
    for (in_flight, priority) in (2..).zip([2, 2, 1, 1]) {
        let order = Rc::clone(&order);
        let mut connection = side.wire().await?;
        connection.write(&bytes(&slow(SHORT, &json!({"priority": priority})))).await?;
        waiting.push(async move {
            let answer = connection.read(&http::Method::POST).await?;
            order.borrow_mut().push(priority);
            Ok::<_, String>(answer.status)
        });
        // In the queue before the next is sent.
        side.in_flight(in_flight).await?;
    }
    let statuses = join_all(waiting).await;
    ensure!(statuses.iter().all(|status| *status == Ok(200)), "{statuses:?}");
    ensure!(*order.borrow() == [1, 1, 2, 2], "answered in the order {:?}", order.borrow());
    finished(long).await?;
    let default = side.call(&slow(1, &json!({"priority": 0}))).await?;
    ensure!(default.status == 200, "priority 0: {}", default.brief());
    Ok(())
}

async fn gone_running(side: Side) -> Outcome {
    side.idle().await?;
    let mut connection = side.wire().await?;
    connection.write(&bytes(&slow(LONG, &json!({})))).await?;
    side.in_flight(1).await?;
    drop(connection);
    side.idle().await?;
    answers(&side).await
}

async fn gone_waiting(side: Side) -> Outcome {
    let long = occupy(&side).await?;
    let mut waiting = Vec::new();
    for in_flight in 2..=4 {
        let mut connection = side.wire().await?;
        connection.write(&bytes(&slow(LONG, &json!({})))).await?;
        side.in_flight(in_flight).await?;
        waiting.push(connection);
    }
    drop(waiting);
    // Noticed before the worker is free: nobody's run is started for nobody.
    side.in_flight(1).await?;
    ensure!(!long.is_finished(), "they were noticed only when the worker was free");
    finished(long).await?;
    side.idle().await?;
    answers(&side).await
}

async fn gone_sending(side: Side) -> Outcome {
    side.idle().await?;
    let call = Call::infer("id_fp32", " ".repeat(256 << 10));
    let mut connection = side.wire().await?;
    connection.write(&head(&call)).await?;
    connection.write(&call.body[..100 << 10]).await?;
    side.in_flight(1).await?;
    drop(connection);
    side.idle().await?;
    answers(&side).await
}

/// The hop still infers.
async fn answers(side: &Side) -> Outcome {
    let answer = side.call(&Call::infer("id_fp32", one("FP32", "[1]", "[1]"))).await?;
    ensure!(answer.status == 200, "{}", answer.brief());
    Ok(())
}

async fn full(side: Side) -> Outcome {
    let long = occupy(&side).await?;
    let call = slow(SHORT, &json!({}));
    let flood = join_all((0..12).map(|_| side.call(&call))).await;
    let (mut served, mut refused) = (0, 0);
    for answer in flood {
        let answer = answer?;
        match answer.status {
            200 => served += 1,
            429 | 503 => {
                answer.error()?;
                ensure!(answer.headers.contains_key("retry-after"), "no Retry-After");
                refused += 1;
            }
            _ => return Err(format!("expected 200, 429 or 503, got {}", answer.brief())),
        }
    }
    ensure!(served > 0 && refused > 0, "{served} served, {refused} refused");
    finished(long).await?;
    side.idle().await?;
    answers(&side).await
}
