//! Dividing a model between sites: ONNX graph surgery, bundles and their manifests, the codec of
//! what crosses the wire, early exits, preprocessing and labelled samples. It must not know of
//! HTTP, queues or placement, and it runs models only through `midspan_runtime`.

pub mod bundle;
#[cfg(feature = "tools")]
pub mod candidate;
pub mod codec;
pub mod cut;
pub mod digest;
pub mod exit;
mod head;
pub mod labelled;
pub mod make;
pub mod manifest;
pub mod onnx;
pub mod preprocess;
mod resize;
#[cfg(feature = "tools")]
pub mod samples;
pub mod spec;
#[cfg(feature = "tools")]
pub mod stats;
pub mod verify;
pub mod weights;

pub use bundle::{Bundle, BundleError};
pub use codec::{Codec, CodecError, Frame, FrameHeader, Precision, encode};
pub use digest::{Digest, SplitId};
pub use exit::{ExitDecision, ExitRule};
pub use labelled::Labelled;
pub use manifest::Manifest;
