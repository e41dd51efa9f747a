//! 6c of the table: the binary tensor extension.

use http::Method;
use serde_json::{Value, json};

use crate::{
    answer::Answer,
    case::{Call, Case, Outcome, call, ensure, infer, one},
};

const LENGTH: &str = "inference-header-content-length";
/// 1.5 and -2 as FP32.
const FLOATS: &[u8] = b"\0\0\xc0\x3f\0\0\0\xc0";
const ALL: &str = r#","parameters":{"binary_data_output":true}"#;

pub(crate) fn cases() -> Vec<Case> {
    let sections = [inputs(), outputs(), sizes(), headers(), strings(), types(), raw(), coded()];
    sections.into_iter().flatten().collect()
}

/// A tensor whose data is in the body's binary part.
type Blob<'b> = (&'b str, &'b str, &'b str, &'b [u8]);

/// An inference with all tensors binary, and `more` behind `inputs`.
pub(crate) fn binary(id: &'static str, model: &str, blobs: &[Blob<'_>], more: &str) -> Case {
    let inputs = blobs.iter().map(|(name, datatype, shape, blob)| {
        let size = blob.len().to_string();
        tensor(name, datatype, shape, &size)
    });
    let inputs = inputs.collect::<Vec<_>>().join(",");
    let data: Vec<u8> = blobs.iter().flat_map(|blob| blob.3).copied().collect();
    framed(id, model, &format!(r#"{{"inputs":[{inputs}]{more}}}"#), &data)
}

fn tensor(name: &str, datatype: &str, shape: &str, size: &str) -> String {
    format!(
        r#"{{"name":"{name}","datatype":"{datatype}","shape":{shape},"parameters":{{"binary_data_size":{size}}}}}"#
    )
}

/// JSON, then bytes, with the header that tells them apart.
fn framed(id: &'static str, model: &str, json: &str, data: &[u8]) -> Case {
    let body = [json.as_bytes(), data].concat();
    let length = json.len().to_string();
    infer(id, model, body).with(LENGTH, length).named(&format!("{model} {json} + {}", data.len()))
}

/// Rows of 16 INT32, all of one value.
fn row(value: i32) -> Vec<u8> {
    std::iter::repeat_n(value.to_le_bytes(), 16).flatten().collect()
}

/// `simple` on 7 and 2, binary.
fn simple(id: &'static str, more: &str) -> Case {
    let (seven, two) = (row(7), row(2));
    let inputs = [("INPUT0", "INT32", "[1,16]", &seven[..]), ("INPUT1", "INT32", "[1,16]", &two)];
    binary(id, "simple", &inputs, more)
}

fn inputs() -> Vec<Case> {
    let (json_first, json_second) = (tensor("INPUT0", "INT32", "[1,16]", "64"), vec![2; 16]);
    let json_tensor = |name: &str, data: &[i32]| {
        json!({"name": name, "datatype": "INT32", "shape": [1, 16], "data": data}).to_string()
    };
    let first = format!(
        r#"{{"inputs":[{},{}]}}"#,
        json_tensor("INPUT0", &[7; 16]),
        tensor("INPUT1", "INT32", "[1,16]", "64")
    );
    let second = format!(r#"{{"inputs":[{json_first},{}]}}"#, json_tensor("INPUT1", &json_second));
    let both = |case: Case| {
        case.ok().data(json!(vec![9; 16])).at("/outputs/1/data", json!(vec![5; 16])).without(LENGTH)
    };
    vec![
        binary("C82", "id_fp32", &[("x", "FP32", "[2]", FLOATS)], "")
            .ok()
            .data(json!([1.5, -2.0]))
            .without(LENGTH),
        both(framed("C83", "simple", &first, &row(2))),
        both(framed("C83", "simple", &second, &row(7))),
        both(simple("C83", "")),
        call("C88", {
            let body = one("FP32", "[1]", "[1.5]");
            let length = body.len().to_string();
            Call::infer("id_fp32", body).with(LENGTH, length)
        })
        .ok()
        .data(json!([1.5])),
    ]
}

fn outputs() -> Vec<Case> {
    let (sum, difference) = (row(9), row(5));
    let (sum, difference) = (&sum[..], &difference[..]);
    let asked = |first: &str, second: &str, more: &str| {
        format!(r#","outputs":[{{"name":"OUTPUT0"{first}}},{{"name":"OUTPUT1"{second}}}]{more}"#)
    };
    let (yes, no) =
        (r#","parameters":{"binary_data":true}"#, r#","parameters":{"binary_data":false}"#);
    let data = |case: Case, first: bool, second: bool| {
        let case = if first { case } else { case.at("/outputs/0/data", json!(vec![9; 16])) };
        if second { case } else { case.at("/outputs/1/data", json!(vec![5; 16])) }
    };
    let mixed = |first: &str, second: &str, want: (bool, bool)| {
        let case = simple("C85", &asked(first, second, "")).ok();
        let mut blobs = Vec::new();
        blobs.extend(want.0.then_some(sum));
        blobs.extend(want.1.then_some(difference));
        data(case.blobs(&blobs), want.0, want.1)
    };
    vec![
        simple("C84", ALL)
            .ok()
            .blobs(&[sum, difference])
            .at("/outputs/0/parameters/binary_data_size", 64)
            .absent("/outputs/0/data"),
        infer(
            "C84",
            "id_fp32",
            one("FP32", "[2]", "[1.5,-2]").replacen(
                '{',
                r#"{"parameters":{"binary_data_output":true},"#,
                1,
            ),
        )
        .ok()
        .blobs(&[FLOATS])
        .at("/outputs/0/shape", json!([2])),
        mixed(yes, yes, (true, true)),
        mixed(yes, no, (true, false)),
        mixed(no, yes, (false, true)),
        mixed(no, no, (false, false)).without(LENGTH),
        mixed("", yes, (false, true)),
        simple("C85", &asked("", "", "")).ok().without(LENGTH),
        data(simple("C86", &asked(no, yes, ALL)).ok().blobs(&[difference]), false, true),
        data(simple("C86", &asked(no, no, ALL)).ok(), false, false).without(LENGTH),
        simple("C87", &asked("", "", ALL)).ok().blobs(&[sum, difference]),
        simple("C87", &asked(yes, "", r#","parameters":{"binary_data_output":false}"#))
            .ok()
            .blobs(&[sum]),
    ]
}

fn sizes() -> Vec<Case> {
    let fp32 = |size: &str| format!(r#"{{"inputs":[{}]}}"#, tensor("x", "FP32", "[2]", size));
    let mut cases = vec![
        framed("C89", "id_fp32", &fp32("8"), &FLOATS[..7]).err(400),
        framed("C89", "id_fp32", &fp32("8"), b"").err(400),
        framed("C90", "id_fp32", &fp32("8"), &[FLOATS, b"x"].concat()).err(400),
        framed("C90", "id_fp32", &one("FP32", "[1]", "[1]"), b"x").err(400),
        framed("C91", "id_fp32", &fp32("12"), &[FLOATS, b"abcd"].concat())
            .err(400)
            .says("8")
            .says("12"),
        framed("C91", "id_fp32", &fp32("4"), &FLOATS[..4]).err(400).says("8").says("4"),
        framed("C93", "id_fp32", &fp32(r#"8},"data":[1,2],"x":{"a":1"#), FLOATS).err(400),
        infer("C93", "id_fp32", r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1]}]}"#)
            .err(400)
            .says("data"),
        infer("C93", "id_fp32", fp32("8")).named("binary_data_size and no header").err(400),
    ];
    for size in ["-1", "true", r#""8""#, "9223372036854775808", "8.5", "null"] {
        cases.push(framed("C92", "id_fp32", &fp32(size), FLOATS).err(400));
        let json = format!(
            r#"{{"inputs":[{},{}]}}"#,
            tensor("INPUT0", "INT32", "[1,16]", "64"),
            tensor("INPUT1", "INT32", "[1,16]", size)
        );
        cases.push(framed("C92", "simple", &json, &[row(1), row(2)].concat()).err(400));
    }
    let wraps = "[1,16]";
    let json = format!(
        r#"{{"inputs":[{},{}]}}"#,
        tensor("INPUT0", "INT32", wraps, "18446744073709551615"),
        tensor("INPUT1", "INT32", wraps, "65")
    );
    cases.push(framed("C92", "simple", &json, &row(1)).err(400));
    cases
}

fn headers() -> Vec<Case> {
    let json = format!(r#"{{"inputs":[{}]}}"#, tensor("x", "FP32", "[2]", "8"));
    let body = [json.as_bytes(), FLOATS].concat();
    let (over, inside) = ((body.len() + 1).to_string(), (json.len() - 3).to_string());
    let values = ["-1", "abc", "99999999999", "18446744073709551616", "", "1e2", "+5"];
    let mut cases: Vec<Case> = values
        .into_iter()
        .chain([over.as_str(), inside.as_str()])
        .map(|value| {
            let call = Call::infer("id_fp32", body.clone()).with(LENGTH, value);
            self::call("C94", call).named(&format!("{LENGTH}: {value}")).err(400)
        })
        .collect();
    let length = json.len().to_string();
    let typed = |media: &str| {
        let call = Call::infer("id_fp32", body.clone()).with(LENGTH, length.clone());
        self::call("C104", call.with("content-type", media)).named(media).ok()
    };
    cases.push(typed("application/json").data(json!([1.5, -2.0])));
    cases.push(typed("application/octet-stream").data(json!([1.5, -2.0])));
    let bare = Call::infer("id_fp32", body).with(LENGTH, length);
    cases.push(self::call("C104", bare).named("no content-type").ok().data(json!([1.5, -2.0])));
    cases.push(self::call("C94", Call::get("/v2/health/live")).ok());
    cases
}

fn strings() -> Vec<Case> {
    let bytes = b"\x03\0\0\0\xff\0a\0\0\0\0";
    let text = |shape: &str, blob: &[u8]| {
        binary("C96", "id_bytes", &[("x", "BYTES", shape, blob)], ALL).err(400)
    };
    vec![
        binary("C95", "id_bytes", &[("x", "BYTES", "[2]", bytes)], ALL)
            .ok()
            .blobs(&[bytes])
            .at("/outputs/0/shape", json!([2])),
        binary("C95", "id2_bytes", &[("x", "BYTES", "[1,2]", bytes)], ALL).ok().blobs(&[bytes]),
        text("[1]", b"\x04\0\0\0abc"),
        text("[1]", b"\xff\xff\xff\xffabc"),
        text("[1]", b"\x01\0\0"),
        text("[3]", bytes),
        text("[1]", bytes),
        text("[2]", b""),
        text("[18446744073709551615]", bytes),
    ]
}

fn types() -> Vec<Case> {
    // Subnormals, infinities and quiet NaNs with payloads: bits, not numbers.
    let halves = b"\x01\0\x00\x7c\x01\x7e\x00\x80";
    let echoed = |id, datatype: &str, count: usize, blob: &[u8]| {
        let model = format!("id_{}", datatype.to_lowercase());
        let shape = format!("[{count}]");
        binary(id, &model, &[("x", datatype, &shape, blob)], ALL).ok().blobs(&[blob])
    };
    let mut cases = vec![
        echoed("C97", "FP16", 4, halves),
        echoed("C97", "BF16", 4, b"\x01\0\x80\x7f\xc1\x7f\0\x80"),
    ];
    for (datatype, size) in [
        ("UINT8", 1),
        ("UINT16", 2),
        ("UINT32", 4),
        ("UINT64", 8),
        ("INT8", 1),
        ("INT16", 2),
        ("INT32", 4),
        ("INT64", 8),
        ("FP32", 4),
        ("FP64", 8),
    ] {
        let blob: Vec<u8> = (0..3 * size).map(|value| value as u8 ^ 0x5a).collect();
        cases.push(echoed("C82", datatype, 3, &blob));
        cases.push(echoed("C99", datatype, 0, b"").at("/outputs/0/shape", json!([0])));
    }
    cases.extend([
        echoed("C98", "BOOL", 3, b"\x01\0\x01"),
        binary("C98", "id_bool", &[("x", "BOOL", "[2]", b"\x02\x01")], ALL).err(400),
        binary("C98", "id_bool", &[("x", "BOOL", "[1]", b"\xff")], "").err(400),
        echoed("C99", "BYTES", 0, b""),
        binary("C99", "id2_fp32", &[("x", "FP32", "[0,3]", b"")], "")
            .ok()
            .at("/outputs/0/shape", json!([0, 3]))
            .data(json!([])),
        binary("C100", "id_scalar", &[("x", "FP32", "[]", &FLOATS[..4])], ALL)
            .ok()
            .blobs(&[&FLOATS[..4]])
            .at("/outputs/0/shape", json!([])),
    ]);
    cases
}

fn raw() -> Vec<Case> {
    let raw = |id, model: &str, body: &[u8]| {
        infer(id, model, body.to_vec()).with(LENGTH, "0").named(&format!("raw {model}"))
    };
    vec![
        raw("C101", "id_fp32", FLOATS).ok().blobs(&[FLOATS]).at("/outputs/0/shape", json!([2])),
        raw("C101", "fixed", FLOATS).ok().blobs(&[FLOATS]).at("/outputs/0/shape", json!([1, 2])),
        raw("C101", "id_bytes", b"hello")
            .ok()
            .blobs(&[b"\x05\0\0\0hello"])
            .at("/outputs/0/shape", json!([1])),
        raw("C101", "scores", &[FLOATS, FLOATS].concat())
            .ok()
            .at("/outputs/0/shape", json!([1, 4])),
        raw("C102", "simple", &row(1)).err(400),
        raw("C102", "id2_fp32", FLOATS).err(400),
        raw("C102", "pair_bytes", b"hello").err(400),
        raw("C102", "id_fp32", &FLOATS[..7]).err(400),
        raw("C102", "fixed", &FLOATS[..4]).err(400),
        raw("C102", "id_bool", b"\x02").err(400),
    ]
}

fn coded() -> Vec<Case> {
    use crate::d_http::{deflate, gzip};
    let json = format!(r#"{{"inputs":[{}]{ALL}}}"#, tensor("x", "FP32", "[2]", "8"));
    let body = [json.as_bytes(), FLOATS].concat();
    let length = json.len().to_string();
    let sent = |id, coding: &str, body: Vec<u8>| {
        let call = Call::infer("id_fp32", body).with(LENGTH, length.clone());
        self::call(id, call.with("content-encoding", coding)).named(&format!("binary, {coding}"))
    };
    let same = |answer: &Answer| -> Outcome {
        let (json, blobs) = answer.split()?;
        ensure!(json["model_name"] == "id_fp32" && blobs == [FLOATS], "{json} {blobs:?}");
        Ok(())
    };
    let compressed = Call::new(Method::POST, "/v2/models/id_fp32/infer", body.clone());
    vec![
        sent("C103", "gzip", gzip(&body)).ok().blobs(&[FLOATS]),
        sent("C103", "deflate", deflate(&body)).ok().blobs(&[FLOATS]),
        self::call("C113", compressed.with(LENGTH, length.clone()).with("accept-encoding", "gzip"))
            .named("binary, answered in gzip")
            .ok()
            .header("content-encoding", "gzip")
            .check(same)
            .check(move |answer| {
                // Counted before the compression: JSON ends where the header says.
                let plain = answer.decoded()?;
                let length: usize = answer.header(LENGTH).parse().map_err(|_| "no length")?;
                let json: Result<Value, _> = serde_json::from_slice(&plain[..length]);
                ensure!(json.is_ok() && plain.len() == length + 8, "{length} of {}", plain.len());
                Ok(())
            }),
    ]
}
