//! The `classification` extension: the k best classes of an output as text,
//! `<value>:<index>[:<label>]`, best first. Which output is asked for is the request's to say;
//! probabilities are not computed here: values are as the model gave them.
//!
//! A NaN is worse than every number. Of equal values the lower index comes first.

use std::{cmp::Ordering, fmt::Write as _};

use bytes::{BufMut, BytesMut};
use midspan_protocol::RequestedOutput;
use midspan_runtime::ElementType;

use crate::{batch::Blob, error::NodeError, model::Model};

/// Refuses what cannot be classified before anything runs.
///
/// # Errors
/// A parameter that is no count, or an output whose type has no order or no text.
pub(crate) fn check(model: &Model, outputs: &[RequestedOutput]) -> Result<(), NodeError> {
    for output in outputs {
        if output.classification()?.is_none() {
            continue;
        }
        let port = model.outputs.iter().find(|port| port.spec.name == output.name);
        if let Some(port) = port.filter(|port| !can(port.spec.element)) {
            return Err(unsupported(&output.name, port.spec.element));
        }
    }
    Ok(())
}

/// Whether an output is to be classified.
///
/// # Errors
/// A parameter that is no count.
pub(crate) fn is_asked(outputs: &[RequestedOutput]) -> Result<bool, NodeError> {
    for output in outputs {
        if output.classification()?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The best `count` classes of each row of a batch (of a model whose first dimension is one, as
/// `batched` says), or of the whole tensor.
///
/// # Errors
/// A type that cannot be classified.
pub(crate) fn classify(
    name: &str,
    blob: &Blob,
    batched: bool,
    count: usize,
    labels: &[String],
) -> Result<Blob, NodeError> {
    let size = blob.element.size().filter(|_| can(blob.element));
    let size = size.ok_or_else(|| unsupported(name, blob.element))?;
    // A lone dimension holds classes: one class a row would say nothing.
    let batched = batched && blob.shape.len() > 1;
    let row = blob.shape.get(usize::from(batched)..).unwrap_or(&[]);
    let classes: usize = row.iter().product();
    let labels = if labels.len() == classes { labels } else { &[] };
    let count = count.min(classes);
    let rows = if batched { blob.rows() } else { 1 };
    let mut bytes = BytesMut::new();
    let mut text = String::new();
    let row_bytes = classes * size;
    for row in 0..rows {
        let values = blob.bytes.get(row * row_bytes..(row + 1) * row_bytes).unwrap_or(&[]);
        let values = Values { element: blob.element, size, bytes: values };
        for index in values.best(classes, count) {
            text.clear();
            values.at(index).write(&mut text);
            let _infallible = write!(text, ":{index}");
            if let Some(label) = labels.get(index) {
                let _infallible = write!(text, ":{label}");
            }
            bytes.put_u32_le(u32::try_from(text.len()).unwrap_or(u32::MAX));
            bytes.put_slice(text.as_bytes());
        }
    }
    let shape = if batched { vec![rows, count] } else { vec![count] };
    Ok(Blob { element: ElementType::String, shape, bytes: bytes.freeze() })
}

fn can(element: ElementType) -> bool {
    !matches!(
        element,
        ElementType::String | ElementType::Bool | ElementType::F16 | ElementType::BF16
    )
}

fn unsupported(name: &str, element: ElementType) -> NodeError {
    NodeError::Input(format!("output '{name}': classification is not supported for {element}"))
}

/// The values of one row.
struct Values<'b> {
    element: ElementType,
    size: usize,
    bytes: &'b [u8],
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Float(f64),
    Integer(i128),
}

impl Values<'_> {
    fn at(&self, index: usize) -> Value {
        let start = index * self.size;
        let mut wide = [0; 8];
        for (to, from) in
            wide.iter_mut().zip(self.bytes.get(start..start + self.size).unwrap_or(&[]))
        {
            *to = *from;
        }
        let [a, b, c, d, ..] = wide;
        match self.element {
            ElementType::F32 => Value::Float(f32::from_le_bytes([a, b, c, d]).into()),
            ElementType::F64 => Value::Float(f64::from_le_bytes(wide)),
            ElementType::I8 => Value::Integer(i8::from_le_bytes([a]).into()),
            ElementType::I16 => Value::Integer(i16::from_le_bytes([a, b]).into()),
            ElementType::I32 => Value::Integer(i32::from_le_bytes([a, b, c, d]).into()),
            ElementType::I64 => Value::Integer(i64::from_le_bytes(wide).into()),
            _ => Value::Integer(u64::from_le_bytes(wide).into()),
        }
    }

    /// Indices of the best `count`, best first.
    fn best(&self, classes: usize, count: usize) -> Vec<usize> {
        let order = |a: &usize, b: &usize| self.at(*b).rank(self.at(*a)).then(a.cmp(b));
        let mut indices: Vec<usize> = (0..classes).collect();
        if count > 0 && count < classes {
            indices.select_nth_unstable_by(count - 1, order);
        }
        indices.truncate(count);
        indices.sort_unstable_by(order);
        indices
    }
}

impl Value {
    /// Which of two values of one type is the better.
    fn rank(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => {
                a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
            }
            (Self::Integer(a), Self::Integer(b)) => a.cmp(&b),
            (Self::Float(_), Self::Integer(_)) => Ordering::Less,
            (Self::Integer(_), Self::Float(_)) => Ordering::Greater,
        }
    }

    /// Six decimals for floating point numbers, and the names that JSON outputs have for what is
    /// no number; integers exact.
    fn write(self, text: &mut String) {
        let _infallible = match self {
            Self::Integer(value) => write!(text, "{value}"),
            Self::Float(value) if value.is_nan() => write!(text, "NaN"),
            Self::Float(value) if value == f64::INFINITY => write!(text, "Infinity"),
            Self::Float(value) if value == f64::NEG_INFINITY => write!(text, "-Infinity"),
            Self::Float(value) => write!(text, "{value:.6}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(shape: Vec<usize>, values: &[f32]) -> Blob {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Blob { element: ElementType::F32, shape, bytes: bytes.into() }
    }

    #[track_caller]
    fn check(blob: &Blob, batched: bool, count: usize, labels: &[&str], shape: &[usize], is: &str) {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        let classes = classify("y", blob, batched, count, &labels).unwrap();
        assert_eq!((classes.element, classes.shape.as_slice()), (ElementType::String, shape));
        let tensor = classes.to_protocol("y").unwrap();
        let texts: Vec<String> = tensor
            .to_byte_strings()
            .unwrap()
            .iter()
            .map(|text| String::from_utf8(text.to_vec()).unwrap())
            .collect();
        assert_eq!(texts.join(" "), is);
    }

    #[test]
    fn best_first_by_row_or_over_the_whole() {
        let blob = f32s(vec![1, 4], &[1.0, 5.0, 10.0, 4.0]);
        check(&blob, true, 2, &[], &[1, 2], "10.000000:2 5.000000:1");
        check(&blob, false, 2, &[], &[2], "10.000000:2 5.000000:1");
        let names = ["a", "b", "c", "d"];
        check(&blob, true, 1, &names, &[1, 1], "10.000000:2:c");
        check(&blob, true, 1, &["too", "few"], &[1, 1], "10.000000:2");
        let two = f32s(vec![2, 2], &[0.5, -0.25, -1.0, 1e-7]);
        check(&two, true, 9, &[], &[2, 2], "0.500000:0 -0.250000:1 0.000000:1 -1.000000:0");
        check(&f32s(vec![2], &[3.5, 4.0]), true, 1, &[], &[1], "4.000000:1");
        check(&f32s(vec![], &[3.5]), true, 3, &[], &[1], "3.500000:0");
        check(&f32s(vec![0, 3], &[]), true, 2, &[], &[0, 2], "");
        check(&f32s(vec![2, 0], &[]), true, 2, &[], &[2, 0], "");
    }

    #[test]
    fn ties_and_what_is_no_number_have_an_order() {
        let inf = f32::INFINITY;
        let blob = f32s(vec![7], &[f32::NAN, 1.0, -inf, 2.0, f32::NAN, 2.0, inf]);
        let all = "Infinity:6 2.000000:3 2.000000:5 1.000000:1 -Infinity:2 NaN:0 NaN:4";
        check(&blob, false, 7, &[], &[7], all);
        check(&blob, false, 3, &[], &[3], "Infinity:6 2.000000:3 2.000000:5");
        check(&blob, false, 6, &[], &[6], all.trim_end_matches(" NaN:4"));
    }

    #[test]
    fn integers_are_exact_and_other_types_refused() {
        let bytes: Vec<u8> =
            [i64::MIN, i64::MAX, i64::MAX - 1].iter().flat_map(|v| v.to_le_bytes()).collect();
        let blob =
            |element, bytes: &[u8], shape| Blob { element, shape, bytes: bytes.to_vec().into() };
        let signed = blob(ElementType::I64, &bytes, vec![3]);
        let text = "9223372036854775807:1 9223372036854775806:2 -9223372036854775808:0";
        check(&signed, false, 3, &[], &[3], text);
        check(&blob(ElementType::U8, &[1, 255], vec![2]), false, 1, &[], &[1], "255:1");
        check(&blob(ElementType::I8, &[1, 255], vec![2]), false, 2, &[], &[2], "1:0 -1:1");
        for element in [ElementType::F16, ElementType::BF16, ElementType::Bool] {
            let refused = classify("y", &blob(element, &[0; 2], vec![1]), false, 1, &[]);
            let text = refused.unwrap_err().to_string();
            assert!(text.contains(element.oip_name()) && text.contains("'y'"), "{text}");
        }
    }
}
