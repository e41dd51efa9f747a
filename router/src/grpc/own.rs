//! The calls that the router answers itself: health, server metadata, the fleet's repository.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::StatusCode;
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::body::Incoming;
use midspan_net::{body::boxed, reply};
use midspan_protocol::grpc::{
    health::{HealthCheckRequest, HealthCheckResponse},
    inference::{
        RepositoryIndexRequest, RepositoryIndexResponse, ServerLiveResponse,
        ServerMetadataResponse, ServerReadyResponse,
    },
    method::GrpcMethod,
    peek::{Coding, frame, message},
};
use prost::Message;
use tokio::time::{Instant, sleep_until};

use super::status::{self, Code, trailers};
use crate::{admit::Terms, error::RouteError, forward::Forwarded, own, shard::Shard};

/// Time between two looks at the router's readiness, for those who watch it.
const LOOK: Duration = Duration::from_millis(250);

/// States of `grpc.health.v1`.
const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
const SERVICE_UNKNOWN: i32 = 3;

/// Answers a call that concerns no single model.
pub(super) async fn answer(
    shard: &Arc<Shard>,
    method: GrpcMethod,
    coding: &Coding,
    body: Incoming,
    terms: &Terms,
) -> Result<Forwarded, RouteError> {
    let body = own::read(body, own::MAX_BODY, terms).await?;
    let request = message(&body, coding, own::MAX_BODY)?;
    Ok(match method {
        GrpcMethod::ServerLive => one(&ServerLiveResponse { live: true }),
        GrpcMethod::ServerReady => {
            one(&ServerReadyResponse { ready: own::problem(shard).is_none() })
        }
        GrpcMethod::ServerMetadata => {
            one(&ServerMetadataResponse::from(reply::metadata(env!("CARGO_PKG_VERSION"))))
        }
        GrpcMethod::RepositoryIndex => {
            let asked: RepositoryIndexRequest = decode(&request)?;
            one(&RepositoryIndexResponse::from(own::entries(shard, asked.ready)))
        }
        // No region is ever registered: memory is not shared between hosts.
        GrpcMethod::SharedMemoryStatus => one(&()),
        GrpcMethod::HealthCheck => {
            let HealthCheckRequest { service } = decode(&request)?;
            if !is_known(&service) {
                return Err(RouteError::UnknownService(service.chars().take(128).collect()));
            }
            one(&HealthCheckResponse { status: serving(shard) })
        }
        GrpcMethod::HealthWatch => {
            let HealthCheckRequest { service } = decode(&request)?;
            watch(shard, &service, terms)
        }
        _ => return Err(RouteError::Unimplemented("this method".into())),
    })
}

fn decode<M: Message + Default>(request: &Bytes) -> Result<M, RouteError> {
    M::decode(request.clone()).map_err(|error| RouteError::BadRequest(error.to_string()))
}

/// An answer of one message.
pub(super) fn one(message: &impl Message) -> Forwarded {
    let frames =
        [Frame::data(frame(&message.encode_to_vec())), Frame::trailers(trailers(Code::Ok, ""))];
    many(stream::iter(frames))
}

fn many(frames: impl Stream<Item = Frame<Bytes>> + Send + 'static) -> Forwarded {
    let frames = futures_util::StreamExt::map(frames, Ok::<_, Infallible>);
    let response = status::head(boxed(StreamBody::new(frames)));
    Forwarded { response, attempts: 0, status: StatusCode::OK, unread: false }
}

fn is_known(service: &str) -> bool {
    matches!(service, "" | "inference.GRPCInferenceService" | "grpc.health.v1.Health")
}

fn serving(shard: &Shard) -> i32 {
    if own::problem(shard).is_none() { SERVING } else { NOT_SERVING }
}

/// What those who watch have been told.
struct Watching {
    shard: Arc<Shard>,
    known: bool,
    told: Option<i32>,
    terms: Terms,
    over: bool,
}

/// The state now and after each change, until the router drains.
fn watch(shard: &Arc<Shard>, service: &str, terms: &Terms) -> Forwarded {
    let watching = Watching {
        shard: Arc::clone(shard),
        known: is_known(service),
        told: None,
        terms: terms.clone(),
        over: false,
    };
    many(stream::unfold(watching, |mut watching| async move {
        let frame = watching.next().await?;
        Some((frame, watching))
    }))
}

impl Watching {
    async fn next(&mut self) -> Option<Frame<Bytes>> {
        loop {
            if self.over {
                return None;
            }
            let state = if self.known { serving(&self.shard) } else { SERVICE_UNKNOWN };
            if self.told.replace(state) != Some(state) {
                let message = HealthCheckResponse { status: state };
                return Some(Frame::data(frame(&message.encode_to_vec())));
            }
            let late = sleep_until(self.terms.until.into());
            let draining = tokio::select! {
                biased;
                // It has been told that nothing is served any more, unless that is just happening.
                () = self.shard.tasks.drain_started(), if self.told != Some(SERVING) => true,
                () = self.shard.tasks.drain_started(), if self.told == Some(SERVING) => continue,
                () = late => {
                    self.over = true;
                    let late = self.terms.late().to_string();
                    return Some(Frame::trailers(trailers(Code::DeadlineExceeded, &late)));
                }
                () = sleep_until(Instant::now() + LOOK) => false,
            };
            if draining {
                self.over = true;
                return Some(Frame::trailers(trailers(Code::Unavailable, "draining")));
            }
        }
    }
}
