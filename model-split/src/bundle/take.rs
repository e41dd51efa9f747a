//! Copying a part of a bundle: the whole manifest, and only the blobs of the stages that a node
//! runs. A manifest and its signature stay as they are, byte for byte, so that what was signed
//! whole is signed in part.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::{BLOBS, Bundle, BundleError, MANIFEST, Source};
use crate::digest::Digest;
use crate::manifest::PLAIN;
use crate::rewrite::{Fresh, RewriteError};
use crate::sign::SIGNATURE;

/// Which stages are to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The first so many: what an edge node runs.
    First(usize),
    /// All after the first so many.
    After(usize),
}

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Number of different blobs.
    pub blobs: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Number of different blobs that stayed behind.
    pub left: usize,
}

impl Bundle {
    /// Copies the manifest, its signature and the blobs of some stages into the folder `out`, which
    /// is replaced if it holds a bundle. With a variant named, a stage that has it comes in that
    /// variant alone; without, in all. Labelled samples come along where `samples` says so.
    ///
    /// # Errors
    /// When there is no such part or variant, a blob is missing or damaged, or `out` cannot be
    /// written; `out` is as it was then.
    pub fn take(
        &self,
        part: Part,
        variant: Option<&str>,
        samples: bool,
        out: &Path,
    ) -> Result<Taken, RewriteError> {
        let total = self.stages();
        let (range, asked) = match part {
            Part::First(count) => (0..count, count),
            Part::After(count) => (count..total, count),
        };
        if range.is_empty() || range.end > total {
            let missing = BundleError::NoPart {
                key: if matches!(part, Part::First(_)) { "stages" } else { "tail" },
                value: asked.to_string(),
                reason: format!("the bundle has {total} stages"),
            };
            return Err(missing.into());
        }
        if let Some(name) = variant {
            self.check_variant(range.clone(), name)?;
        }
        let mut wanted: Vec<_> = range.flat_map(|stage| self.stage_blobs(stage, variant)).collect();
        if samples {
            wanted.extend(self.sample_blobs());
        }
        let all = |mut digests: Vec<Digest>| {
            digests.sort_unstable();
            digests.dedup();
            digests.len()
        };
        let named = all(self.blobs().into_iter().map(|(_, digest)| digest).collect());
        wanted.sort_by_key(|(_, digest)| *digest);
        wanted.dedup_by_key(|(_, digest)| *digest);
        let signature = self.signature()?;
        let fresh = Fresh::beside(out)?;
        let mut bytes = 0;
        for (key, digest) in &wanted {
            let path = fresh.folder().join(BLOBS).join(digest.to_string());
            bytes += self.copy_blob(*digest, key, &path)?;
        }
        if let Some(signature) = &signature {
            fresh.write(SIGNATURE, signature)?;
        }
        fresh.write(MANIFEST, &self.json)?;
        fresh.take_place(out)?;
        Ok(Taken { blobs: wanted.len(), bytes, left: named.saturating_sub(wanted.len()) })
    }

    /// Whether one of these stages has the variant; all have [`PLAIN`].
    ///
    /// # Errors
    /// When none has, naming those there are.
    pub fn check_variant(
        &self,
        stages: std::ops::Range<usize>,
        name: &str,
    ) -> Result<(), BundleError> {
        let variants = |stage: usize| self.manifest.stages.get(stage).map(|stage| &stage.variants);
        let mut names = vec![PLAIN];
        for stage in stages {
            names.extend(variants(stage).into_iter().flatten().map(|found| found.name.as_str()));
        }
        if names.contains(&name) {
            return Ok(());
        }
        names.sort_unstable();
        names.dedup();
        Err(BundleError::NoPart {
            key: "variant",
            value: format!("\"{name}\""),
            reason: format!("the stages come as {}", names.join(", ")),
        })
    }

    /// Writes a blob to a file, checked on the way, and returns its bytes.
    fn copy_blob(&self, digest: Digest, key: &str, to: &Path) -> Result<u64, BundleError> {
        let name = format!("{BLOBS}/{digest}");
        let Source::Folder(folder) = &self.source else {
            let bytes = self.blob(digest, key)?;
            fs::write(to, &bytes).map_err(failed(to))?;
            return Ok(bytes.len() as u64);
        };
        let from = folder.join(name);
        let unreadable = |source| BundleError::Read { path: from.clone(), key: key.into(), source };
        let mut source = File::open(&from).map_err(unreadable)?;
        let mut target = File::create_new(to).map_err(failed(to))?;
        let (got, bytes) =
            hashed(&mut source, |part| target.write_all(part)).map_err(|error| match error {
                Broken::Reading(source) => unreadable(source),
                Broken::Writing(source) => failed(to)(source),
            })?;
        if got == digest {
            return Ok(bytes);
        }
        Err(BundleError::Hash { path: from.clone(), key: key.into(), got })
    }
}

/// Which side of a copy failed.
#[derive(Debug)]
pub(super) enum Broken {
    Reading(io::Error),
    Writing(io::Error),
}

/// Reads to the end, a part at a time; the digest of all and its length.
pub(super) fn hashed(
    source: &mut impl Read,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(Digest, u64), Broken> {
    let (mut hash, mut length, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 18]);
    loop {
        let count = match source.read(&mut buffer) {
            Ok(0) => return Ok((Digest(hash.finalize().into()), length)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Broken::Reading(error)),
        };
        hash.update(&buffer[..count]);
        each(&buffer[..count]).map_err(Broken::Writing)?;
        length += count as u64;
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> BundleError + use<> {
    let path = path.to_owned();
    move |source| BundleError::Write { path: path.clone(), source }
}
