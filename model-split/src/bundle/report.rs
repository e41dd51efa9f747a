//! What an operator asks of a bundle: its stages with what they read, cost and answer, its blobs
//! and whether each is what its name says, its split ids, and which of its certificates hold now.
//! It reads every blob, and runs nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use serde::Serialize;

use super::take::{Broken, hashed};
use super::{BLOBS, Bundle, Source};
use crate::codec::Precision;
use crate::digest::{Digest, SplitId};
use crate::manifest::{
    AppTensor, Certificate, InnerTensor, Manifest, Measured, PLAIN, Stage, StaticScale,
};

/// All that is to be said of a bundle.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Model name.
    pub name: String,
    /// Model version.
    pub version: String,
    /// SHA-256 of the manifest's bytes: two bundles with the same are the same.
    pub manifest: Digest,
    /// What apps send.
    pub inputs: Vec<AppTensor>,
    /// What apps get.
    pub outputs: Vec<AppTensor>,
    /// Whether requests of one sequence must reach the same node.
    pub stateful: bool,
    /// Stages that an edge runs by default.
    pub local_stages: usize,
    /// Whether encoded pictures are taken.
    pub pictures: bool,
    /// Number of class names.
    pub labels: usize,
    /// Whether labelled samples are part of it.
    pub labelled: bool,
    /// Number of golden samples.
    pub golden: usize,
    /// The stages, in order.
    pub stages: Vec<StageReport>,
    /// Every blob once.
    pub blobs: Vec<BlobReport>,
    /// The certificates.
    pub certificates: Vec<CertificateReport>,
    /// Whether a signature lies beside the manifest; whose it is, a key must tell.
    pub signed: bool,
}

/// One stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageReport {
    /// What it reads.
    pub inputs: Vec<InnerTensor>,
    /// Bytes of its graph and weights as it was cut, where those blobs are here.
    pub bytes: Option<u64>,
    /// What it hands on.
    pub cut: Option<CutReport>,
    /// The exit that it computes.
    pub exit: Option<ExitReport>,
    /// Other ways to run it.
    pub variants: Vec<VariantReport>,
}

/// A cut and its codec.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CutReport {
    /// Its split id.
    pub split_id: Option<SplitId>,
    /// The tensors that cross.
    pub tensors: Vec<InnerTensor>,
    /// Codec version.
    pub codec: u8,
    /// Bits per element where nothing else is asked for; none where elements travel unquantised.
    pub bits: Option<u8>,
    /// All numbers of bits that may be asked for.
    pub allowed: Vec<u8>,
    /// Least and largest value of each scale, in order.
    pub scales: Vec<[f32; 2]>,
    /// Elements of a row that cross; none where the shape of a row is open.
    pub elements: Option<u64>,
}

/// An exit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExitReport {
    /// Name of the logits inside the model.
    pub output: String,
    /// Divides the logits before the softmax.
    pub temperature: f32,
    /// Least confidence that answers; none for an exit that always answers.
    pub threshold: Option<f32>,
    /// Whether its head was trained apart from the model.
    pub head: bool,
}

/// Another way to run a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VariantReport {
    /// Its name.
    pub name: String,
    /// Bytes of its graph and weights, where those blobs are here.
    pub bytes: Option<u64>,
    /// What was measured of it.
    pub measured: Option<Measured>,
}

/// One blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlobReport {
    /// Its name.
    pub digest: Digest,
    /// The manifest's keys that name it.
    pub keys: Vec<String>,
    /// What its file is like.
    #[serde(flatten)]
    pub state: BlobState,
}

/// What a blob's file is like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum BlobState {
    /// Its content is what its name says.
    Sound {
        /// Its length.
        bytes: u64,
    },
    /// There is no such file.
    Absent,
    /// Its content is not what its name says.
    Damaged {
        /// Its length.
        bytes: u64,
        /// SHA-256 of its content.
        got: Digest,
    },
    /// It is there, but cannot be read.
    Unreadable {
        /// Why.
        reason: String,
    },
}

/// A certificate, and what it is worth now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CertificateReport {
    /// The certificate.
    #[serde(flatten)]
    pub certificate: Certificate,
    /// The cut that it is of: the number of the stage before it.
    pub cut: Option<usize>,
    /// Whether it holds for the bundle as it is.
    pub holds: bool,
    /// Why it does not.
    pub doubts: Vec<String>,
}

impl Report {
    /// Whether every blob is sound, or, where `partial` allows it, not here.
    pub fn sound(&self, partial: bool) -> bool {
        self.blobs.iter().all(|blob| match blob.state {
            BlobState::Sound { .. } => true,
            BlobState::Absent => partial,
            BlobState::Damaged { .. } | BlobState::Unreadable { .. } => false,
        })
    }

    /// Bytes of all sound blobs.
    pub fn bytes(&self) -> u64 {
        let bytes = |blob: &BlobReport| match blob.state {
            BlobState::Sound { bytes } => bytes,
            _ => 0,
        };
        self.blobs.iter().map(bytes).sum()
    }
}

impl Bundle {
    /// Reads every blob once and says all that there is to say. `progress` is called with the
    /// number of blobs read and in all.
    pub fn report(&self, progress: &mut dyn FnMut(usize, usize)) -> Report {
        let mut keys: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
        for (key, digest) in self.blobs() {
            keys.entry(digest).or_default().push(key);
        }
        let total = keys.len();
        let mut blobs = Vec::new();
        for (digest, keys) in keys {
            blobs.push(BlobReport { digest, keys, state: self.blob_state(digest) });
            progress(blobs.len(), total);
        }
        blobs.sort_by(|a, b| a.keys.cmp(&b.keys));
        let manifest = self.manifest();
        let stages = manifest.stages.iter().enumerate();
        Report {
            name: manifest.name.clone(),
            version: manifest.version.clone(),
            manifest: Digest::of(self.manifest_bytes()),
            inputs: manifest.inputs.clone(),
            outputs: manifest.outputs.clone(),
            stateful: manifest.stateful,
            local_stages: manifest.local_stages,
            pictures: manifest.preprocess.is_some(),
            labels: manifest.labels.len(),
            labelled: manifest.labelled.is_some(),
            golden: manifest.golden.len(),
            stages: stages.map(|(index, stage)| of_stage(manifest, index, stage, &blobs)).collect(),
            certificates: manifest
                .certificates
                .iter()
                .map(|found| {
                    let doubts = doubts(manifest, found);
                    CertificateReport {
                        cut: cut_of(manifest, found),
                        holds: doubts.is_empty(),
                        doubts,
                        certificate: found.clone(),
                    }
                })
                .collect(),
            blobs,
            // A file that cannot be read is there all the same.
            signed: !matches!(self.signature(), Ok(None)),
        }
    }

    fn blob_state(&self, digest: Digest) -> BlobState {
        let name = format!("{BLOBS}/{digest}");
        let unreadable = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => BlobState::Absent,
            _ => BlobState::Unreadable { reason: error.to_string() },
        };
        let hash = match &self.source {
            Source::Folder(folder) => File::open(folder.join(name))
                .and_then(|mut file| hashed(&mut file, |_| Ok(())).map_err(io::Error::from)),
            embedded @ Source::Embedded => embedded
                .read(&name, "", u64::MAX - 1)
                .map(|bytes| (Digest::of(&bytes), bytes.len() as u64))
                .map_err(|error| io::Error::new(io::ErrorKind::NotFound, error)),
        };
        match hash {
            Ok((got, bytes)) if got == digest => BlobState::Sound { bytes },
            Ok((got, bytes)) => BlobState::Damaged { bytes, got },
            Err(error) => unreadable(error),
        }
    }
}

impl From<Broken> for io::Error {
    fn from(error: Broken) -> Self {
        match error {
            Broken::Reading(error) | Broken::Writing(error) => error,
        }
    }
}

fn of_stage(manifest: &Manifest, index: usize, stage: &Stage, blobs: &[BlobReport]) -> StageReport {
    let length = |digest: Digest| {
        let found = blobs.iter().find(|blob| blob.digest == digest)?;
        if let BlobState::Sound { bytes } = found.state { Some(bytes) } else { None }
    };
    let both = |graph, weights| Some(length(graph)? + length(weights)?);
    StageReport {
        inputs: stage.inputs.clone(),
        bytes: both(stage.graph, stage.weights),
        cut: stage.cut.as_ref().map(|cut| CutReport {
            split_id: manifest.split_id(index),
            tensors: cut.tensors.clone(),
            codec: cut.codec.version,
            bits: bits(manifest, index),
            allowed: cut.codec.allowed.clone(),
            scales: cut.codec.scales.iter().map(range).collect(),
            elements: cut.tensors.iter().map(elements).sum(),
        }),
        exit: stage.exit.as_ref().map(|exit| ExitReport {
            output: exit.output.clone(),
            temperature: exit.temperature(),
            threshold: exit.threshold_milli.map(|milli| milli as f32 / 1000.0),
            head: exit.head.is_some(),
        }),
        variants: stage
            .variants
            .iter()
            .map(|variant| VariantReport {
                name: variant.name.clone(),
                bytes: both(variant.graph, variant.weights),
                measured: variant.measured.clone(),
            })
            .collect(),
    }
}

/// Bits on the wire at a cut where nothing else is asked for.
fn bits(manifest: &Manifest, cut: usize) -> Option<u8> {
    match manifest.precision(cut)? {
        Precision::Bits(bits) => Some(bits),
        _ => None,
    }
}

/// Elements of one row.
fn elements(tensor: &InnerTensor) -> Option<u64> {
    let sizes = tensor.shape.iter().skip(1).map(|size| u64::try_from(*size).ok());
    sizes.into_iter().try_fold(1u64, |product, size| product.checked_mul(size?))
}

fn range(scale: &StaticScale) -> [f32; 2] {
    let float = |hex: &str| u32::from_str_radix(hex, 16).map_or(f32::NAN, f32::from_bits);
    [float(&scale.lo), float(&scale.hi)]
}

fn cut_of(manifest: &Manifest, certificate: &Certificate) -> Option<usize> {
    (0..manifest.stages.len()).find(|cut| manifest.split_id(*cut) == Some(certificate.split_id))
}

/// Why a certificate does not hold for the bundle as it is; empty where it does.
fn doubts(manifest: &Manifest, certificate: &Certificate) -> Vec<String> {
    let Some(cut) = cut_of(manifest, certificate) else {
        return vec![format!("no cut has its split id {}", certificate.split_id)];
    };
    let mut doubts = Vec::new();
    let name = &certificate.variant;
    let stages = &manifest.stages[..=cut];
    let has = |stage: &Stage| stage.variants.iter().any(|variant| variant.name == *name);
    if name != PLAIN && !stages.iter().any(has) {
        doubts.push(format!("no stage before cut {cut} comes as {name}"));
    }
    if manifest.heads(cut) != certificate.heads {
        doubts.push("the exits have other heads or temperatures now".into());
    }
    let thresholds = manifest.thresholds_milli(cut);
    if thresholds != certificate.thresholds_milli {
        let milli = |list: &[u32]| {
            let list: Vec<_> = list.iter().map(|x| format!("{:.3}", f64::from(*x) / 1e3)).collect();
            list.join(", ")
        };
        let (now, then) = (milli(&thresholds), milli(&certificate.thresholds_milli));
        doubts.push(format!("the thresholds are {now} now, it was measured at {then}"));
    }
    let now = bits(manifest, cut).unwrap_or(0);
    if now != certificate.bits {
        let text = |bits: u8| if bits == 0 { "unquantised".into() } else { format!("{bits} bits") };
        let (now, then) = (text(now), text(certificate.bits));
        doubts.push(format!("what crosses has {now} by default, it was measured at {then}"));
    }
    doubts
}
