//! Dividing a model between sites: ONNX graph surgery, bundles and their manifests, the codec of
//! what crosses the wire, early exits, preprocessing and labelled samples. It must not know of
//! HTTP, queues or placement, and it runs models only through `midspan_runtime`.

#[cfg(feature = "tools")]
pub mod answers;
pub mod bundle;
#[cfg(feature = "tools")]
pub mod calibrate;
#[cfg(feature = "tools")]
pub mod candidate;
pub mod codec;
#[cfg(feature = "tools")]
mod compress;
pub mod cut;
pub mod digest;
pub mod exit;
#[cfg(feature = "tools")]
pub mod exits;
#[cfg(feature = "tools")]
pub mod fidelity;
mod head;
#[cfg(feature = "tools")]
pub mod inspect;
pub mod labelled;
pub mod make;
pub mod manifest;
pub mod onnx;
#[cfg(feature = "tools")]
pub mod plan;
pub mod preprocess;
#[cfg(feature = "tools")]
pub mod profile;
#[cfg(feature = "tools")]
pub mod quantise;
mod resize;
pub mod rewrite;
#[cfg(feature = "tools")]
pub mod samples;
#[cfg(feature = "tools")]
pub mod scale;
pub mod sign;
pub mod spec;
#[cfg(feature = "tools")]
pub mod stats;
pub mod verify;
pub mod weights;

pub use bundle::{Bundle, BundleError};
pub use codec::{Codec, CodecError, Coding, Frame, FrameHeader, Precision, encode, encode_as};
pub use digest::{Digest, SplitId};
pub use exit::{ExitDecision, ExitRule};
pub use labelled::Labelled;
pub use manifest::Manifest;
