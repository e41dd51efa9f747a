//! A slow reference to compare with: a general parser finds the values and judges the form, the
//! standard library converts floats, and integers are compared digit by digit.

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::parse;
use crate::Datatype;

/// The element bytes of `text`, or `None` when it is to be refused.
fn reference(datatype: Datatype, shape: &[u64], text: &str) -> Option<Vec<u8>> {
    let raw: &RawValue = serde_json::from_str(text).ok()?;
    let top: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
    let nested = top.first().is_some_and(|first| first.get().starts_with('['));
    let mut out = Vec::new();
    if nested {
        level(datatype, shape, raw.get(), &mut out)?;
    } else {
        if shape.iter().product::<u64>() != top.len() as u64 {
            return None;
        }
        for value in top {
            out.extend(element(datatype, value.get())?);
        }
    }
    Some(out)
}

fn level(datatype: Datatype, shape: &[u64], text: &str, out: &mut Vec<u8>) -> Option<()> {
    let Some((length, inner)) = shape.split_first() else {
        out.extend(element(datatype, text)?);
        return Some(());
    };
    let list: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    if list.len() as u64 != *length {
        return None;
    }
    list.into_iter().try_for_each(|value| level(datatype, inner, value.get(), out))
}

fn element(datatype: Datatype, text: &str) -> Option<Vec<u8>> {
    let number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    match datatype {
        Datatype::Bool => serde_json::from_str::<bool>(text).ok().map(|value| vec![value.into()]),
        Datatype::Bytes => {
            let value: String = serde_json::from_str(text).ok()?;
            Some([&(value.len() as u32).to_le_bytes()[..], value.as_bytes()].concat())
        }
        Datatype::Fp32 => {
            let value = if number { text.parse().ok()? } else { special(text)? as f32 };
            (!number || value.is_finite()).then(|| value.to_le_bytes().to_vec())
        }
        Datatype::Fp64 => {
            let value: f64 = if number { text.parse().ok()? } else { special(text)? };
            (!number || value.is_finite()).then(|| value.to_le_bytes().to_vec())
        }
        Datatype::Int8 => i8::try_from(integer(text)?).ok().map(|v| v.to_le_bytes().to_vec()),
        Datatype::Uint64 => u64::try_from(integer(text)?).ok().map(|v| v.to_le_bytes().to_vec()),
        Datatype::Int64 => i64::try_from(integer(text)?).ok().map(|v| v.to_le_bytes().to_vec()),
        other => panic!("{other} is not drawn"),
    }
}

fn special(text: &str) -> Option<f64> {
    match text {
        r#""NaN""# => Some(f64::NAN),
        r#""Infinity""# => Some(f64::INFINITY),
        r#""-Infinity""# => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// Writes the number out in full and takes what is left of the point.
fn integer(text: &str) -> Option<i128> {
    if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let (mantissa, exponent) = lower.split_once('e').unwrap_or((&lower, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (sign, whole) = whole.strip_prefix('-').map_or((1, whole), |rest| (-1, rest));
    let mut digits = format!("{whole}{fraction}");
    if digits.bytes().all(|digit| digit == b'0') {
        return Some(0);
    }
    // Drawn exponents are below 1000, so that anything larger is out of any type's range.
    let point = whole.len() as i64 + exponent.parse::<i64>().ok()?;
    if !(0..=2000).contains(&point) {
        return None;
    }
    while digits.len() < point as usize {
        digits.push('0');
    }
    let (whole, fraction) = digits.split_at(point as usize);
    if fraction.bytes().any(|digit| digit != b'0') {
        return None;
    }
    let significant = whole.trim_start_matches('0');
    (significant.len() <= 30)
        .then(|| format!("0{significant}").parse::<i128>().ok())?
        .map(|v| v * sign)
}

/// Texts of single values, most of them numbers near a limit of something.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => any::<f32>().prop_map(|value| value.to_string()),
        2 => any::<f32>().prop_map(|value| format!("{value:e}")),
        2 => any::<f32>().prop_map(|value| f64::from(value).to_string()),
        // Half way between two singles, and next to it.
        3 => (any::<u32>(), -1_i64..=1).prop_map(|(bits, step)| {
            let half = (u64::from(bits) << 29 & 0x7fff_ffff_ffff_ffff) | 1 << 28;
            let narrowed = (half & 0x000f_ffff_ffff_ffff) | (0x3ff0 - 0x400 + u64::from(bits >> 25)) << 52;
            format!("{:e}", f64::from_bits(narrowed.wrapping_add_signed(step)))
        }),
        3 => any::<f64>().prop_map(|value| format!("{value:e}")),
        3 => any::<i64>().prop_map(|value| value.to_string()),
        2 => any::<u64>().prop_map(|value| value.to_string()),
        2 => (-200_i32..400).prop_map(|value| value.to_string()),
        2 => (any::<i64>(), 0_usize..30).prop_map(|(value, zeros)| format!("{value}.{}", "0".repeat(zeros))),
        4 => "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,24})?([eE][+-]?[0-9]{1,2})?",
        1 => "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{3})?",
        1 => "[-+.eE0-9]{1,8}",
        1 => proptest::sample::select(vec![
            "true", "false", "null", r#""NaN""#, r#""-Infinity""#, r#""""#, r#""a\u00e9""#,
            r#""\ud800""#, "[]", "{}", "[1]", "-", "tru",
        ]).prop_map(str::to_owned),
    ]
}

const TYPES: [Datatype; 7] = [
    Datatype::Bool,
    Datatype::Bytes,
    Datatype::Fp32,
    Datatype::Fp64,
    Datatype::Int8,
    Datatype::Int64,
    Datatype::Uint64,
];

/// A value has no NaN bits to compare: both make the same one.
fn agree(datatype: Datatype, shape: &[u64], text: &str) -> Result<(), TestCaseError> {
    let ours = parse(datatype, shape, text);
    let theirs = reference(datatype, shape, text);
    prop_assert_eq!(
        ours.as_ref().ok(),
        theirs.as_ref(),
        "{} {:?} {}: {:?}",
        datatype,
        shape,
        text,
        &ours
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn single_values_agree(value in value()) {
        for datatype in TYPES {
            agree(datatype, &[1], &format!("[{value}]"))?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arrays_agree(
        datatype in proptest::sample::select(TYPES.to_vec()),
        shape in proptest::collection::vec(0_u64..4, 0..4),
        values in proptest::collection::vec(value(), 8),
        space in proptest::sample::select(vec!["", " ", "\n\t", "\r"]),
        flat: bool,
        change in proptest::option::weighted(0.5, (any::<proptest::sample::Index>(), "[\\[\\],0-9 \"a-]")),
    ) {
        let mut drawn = values.iter().cycle().cloned();
        let mut text = if flat {
            let count = shape.iter().product::<u64>() as usize;
            let list: Vec<String> = drawn.by_ref().take(count).collect();
            format!("[{space}{}{space}]", list.join(&format!("{space},{space}")))
        } else {
            nest(&shape, &mut drawn, space)
        };
        if let Some((at, by)) = change {
            let mut characters: Vec<char> = text.chars().collect();
            let at = at.index(characters.len());
            characters[at] = by.chars().next().unwrap();
            text = characters.into_iter().collect();
        }
        if text.starts_with('[') {
            agree(datatype, &shape, &text)?;
        }
    }
}

fn nest(shape: &[u64], values: &mut impl Iterator<Item = String>, space: &str) -> String {
    let Some((length, inner)) = shape.split_first() else { return values.next().unwrap() };
    let list: Vec<String> = (0..*length).map(|_| nest(inner, values, space)).collect();
    format!("[{space}{}{space}]", list.join(&format!("{space},{space}")))
}
