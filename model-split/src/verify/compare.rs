//! How far two tensors are from each other, and whether two answers are the same. Pure.
//!
//! Of each pair of values `a` (whole model) and `b` (halves): `|a - b|`, `|a - b| / max(|a|, |b|)`
//! and `|a - b| / max(1, |a|)`; the last is what a tolerance bounds. The same bits are no
//! difference, nor are two NaN; a NaN or an infinity against anything else is an infinite one, and
//! so are tensors of another type or shape, and strings that differ.

use midspan_runtime::{ElementType, Tensor};
use serde::Serialize;

/// The largest differences of any value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Difference {
    /// Of the values.
    pub max_abs: f64,
    /// Relative to the larger of both values.
    pub max_rel: f64,
    /// Relative to the whole model's value where that is larger than 1, else absolute.
    pub scaled: f64,
    /// Whether all bits were the same.
    pub bit_exact: Exact,
}

/// Whether all bits were the same; so for nothing compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Exact(pub bool);

impl Default for Exact {
    fn default() -> Self {
        Self(true)
    }
}

/// How equal halves and whole are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "class", rename_all = "snake_case")]
pub enum Exactness {
    /// The same bits.
    BitExact,
    /// Equal but for these largest differences.
    Tolerance {
        /// Of the values.
        max_abs: f64,
        /// Relative to the larger of both values.
        max_rel: f64,
    },
}

impl Difference {
    const INFINITE: Self = Self {
        max_abs: f64::INFINITY,
        max_rel: f64::INFINITY,
        scaled: f64::INFINITY,
        bit_exact: Exact(false),
    };

    /// Of the halves' tensor from the whole model's.
    pub fn between(whole: &Tensor, halves: &Tensor) -> Self {
        if whole.element() != halves.element() || whole.shape() != halves.shape() {
            return Self::INFINITE;
        }
        if whole.bytes() == halves.bytes() {
            return Self::default();
        }
        let Some(size) = whole.element().size() else { return Self::INFINITE };
        let mut all = Self { bit_exact: Exact(false), ..Self::default() };
        let pairs = whole.bytes().chunks_exact(size).zip(halves.bytes().chunks_exact(size));
        for (whole_bits, halves_bits) in pairs.filter(|(whole, halves)| whole != halves) {
            let whole_value = value(whole.element(), whole_bits);
            let halves_value = value(whole.element(), halves_bits);
            all.include(&Self::of(whole_value, halves_value));
        }
        all
    }

    fn of(whole: f64, halves: f64) -> Self {
        if whole.is_nan() && halves.is_nan() {
            return Self { bit_exact: Exact(false), ..Self::default() };
        }
        let difference = (whole - halves).abs();
        if !difference.is_finite() {
            return Self::INFINITE;
        }
        let larger = whole.abs().max(halves.abs());
        let relative = if difference == 0.0 { 0.0 } else { difference / larger };
        let scaled = difference / whole.abs().max(1.0);
        Self { max_abs: difference, max_rel: relative, scaled, bit_exact: Exact(false) }
    }

    /// Takes in another one.
    pub fn include(&mut self, other: &Self) {
        self.max_abs = self.max_abs.max(other.max_abs);
        self.max_rel = self.max_rel.max(other.max_rel);
        self.scaled = self.scaled.max(other.scaled);
        self.bit_exact.0 &= other.bit_exact.0;
    }

    /// Whether no value differs by more than this times the larger of 1 and the whole model's.
    pub fn within(&self, tolerance: f64) -> bool {
        self.scaled <= tolerance
    }

    /// As a class.
    pub fn exactness(&self) -> Exactness {
        match self.bit_exact.0 {
            true => Exactness::BitExact,
            false => Exactness::Tolerance { max_abs: self.max_abs, max_rel: self.max_rel },
        }
    }
}

/// One little-endian element as a number.
fn value(element: ElementType, bytes: &[u8]) -> f64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(word);
    match element {
        ElementType::F64 => f64::from_bits(bits),
        ElementType::F32 => f64::from(f32::from_bits(bits as u32)),
        ElementType::F16 => half::f16::from_bits(bits as u16).to_f64(),
        ElementType::BF16 => half::bf16::from_bits(bits as u16).to_f64(),
        ElementType::I8 => f64::from(bits as u8 as i8),
        ElementType::I16 => f64::from(bits as u16 as i16),
        ElementType::I32 => f64::from(bits as u32 as i32),
        ElementType::I64 => bits as i64 as f64,
        _ => bits as f64,
    }
}

/// In how many rows the same class came first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Rows with the same class.
    pub same: u64,
    /// Rows compared.
    pub of: u64,
}

impl Agreement {
    /// Of one answer; none when it is no classification: floats of shape `[N, classes]`, more
    /// dimensions of 1 allowed after them.
    pub fn between(whole: &Tensor, halves: &Tensor) -> Option<Self> {
        let (rows, classes) = match whole.shape() {
            [rows, classes, rest @ ..] if rest.iter().all(|size| *size == 1) => (*rows, *classes),
            _ => return None,
        };
        let size = whole.element().size()?;
        if !whole.element().is_float() || classes < 2 {
            return None;
        }
        if whole.element() != halves.element() || whole.shape() != halves.shape() {
            return Some(Self { same: 0, of: rows as u64 });
        }
        let top = |row: &[u8]| {
            let values = row.chunks_exact(size).map(|bits| value(whole.element(), bits));
            let best = values.enumerate().fold((0, f64::NEG_INFINITY), |best, (index, value)| {
                if value > best.1 { (index, value) } else { best }
            });
            best.0
        };
        let width = classes * size;
        let pairs = whole.bytes().chunks_exact(width).zip(halves.bytes().chunks_exact(width));
        let same = pairs.filter(|(whole, halves)| top(whole) == top(halves)).count();
        Some(Self { same: same as u64, of: rows as u64 })
    }

    /// Takes in another one.
    pub fn include(&mut self, other: Self) {
        self.same += other.same;
        self.of += other.of;
    }

    /// Share of the rows with the same class; 1 without any.
    pub fn share(&self) -> f64 {
        if self.of == 0 { 1.0 } else { self.same as f64 / self.of as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> Tensor {
        Tensor::from_f32s(vec![1, values.len()], values).unwrap()
    }

    #[test]
    fn differences_are_the_largest_of_each_kind() {
        let whole = f32s(&[0.5, 100.0, 0.0]);
        let difference = Difference::between(&whole, &f32s(&[0.25, 102.0, 0.0]));
        assert_eq!((difference.max_abs, difference.max_rel, difference.scaled), (2.0, 0.5, 0.25));
        let tolerance = Exactness::Tolerance { max_abs: 2.0, max_rel: 0.5 };
        assert_eq!(difference.exactness(), tolerance);
        assert!(difference.within(0.25) && !difference.within(0.24));
        assert_eq!(Difference::between(&whole, &whole).exactness(), Exactness::BitExact);
    }

    #[test]
    fn a_nan_is_equal_to_a_nan_and_to_nothing_else() {
        let nan = f32s(&[f32::NAN]);
        assert_eq!(Difference::between(&nan, &nan).exactness(), Exactness::BitExact);
        let negative = Difference::between(&nan, &f32s(&[-f32::NAN]));
        assert!(negative.within(0.0) && !negative.bit_exact.0);
        for (whole, halves) in
            [(f32::NAN, 1.0), (1.0, f32::NAN), (f32::INFINITY, 1.0), (1.0, f32::INFINITY)]
        {
            assert!(!Difference::between(&f32s(&[whole]), &f32s(&[halves])).within(1e300));
        }
        let infinite = f32s(&[f32::INFINITY]);
        assert!(Difference::between(&infinite, &infinite).bit_exact.0);
        assert!(Difference::between(&f32s(&[0.0]), &f32s(&[-0.0])).within(0.0));
    }

    #[test]
    fn integers_strings_and_shapes_are_compared() {
        let ints = |value: i8| Tensor::new(ElementType::I8, vec![1], vec![value as u8]).unwrap();
        assert_eq!(Difference::between(&ints(-1), &ints(1)).max_abs, 2.0);
        let text = |text: &str| Tensor::from_strings(vec![1], &[text]).unwrap();
        assert!(Difference::between(&text("a"), &text("a")).bit_exact.0);
        assert!(!Difference::between(&text("a"), &text("b")).within(1e300));
        assert!(!Difference::between(&ints(0), &f32s(&[0.0])).within(1e300));
        let half = |value| {
            let bytes = half::f16::from_f32(value).to_le_bytes().to_vec();
            Tensor::new(ElementType::F16, vec![1], bytes).unwrap()
        };
        assert_eq!(Difference::between(&half(1.0), &half(0.5)).max_abs, 0.5);
    }

    #[test]
    fn answers_agree_row_by_row() {
        let rows = |values: &[f32]| Tensor::from_f32s(vec![values.len() / 2, 2], values).unwrap();
        let whole = rows(&[0.0, 1.0, 1.0, 0.0, f32::NAN, 1.0]);
        let agreement = Agreement::between(&whole, &rows(&[0.1, 0.9, 0.0, 1.0, f32::NAN, 2.0]));
        assert_eq!(agreement, Some(Agreement { same: 2, of: 3 }));
        let map = Tensor::from_f32s(vec![1, 2, 2], &[0.0; 4]).unwrap();
        assert_eq!(Agreement::between(&map, &map), None);
    }
}
