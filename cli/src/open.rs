//! Opening what a command line names.

use std::path::PathBuf;

use midspan_split::Bundle;

/// A bundle's folder, or the embedded one.
pub(crate) fn bundle(folder: Option<&PathBuf>) -> anyhow::Result<Bundle> {
    Ok(match folder {
        Some(folder) => Bundle::open(folder)?,
        None => Bundle::embedded()?,
    })
}
