//! Opening what a command line names.

use std::path::{Path, PathBuf};

use midspan_split::Bundle;

/// A bundle's folder, or the embedded one.
pub(crate) fn bundle(folder: Option<&PathBuf>) -> anyhow::Result<Bundle> {
    Ok(match folder {
        Some(folder) => Bundle::open(folder)?,
        None => Bundle::embedded()?,
    })
}

/// Refuses to write over what is read.
#[cfg(feature = "split")]
pub(crate) fn refuse_same(read: &Path, out: &Path) -> anyhow::Result<()> {
    let same = match (read.canonicalize(), out.canonicalize()) {
        (Ok(read), Ok(out)) => read == out,
        _ => false,
    };
    anyhow::ensure!(!same, "{} is what is read: it is not written over", out.display());
    Ok(())
}
