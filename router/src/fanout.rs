//! What concerns every node that has a model: the sum of their statistics, and loading and
//! unloading on all of them. Each node is asked the same; with one node its answer passes through
//! unchanged.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderValue, Response, StatusCode, header, request::Parts};
use http_body::Body as HttpBody;
use midspan_net::{
    Body, BodyError,
    body::{empty, full},
    reply,
};
use midspan_protocol::{ModelName, statistics::Statistics};
use tokio::time::timeout_at;

use crate::{
    admit::Terms,
    error::RouteError,
    forward::{Errand, Forwarded, Manner, Outgoing, whole},
    grpc::status::{equivalent, status_in},
    inquire::Inquiry,
    own,
    replay::{Download, download},
    shard::Shard,
};

/// Nodes asked at once.
const AT_ONCE: usize = 16;
/// Largest answer that is taken from a node.
const MAX_ANSWER: usize = 4 << 20;
/// What is said where every node fails.
const NOT_TOLD: &str = "no node gave its statistics";

/// One node's answer, read whole.
struct Told {
    head: http::response::Parts,
    bytes: Bytes,
    trailers: Option<http::HeaderMap>,
    /// Of HTTP, or what the status of gRPC means in it.
    status: StatusCode,
}

impl Told {
    fn forwarded(self, manner: Manner, attempts: usize) -> Forwarded {
        let body = if manner == Manner::Rest {
            full(self.bytes)
        } else {
            whole(self.bytes, self.trailers)
        };
        let response = Response::from_parts(self.head, body);
        Forwarded { response, attempts, status: self.status, unread: false }
    }
}

/// The statistics of one model, or of all: the sum over the nodes that can be asked. A node that
/// fails leaves its part out; its counts are not lost, only not in this answer.
pub(crate) async fn statistics(
    shard: &Arc<Shard>,
    model: Option<&ModelName>,
    terms: &Terms,
    head: Parts,
) -> Result<Forwarded, RouteError> {
    let mut nodes = listing(shard, model)?;
    nodes.retain(|node| shard.fleet.is_usable(*node));
    let every = ModelName { name: "*".into(), version: None };
    let errand =
        Errand { model: model.unwrap_or(&every), terms, manner: Manner::Rest, infer: false };
    let mut outgoing = Outgoing::new(head, errand);
    if nodes.len() > 1 {
        // Compressed answers cannot be added up.
        outgoing = outgoing.without(header::ACCEPT_ENCODING);
    }
    let mut told = ask(shard, errand, &nodes, &mut outgoing, None).await;
    let asked = told.len();
    if asked == 1
        && let Some(only) = told.pop()
    {
        return only.map(|only| only.forwarded(Manner::Rest, 1));
    }
    let (sum, failure) = add_up(told);
    match (sum, failure) {
        (Some(sum), _) => {
            let mut forwarded = Forwarded::new(reply::value(StatusCode::OK, &sum), 0);
            forwarded.attempts = 1;
            Ok(forwarded)
        }
        (None, Some(Ok(answer))) if answer.status != StatusCode::OK => {
            Ok(answer.forwarded(Manner::Rest, 1))
        }
        (None, Some(Err(error))) => Err(error),
        (None, _) => Err(RouteError::NoNode { model: errand.model.to_string(), state: NOT_TOLD }),
    }
}

/// The same as a value, for gRPC.
pub(crate) async fn total(
    shard: &Arc<Shard>,
    model: Option<&ModelName>,
    terms: &Terms,
) -> Result<Statistics, RouteError> {
    let mut nodes = listing(shard, model)?;
    nodes.retain(|node| shard.fleet.is_usable(*node));
    let every = ModelName { name: "*".into(), version: None };
    let wanted = model.unwrap_or(&every);
    let errand = Errand { model: wanted, terms, manner: Manner::Rest, infer: false };
    let mut request = http::Request::new(());
    let path = model.map_or("/v2/models/stats".into(), |model| model.path() + "/stats");
    *request.uri_mut() =
        path.parse().map_err(|_| RouteError::BadRequest(format!("no model is called {wanted}")))?;
    let mut outgoing = Outgoing::new(request.into_parts().0, errand);
    let (sum, failure) = add_up(ask(shard, errand, &nodes, &mut outgoing, None).await);
    sum.ok_or_else(|| match failure {
        Some(Err(error)) => error,
        Some(Ok(told)) if told.status == StatusCode::NOT_FOUND => {
            RouteError::UnknownModel(wanted.to_string())
        }
        _ => RouteError::NoNode { model: wanted.to_string(), state: NOT_TOLD },
    })
}

/// The sum of what was told, and the first failure.
fn add_up(
    told: Vec<Result<Told, RouteError>>,
) -> (Option<Statistics>, Option<Result<Told, RouteError>>) {
    let mut sum: Option<Statistics> = None;
    let mut failure = None;
    for answer in told {
        let part = answer.as_ref().ok().filter(|answer| answer.status == StatusCode::OK);
        match part.and_then(|answer| serde_json::from_slice::<Statistics>(&answer.bytes).ok()) {
            Some(part) => sum.get_or_insert_default().merge(part),
            None => failure = failure.or(Some(answer)),
        }
    }
    (sum, failure)
}

/// Loads or unloads a model on every node that lists it. All are asked; the first that fails, in
/// configuration order, gives the answer, else the first.
pub(crate) async fn control<B>(
    shard: &Arc<Shard>,
    errand: Errand<'_>,
    head: Parts,
    body: B,
) -> Result<Forwarded, RouteError>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if !shard.config.model_control {
        return Err(RouteError::ModelControl);
    }
    let nodes = listing(shard, Some(errand.model))?;
    let body = own::read(body, own::MAX_BODY, errand.terms).await?;
    let mut outgoing = Outgoing::new(head, errand);
    let told = ask(shard, errand, &nodes, &mut outgoing, Some(body)).await;
    refresh(shard, &nodes).await;
    let mut first = None;
    for answer in told {
        let answer = answer?;
        if !answer.status.is_success() {
            return Ok(answer.forwarded(errand.manner, 1));
        }
        first = first.or(Some(answer));
    }
    let state = "no node lists it any more";
    let first =
        first.ok_or_else(|| RouteError::NoNode { model: errand.model.to_string(), state })?;
    Ok(first.forwarded(errand.manner, 1))
}

/// The nodes that list a model; that it is unknown if there are none.
fn listing(shard: &Shard, model: Option<&ModelName>) -> Result<Vec<usize>, RouteError> {
    let nodes = shard.fleet.listing(model);
    match model {
        Some(_) if nodes.is_empty() && shard.fleet.is_cold() => Err(RouteError::Cold),
        Some(model) if nodes.is_empty() => Err(RouteError::UnknownModel(model.to_string())),
        _ => Ok(nodes),
    }
}

/// Asks all of `nodes`; the answers come in their order.
async fn ask(
    shard: &Shard,
    errand: Errand<'_>,
    nodes: &[usize],
    outgoing: &mut Outgoing<'_>,
    body: Option<Bytes>,
) -> Vec<Result<Told, RouteError>> {
    let exchanges: Vec<_> = nodes
        .iter()
        .map(|node| {
            let body = body.clone().map_or_else(empty, full);
            let request = outgoing.request(&shard.config.name, body, false);
            exchange(shard, errand, *node, request)
        })
        .collect();
    stream::iter(exchanges).buffered(AT_ONCE).collect().await
}

async fn exchange(
    shard: &Shard,
    errand: Errand<'_>,
    node: usize,
    request: http::Request<Body>,
) -> Result<Told, RouteError> {
    let name = shard.fleet.nodes.get(node).map_or("?", |node| node.name.as_str());
    let lost = |cause: String| RouteError::NodeLost { node: name.to_owned(), cause };
    let link = shard.link(node, errand.manner != Manner::Rest);
    let link = link.ok_or_else(|| lost("it has left the fleet".into()))?;
    let exchange = async {
        let (head, body) = link.send(request).await.map_err(|e| lost(e.to_string()))?.into_parts();
        let read = download(body, MAX_ANSWER).await.map_err(|e: BodyError| lost(e.to_string()))?;
        let Download::Whole(bytes, trailers) = read else {
            return Err(lost(format!("its answer is larger than {MAX_ANSWER} bytes")));
        };
        let said = status_in(&head.headers).or_else(|| trailers.as_ref().and_then(status_in));
        let status = match said {
            Some(said) if errand.manner != Manner::Rest => equivalent(said),
            _ => head.status,
        };
        Ok(Told { head, bytes, trailers, status })
    };
    timeout_at(errand.terms.until.into(), exchange).await.map_err(|_| errand.terms.late())?
}

/// Learns at once what has changed: the next request must not meet a model that is gone.
async fn refresh(shard: &Shard, nodes: &[usize]) {
    let router = HeaderValue::from_str(&shard.config.name);
    let Ok(router) = router else { return };
    let learn = |node: &usize| {
        let (node, router) = (*node, &router);
        async move {
            let link = shard.link(node, false)?;
            let name = shard.fleet.nodes.get(node)?.name.as_str();
            let patience = shard.config.probe_timeout;
            let info = Inquiry { link, node: name, router, patience }.info().await;
            match info {
                Ok(info) => shard.fleet.learn(node, info).ok(),
                Err(problem) => {
                    tracing::warn!(node = name, problem, "did not say which models it serves");
                    None
                }
            }
        }
    };
    let asking: Vec<_> = nodes.iter().map(learn).collect();
    let _learnt: Vec<Option<()>> = stream::iter(asking).buffered(AT_ONCE).collect().await;
}
