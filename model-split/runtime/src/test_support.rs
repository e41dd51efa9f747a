//! Help for tests, here and in other crates, that need a real library. Not for production: it
//! panics when there is none and none can be installed.

use std::path::PathBuf;

use crate::{install, library};

/// The library's file, opened; installed first where a machine has none.
///
/// # Panics
/// When it can be neither found nor installed nor opened.
#[expect(clippy::expect_used, reason = "tests cannot go on without the library")]
pub fn library() -> PathBuf {
    if let Some(path) = library::opened_path() {
        return path.to_owned();
    }
    let path = match library::find() {
        Ok(path) => path,
        Err(library::LibraryError::NotFound { .. }) => {
            install::install(&mut |_| {}).expect("ONNX Runtime can be installed")
        }
        Err(error) => panic!("ONNX Runtime can be found: {error}"),
    };
    library::open(&path).expect("ONNX Runtime can be opened");
    path
}
