//! Reading a bundle: a folder, or the one embedded in this program, with `manifest.json` and
//! `blobs/` named by their SHA-256. Every blob is checked against its name when it is read, and only
//! those are read that a stage needs: a folder may hold a part of them. It must not load models or
//! write anything but [`Bundle::extract_to`] and [`Bundle::take`].

mod change;
mod report;
mod take;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use include_dir::{Dir, include_dir};

use crate::codec::{Codec, Precision};
use crate::digest::{Digest, SplitId};
use crate::head;
use crate::labelled::{Labelled, LabelledError};
use crate::manifest::{Manifest, ManifestError, PLAIN};
use crate::onnx::OnnxError;
use crate::sign::{self, SIGNATURE, SignatureError, TrustedKey};
use crate::weights::{self, WeightsError};

pub use change::{Change, Consequence, SplitIds, changes};
pub use report::{
    BlobReport, BlobState, CertificateReport, CutReport, ExitReport, Report, StageReport,
    VariantReport,
};
pub use take::{Part, Taken};

/// Name of the manifest's file.
pub const MANIFEST: &str = "manifest.json";
/// Name of the folder of blobs.
pub const BLOBS: &str = "blobs";
const LARGEST_MANIFEST: u64 = 4 << 20;
/// The largest file that the protobuf form of ONNX allows.
const LARGEST_BLOB: u64 = 2 << 30;

static EMBEDDED: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../models/fashion");

/// Why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A file is missing or unreadable.
    #[error("cannot read {}{}: {source}", .path.display(), of_key(.key))]
    Read {
        /// The file.
        path: PathBuf,
        /// The manifest's key that names it, if any.
        key: String,
        /// Cause.
        source: io::Error,
    },
    /// The manifest is refused.
    #[error("{}: {source}", .path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// Cause, with the key.
        source: ManifestError,
    },
    /// A blob's content is not what its name says.
    #[error("{} ({key}) is damaged: its sha256 is {got}", .path.display())]
    Hash {
        /// The file.
        path: PathBuf,
        /// The manifest's key that names it.
        key: String,
        /// Digest of its content.
        got: Digest,
    },
    /// A graph blob is no model.
    #[error("{key}: {source}")]
    Onnx {
        /// The manifest's key that names it.
        key: String,
        /// Cause.
        source: OnnxError,
    },
    /// The weights do not suit the graph.
    #[error("{key}: {source}")]
    Weights {
        /// The manifest's key that names them.
        key: String,
        /// Cause.
        source: WeightsError,
    },
    /// A head does not suit its stage.
    #[error("{key}: {source}")]
    Head {
        /// The manifest's key that names it.
        key: String,
        /// Cause.
        source: head::HeadError,
    },
    /// The labelled samples are damaged.
    #[error("labelled.{source}")]
    Labelled {
        /// Cause.
        #[from]
        source: LabelledError,
    },
    /// A stage that the bundle does not have.
    #[error("the bundle has {stages} stages, there is no stage {stage}")]
    NoStage {
        /// The stage asked for.
        stage: usize,
        /// Number of stages.
        stages: usize,
    },
    /// The signature does not say what it should.
    #[error("{}: {source}", .path.display())]
    Signature {
        /// The signature's file.
        path: PathBuf,
        /// Cause.
        source: SignatureError,
    },
    /// A part that the bundle does not have, or that is no part.
    #[error("{key} = {value}: {reason}")]
    NoPart {
        /// What was asked for.
        key: &'static str,
        /// Its value.
        value: String,
        /// Why there is no such part.
        reason: String,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

fn of_key(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!(" ({key})") }
}

/// Reads a file of at most `limit` bytes.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("larger than {limit} bytes")));
    }
    Ok(bytes)
}

#[derive(Clone, Debug)]
enum Source {
    Folder(PathBuf),
    Embedded,
}

impl Source {
    /// The file's name in messages.
    fn path(&self, name: &str) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.join(name),
            Self::Embedded => Path::new("(embedded bundle)").join(name),
        }
    }

    fn read(&self, name: &str, key: &str, limit: u64) -> Result<Vec<u8>, BundleError> {
        match self {
            Self::Folder(folder) => read_bounded(&folder.join(name), limit),
            Self::Embedded => EMBEDDED
                .get_file(name)
                .map(|file| file.contents().to_vec())
                .ok_or_else(|| io::ErrorKind::NotFound.into()),
        }
        .map_err(|source| BundleError::Read {
            path: self.path(name),
            key: key.into(),
            source,
        })
    }
}

/// An opened bundle: its manifest, and access to its blobs.
#[derive(Clone, Debug)]
pub struct Bundle {
    source: Source,
    manifest: Manifest,
    /// The manifest as it was read: what a signature is of.
    json: Bytes,
}

impl Bundle {
    /// Opens the bundle in a folder: reads its manifest, but no blobs yet.
    ///
    /// # Errors
    /// When the manifest is missing or refused, naming file and key.
    pub fn open(folder: &Path) -> Result<Self, BundleError> {
        Self::from_source(Source::Folder(folder.to_owned()))
    }

    /// The bundle inside this program: Fashion-MNIST in two stages.
    ///
    /// # Errors
    /// As [`Bundle::open`]; only in a program that was built from a damaged tree.
    pub fn embedded() -> Result<Self, BundleError> {
        Self::from_source(Source::Embedded)
    }

    /// Opens the bundle in a folder if one of these keys signed its manifest.
    ///
    /// # Errors
    /// When none did, and as [`Bundle::open`].
    pub fn open_signed(folder: &Path, trusted: &[TrustedKey]) -> Result<Self, BundleError> {
        let bundle = Self::open(folder)?;
        bundle.signer(trusted)?;
        Ok(bundle)
    }

    fn from_source(source: Source) -> Result<Self, BundleError> {
        let json = source.read(MANIFEST, "", LARGEST_MANIFEST)?;
        let manifest = Manifest::parse(&json).map_err(|error| BundleError::Manifest {
            path: source.path(MANIFEST),
            source: error,
        })?;
        Ok(Self { source, manifest, json: json.into() })
    }

    /// The signature of the manifest, where there is one; see [`crate::sign`].
    ///
    /// # Errors
    /// When its file is there but cannot be read.
    pub fn signature(&self) -> Result<Option<Vec<u8>>, BundleError> {
        // One byte more is enough to tell that it is none.
        match self.source.read(SIGNATURE, "", sign::LENGTH as u64 + 1) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(BundleError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Which of these keys signed the manifest as it was read.
    ///
    /// # Errors
    /// When none of them did.
    pub fn signer<'a>(&self, trusted: &'a [TrustedKey]) -> Result<&'a TrustedKey, BundleError> {
        let signature = self.signature()?;
        sign::signer(&self.json, signature.as_deref(), trusted)
            .map_err(|source| BundleError::Signature { path: self.source.path(SIGNATURE), source })
    }

    /// The manifest's exact bytes, which a signature is of.
    pub fn manifest_bytes(&self) -> &[u8] {
        &self.json
    }

    /// What the bundle says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Number of stages, at least 1.
    pub fn stages(&self) -> usize {
        self.manifest.stages.len()
    }

    /// The split id of the cut from which an edge node offloads by default; none for a bundle
    /// whose stages all run locally.
    pub fn split_id(&self) -> Option<SplitId> {
        self.manifest.split_id(self.manifest.local_stages.checked_sub(1)?)
    }

    /// The split id of the cut after stage `cut`; none after the last.
    pub fn split_id_at(&self, cut: usize) -> Option<SplitId> {
        self.manifest.split_id(cut)
    }

    /// How frames of the cut after stage `cut` are written; see [`Manifest::codec`].
    pub fn codec(&self, cut: usize) -> Option<Codec> {
        self.manifest.codec(cut)
    }

    /// The precision of frames of that cut where nothing else is asked for.
    pub fn precision(&self, cut: usize) -> Option<Precision> {
        self.manifest.precision(cut)
    }

    /// The names of the classes; empty where the bundle has none.
    pub fn labels(&self) -> &[String] {
        &self.manifest.labels
    }

    /// The ONNX model of one stage as it was cut, with its exit's head merged in.
    ///
    /// # Errors
    /// As [`Bundle::stage_variant`].
    pub fn stage_model(&self, stage: usize) -> Result<Vec<u8>, BundleError> {
        self.stage_variant(stage, PLAIN)
    }

    /// The ONNX model of one stage in one of its variants, with its exit's head merged in. A stage
    /// that lacks the variant runs as it was cut, so that one name serves a whole model.
    ///
    /// # Errors
    /// When there is no such stage, or a blob is missing, damaged or does not suit the other.
    pub fn stage_variant(&self, stage: usize, variant: &str) -> Result<Vec<u8>, BundleError> {
        let Some(parts) = self.manifest.stages.get(stage) else {
            return Err(BundleError::NoStage { stage, stages: self.stages() });
        };
        let found = parts.variants.iter().position(|found| found.name == variant);
        let (graph, weights, key) = match found {
            Some(at) => {
                let variant = &parts.variants[at];
                (variant.graph, variant.weights, format!("stages[{stage}].variants[{at}]"))
            }
            None => (parts.graph, parts.weights, format!("stages[{stage}]")),
        };
        let mut model = self.joined(graph, weights, &key)?;
        if let Some((exit, head)) = parts.exit.as_ref().and_then(|e| Some((e, e.head.as_ref()?))) {
            let key = format!("stages[{stage}].exit.head");
            let head = self.joined(head.graph, head.weights, &key)?;
            let mut merged = head::merge(&mut model, head);
            if let Some(cut) = &parts.cut {
                // An exit that the head replaces must cost nothing.
                let handed_on = cut.tensors.iter().map(|tensor| tensor.name.as_str());
                let wanted: Vec<&str> = handed_on.chain([exit.output.as_str()]).collect();
                merged = merged.and_then(|()| head::keep(&mut model, &wanted));
            }
            merged.map_err(|source| BundleError::Head { key, source })?;
        }
        Ok(crate::onnx::encode(&model))
    }

    /// Graph and weights together.
    pub(crate) fn joined(
        &self,
        graph: Digest,
        weights: Digest,
        key: &str,
    ) -> Result<crate::onnx::ModelProto, BundleError> {
        let (graph_key, weights_key) = (format!("{key}.graph"), format!("{key}.weights"));
        let graph = self.blob(graph, &graph_key)?;
        let weights = self.blob(weights, &weights_key)?;
        let mut model = crate::onnx::decode(graph.into())
            .map_err(|source| BundleError::Onnx { key: graph_key, source })?;
        weights::attach(&mut model, &weights.into())
            .map_err(|source| BundleError::Weights { key: weights_key, source })?;
        Ok(model)
    }

    /// The labelled samples, where the bundle has some.
    ///
    /// # Errors
    /// When a blob is missing or damaged.
    pub fn labelled(&self) -> Result<Option<Labelled>, BundleError> {
        let Some(blobs) = &self.manifest.labelled else { return Ok(None) };
        let images = self.blob(blobs.images, "labelled.images")?;
        let labels = self.blob(blobs.labels, "labelled.labels")?;
        Ok(Some(Labelled::from_idx_gz(&images, &labels)?))
    }

    /// A blob's content, checked against its digest. `key` says in messages what it is for.
    ///
    /// # Errors
    /// When it is missing or damaged.
    pub fn blob(&self, digest: Digest, key: &str) -> Result<Vec<u8>, BundleError> {
        let name = format!("{BLOBS}/{digest}");
        let bytes = self.source.read(&name, key, LARGEST_BLOB)?;
        let got = Digest::of(&bytes);
        if got == digest {
            return Ok(bytes);
        }
        Err(BundleError::Hash { path: self.source.path(&name), key: key.into(), got })
    }

    /// All blobs that the manifest names, each with its key; a blob may come more than once.
    pub fn blobs(&self) -> Vec<(String, Digest)> {
        let stages = 0..self.stages();
        let mut blobs: Vec<_> = stages.flat_map(|stage| self.stage_blobs(stage, None)).collect();
        blobs.extend(self.sample_blobs());
        blobs
    }

    /// The blobs of one stage with their keys: of one way to run it where a variant is named, else
    /// of all.
    fn stage_blobs(&self, index: usize, only: Option<&str>) -> Vec<(String, Digest)> {
        let Some(stage) = self.manifest.stages.get(index) else { return Vec::new() };
        let has = |name: &str| stage.variants.iter().any(|variant| variant.name == name);
        let mut blobs = Vec::new();
        if only.is_none_or(|name| !has(name)) {
            blobs.push((format!("stages[{index}].graph"), stage.graph));
            blobs.push((format!("stages[{index}].weights"), stage.weights));
        }
        for (at, variant) in stage.variants.iter().enumerate() {
            if only.is_none_or(|name| variant.name == name) {
                let key = format!("stages[{index}].variants[{at}]");
                blobs.push((format!("{key}.graph"), variant.graph));
                blobs.push((format!("{key}.weights"), variant.weights));
            }
        }
        if let Some(head) = stage.exit.as_ref().and_then(|exit| exit.head.as_ref()) {
            blobs.push((format!("stages[{index}].exit.head.graph"), head.graph));
            blobs.push((format!("stages[{index}].exit.head.weights"), head.weights));
        }
        blobs
    }

    fn sample_blobs(&self) -> Vec<(String, Digest)> {
        let labelled = self.manifest.labelled.as_ref();
        let blobs = labelled.map(|labelled| {
            [
                ("labelled.images".to_owned(), labelled.images),
                ("labelled.labels".to_owned(), labelled.labels),
            ]
        });
        blobs.into_iter().flatten().collect()
    }

    /// Writes the bundle to a folder, blobs before the manifest, so that a folder with a manifest
    /// is whole. The folder is made if need be; files of the same name are replaced.
    ///
    /// # Errors
    /// When a blob is damaged or a file cannot be written.
    pub fn extract_to(&self, folder: &Path) -> Result<(), BundleError> {
        let blobs = folder.join(BLOBS);
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| BundleError::Write { path, source }
        };
        fs::create_dir_all(&blobs).map_err(failed(&blobs))?;
        for (key, digest) in self.blobs() {
            let path = blobs.join(digest.to_string());
            fs::write(&path, self.blob(digest, &key)?).map_err(failed(&path))?;
        }
        let path = folder.join(MANIFEST);
        fs::write(&path, &self.json).map_err(failed(&path))
    }
}

#[cfg(test)]
mod tests;
