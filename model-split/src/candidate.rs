//! What may be done with a request of a split model, and what was measured of each way. The types
//! that measuring, planning and reports share; it must not measure or choose.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One way to answer a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Candidate {
    /// The whole model runs on the edge, nothing crosses: do not split.
    Local {
        /// Variant of the model that runs.
        variant: String,
    },
    /// The front and its exit run on the edge, and the exit answers whatever its confidence.
    Exit {
        /// Tensor of the cut that the exit stands at.
        cut: String,
        /// Variant of the front.
        variant: String,
    },
    /// The input crosses, and the cloud runs the whole model.
    Input {
        /// How it is written.
        form: InputForm,
    },
    /// The front runs on the edge, the tensor of a cut crosses, the cloud runs the tail.
    Activation {
        /// Tensor of the cut.
        cut: String,
        /// How its elements are written.
        precision: WirePrecision,
        /// Variant of the front.
        variant: String,
    },
}

/// How an input crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputForm {
    /// As the tensor that the model reads.
    Tensor,
    /// As the bytes of the picture that came in.
    Received,
    /// As WebP, lossless, method 6 of libwebp, of the pixels that the model reads.
    WebpLossless,
    /// As JPEG of this quality, 1 to 100, of the pixels that the model reads.
    Jpeg(u8),
}

/// How the elements of an activation cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WirePrecision {
    /// As they are.
    Raw,
    /// As half precision.
    Half,
    /// Quantised to this many bits, 1 to 8.
    Bits(u8),
}

impl fmt::Display for InputForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor => f.write_str("tensor"),
            Self::Received => f.write_str("as received"),
            Self::WebpLossless => f.write_str("WebP lossless"),
            Self::Jpeg(quality) => write!(f, "JPEG {quality}"),
        }
    }
}

impl fmt::Display for WirePrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Raw => f.write_str("raw"),
            Self::Half => f.write_str("fp16"),
            Self::Bits(bits) => write!(f, "{bits} bit"),
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { variant } => write!(f, "local ({variant})"),
            Self::Exit { cut, variant } => write!(f, "exit at {cut} ({variant})"),
            Self::Input { form } => write!(f, "send the input: {form}"),
            Self::Activation { cut, precision, variant } => {
                write!(f, "send {cut} at {precision} ({variant})")
            }
        }
    }
}

/// What a candidate puts on the wire and how often it agrees with the whole model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fidelity {
    /// The candidate.
    pub candidate: Candidate,
    /// Mean bytes of a request's body on the uplink.
    pub bytes: f64,
    /// 95th percentile of them.
    pub bytes_p95: u64,
    /// Samples run.
    pub samples: u64,
    /// Samples with the whole model's answer.
    pub agreeing: u64,
    /// Lower bound of the probability of agreement that holds with 95 % confidence
    /// (Clopper–Pearson, one-sided).
    pub agreement_lower: f64,
}
