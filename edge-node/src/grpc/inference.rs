//! The inference service: each method asks what REST asks too and answers with the protocol's
//! gRPC messages.

use std::{collections::HashMap, sync::Arc};

use futures_util::stream::BoxStream;
use http::{HeaderMap, StatusCode};
use midspan_net::reply;
use midspan_protocol::grpc::{
    convert,
    inference::{
        CudaSharedMemoryStatusRequest, CudaSharedMemoryStatusResponse, ModelConfigRequest,
        ModelConfigResponse, ModelInferRequest, ModelInferResponse, ModelMetadataRequest,
        ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse, ModelRepositoryParameter,
        ModelStatisticsRequest, ModelStatisticsResponse, ModelStreamInferResponse,
        RepositoryIndexRequest, RepositoryIndexResponse, RepositoryModelLoadRequest,
        RepositoryModelLoadResponse, RepositoryModelUnloadRequest, RepositoryModelUnloadResponse,
        ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest, ServerMetadataResponse,
        ServerReadyRequest, ServerReadyResponse, SystemSharedMemoryStatusRequest,
        SystemSharedMemoryStatusResponse, grpc_inference_service_server::GrpcInferenceService,
    },
};
use tonic::{Request, Response, Status, Streaming, metadata::MetadataMap};

use super::{Call, status::status, stream};
use crate::{
    Node,
    control::{self, Change},
    describe,
    error::NodeError,
    infer::Terms,
    listen, message, own, respond, statistics,
};

/// The inference service of a node.
pub(super) struct Inference {
    node: Arc<Node>,
}

impl Inference {
    pub(super) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    /// The state of a model changes.
    async fn change(
        &self,
        name: &str,
        change: Change,
        parameters: &HashMap<String, ModelRepositoryParameter>,
    ) -> Result<(), Status> {
        let model = convert::model(name, "");
        let outcome = async {
            control::allowed(&self.node, &model)?;
            let parameters = convert::repository_parameters(parameters)?;
            control::change(&self.node, &model, change, &parameters).await
        };
        outcome.await.map_err(|error| status(&error))
    }
}

/// Answers one inference message; the headers say where and how well, as over REST.
pub(super) async fn infer(
    node: &Arc<Node>,
    terms: &Terms,
    message: ModelInferRequest,
) -> Result<(ModelInferResponse, HeaderMap), NodeError> {
    let model = message.model();
    listen::obey(terms, &model, &node.config)?;
    node.repository.get(&model)?;
    let request = message.into_request()?;
    let answered = message::answer(node, &model, &request, terms).await?;
    let headers = respond::annotate(node, &answered);
    Ok((answered.message.into(), headers))
}

/// What the call's head asked for.
fn call<T>(request: &Request<T>) -> Result<Call, Status> {
    let call = request.extensions().get::<Call>().cloned();
    call.ok_or_else(|| Status::internal("the call's head was not read"))
}

#[tonic::async_trait]
impl GrpcInferenceService for Inference {
    async fn server_live(
        &self,
        _: Request<ServerLiveRequest>,
    ) -> Result<Response<ServerLiveResponse>, Status> {
        Ok(Response::new(ServerLiveResponse { live: true }))
    }

    async fn server_ready(
        &self,
        _: Request<ServerReadyRequest>,
    ) -> Result<Response<ServerReadyResponse>, Status> {
        Ok(Response::new(ServerReadyResponse { ready: own::not_ready(&self.node).is_none() }))
    }

    async fn model_ready(
        &self,
        request: Request<ModelReadyRequest>,
    ) -> Result<Response<ModelReadyResponse>, Status> {
        let ModelReadyRequest { name, version } = request.get_ref();
        let ready = match self.node.repository.get(&convert::model(name, version)) {
            Ok(_) => true,
            // Known, but it cannot be asked now: that is the answer, not a failure.
            Err(error) if error.status() == StatusCode::SERVICE_UNAVAILABLE => false,
            Err(error) => return Err(status(&error)),
        };
        Ok(Response::new(ModelReadyResponse { ready }))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        Ok(Response::new(reply::metadata(env!("CARGO_PKG_VERSION")).into()))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        let ModelMetadataRequest { name, version } = request.get_ref();
        let repository = &self.node.repository;
        let model = repository.get(&convert::model(name, version));
        let model = model.map_err(|error| status(&error))?;
        Ok(Response::new(repository.metadata(&model).into()))
    }

    async fn model_infer(
        &self,
        request: Request<ModelInferRequest>,
    ) -> Result<Response<ModelInferResponse>, Status> {
        let call = call(&request)?;
        let answer = infer(&self.node, &call.terms, request.into_inner()).await;
        let (message, headers) = answer.map_err(|error| status(&error))?;
        let mut response = Response::new(message);
        *response.metadata_mut() = MetadataMap::from_headers(headers);
        Ok(response)
    }

    type ModelStreamInferStream = BoxStream<'static, Result<ModelStreamInferResponse, Status>>;

    async fn model_stream_infer(
        &self,
        request: Request<Streaming<ModelInferRequest>>,
    ) -> Result<Response<Self::ModelStreamInferStream>, Status> {
        let call = call(&request)?;
        let ends = request.metadata().get(stream::ENDS_ON_ERROR);
        let ends = ends.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"));
        let node = Arc::clone(&self.node);
        Ok(Response::new(stream::answers(node, call, request.into_inner(), ends)))
    }

    async fn repository_index(
        &self,
        request: Request<RepositoryIndexRequest>,
    ) -> Result<Response<RepositoryIndexResponse>, Status> {
        let mut entries = self.node.repository.index();
        if request.get_ref().ready {
            entries.retain(|entry| entry.state == "READY");
        }
        Ok(Response::new(entries.into()))
    }

    async fn model_config(
        &self,
        request: Request<ModelConfigRequest>,
    ) -> Result<Response<ModelConfigResponse>, Status> {
        let ModelConfigRequest { name, version } = request.get_ref();
        let model = self.node.repository.get(&convert::model(name, version));
        let model = model.map_err(|error| status(&error))?;
        let config = describe::config(&model, self.node.config.limits.body.as_usize());
        Ok(Response::new(config.into()))
    }

    async fn model_statistics(
        &self,
        request: Request<ModelStatisticsRequest>,
    ) -> Result<Response<ModelStatisticsResponse>, Status> {
        let ModelStatisticsRequest { name, version } = request.get_ref();
        let repository = &self.node.repository;
        let counted = if name.is_empty() {
            statistics::all(repository)
        } else {
            let models = repository.versions(&convert::model(name, version));
            statistics::of(&models.map_err(|error| status(&error))?)
        };
        Ok(Response::new(counted.into()))
    }

    async fn repository_model_load(
        &self,
        request: Request<RepositoryModelLoadRequest>,
    ) -> Result<Response<RepositoryModelLoadResponse>, Status> {
        let request = request.get_ref();
        self.change(&request.model_name, Change::Load, &request.parameters).await?;
        Ok(Response::new(RepositoryModelLoadResponse::default()))
    }

    async fn repository_model_unload(
        &self,
        request: Request<RepositoryModelUnloadRequest>,
    ) -> Result<Response<RepositoryModelUnloadResponse>, Status> {
        let request = request.get_ref();
        self.change(&request.model_name, Change::Unload, &request.parameters).await?;
        Ok(Response::new(RepositoryModelUnloadResponse::default()))
    }

    async fn system_shared_memory_status(
        &self,
        _: Request<SystemSharedMemoryStatusRequest>,
    ) -> Result<Response<SystemSharedMemoryStatusResponse>, Status> {
        Ok(Response::new(SystemSharedMemoryStatusResponse::default()))
    }

    async fn cuda_shared_memory_status(
        &self,
        _: Request<CudaSharedMemoryStatusRequest>,
    ) -> Result<Response<CudaSharedMemoryStatusResponse>, Status> {
        Ok(Response::new(CudaSharedMemoryStatusResponse::default()))
    }
}
