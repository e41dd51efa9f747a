//! JSON data at the edges of every datatype.

use super::*;

fn parse(datatype: Datatype, shape: &[u64], raw: &str) -> Result<Vec<u8>, String> {
    let count = crate::tensor::element_count(shape).unwrap();
    parse_data(raw, datatype, shape, count, None).map(|bytes| bytes.to_vec())
}

fn floats(raw: &str) -> Result<Vec<f32>, String> {
    let bytes = parse(Datatype::Fp32, &[3], raw)?;
    Ok(bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect())
}

fn round_trip(datatype: Datatype, shape: &[u64], raw: &str) -> String {
    let data = parse(datatype, shape, raw).unwrap().into();
    let tensor = Tensor::new("x", datatype, shape.to_vec(), data).unwrap();
    let mut out = Vec::new();
    write_data(&tensor, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn flat_and_nested_agree_and_ragged_is_refused() {
    let flat = parse(Datatype::Int32, &[2, 2], "[1,2,3,4]").unwrap();
    assert_eq!(parse(Datatype::Int32, &[2, 2], "[[1,2],[3,4]]").unwrap(), flat);
    for bad in [
        "[[1,2,3],[4]]",
        "[[1,2],3,4]",
        "[1,[2],3,4]",
        "[[[1,2]],[[3,4]]]",
        "7",
        "{}",
        "[[1,2],[3,4],[]]",
        "[[1],[2],[3],[4]]",
    ] {
        assert!(parse(Datatype::Int32, &[2, 2], bad).is_err(), "{bad}");
    }
    assert_eq!(parse(Datatype::Fp32, &[], "[3.5]").unwrap(), 3.5_f32.to_le_bytes());
    assert_eq!(parse(Datatype::Fp32, &[0, 3], "[]").unwrap(), Vec::<u8>::new());
}

#[test]
fn integers_are_exact_at_the_limits() {
    assert_eq!(
        round_trip(Datatype::Uint64, &[1], "[18446744073709551615]"),
        "[18446744073709551615]"
    );
    let edge = "[9007199254740993,-9223372036854775808]";
    assert_eq!(round_trip(Datatype::Int64, &[2], edge), edge);
    assert_eq!(round_trip(Datatype::Int32, &[2], "[1.0,1e0]"), "[1,1]");
    for (datatype, raw) in [
        (Datatype::Int8, "[300]"),
        (Datatype::Uint8, "[-1]"),
        (Datatype::Uint64, "[18446744073709551616]"),
        (Datatype::Int64, "[9223372036854775808]"),
        (Datatype::Int32, "[1.5]"),
        (Datatype::Int32, "[1e400]"),
        (Datatype::Bool, "[1]"),
        (Datatype::Bytes, "[5]"),
        (Datatype::Fp32, "[true]"),
        (Datatype::Fp32, "[\"1\"]"),
        (Datatype::Fp32, "[null]"),
        (Datatype::Fp32, "[1e39]"),
        (Datatype::Fp64, "[1e400]"),
        (Datatype::Fp16, "[1]"),
    ] {
        assert!(parse(datatype, &[1], raw).is_err(), "{datatype} {raw}");
    }
}

#[test]
fn floats_accept_integers_and_named_specials() {
    assert_eq!(floats("[1, 2.5, 1e-45]").unwrap(), [1.0, 2.5, 1e-45]);
    let special = floats(r#"["NaN","Infinity","-Infinity"]"#).unwrap();
    assert!(special[0].is_nan() && special[1] == f32::INFINITY && special[2] == f32::NEG_INFINITY);
    let out = round_trip(Datatype::Fp32, &[3], r#"["NaN","Infinity",-0.0]"#);
    assert_eq!(out, r#"["NaN","Infinity",-0.0]"#);
}

#[test]
fn bare_tokens_are_quoted_only_outside_strings() {
    let text = r#"{"id":"NaN \" Infinity","data":[NaN,-Infinity,1]}"#;
    let quoted = quote_bare_floats(text).unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&quoted.text).is_ok());
    assert!(quoted.text.starts_with(r#"{"id":"NaN \" Infinity""#));
    let marked = |datatype, text: &str| {
        let quoted = quote_bare_floats(text).unwrap();
        parse_data(&quoted.text, datatype, &[3], 3, Some(&quoted.marker))
    };
    assert!(marked(Datatype::Fp32, "[NaN,Infinity,-Infinity]").is_ok());
    assert!(marked(Datatype::Bytes, r#"["a","b",NaN]"#).is_err());
    assert!(quote_bare_floats(r#"["NaN"]"#).is_none());
    // A string of the app's own is never taken for a token, however it is spelt.
    assert_eq!(round_trip(Datatype::Bytes, &[1], r#"["bare:NaN"]"#), r#"["bare:NaN"]"#);
    assert_eq!(quote_bare_floats(r#"["bare:NaN", NaN]"#).unwrap().marker, "~bare:");
}

#[test]
fn strings_keep_nul_and_bad_utf8_is_refused_on_the_way_out() {
    let text = r#"["a","é\u0000b",""]"#;
    assert_eq!(round_trip(Datatype::Bytes, &[3], text), text);
    let data = Bytes::from_static(&[1, 0, 0, 0, 0xff]);
    let tensor = Tensor::new("x", Datatype::Bytes, vec![1], data).unwrap();
    assert!(write_data(&tensor, &mut Vec::new()).unwrap_err().contains("binary_data"));
}

#[test]
fn counts_and_depths_are_bounded() {
    assert!(parse(Datatype::Fp32, &[3], "[1,2]").unwrap_err().contains("expected 3"));
    assert!(parse(Datatype::Fp32, &[3], "[1,2,3,4]").unwrap_err().contains("more than the 3"));
    assert!(parse(Datatype::Fp32, &[1], &"[".repeat(250_000)).is_err());
    let deep = format!("{}1{}", "[".repeat(50), "]".repeat(50));
    assert!(parse(Datatype::Fp32, &[1], &deep).is_err());
}
