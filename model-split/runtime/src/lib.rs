//! ONNX Runtime behind the [`Executor`] trait: this crate finds, opens and installs the shared
//! library, and it is the only one that names `ort`. It must not know of bundles, cuts, exits,
//! queues or the network: tensors in, tensors out.

pub mod executor;
pub mod fake;
pub mod install;
pub mod library;
pub mod pool;
pub mod session;
pub mod tensor;
#[doc(hidden)]
pub mod test_support;

pub use executor::{Executor, RunError};
pub use fake::Scripted;
pub use install::{InstallError, Progress, install};
pub use library::LibraryError;
pub use pool::SessionPool;
pub use session::{LoadError, Optimisation, Prepacked, Session, SessionOptions};
pub use tensor::{Dim, ElementType, Tensor, TensorError, TensorRef, TensorSpec};
