//! The manifest of a bundle: what a model looks like to apps, its stages, cuts, exits, codec and
//! samples. Written as canonical JSON (RFC 8785), so that equal manifests have equal bytes. Every
//! field is checked on load; nothing here reads blobs.

use midspan_runtime::{Dim, ElementType, TensorSpec};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::codec::{self, Codec, Precision, Scale};
use crate::digest::{Digest, SplitId};
use crate::exit::ExitRule;
use crate::preprocess::Preprocess;

/// The manifest format that this version reads and writes.
pub const FORMAT: u32 = 1;
/// The platform string of OIP model metadata.
pub const PLATFORM: &str = "onnx_onnxv1";

/// A bundle's manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// Model name, as in request paths.
    pub name: String,
    /// Model version, as in request paths.
    pub version: String,
    /// [`PLATFORM`].
    pub platform: String,
    /// What apps send.
    pub inputs: Vec<AppTensor>,
    /// What apps get. An exit answers in the place of the first.
    pub outputs: Vec<AppTensor>,
    /// Whether requests of one sequence must reach the same node.
    pub stateful: bool,
    /// Stages that an edge node runs before it offloads, unless it is told otherwise.
    pub local_stages: usize,
    /// The parts of the model, in order; all but the last have a cut.
    pub stages: Vec<Stage>,
    /// How an encoded picture becomes the first input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preprocess: Option<Preprocess>,
    /// Names of the classes, by index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Samples with labels, for measurements on the spot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labelled: Option<LabelledBlobs>,
    /// What a sound node answers for a few of the labelled samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub golden: Vec<GoldenSample>,
    /// What was measured of this bundle.
    #[serde(default)]
    pub certificates: Vec<Certificate>,
}

/// An input or output as apps see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppTensor {
    /// Name in requests and answers.
    pub name: String,
    /// OIP datatype.
    pub datatype: String,
    /// Dimensions, -1 where any size goes.
    pub shape: Vec<i64>,
    /// Name inside the model.
    pub tensor: String,
}

/// A tensor inside the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InnerTensor {
    /// Name inside the model.
    pub name: String,
    /// OIP datatype.
    pub datatype: String,
    /// Dimensions, -1 where any size goes.
    pub shape: Vec<i64>,
}

/// One part of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Blob of the ONNX graph, its weights taken out.
    pub graph: Digest,
    /// Blob of the weights.
    pub weights: Digest,
    /// What this stage reads.
    pub inputs: Vec<InnerTensor>,
    /// What it hands to the next stage; none after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
    /// The exit that it computes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// Where a model is divided, and how what crosses is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// The tensors that cross.
    pub tensors: Vec<InnerTensor>,
    /// How they are written.
    pub codec: CodecSpec,
}

/// How the tensors of a cut are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecSpec {
    /// [`codec::VERSION`].
    pub version: u8,
    /// Bits per element where nothing else is asked for; one of `allowed`.
    pub bits: u8,
    /// All numbers of bits for which the scales were checked.
    pub allowed: Vec<u8>,
    /// One scale per tensor of the cut, in their order; empty where elements travel unquantised.
    pub scales: Vec<StaticScale>,
}

/// The range of a tensor's values, as the bits of two `f32` in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticScale {
    /// Least value, 8 hexadecimal digits.
    pub lo: String,
    /// Largest value, 8 hexadecimal digits.
    pub hi: String,
}

/// A head whose logits can answer a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exit {
    /// Name of the logits inside the model.
    pub output: String,
    /// Divides the logits before the softmax, in thousandths.
    pub temperature_milli: u32,
    /// Least confidence that answers, in thousandths; none for an exit that always answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold_milli: Option<u32>,
}

/// Blobs of labelled samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelledBlobs {
    /// Images, gzipped idx3 of u8.
    pub images: Digest,
    /// Labels, gzipped idx1 of u8.
    pub labels: Digest,
}

/// What the last exit answers for a labelled sample, whatever the CPU: only samples whose best
/// class leads by a wide margin are taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoldenSample {
    /// Index among the labelled samples.
    pub sample: usize,
    /// Class that the whole model answers.
    pub class: usize,
}

/// What was measured for a cut, its codec and an exit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// The split that was measured.
    pub split_id: SplitId,
    /// Bits per element on the wire.
    pub bits: u8,
    /// What is bounded, such as `disagreement`.
    pub loss: String,
    /// Samples it was measured on.
    pub samples: u64,
    /// Upper bound of the loss per row.
    pub bound: f64,
    /// Probability that the bound does not hold.
    pub delta: f64,
}

/// Why a manifest is refused.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON, or not of this form.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A value that makes no sense.
    #[error("{key}: {reason}")]
    Value {
        /// The key, as a path.
        key: String,
        /// What is wrong.
        reason: String,
    },
}

fn fault(key: impl Into<String>, reason: impl Into<String>) -> ManifestError {
    ManifestError::Value { key: key.into(), reason: reason.into() }
}

fn require(holds: bool, key: impl Into<String>, reason: &str) -> Result<(), ManifestError> {
    if holds { Ok(()) } else { Err(fault(key, reason)) }
}

/// The datatype and dimensions of a manifest as a spec.
fn spec_of(name: &str, datatype: &str, shape: &[i64]) -> Option<TensorSpec> {
    let element = ElementType::from_oip(datatype)?;
    let dims = shape.iter().map(|size| match *size {
        -1 => Some(Dim::Symbolic(String::new())),
        size => usize::try_from(size).ok().map(Dim::Fixed),
    });
    Some(TensorSpec { name: name.to_owned(), element, dims: dims.collect::<Option<_>>()? })
}

impl AppTensor {
    /// As a spec under the app's name; none only in a manifest that was not validated.
    pub fn spec(&self) -> Option<TensorSpec> {
        spec_of(&self.name, &self.datatype, &self.shape)
    }
}

impl InnerTensor {
    /// What the manifest keeps of a spec.
    pub fn of(spec: &TensorSpec) -> Self {
        Self {
            name: spec.name.clone(),
            datatype: spec.element.oip_name().to_owned(),
            shape: spec.dims.iter().map(Dim::as_oip).collect(),
        }
    }

    /// As a spec; none only in a manifest that was not validated.
    pub fn spec(&self) -> Option<TensorSpec> {
        spec_of(&self.name, &self.datatype, &self.shape)
    }
}

impl Exit {
    /// The temperature.
    pub fn temperature(&self) -> f32 {
        self.temperature_milli as f32 / 1000.0
    }

    /// The rule of an exit that has a threshold.
    pub fn rule(&self) -> Option<ExitRule> {
        let threshold = self.threshold_milli? as f32 / 1000.0;
        Some(ExitRule { temperature: self.temperature(), threshold })
    }
}

impl StaticScale {
    /// A scale from its bounds.
    pub fn new(lo: f32, hi: f32) -> Self {
        let hex = |value: f32| format!("{:08x}", value.to_bits());
        Self { lo: hex(lo), hi: hex(hi) }
    }

    fn parse(&self) -> Option<Scale> {
        let float = |text: &str| {
            let digits = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            digits.then(|| u32::from_str_radix(text, 16).ok().map(f32::from_bits))?
        };
        Scale::new(float(&self.lo)?, float(&self.hi)?)
    }
}

impl Manifest {
    /// Reads and validates a manifest.
    ///
    /// # Errors
    /// When it is no manifest of this format, or a value makes no sense; the key is named.
    pub fn parse(json: &[u8]) -> Result<Self, ManifestError> {
        let manifest: Self = serde_json::from_slice(json)?;
        manifest.validate()?;
        Ok(manifest)
    }

    /// The manifest as canonical JSON.
    ///
    /// # Errors
    /// When a number in it has no JSON form.
    pub fn to_json(&self) -> Result<Vec<u8>, ManifestError> {
        Ok(serde_jcs::to_vec(self)?)
    }

    /// Checks every value that the types leave open.
    ///
    /// # Errors
    /// The first that makes no sense, by its key.
    pub fn validate(&self) -> Result<(), ManifestError> {
        require(self.format == FORMAT, "format", "this version reads format 1 only")?;
        require(is_path_part(&self.name), "name", "must be 1 to 128 of A-Z a-z 0-9 . _ -")?;
        require(is_path_part(&self.version), "version", "must be 1 to 128 of A-Z a-z 0-9 . _ -")?;
        require(self.platform == PLATFORM, "platform", "must be onnx_onnxv1")?;
        for (key, list) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            require(!list.is_empty(), key, "must not be empty")?;
            for (index, tensor) in list.iter().enumerate() {
                let key = format!("{key}[{index}]");
                require(!tensor.name.is_empty(), &key, "name is empty")?;
                require(tensor.spec().is_some(), key, "datatype or shape is not one of OIP")?;
            }
        }
        require((1..=64).contains(&self.stages.len()), "stages", "must be 1 to 64")?;
        let local = self.local_stages >= 1 && self.local_stages <= self.stages.len();
        require(local, "local_stages", "must be at least 1 and at most the number of stages")?;
        for (index, stage) in self.stages.iter().enumerate() {
            self.validate_stage(index, stage)?;
        }
        // A class is an index into the last dimension of the logits.
        let classes = self.outputs.first().and_then(|output| output.shape.last());
        let fixed = classes.and_then(|count| usize::try_from(*count).ok());
        let named = self.labels.is_empty() || fixed.is_none_or(|count| count == self.labels.len());
        require(named, "labels", "must be as many as the first output has classes")?;
        if let Some(preprocess) = &self.preprocess {
            preprocess.validate().map_err(|reason| fault("preprocess", reason))?;
        }
        Ok(())
    }

    fn validate_stage(&self, index: usize, stage: &Stage) -> Result<(), ManifestError> {
        let key = |rest: &str| format!("stages[{index}].{rest}");
        let sound = |tensors: &[InnerTensor]| {
            !tensors.is_empty() && tensors.iter().all(|tensor| tensor.spec().is_some())
        };
        require(sound(&stage.inputs), key("inputs"), "empty, or a datatype or shape not of OIP")?;
        let last = index + 1 == self.stages.len();
        require(last != stage.cut.is_some(), key("cut"), "all stages but the last have a cut")?;
        if let Some(cut) = &stage.cut {
            require(sound(&cut.tensors), key("cut.tensors"), "empty, or a shape not of OIP")?;
            let next = &self.stages[index + 1].inputs;
            require(
                *next == cut.tensors,
                key("cut.tensors"),
                "differ from the next stage's inputs",
            )?;
            cut.codec
                .validate(cut.tensors.len())
                .map_err(|reason| fault(key("cut.codec"), reason))?;
        }
        if let Some(exit) = &stage.exit {
            let temperature = (1..=1_000_000).contains(&exit.temperature_milli);
            require(temperature, key("exit.temperature_milli"), "must be 1 to 1000000")?;
            let threshold = exit.threshold_milli.is_none_or(|milli| milli <= 1000);
            require(threshold, key("exit.threshold_milli"), "must be at most 1000")?;
        }
        Ok(())
    }

    /// How frames of a cut are written; cut `i` follows stage `i`. None when there is no such
    /// cut, or more than one tensor crosses it, which frame version 1 cannot carry.
    pub fn codec(&self, cut: usize) -> Option<Codec> {
        let cut = self.stages.get(cut)?.cut.as_ref()?;
        let [tensor] = cut.tensors.as_slice() else { return None };
        let spec = tensor.spec()?;
        let row = spec.dims.get(1..)?.iter().map(|dim| match dim {
            Dim::Fixed(size) => Some(*size),
            Dim::Symbolic(_) => None,
        });
        let scale = cut.codec.scales.first().and_then(StaticScale::parse);
        Codec::new(spec.element, row.collect::<Option<_>>()?, scale)
    }

    /// The precision that frames of a cut have where nothing else is asked for.
    pub fn precision(&self, cut: usize) -> Option<Precision> {
        let codec = &self.stages.get(cut)?.cut.as_ref()?.codec;
        if codec.scales.is_empty() {
            return Some(Precision::Raw);
        }
        Precision::bits(codec.bits)
    }

    /// The split id of a cut: SHA-256 over the canonical JSON of the tail's graph and weight
    /// digests, the tensors that cross, the codec version and the scales. Exits, thresholds and
    /// all before the cut stay outside it.
    pub fn split_id(&self, cut: usize) -> Option<SplitId> {
        #[derive(Serialize)]
        struct Part<'a> {
            graph: &'a Digest,
            weights: &'a Digest,
        }
        #[derive(Serialize)]
        struct Identity<'a> {
            codec_version: u8,
            scales: &'a [StaticScale],
            tail: Vec<Part<'a>>,
            tensors: &'a [InnerTensor],
        }
        let at = self.stages.get(cut)?.cut.as_ref()?;
        let tail = self.stages[cut + 1..]
            .iter()
            .map(|stage| Part { graph: &stage.graph, weights: &stage.weights });
        let identity = Identity {
            codec_version: at.codec.version,
            scales: &at.codec.scales,
            tail: tail.collect(),
            tensors: &at.tensors,
        };
        // Strings and integers only: these always have a JSON form.
        let json = serde_jcs::to_vec(&identity).ok()?;
        Some(SplitId(Sha256::digest(json).into()))
    }
}

impl CodecSpec {
    fn validate(&self, tensors: usize) -> Result<(), String> {
        if self.version != codec::VERSION {
            return Err(format!("version must be {}", codec::VERSION));
        }
        if !self.allowed.contains(&self.bits) {
            return Err("bits must be one of allowed".into());
        }
        if !self.allowed.iter().all(|bits| (1..=8).contains(bits)) {
            return Err("allowed must be 1 to 8 bits".into());
        }
        if !self.scales.is_empty() && self.scales.len() != tensors {
            return Err("scales must be empty or one per tensor".into());
        }
        match self.scales.iter().find(|scale| scale.parse().is_none()) {
            Some(scale) => Err(format!("scale {scale:?} is no finite range, low to high")),
            None => Ok(()),
        }
    }
}

/// Whether text may stand in a request path as it is.
fn is_path_part(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(allowed) && text != "." && text != ".."
}

#[cfg(test)]
mod tests;
