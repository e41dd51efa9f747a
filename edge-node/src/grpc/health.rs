//! gRPC's common health service: the node serves until it drains. Models are not services here;
//! ModelReady tells of them.

use futures_util::{FutureExt, StreamExt, stream};
use midspan_net::Tasks;
use midspan_protocol::grpc::health::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_server::Health as HealthService,
};
use tonic::{Request, Response, Status};

/// What can be asked about: the server as a whole, and the services that it has.
const SERVICES: [&str; 3] = ["", "inference.GRPCInferenceService", "grpc.health.v1.Health"];

/// Health of a node.
pub(super) struct Health {
    tasks: Tasks,
}

impl Health {
    pub(super) fn new(tasks: Tasks) -> Self {
        Self { tasks }
    }

    fn state(&self) -> ServingStatus {
        if self.tasks.is_draining() { ServingStatus::NotServing } else { ServingStatus::Serving }
    }
}

#[tonic::async_trait]
impl HealthService for Health {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let HealthCheckRequest { service } = request.into_inner();
        if !SERVICES.contains(&service.as_str()) {
            let service: String = service.chars().take(128).collect();
            return Err(Status::not_found(format!("no such service: '{service}'")));
        }
        Ok(Response::new(answer(self.state())))
    }

    type WatchStream = stream::BoxStream<'static, Result<HealthCheckResponse, Status>>;

    /// The state now and, once the node drains, the last one: a watch must not hold up the drain.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let known = SERVICES.contains(&request.get_ref().service.as_str());
        let now = if known { self.state() } else { ServingStatus::ServiceUnknown };
        let now = stream::iter([Ok(answer(now))]);
        let tasks = self.tasks.clone();
        let last = async move {
            tasks.drain_started().await;
            match known {
                true => Ok(answer(ServingStatus::NotServing)),
                false => Err(Status::unavailable("this node is draining")),
            }
        };
        Ok(Response::new(now.chain(last.into_stream()).boxed()))
    }
}

fn answer(state: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: state.into() }
}
