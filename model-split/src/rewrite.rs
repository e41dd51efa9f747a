//! Writing a bundle: into a new folder beside the wanted one, which takes its place when all is
//! there, so that nobody ever opens half a bundle. Certificates that do not hold for what is written
//! are left out. It must not decide what changes: that is in the manifest that it is given.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::bundle::{BLOBS, Bundle, BundleError, MANIFEST};
use crate::digest::Digest;
use crate::manifest::{Certificate, Manifest, ManifestError, PLAIN};
use crate::sign::SIGNATURE;

/// Why a bundle was not written.
#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
    /// The manifest makes no sense.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A blob of the old bundle cannot be read, or the new bundle not opened.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A new blob is not what its name says.
    #[error("a new blob is named {name}, but its sha256 is {got}")]
    Hash {
        /// The name.
        name: Digest,
        /// Digest of its content.
        got: Digest,
    },
    /// The folder exists and is no bundle.
    #[error("{} exists and holds more than a bundle, or none: it is not replaced", .0.display())]
    Occupied(PathBuf),
    /// The file system said no.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl Fn(io::Error) -> RewriteError + 'a {
    move |source| RewriteError::Io { doing, path: path.to_owned(), source }
}

/// Writes the folder `out`: the manifest, without those of its certificates that do not hold for
/// it, and every blob that it names, out of `blobs` or else of `bundle`. A bundle that `out` holds
/// is replaced, also when it is `bundle` itself. Returns what was written, opened.
///
/// # Errors
/// [`RewriteError`]; `out` is as it was then.
pub fn rewrite(
    bundle: &Bundle,
    mut manifest: Manifest,
    blobs: BTreeMap<Digest, Vec<u8>>,
    out: &Path,
) -> Result<Bundle, RewriteError> {
    let held = std::mem::take(&mut manifest.certificates);
    let held = held.into_iter().filter(|found| holds(found, bundle.manifest(), &manifest));
    manifest.certificates = held.collect();
    manifest.validate()?;
    let fresh = Fresh::beside(out)?;
    fresh.write(MANIFEST, &manifest.to_json()?)?;
    // The new folder knows which blobs its manifest names.
    for (key, name) in Bundle::open(fresh.folder())?.blobs() {
        match blobs.get(&name) {
            Some(bytes) if Digest::of(bytes) == name => fresh.blob(name, bytes)?,
            Some(bytes) => return Err(RewriteError::Hash { name, got: Digest::of(bytes) }),
            None => fresh.blob(name, &bundle.blob(name, &key)?)?,
        }
    }
    fresh.take_place(out)?;
    Ok(Bundle::open(out)?)
}

/// Whether a certificate says something of what a node would run by `new`: it names a cut of it as
/// it is, and if it was measured on `old`, the graphs in front of that cut are still the same. (The
/// split id and the heads say what is behind the cut and what exits compute.)
fn holds(certificate: &Certificate, old: &Manifest, new: &Manifest) -> bool {
    let measured_before = old.certificates.contains(certificate);
    (0..new.stages.len()).any(|cut| {
        let front = front(new, cut, &certificate.variant);
        new.split_id(cut) == Some(certificate.split_id)
            && new.heads(cut) == certificate.heads
            && new.thresholds_milli(cut) == certificate.thresholds_milli
            && front.is_some()
            && (!measured_before || front == self::front(old, cut, &certificate.variant))
    })
}

/// Graphs and weights that run up to a cut; none when no stage there has the variant.
fn front(manifest: &Manifest, cut: usize, variant: &str) -> Option<Vec<(Digest, Digest)>> {
    let stages = manifest.stages.get(..=cut)?;
    let named = |stage: &crate::manifest::Stage| {
        let found = stage.variants.iter().find(|found| found.name == variant);
        found.map(|found| (found.graph, found.weights))
    };
    let known = variant == PLAIN || stages.iter().any(|stage| named(stage).is_some());
    let runs = stages.iter().map(|stage| named(stage).unwrap_or((stage.graph, stage.weights)));
    known.then(|| runs.collect())
}

/// A folder that is being filled, beside the one whose place it will take. Dropped before that, it
/// leaves nothing behind.
pub(crate) struct Fresh {
    scratch: tempfile::TempDir,
    folder: PathBuf,
}

impl Fresh {
    /// An empty folder of a bundle. Refuses when `out` holds something that is none.
    pub(crate) fn beside(out: &Path) -> Result<Self, RewriteError> {
        refuse_occupied(out)?;
        let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(failed("create", parent))?;
        let scratch = tempfile::Builder::new()
            .prefix(".bundle-")
            .tempdir_in(parent)
            .map_err(failed("create a folder in", parent))?;
        let folder = scratch.path().join("new");
        let blobs = folder.join(BLOBS);
        fs::create_dir_all(&blobs).map_err(failed("create", &blobs))?;
        Ok(Self { scratch, folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), RewriteError> {
        let path = self.folder.join(name);
        fs::write(&path, bytes).map_err(failed("write", &path))
    }

    pub(crate) fn blob(&self, name: Digest, bytes: &[u8]) -> Result<(), RewriteError> {
        self.write(&format!("{BLOBS}/{name}"), bytes)
    }

    /// Puts the folder where `out` is. What was there comes back if that fails.
    pub(crate) fn take_place(self, out: &Path) -> Result<(), RewriteError> {
        let old = self.scratch.path().join("old");
        let replaced = out.exists();
        if replaced {
            fs::rename(out, &old).map_err(failed("replace", out))?;
        }
        fs::rename(&self.folder, out).map_err(|source| {
            let restored = !replaced || fs::rename(&old, out).is_ok();
            let doing = if restored { "write" } else { "write, or restore" };
            failed(doing, out)(source)
        })
    }
}

/// Refuses a folder that holds anything but a bundle: what else were in it would be lost.
pub(crate) fn refuse_occupied(out: &Path) -> Result<(), RewriteError> {
    if !out.exists() {
        return Ok(());
    }
    let parts = [MANIFEST, SIGNATURE, BLOBS];
    let names = fs::read_dir(out).map_err(failed("look into", out))?;
    let names: Vec<_> = names.flatten().map(|entry| entry.file_name()).collect();
    let known = names.iter().all(|name| parts.iter().any(|part| name == part));
    if names.is_empty() || (known && Bundle::open(out).is_ok()) {
        return Ok(());
    }
    Err(RewriteError::Occupied(out.to_owned()))
}

#[cfg(test)]
mod tests;
