//! When two answers agree. An answer is the last output of a model: of one with exits, that of all
//! of it.

use midspan_runtime::{ElementType, Tensor, TensorSpec};

use crate::exit::classify;

/// When an answer agrees with the whole model's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Rule {
    /// The largest of its values is the same one in every row: for classifiers.
    #[default]
    SameClass,
    /// No value differs by more than this, and what is not FP32 not at all.
    Within(f32),
}

/// Why answers of this form cannot be compared by a rule; none when they can.
pub(super) fn unsuitable(rule: Rule, answer: &TensorSpec) -> Option<String> {
    let classes = answer.element == ElementType::F32 && answer.dims.len() == 2;
    (rule == Rule::SameClass && !classes).then(|| {
        let (element, dims) = (answer.element, answer.dims_text());
        format!(
            "output \"{}\" is {element} {dims}, no FP32 [rows, classes]: answers that are no \
             classes can only be compared by their largest difference",
            answer.name
        )
    })
}

/// Whether two answers agree.
pub(super) fn agree(rule: Rule, expected: &Tensor, got: &Tensor) -> bool {
    if expected.shape() != got.shape() {
        return false;
    }
    let (Ok(expected_values), Ok(values)) = (expected.f32s(), got.f32s()) else {
        return expected.bytes() == got.bytes();
    };
    match rule {
        Rule::SameClass => {
            let classes = expected.shape().last().copied().unwrap_or(1).max(1);
            let rows = expected_values.chunks(classes).zip(values.chunks(classes));
            rows.into_iter().all(|(one, other)| classify(one, 1.0).0 == classify(other, 1.0).0)
        }
        Rule::Within(most) => expected_values.iter().zip(&*values).all(|(one, other)| {
            // The same bits are no difference, even of a NaN; a NaN against a number is one.
            one.to_bits() == other.to_bits() || (one - other).abs() <= most
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(values: &[f32]) -> Tensor {
        Tensor::from_f32s(vec![1, values.len()], values).unwrap()
    }

    #[test]
    fn classes_agree_whatever_their_values() {
        let same =
            |one: &[f32], other: &[f32]| agree(Rule::SameClass, &tensor(one), &tensor(other));
        assert!(same(&[0.0, 3.0, 1.0], &[-5.0, 0.1, 0.0]));
        assert!(!same(&[0.0, 3.0, 1.0], &[0.0, 3.0, 3.1]));
        assert!(!same(&[0.0, 3.0], &[0.0, 3.0, 1.0]));
    }

    #[test]
    fn values_agree_within_a_difference() {
        let close =
            |one: &[f32], other: &[f32]| agree(Rule::Within(0.5), &tensor(one), &tensor(other));
        assert!(close(&[1.0, 2.0], &[1.5, 1.5]));
        assert!(!close(&[1.0, 2.0], &[1.6, 2.0]));
        assert!(close(&[f32::NAN], &[f32::NAN]) && !close(&[f32::NAN], &[0.0]));
        let (a, b) = ([1u8, 2], [1u8, 3]);
        let bytes = |data: [u8; 2]| Tensor::new(ElementType::U8, vec![2], data.to_vec()).unwrap();
        assert!(agree(Rule::Within(9.0), &bytes(a), &bytes(a)));
        assert!(!agree(Rule::Within(9.0), &bytes(a), &bytes(b)));
    }
}
