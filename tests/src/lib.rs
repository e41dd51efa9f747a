//! What the system tests share: the functions behind the fuzz targets, the metrics page and the
//! view of the repository that the tidy checks judge. It must not hold checks of its own: those
//! are in `tests/it`.

pub mod fuzz;
pub mod metrics;
pub mod onnx_models;
pub mod repo;
