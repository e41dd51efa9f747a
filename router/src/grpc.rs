//! gRPC on its way through the router: which calls it answers itself, and for those about a model
//! a look into the first message, then the hops of any other request. Everything that a node says
//! passes through, trailers too; of a message only its model's name is read.

mod first;
mod own;
pub(crate) mod status;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderName, Method, Version, header, request::Parts};
use hyper::body::Incoming;
use midspan_net::Peer;
use midspan_protocol::{
    grpc::{
        inference::ModelStatisticsResponse,
        method::{GrpcMethod, HEALTH, INFERENCE, NameFields},
        peek::{Coding, Peek},
        timeout::timeout,
    },
    headers,
};
use tokio::time::timeout_at;

use crate::{
    admit::{self, Terms},
    config::RawLimits,
    decide::Decided,
    error::RouteError,
    fanout,
    forward::{Errand, Forwarded, Manner},
    listen,
    shard::Shard,
};

/// Bytes before each message: the compressed flag and the length.
pub(crate) const PREFIX: usize = 5;
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// What counts as no deadline: far enough, and still a time that can be computed with.
const EVER: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Whether a request is a call of gRPC.
pub(crate) fn is_grpc(head: &Parts) -> bool {
    let media_type = head.headers.get(header::CONTENT_TYPE).map_or(&b""[..], |v| v.as_bytes());
    let rest = media_type.strip_prefix(b"application/grpc");
    head.version == Version::HTTP_2
        && head.method == Method::POST
        && rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// Whether a path belongs to gRPC.
pub(crate) fn is_path(path: &str) -> bool {
    path.starts_with(INFERENCE) || path.starts_with(HEALTH)
}

/// One call's way through the router.
pub(crate) async fn route(
    shard: &Arc<Shard>,
    head: Parts,
    body: Incoming,
    peer: Peer,
    started: Instant,
    decision: &mut Option<Decided>,
) -> Result<Forwarded, RouteError> {
    let path = head.uri.path();
    let method = GrpcMethod::parse(path)
        .ok_or_else(|| RouteError::Unimplemented(path.chars().take(256).collect()))?;
    let limits = &shard.config.limits;
    let terms = terms(&head.headers, method, limits, started)?;
    let coding = head.headers.get(GRPC_ENCODING).and_then(|value| value.to_str().ok());
    let coding = Coding::parse(coding);
    match method.fields() {
        None => own::answer(shard, method, &coding, body, &terms).await,
        Some(fields) => {
            let call = Call { method, fields, coding, terms, peer };
            call.send(shard, head, body, decision).await
        }
    }
}

/// A call about a model.
struct Call {
    method: GrpcMethod,
    fields: NameFields,
    coding: Coding,
    terms: Terms,
    peer: Peer,
}

impl Call {
    async fn send(
        self,
        shard: &Arc<Shard>,
        head: Parts,
        body: Incoming,
        decision: &mut Option<Decided>,
    ) -> Result<Forwarded, RouteError> {
        let Self { method, fields, coding, terms, peer } = self;
        let limits = &shard.config.limits;
        let stream = method == GrpcMethod::ModelStreamInfer;
        let peek = Peek::new(fields, coding, limits.body.as_usize());
        let idle = Instant::now() + limits.max_deadline.0;
        let until = if stream { terms.until.min(idle) } else { terms.until };
        let reading = first::read(body, peek);
        let read = timeout_at(until.into(), reading).await.map_err(|_| terms.late());
        let (model, body) = read??;
        let manner = if stream { Manner::Stream } else { Manner::Unary };
        let infer = matches!(method, GrpcMethod::ModelInfer | GrpcMethod::ModelStreamInfer);
        let errand = Errand { model: &model, terms: &terms, manner, infer };
        match method {
            GrpcMethod::RepositoryModelLoad | GrpcMethod::RepositoryModelUnload => {
                fanout::control(shard, errand, head, body).await
            }
            GrpcMethod::ModelStatistics => {
                let one = Some(&model).filter(|model| !model.name.is_empty());
                let total = fanout::total(shard, one, &terms).await?;
                Ok(own::one(&ModelStatisticsResponse::from(total)))
            }
            _ => {
                let length = http_body::Body::size_hint(&body).lower();
                listen::send(shard, errand, head, body, length, peer, decision).await
            }
        }
    }
}

/// Until when a call may take: `grpc-timeout` or `midspan-deadline-ms`, whichever is shorter. A
/// stream may have any deadline, or none; what bounds it then is that something moves.
fn terms(
    map: &HeaderMap,
    method: GrpcMethod,
    limits: &RawLimits,
    now: Instant,
) -> Result<Terms, RouteError> {
    let stated = timeout(map).map_err(RouteError::BadRequest)?;
    let ours = headers::deadline_ms(map).map_err(RouteError::BadRequest)?;
    let ours = ours.map(Duration::from_millis);
    let stated = stated.into_iter().chain(ours).min();
    let endless = matches!(method, GrpcMethod::ModelStreamInfer | GrpcMethod::HealthWatch);
    let deadline = match stated {
        Some(stated) if endless => Some(stated.min(EVER)),
        Some(stated) => Some(stated.min(limits.max_deadline.0)),
        None if endless => None,
        None => Some(limits.deadline.0),
    };
    let session = admit::session(map);
    Ok(Terms { until: now + deadline.unwrap_or(EVER), deadline, session })
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    #[test]
    fn calls_are_told_by_version_method_and_media_type() {
        let is = |version: Version, method: &str, media_type: &str| {
            let request = Request::builder().version(version).method(method).uri("/x");
            let request = request.header("content-type", media_type).body(()).unwrap();
            is_grpc(&request.into_parts().0)
        };
        for good in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
            assert!(is(Version::HTTP_2, "POST", good), "{good}");
            assert!(!is(Version::HTTP_11, "POST", good) && !is(Version::HTTP_2, "GET", good));
        }
        for bad in ["", "application/json", "application/grpc-web", "application/grpcx"] {
            assert!(!is(Version::HTTP_2, "POST", bad), "{bad}");
        }
    }

    #[test]
    fn deadlines_of_calls_and_of_streams() {
        let limits = RawLimits::default();
        let deadline = |method, pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            terms(&pairs.collect(), method, &limits, Instant::now()).map(|terms| terms.deadline)
        };
        let (infer, stream) = (GrpcMethod::ModelInfer, GrpcMethod::ModelStreamInfer);
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(deadline(infer, &[]).unwrap(), Some(limits.deadline.0));
        assert_eq!(deadline(stream, &[]).unwrap(), None);
        for (timeout, ours, call, streams) in [
            ("250m", "400", 250, 250),
            ("1S", "400", 400, 400),
            ("2H", "7200001", 60_000, 7_200_000),
            ("99999999H", "18446744073709551615", 60_000, EVER.as_millis() as u64),
            ("0n", "1", 0, 0),
        ] {
            let pairs = [("grpc-timeout", timeout), ("midspan-deadline-ms", ours)];
            assert_eq!(deadline(infer, &pairs).unwrap(), millis(call), "{timeout}");
            assert_eq!(deadline(stream, &pairs).unwrap(), millis(streams), "{timeout}");
        }
        for bad in [("grpc-timeout", "5"), ("midspan-deadline-ms", "0")] {
            let error = deadline(infer, &[bad]).unwrap_err();
            assert_eq!(error.status(), 400, "{error}");
        }
    }
}
