//! Which method a gRPC path names, and which fields of its first message say the model. The field
//! numbers are the protocol's; nothing here reads a message.

/// Path prefix of the inference service.
pub const INFERENCE: &str = "/inference.GRPCInferenceService/";
/// Path prefix of the standard health service.
pub const HEALTH: &str = "/grpc.health.v1.Health/";

/// A method that Midspan offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcMethod {
    /// Liveness.
    ServerLive,
    /// Readiness.
    ServerReady,
    /// Server metadata.
    ServerMetadata,
    /// Whether a model can be inferred now.
    ModelReady,
    /// A model's metadata.
    ModelMetadata,
    /// One inference.
    ModelInfer,
    /// Inferences in both directions of one stream.
    ModelStreamInfer,
    /// A model's configuration.
    ModelConfig,
    /// Statistics of one model, or of all.
    ModelStatistics,
    /// The repository's index.
    RepositoryIndex,
    /// Loading a model, or loading it anew.
    RepositoryModelLoad,
    /// Taking a model out of service.
    RepositoryModelUnload,
    /// State of shared memory regions of either kind: none.
    SharedMemoryStatus,
    /// `grpc.health.v1`: one answer.
    HealthCheck,
    /// `grpc.health.v1`: an answer at each change.
    HealthWatch,
}

/// Numbers of the string fields that name a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameFields {
    /// The model's name.
    pub name: u32,
    /// Its version, where the message has one.
    pub version: Option<u32>,
    /// Whether a message without a name means all models.
    pub optional: bool,
}

impl GrpcMethod {
    /// The method at a path; `None` for one that is not offered.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        if let Some(method) = path.strip_prefix(HEALTH) {
            return match method {
                "Check" => Some(Self::HealthCheck),
                "Watch" => Some(Self::HealthWatch),
                _ => None,
            };
        }
        Some(match path.strip_prefix(INFERENCE)? {
            "ServerLive" => Self::ServerLive,
            "ServerReady" => Self::ServerReady,
            "ServerMetadata" => Self::ServerMetadata,
            "ModelReady" => Self::ModelReady,
            "ModelMetadata" => Self::ModelMetadata,
            "ModelInfer" => Self::ModelInfer,
            "ModelStreamInfer" => Self::ModelStreamInfer,
            "ModelConfig" => Self::ModelConfig,
            "ModelStatistics" => Self::ModelStatistics,
            "RepositoryIndex" => Self::RepositoryIndex,
            "RepositoryModelLoad" => Self::RepositoryModelLoad,
            "RepositoryModelUnload" => Self::RepositoryModelUnload,
            "SystemSharedMemoryStatus" | "CudaSharedMemoryStatus" => Self::SharedMemoryStatus,
            _ => return None,
        })
    }

    /// Where the method's first message names its model; `None` for a method about no model.
    #[must_use]
    pub fn fields(self) -> Option<NameFields> {
        let fields = |name, version| NameFields { name, version, optional: false };
        match self {
            Self::ModelReady
            | Self::ModelMetadata
            | Self::ModelInfer
            | Self::ModelStreamInfer
            | Self::ModelConfig => Some(fields(1, Some(2))),
            Self::ModelStatistics => Some(NameFields { optional: true, ..fields(1, Some(2)) }),
            // Field 1 is the repository's name.
            Self::RepositoryModelLoad | Self::RepositoryModelUnload => Some(fields(2, None)),
            Self::ServerLive
            | Self::ServerReady
            | Self::ServerMetadata
            | Self::RepositoryIndex
            | Self::SharedMemoryStatus
            | Self::HealthCheck
            | Self::HealthWatch => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_exact() {
        let parse = GrpcMethod::parse;
        assert_eq!(
            parse("/inference.GRPCInferenceService/ModelInfer"),
            Some(GrpcMethod::ModelInfer)
        );
        assert_eq!(parse("/grpc.health.v1.Health/Watch"), Some(GrpcMethod::HealthWatch));
        for none in [
            "",
            "/",
            "/inference.GRPCInferenceService/",
            "/inference.GRPCInferenceService/modelInfer",
            "/inference.GRPCInferenceService/ModelInfer/",
            "/inference.GRPCInferenceService/TraceSetting",
            "/grpc.health.v1.Health/ModelInfer",
            "/inference.GRPCInferenceService/Check",
        ] {
            assert_eq!(parse(none), None, "{none}");
        }
    }

    #[test]
    fn a_load_names_its_model_in_the_second_field() {
        let fields = |method: GrpcMethod| method.fields().map(|f| (f.name, f.version));
        assert_eq!(fields(GrpcMethod::RepositoryModelLoad), Some((2, None)));
        assert_eq!(fields(GrpcMethod::ModelStreamInfer), Some((1, Some(2))));
        assert_eq!(fields(GrpcMethod::HealthCheck), None);
    }
}
