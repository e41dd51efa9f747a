//! Times of the codec at one cut. It knows of one row, as most requests have.

use midspan_runtime::Tensor;

use super::CodecTime;
use super::measure::MeasureError;
use super::slow::Slowdown;
use super::timing::Timing;
use crate::candidate::WirePrecision;
use crate::codec::{self, Codec, Frame, Precision, Scale};
use crate::digest::SplitId;

/// An activation at one precision.
pub(super) struct Wire {
    cut: String,
    precision: WirePrecision,
    rows: Tensor,
    codec: Codec,
    encode: Vec<f64>,
    decode: Vec<f64>,
}

impl Wire {
    /// Every precision that suits the tensor.
    pub(super) fn all(cut: &str, row: &Tensor, bits: &[u8]) -> Vec<Self> {
        let values = row.f32s().ok();
        let scale = values.as_ref().and_then(|values| {
            let (lo, hi) = values
                .iter()
                .fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), v| (lo.min(*v), hi.max(*v)));
            Scale::new(lo, hi).or_else(|| Scale::new(lo, lo + 1.0))
        });
        let shape = row.shape().get(1..).map(<[usize]>::to_vec);
        let codec = shape.and_then(|shape| Codec::new(row.element(), shape, scale));
        let Some(codec) = codec else { return vec![] };
        let mut precisions = vec![WirePrecision::Raw];
        if scale.is_some() {
            precisions.push(WirePrecision::Half);
            precisions.extend(bits.iter().map(|bits| WirePrecision::Bits(*bits)));
        }
        let wire = |precision| Self {
            cut: cut.to_owned(),
            precision,
            rows: row.clone(),
            codec: codec.clone(),
            encode: vec![],
            decode: vec![],
        };
        precisions.into_iter().map(wire).collect()
    }

    pub(super) fn take(&mut self, slowdown: Slowdown, counts: bool) -> Result<(), MeasureError> {
        let precision = match self.precision {
            WirePrecision::Raw => Precision::Raw,
            WirePrecision::Half => Precision::Half,
            WirePrecision::Bits(bits) => Precision::Bits(bits),
        };
        let fault = |source| MeasureError::Codec { cut: self.cut.clone(), source };
        let (frame, encode) = slowdown
            .take(|| codec::encode(&self.rows.view(), &self.codec, precision, SplitId([0; 32])));
        let frame = frame.map_err(fault)?;
        let (rows, decode) =
            slowdown.take(|| Frame::parse(&frame).and_then(|frame| frame.decode(&self.codec)));
        rows.map_err(fault)?;
        if counts {
            self.encode.push(encode.as_secs_f64() * 1e6);
            self.decode.push(decode.as_secs_f64() * 1e6);
        }
        Ok(())
    }

    pub(super) fn timed(self) -> Option<CodecTime> {
        let (encode, decode) = (Timing::of(self.encode)?, Timing::of(self.decode)?);
        Some(CodecTime { cut: self.cut, precision: self.precision, encode, decode })
    }
}
