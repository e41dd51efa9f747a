//! Is the split model still the whole one? Runs both on samples and reports how far their answers
//! differ, as they are and when what crosses is quantised. It reports; it does not judge.

mod chain;
#[cfg(feature = "tools")]
pub mod compare;
#[cfg(feature = "tools")]
pub mod diverge;
#[cfg(feature = "tools")]
pub mod halves;
#[cfg(feature = "tools")]
pub mod model;
#[cfg(feature = "tools")]
mod stages;
#[cfg(all(test, feature = "tools"))]
mod test_models;
#[cfg(feature = "tools")]
mod wire;

pub(crate) use chain::{Chain, ChainError};
#[cfg(feature = "tools")]
pub use stages::{Accuracy, StageCut, VerifyError, VerifyReport, verify};
