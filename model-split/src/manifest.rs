//! The manifest of a bundle: what a model looks like to apps, its stages, cuts, exits, codec and
//! samples. Written as canonical JSON (RFC 8785), so that equal manifests have equal bytes. Every
//! field is checked on load; nothing here reads blobs.

mod identity;
mod validate;

use midspan_runtime::{Dim, ElementType, TensorSpec};
use serde::{Deserialize, Serialize};

use crate::codec::{self, Codec, Precision, Scale};
use crate::digest::{Digest, SplitId};
use crate::exit::ExitRule;
use crate::preprocess::Preprocess;

/// The manifest format that this version reads and writes.
pub const FORMAT: u32 = 1;
/// The platform string of OIP model metadata.
pub const PLATFORM: &str = "onnx_onnxv1";
/// [`CodecSpec::bits`] of half precision.
pub const HALF_BITS: u8 = 16;
/// [`CodecSpec::bits`] of elements as they are.
pub const RAW_BITS: u8 = 32;
/// The name of a stage as it was cut, beside those of its variants.
pub const PLAIN: &str = "plain";

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
    /// Other ways to run it, such as in 8-bit integers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
}

/// Another way to run a stage: it reads and answers tensors of the same names, types and shapes.
/// It stands outside of the split id, because what crosses means the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name, such as `int8`; [`PLAIN`] is taken by the stage as it was cut.
    pub name: String,
    /// Blob of the ONNX graph, its weights taken out.
    pub graph: Digest,
    /// Blob of the weights.
    pub weights: Digest,
    /// What was measured of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// What was measured of a variant, all stages before the cut run in it, against the stages as they
/// were cut. Counts, so that whoever reads them can state a bound of his own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// How the variant was made.
    pub method: String,
    /// Samples that it was made with.
    pub calibration: u64,
    /// Other samples that it was measured on.
    pub samples: u64,
    /// Samples whose answer is the same; none for a model that is no classifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreeing: Option<u64>,
    /// Samples for which this stage's exit names the same class; none for a stage without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_agreeing: Option<u64>,
    /// Root of the mean square error of what crosses, in thousandths of its own root mean square.
    pub error_milli: u64,
    /// SHA-256 over the samples that it was measured on.
    pub data: Digest,
    /// Day of the measurement, `YYYY-MM-DD`.
    pub date: String,
}

/// A head that was trained apart from the model: it reads one tensor of its stage and is merged
/// into it when the stage is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Blob of the ONNX graph, its weights taken out.
    pub graph: Digest,
    /// Blob of the weights.
    pub weights: Digest,
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
    /// Bits per element where nothing else is asked for, one of `allowed`: 1 to 8 quantised, 16 for
    /// half precision, 32 for elements as they are. Elements that are no FP32 always are as they
    /// are.
    pub bits: u8,
    /// All numbers of bits for which the scales were checked.
    pub allowed: Vec<u8>,
    /// One scale per tensor of the cut, in their order; or, of a cut of one tensor, one per unit
    /// ([`codec::Codec::units`]). Empty where elements travel unquantised, or each frame carries
    /// the scales of its values.
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
    /// What computes the logits, where the stage itself does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
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

/// What was measured of the exits before a cut: with probability `confidence` over the draw of the
/// samples, the mean loss per row is at most `budget`. It holds for the split, variant, heads,
/// thresholds and bits that it names and for nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// The split that was measured.
    pub split_id: SplitId,
    /// The variant that ran before the cut; [`PLAIN`] for the stages as they were cut.
    pub variant: String,
    /// [`Manifest::heads`] of the exits that were measured.
    pub heads: Digest,
    /// Thresholds of the exits before the cut, in order, in thousandths.
    pub thresholds_milli: Vec<u32>,
    /// Bits per element on the wire; 0 where elements travel unquantised.
    pub bits: u8,
    /// What is bounded.
    pub loss: Loss,
    /// How the bound was found.
    pub method: String,
    /// Samples it was measured on.
    pub samples: u64,
    /// Samples that an exit answered.
    pub answered: u64,
    /// Samples with loss 1.
    pub losses: u64,
    /// Upper bound of the mean loss per row, 0 to 1.
    pub budget: f64,
    /// Probability that the bound holds, 0 to 1.
    pub confidence: f64,
    /// SHA-256 over the samples.
    pub data: Digest,
    /// Day of the measurement, `YYYY-MM-DD`.
    pub date: String,
}

/// A loss of 0 or 1 per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// 1 when an exit answers and its class is not the whole model's.
    Disagreement,
    /// 1 when an exit answers with the wrong class where the whole model's is right.
    Label,
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
        let scales = cut.codec.scales.iter().map(StaticScale::parse).collect::<Option<_>>()?;
        Codec::with_scales(spec.element, row.collect::<Option<_>>()?, scales)
    }

    /// The precision that frames of a cut have where nothing else is asked for.
    pub fn precision(&self, cut: usize) -> Option<Precision> {
        let cut = self.stages.get(cut)?.cut.as_ref()?;
        let float = |tensor: &InnerTensor| tensor.datatype == ElementType::F32.oip_name();
        match cut.codec.bits {
            _ if !cut.tensors.iter().all(float) => Some(Precision::Raw),
            HALF_BITS => Some(Precision::Half),
            RAW_BITS => Some(Precision::Raw),
            bits => Precision::bits(bits),
        }
    }
}

#[cfg(test)]
mod tests;
