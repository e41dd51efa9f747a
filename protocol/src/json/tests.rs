//! JSON data at the edges of every datatype, and against a slow reference.

mod reference;
mod writing;

use expect_test::{Expect, expect};

use super::{data::read_data, *};
use crate::{Datatype, ProtocolError};

/// The element bytes of `raw`, which must be all of the text.
fn parse(datatype: Datatype, shape: &[u64], raw: &str) -> Result<Vec<u8>, String> {
    let count = crate::tensor::element_count(shape).unwrap();
    let mut reader = Reader::new(raw);
    let bytes = read_data(&mut reader, datatype, shape, count)
        .and_then(|bytes| reader.end().map(|()| bytes));
    let tensor: fn(&str, String) -> ProtocolError =
        |name, problem| ProtocolError::input(name, problem);
    bytes.map(|bytes| bytes.to_vec()).map_err(|fault| fault.into_error(tensor).to_string())
}

fn floats(raw: &str) -> Result<Vec<f32>, String> {
    let bytes = parse(Datatype::Fp32, &[3], raw)?;
    Ok(bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect())
}

fn check(datatype: Datatype, shape: &[u64], raw: &str, expected: Expect) {
    expected.assert_eq(&parse(datatype, shape, raw).unwrap_err());
}

#[test]
fn flat_and_nested_agree_and_ragged_is_refused() {
    let flat = parse(Datatype::Int32, &[2, 2], "[1,2,3,4]").unwrap();
    assert_eq!(
        parse(Datatype::Int32, &[2, 2], " [ [ 1 ,\n2],\t[3,\r4 ] ] ".trim_start()),
        Ok(flat)
    );
    for bad in [
        "[[1,2,3],[4]]",
        "[[1,2],3,4]",
        "[1,[2],3,4]",
        "[[[1,2]],[[3,4]]]",
        "[[1,2],[3,4],[]]",
        "[[1],[2],[3],[4]]",
        "[[1,2,3,4]]",
        "[[],[]]",
        "[[]]",
        "7",
        "{}",
        "null",
    ] {
        assert!(parse(Datatype::Int32, &[2, 2], bad).is_err(), "{bad}");
    }
    assert_eq!(parse(Datatype::Fp32, &[], "[3.5]").unwrap(), 3.5_f32.to_le_bytes());
    assert!(parse(Datatype::Fp32, &[], "[[3.5]]").is_err());
    assert!(parse(Datatype::Fp32, &[1], "[[3.5]]").is_err());
    for (shape, raw) in [(&[0, 3][..], "[]"), (&[2, 0], "[[],[]]"), (&[2, 0, 3], "[[],[]]")] {
        assert_eq!(parse(Datatype::Fp32, shape, raw).unwrap(), Vec::<u8>::new());
    }
}

#[test]
fn faults_name_the_element_or_the_byte() {
    check(
        Datatype::Int8,
        &[2],
        "[1,300]",
        expect!["JSON: element 1: 300 is out of range for INT8"],
    );
    check(Datatype::Int32, &[1], "[1.5]", expect!["JSON: element 0: 1.5 where INT32 is expected"]);
    check(Datatype::Bool, &[1], "[1]", expect!["JSON: element 0: a number where BOOL is expected"]);
    check(Datatype::Fp32, &[1], "[nul]", expect!["JSON: element 0: null where FP32 is expected"]);
    check(Datatype::Fp32, &[1], "[01]", expect!["JSON: not a JSON number at byte 2"]);
    check(
        Datatype::Fp32,
        &[1],
        "[1 2]",
        expect!["JSON: expected ',' or ']', found a number at byte 3"],
    );
    check(
        Datatype::Fp32,
        &[1],
        "[1",
        expect!["JSON: expected ',' or ']', found the end at byte 2"],
    );
    check(
        Datatype::Fp32,
        &[2, 1],
        "[[1],2]",
        expect!["JSON: nesting does not follow shape [2, 1]"],
    );
    check(Datatype::Fp32, &[3], "[1,2]", expect!["JSON: expected 3 elements for its shape, got 2"]);
    check(Datatype::Fp32, &[1], "[1,2]", expect!["JSON: more than the 1 elements of its shape"]);
    check(
        Datatype::Bf16,
        &[1],
        "[1]",
        expect!["JSON: BF16 has no JSON form; send it as binary data"],
    );
}

#[test]
fn only_json_numbers_are_numbers() {
    for raw in [
        "+1",
        ".5",
        "1.",
        "01",
        "-01",
        "00",
        "-",
        "1e",
        "1e+",
        "1.e3",
        "0x10",
        "1_000",
        "1f",
        "١",
        "--1",
        "1e1.5",
        "1,",
        ",1",
        "",
        "inf",
        "nan",
        "-NaN",
        "+Infinity",
        "NaNs",
        "Infinity1",
        "-Infinit",
        "1 .5",
        "1/*c*/",
    ] {
        for datatype in [Datatype::Fp32, Datatype::Fp64, Datatype::Int64] {
            assert!(parse(datatype, &[1], &format!("[{raw}]")).is_err(), "{datatype} {raw}");
        }
    }
}

#[test]
fn integers_are_exact_however_they_are_written() {
    let long = format!("1{}e-400", "0".repeat(400));
    let padded = format!("5.{}", "0".repeat(60));
    for (raw, value) in [
        ("1.0", 1_i64),
        ("1e0", 1),
        ("-0", 0),
        ("-0.0", 0),
        ("0e999999999999999999999", 0),
        ("0.5e1", 5),
        ("12.50e1", 125),
        ("10e-1", 1),
        ("9007199254740993", 9_007_199_254_740_993),
        ("9007199254740993.0", 9_007_199_254_740_993),
        ("9007199254740993.00000000000", 9_007_199_254_740_993),
        ("9.007199254740993e15", 9_007_199_254_740_993),
        ("-9223372036854775808", i64::MIN),
        ("-9223372036854775808.0", i64::MIN),
        ("9223372036854775807", i64::MAX),
        ("9.223372036854775807E+18", i64::MAX),
        (&long, 1),
        (&padded, 5),
    ] {
        let bytes = parse(Datatype::Int64, &[1], &format!("[{raw}]"));
        assert_eq!(bytes, Ok(value.to_le_bytes().to_vec()), "{raw}");
    }
    for raw in ["18446744073709551615", "18446744073709551615.00", "1844674407370955161500e-2"] {
        let bytes = parse(Datatype::Uint64, &[1], &format!("[{raw}]"));
        assert_eq!(bytes, Ok(u64::MAX.to_le_bytes().to_vec()), "{raw}");
    }
    for (datatype, raw) in [
        (Datatype::Int8, "300"),
        (Datatype::Uint8, "-1"),
        (Datatype::Uint64, "18446744073709551616"),
        (Datatype::Uint64, "18446744073709551616.0"),
        (Datatype::Int64, "9223372036854775808"),
        (Datatype::Int64, "-9223372036854775809"),
        (Datatype::Int64, "9007199254740993.5"),
        (Datatype::Int64, "1.0000000000000000000000000001"),
        (Datatype::Int32, "1.5"),
        (Datatype::Int32, "1e-1"),
        (Datatype::Int32, "1e-99999999999999999999"),
        (Datatype::Int32, "1e400"),
        (Datatype::Int32, "1e99999999999999999999"),
        (Datatype::Int32, "NaN"),
        (Datatype::Int32, "-Infinity"),
        (Datatype::Int32, "\"1\""),
        (Datatype::Int32, "true"),
        (Datatype::Bool, "1"),
        (Datatype::Bool, "\"true\""),
        (Datatype::Bool, "truee"),
        (Datatype::Bytes, "5"),
        (Datatype::Bytes, "NaN"),
        (Datatype::Fp32, "true"),
        (Datatype::Fp32, "\"1\""),
        (Datatype::Fp32, "\"nan\""),
        (Datatype::Fp32, "null"),
        (Datatype::Fp32, "1e39"),
        (Datatype::Fp32, "-3.5e38"),
        (Datatype::Fp64, "1e400"),
        (Datatype::Fp16, "1"),
    ] {
        assert!(parse(datatype, &[1], &format!("[{raw}]")).is_err(), "{datatype} {raw}");
    }
}

#[test]
fn singles_are_rounded_once() {
    // By way of a double, each of these would round twice, to another single.
    for raw in [
        "1.00000017881393432617187499",
        "1.00000017881393421514957253748434595763683319091796875001",
        "7.0064923216240854e-46",
        "7.0064923216240853e-46",
        "16777217.000000001",
        "16777216.9999999999999999999",
        "9007199791611905",
        "3.4028235677973366e38",
        "0.000000000000000000000000000000000000011754943508222875",
    ] {
        let single: f32 = raw.parse().unwrap();
        let bytes = parse(Datatype::Fp32, &[1], &format!("[{raw}]"));
        if single.is_finite() {
            assert_eq!(bytes, Ok(single.to_le_bytes().to_vec()), "{raw}");
        } else {
            assert!(bytes.is_err(), "{raw}");
        }
    }
    let twice = |raw: &str| raw.parse::<f64>().unwrap() as f32;
    let raw = "1.00000017881393432617187499";
    assert_ne!(twice(raw), raw.parse::<f32>().unwrap(), "the case shows nothing");
}

#[test]
fn floats_accept_integers_and_named_values() {
    assert_eq!(floats("[1, 2.5, 1e-45]").unwrap(), [1.0, 2.5, 1e-45]);
    assert_eq!(floats("[-0, 0e9, -0.0]").unwrap().map_bits(), [1 << 31, 0, 1 << 31]);
    for raw in [r#"["NaN","Infinity","-Infinity"]"#, "[NaN , Infinity,-Infinity]"] {
        let values = floats(raw).unwrap();
        assert!(values[0].is_nan() && values[1..] == [f32::INFINITY, f32::NEG_INFINITY], "{raw}");
    }
}

trait MapBits {
    fn map_bits(&self) -> Vec<u32>;
}

impl MapBits for Vec<f32> {
    fn map_bits(&self) -> Vec<u32> {
        self.iter().map(|value| value.to_bits()).collect()
    }
}

#[test]
fn strings_are_strict_and_keep_every_character() {
    let one =
        |raw: &str| parse(Datatype::Bytes, &[1], &format!("[{raw}]")).map(|b| b[4..].to_vec());
    for (raw, text) in [
        (r#""""#, ""),
        (r#""é\u0000b""#, "é\0b"),
        (r#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
        (r#""\ud83d\ude00 😀""#, "😀 😀"),
        (r#""\\""#, "\\"),
        ("\"\u{7f}\u{2028}\"", "\u{7f}\u{2028}"),
    ] {
        assert_eq!(one(raw), Ok(text.as_bytes().to_vec()), "{raw}");
    }
    for raw in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800\u0041""#,
        r#""\x""#,
        r#""\u12g4""#,
        "\"a\nb\"",
        "\"\\n\u{1}\"",
        "\"\t\"",
        "'a'",
        "\"a",
        "\"a\\",
        "\"\\é",
    ] {
        assert!(one(raw).is_err(), "{raw}");
    }
}

#[test]
fn data_is_aligned_and_never_larger_than_its_text_allows() {
    for raw in ["[1,0]", "[1, 0 ]"] {
        for datatype in [Datatype::Uint8, Datatype::Fp32, Datatype::Int64, Datatype::Fp64] {
            let mut reader = Reader::new(raw);
            let bytes = read_data(&mut reader, datatype, &[2], 2).unwrap();
            assert!(bytes.as_ptr().addr().is_multiple_of(8), "{datatype}");
            assert_eq!(bytes.len(), 2 * datatype.size().unwrap());
        }
    }
    let count = isize::MAX as usize / 8;
    let shape = [count as u64];
    for datatype in [Datatype::Fp64, Datatype::Bytes, Datatype::Bool] {
        let mut reader = Reader::new("[]");
        assert!(read_data(&mut reader, datatype, &shape, count).is_err());
    }
}

#[test]
fn depth_and_members_are_bounded() {
    assert!(parse(Datatype::Fp32, &[1], &"[".repeat(250_000)).is_err());
    for depth in [50, 120] {
        let deep = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(Datatype::Fp32, &[1], &deep).is_err());
    }
    let skip = |text: &str| {
        let mut reader = Reader::new(text);
        reader.skip(Bare::Refused).and_then(|()| reader.end())
    };
    for text in [r#"{"a":[1,{"b":null}],"c":"\n"}"#, "[]", "{}", "[ ]", "{ }", "-1e5", "false"] {
        assert!(skip(text).is_ok(), "{text}");
    }
    for text in ["[1,]", "{,}", "[,]", "{\"a\"}", "{\"a\":1,}", "{a:1}", "{\"a\":1 \"b\":2}", "NaN"]
    {
        assert!(skip(text).is_err(), "{text}");
    }
    assert!(skip(&format!("{}{}", "[".repeat(64), "]".repeat(64))).is_ok());
    assert!(skip(&format!("{}{}", "[".repeat(65), "]".repeat(65))).is_err());
    assert!(skip(&"{\"a\":".repeat(250_000)).is_err());
    let members = |count: usize| {
        let members: Vec<String> = (0..count).map(|index| format!("\"{index}\":0")).collect();
        skip(&format!("{{{}}}", members.join(",")))
    };
    assert!(members(MAX_MEMBERS).is_ok());
    assert!(members(MAX_MEMBERS + 1).is_err());
}
