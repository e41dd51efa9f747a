//! The protocol over gRPC, on the same port as REST: which requests are calls, what their head
//! asks for, and how they are counted. What a call means is in [`inference`], [`stream`] and
//! [`health`]; how a failure looks is in [`status`].

mod health;
mod inference;
mod status;
mod stream;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderValue, Method, Request, Response, Version, header};
use hyper::body::Incoming;
use midspan_net::{Body, Peer, body::boxed};
use midspan_protocol::{
    RouteFault,
    grpc::{
        health::health_server::HealthServer,
        inference::grpc_inference_service_server::GrpcInferenceServiceServer, timeout::timeout,
    },
};
use tokio::time::timeout_at;
use tonic::codegen::{CompressionEncoding, Service as _};

use self::{
    health::Health,
    inference::Inference,
    status::{Answer, outcome, status},
};
use crate::{Node, error::NodeError, infer::Terms, listen, respond};

const INFERENCE: &str = "/inference.GRPCInferenceService/";
const HEALTH: &str = "/grpc.health.v1.Health/";

/// The services of a node; cheap to clone.
#[derive(Clone)]
pub(crate) struct Services {
    inference: GrpcInferenceServiceServer<Inference>,
    health: HealthServer<Health>,
}

/// What a call's head asks for; goes with the request to the service.
#[derive(Clone, Debug)]
struct Call {
    terms: Terms,
    /// Time for each request of a stream, from when it is read.
    span: Duration,
    /// End of a stream, when the call states one.
    end: Option<Instant>,
    /// Who sent it, for the load report.
    router: Option<Arc<str>>,
}

impl Services {
    pub(crate) fn new(node: &Arc<Node>) -> Self {
        let limit = node.config.limits.body.as_usize();
        let inference = GrpcInferenceServiceServer::new(Inference::new(Arc::clone(node)))
            .max_decoding_message_size(limit)
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Deflate)
            .send_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Deflate);
        let health = HealthServer::new(Health::new(node.tasks.clone()))
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Deflate);
        Self { inference, health }
    }

    /// Answers a call.
    ///
    /// # Errors
    /// What is no gRPC call although it says so. All other failures are answers: a status.
    pub(crate) async fn answer(
        &self,
        node: &Arc<Node>,
        request: Request<Incoming>,
        peer: Peer,
        router: Option<&str>,
        started: Instant,
    ) -> Result<Response<Body>, NodeError> {
        check(&request)?;
        let infers = request.uri().path().strip_prefix(INFERENCE) == Some("ModelInfer");
        let _in_flight = infers.then(|| node.load.enter(router));
        let response = self.call(node, request, peer, router, started).await;
        let response = response.unwrap_or_else(|error| status(&error).into_http());
        if infers {
            respond::count(outcome(response.headers()));
        }
        Ok(response.map(boxed))
    }

    async fn call(
        &self,
        node: &Arc<Node>,
        mut request: Request<Incoming>,
        peer: Peer,
        router: Option<&str>,
        started: Instant,
    ) -> Result<Answer, NodeError> {
        let path = request.uri().path().to_owned();
        let streams = path.ends_with("/ModelStreamInfer") || path.ends_with("/Watch");
        let map = request.headers_mut();
        compress_in_kind(map);
        let stated = timeout(map).map_err(NodeError::BadRequest)?;
        // On a stream `grpc-timeout` is for all of it, not for each request.
        let terms = listen::terms(map, stated.filter(|_| !streams), &node.config, peer, started)?;
        let until = terms.until;
        let span = until.saturating_duration_since(started);
        let end = stated.and_then(|stated| started.checked_add(stated));
        let router = router.map(Arc::from);
        request.extensions_mut().insert(Call { terms, span, end, router });
        let serving = if path.starts_with(INFERENCE) {
            self.inference.clone().call(request)
        } else if path.starts_with(HEALTH) {
            self.health.clone().call(request)
        } else {
            return Ok(status::no_such_method(&path));
        };
        let served = if streams {
            serving.await
        } else {
            timeout_at(until.into(), serving).await.map_err(|_elapsed| NodeError::Deadline)?
        };
        let Ok(response) = served;
        Ok(status::named(response, &path))
    }
}

/// Whether a request is meant as a gRPC call.
pub(crate) fn is_call<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    let media_type = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    path.starts_with(INFERENCE)
        || path.starts_with(HEALTH)
        || media_type.is_some_and(|value| value.starts_with(b"application/grpc"))
}

fn check<B>(request: &Request<B>) -> Result<(), NodeError> {
    if request.method() != Method::POST {
        let path = request.uri().path().chars().take(256).collect();
        return Err(RouteFault::Method { path, allow: "POST" }.into());
    }
    if request.version() != Version::HTTP_2 {
        return Err(NodeError::MediaType("gRPC is served over HTTP/2 only"));
    }
    let media_type = request.headers().get(header::CONTENT_TYPE);
    let media_type = media_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    match essence {
        "application/grpc" | "application/grpc+proto" => Ok(()),
        _ => Err(NodeError::MediaType("a gRPC call has content-type application/grpc")),
    }
}

/// An answer is compressed like the request or not at all. That a client could decode a coding
/// says nothing of whether it wants the time spent: most libraries list all that they know.
fn compress_in_kind(map: &mut HeaderMap) {
    const ENCODING: &str = "grpc-encoding";
    const ACCEPT: &str = "grpc-accept-encoding";
    let own = map.get(ENCODING).cloned();
    let accepted = map.remove(ACCEPT);
    let (Some(own), Some(accepted)) = (own, accepted) else { return };
    let listed = accepted.to_str().unwrap_or_default().split(',').map(str::trim);
    if listed.map(str::as_bytes).any(|listed| listed == own.as_bytes()) {
        map.insert(ACCEPT, own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(version: Version, method: Method, media_type: &'static str) -> Request<()> {
        let request = Request::builder().version(version).method(method);
        let request = request.uri("/inference.GRPCInferenceService/ModelInfer");
        request.header(header::CONTENT_TYPE, media_type).body(()).unwrap()
    }

    #[test]
    fn calls_are_told_from_other_requests() {
        for media_type in
            ["application/grpc", "application/grpc+proto", "application/grpc ; charset=x"]
        {
            let request = request(Version::HTTP_2, Method::POST, media_type);
            assert!(is_call(&request) && check(&request).is_ok(), "{media_type}");
        }
        for (version, method, media_type, status) in [
            (Version::HTTP_11, Method::POST, "application/grpc", 415),
            (Version::HTTP_2, Method::GET, "application/grpc", 405),
            (Version::HTTP_2, Method::POST, "application/grpc-web+proto", 415),
            (Version::HTTP_2, Method::POST, "application/grpc+json", 415),
            (Version::HTTP_2, Method::POST, "application/json", 415),
        ] {
            let request = request(version, method, media_type);
            assert!(is_call(&request), "the path alone says so");
            assert_eq!(check(&request).unwrap_err().status(), status, "{media_type}");
        }
        let rest = Request::builder().uri("/v2/models/m/infer").body(()).unwrap();
        assert!(!is_call(&rest));
    }

    #[test]
    fn answers_are_compressed_in_kind_only() {
        for (encoding, accepts, left) in [
            (None, Some("gzip"), None),
            (Some("gzip"), Some("identity, deflate, gzip"), Some("gzip")),
            (Some("deflate"), Some("deflate,gzip"), Some("deflate")),
            (Some("gzip"), Some("identity"), None),
            (Some("gzip"), None, None),
            (None, None, None),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in [("grpc-encoding", encoding), ("grpc-accept-encoding", accepts)] {
                if let Some(value) = value {
                    map.insert(name, HeaderValue::from_static(value));
                }
            }
            compress_in_kind(&mut map);
            let accepts = map.get("grpc-accept-encoding").map(|value| value.to_str().unwrap());
            assert_eq!(accepts, left, "{encoding:?} {accepts:?}");
        }
    }
}
