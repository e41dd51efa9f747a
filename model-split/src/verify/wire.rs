//! What arrives of a tensor on the other side of a cut: written as a frame and read again, the way
//! a node does it. A tensor without a first dimension travels as one row. What no frame can carry,
//! strings and tensors without elements, arrives as it is.

use midspan_runtime::{ElementType, Tensor};

use crate::codec::{self, Codec, CodecError, Frame, Precision, Scale};
use crate::digest::SplitId;

/// The range of the finite values met at a cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    lo: f32,
    hi: f32,
}

impl Default for Range {
    fn default() -> Self {
        Self { lo: f32::INFINITY, hi: f32::NEG_INFINITY }
    }
}

impl Range {
    pub(super) fn include(&mut self, tensor: &Tensor) {
        let Ok(values) = tensor.f32s() else { return };
        for value in values.iter().filter(|value| value.is_finite()) {
            self.lo = self.lo.min(*value);
            self.hi = self.hi.max(*value);
        }
    }

    /// As a scale; a range of one value is widened around it.
    pub(super) fn scale(self) -> Option<Scale> {
        let wider = || {
            let margin = self.lo.abs().max(1.0) * 1e-3;
            Scale::new(self.lo - margin, self.hi + margin)
        };
        Scale::new(self.lo, self.hi).or_else(wider)
    }
}

/// What arrives, and the bytes that crossed. Elements other than `f32`, and those of a cut without
/// a scale, cross raw.
pub(super) fn cross(
    tensor: &Tensor,
    precision: Precision,
    scale: Option<Scale>,
) -> Result<(Tensor, usize), CodecError> {
    let (shape, row) = match tensor.shape() {
        [] => (vec![1], vec![]),
        [_, row @ ..] => (tensor.shape().to_vec(), row.to_vec()),
    };
    let empty = shape.contains(&0);
    let codec = Codec::new(tensor.element(), row, scale).filter(|_| !empty);
    let Some(codec) = codec else { return Ok((tensor.clone(), tensor.bytes().len())) };
    let quantised = tensor.element() == ElementType::F32 && scale.is_some();
    let precision = if quantised { precision } else { Precision::Raw };
    let restore = |tensor: &Tensor, shape: &[usize]| {
        let bytes = tensor.bytes().to_vec();
        Tensor::new(tensor.element(), shape.to_vec(), bytes)
            .map_err(|_| CodecError::Header("rows do not fill the tensor"))
    };
    let rows = restore(tensor, &shape)?;
    let frame = codec::encode(&rows.view(), &codec, precision, SplitId([0; 32]))?;
    let arrived = Frame::parse(&frame)?.decode(&codec)?;
    Ok((restore(&arrived, tensor.shape())?, frame.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_arrives_and_raw_arrives_as_it_was() {
        let scalar = Tensor::from_f32s(vec![], &[3.0]).unwrap();
        let text = Tensor::from_strings(vec![2], &["a", "b"]).unwrap();
        let empty = Tensor::from_f32s(vec![0, 3], &[]).unwrap();
        let ids = Tensor::new(ElementType::I64, vec![1], vec![7; 8]).unwrap();
        for tensor in [scalar, text, empty, ids] {
            let scale = Scale::new(0.0, 4.0);
            let (raw, _) = cross(&tensor, Precision::Raw, scale).unwrap();
            assert_eq!(raw, tensor);
            assert_eq!(cross(&tensor, Precision::Bits(2), None).unwrap().0, tensor);
        }
    }

    #[test]
    fn floats_are_quantised_in_the_range_that_was_met() {
        let tensor = Tensor::from_f32s(vec![1, 3], &[0.0, 0.4, 1.0]).unwrap();
        let mut range = Range::default();
        assert!(range.scale().is_none());
        range.include(&tensor);
        let (arrived, bytes) = cross(&tensor, Precision::Bits(1), range.scale()).unwrap();
        assert_eq!(&*arrived.f32s().unwrap(), [0.0, 0.0, 1.0]);
        assert_eq!(bytes, codec::HEADER_LEN + 1);
        let mut one = Range::default();
        one.include(&Tensor::from_f32s(vec![1], &[5.0]).unwrap());
        assert!(one.scale().is_some_and(|scale| scale.lo() < 5.0 && scale.hi() > 5.0));
    }
}
