//! 6b of the table, what is answered: inference with JSON tensors and parameters.

use serde_json::{Value, json};

use crate::{
    answer::Answer,
    c_binary::binary,
    case::{Call, Case, Outcome, call, echo, ensure, infer, one, post},
};

pub(crate) fn cases() -> Vec<Case> {
    let sections =
        [tensors(), ids(), outputs(), numbers(), floats(), strings(), odd(), extensions()];
    sections.into_iter().flatten().collect()
}

/// An inference of `simple` with further members of the request.
pub(crate) fn simple(id: &'static str, more: &str) -> Case {
    let (ones, row) = (vec![1; 16], (0..16).collect::<Vec<i32>>());
    let tensor = |name, data: &[i32]| json!({"name": name, "datatype": "INT32", "shape": [1, 16], "data": data});
    let inputs = json!([tensor("INPUT0", &row), tensor("INPUT1", &ones)]);
    infer(id, "simple", format!(r#"{{"inputs":{inputs}{more}}}"#)).named(&format!("simple {more}"))
}

fn sums() -> Value {
    (1..17).collect()
}

fn differences() -> Value {
    (-1..15).collect()
}

fn tensors() -> Vec<Case> {
    let mut cases = vec![
        echo("C30", "FP32", "[3]", "[1.5,-2,3e2]")
            .ok()
            .header("content-type", "application/json")
            .header("midspan-node", "n1")
            .at("/model_name", "id_fp32")
            .at(
                "/outputs",
                json!([{"name": "y", "shape": [3], "datatype": "FP32",
                "data": [1.5, -2.0, 300.0]}]),
            ),
        simple("C30", "").ok().at("/outputs/0/data", sums()).at("/outputs/1/data", differences()),
    ];
    // Row by row through a model with a batch dimension, flat and nested.
    let texts = r#"["a","b","c","d"]"#;
    for (datatype, flat, nested) in [
        ("BOOL", "[true,false,false,true]", "[[true,false],[false,true]]"),
        ("UINT8", "[0,1,254,255]", "[[0,1],[254,255]]"),
        ("UINT16", "[0,1,2,65535]", "[[0,1],[2,65535]]"),
        ("UINT32", "[0,1,2,4294967295]", "[[0,1],[2,4294967295]]"),
        ("UINT64", "[0,1,2,3]", "[[0,1],[2,3]]"),
        ("INT8", "[-128,-1,0,127]", "[[-128,-1],[0,127]]"),
        ("INT16", "[-32768,-1,0,32767]", "[[-32768,-1],[0,32767]]"),
        ("INT32", "[-2147483648,-1,0,2147483647]", "[[-2147483648,-1],[0,2147483647]]"),
        ("INT64", "[-1,0,1,2]", "[[-1,0],[1,2]]"),
        ("FP32", "[0.5,-1.25,2,3e4]", "[[0.5,-1.25],[2,3e4]]"),
        ("FP64", "[0.1,-1.25,2,3e40]", "[[0.1,-1.25],[2,3e40]]"),
        ("BYTES", texts, r#"[["a","b"],["c","d"]]"#),
    ] {
        let model = format!("id2_{}", datatype.to_lowercase());
        let expected: Value = serde_json::from_str(flat).expect("data of a case is JSON");
        for data in [flat, nested] {
            let case = infer("C31", &model, one(datatype, "[2,2]", data)).ok();
            cases.push(case.at("/outputs/0/shape", json!([2, 2])).data(expected.clone()));
        }
        let case = infer("C32", &model, one(datatype, "[2,2]", nested)).ok();
        cases.push(case.data(expected));
    }
    let path = |version: &str| format!("/v2/models/versioned/versions/{version}/infer");
    let body = one("FP32", "[2]", "[1,2]");
    cases.extend([
        post("C38", &path("1"), body.clone())
            .ok()
            .at("/model_version", "1")
            .data(json!([1.0, 2.0])),
        post("C38", &path("v10"), body).ok().at("/model_version", "v10").data(json!([-1.0, -2.0])),
        echo("C46", "FP32", "[1]", "[1]").ok(),
        infer("C46", "id_fp32", with("FP32", r#""model_name":"x","more":{"a":[1,{"b":null}]},"#))
            .ok(),
    ]);
    cases
}

/// The JSON of an inference of one element, with members before `inputs`.
fn with(datatype: &str, members: &str) -> String {
    one(datatype, "[1]", "[1]").replacen('{', &format!("{{{members}"), 1)
}

fn ids() -> Vec<Case> {
    let odd = "héé\u{2028}\"";
    let long = "x".repeat(64 << 10);
    let id = |text: &str| with("FP32", &format!(r#""id":{},"#, json!(text)));
    let echoed = |answer: &Answer, id: &str| -> Outcome {
        if answer.status == 400 {
            return answer.error().map(drop);
        }
        let got = answer.json()?["id"].clone();
        ensure!(answer.status == 200 && got == id, "the id is not echoed");
        Ok(())
    };
    let same = infer("C124", "id_fp32", id("twice")).ok().at("/id", "twice").data(json!([1.0]));
    let again = infer("C124", "id_fp32", id("twice")).ok().at("/id", "twice").data(json!([1.0]));
    vec![
        infer("C33", "id_fp32", id("42")).ok().at("/id", "42"),
        echo("C34", "FP32", "[1]", "[1]").ok().absent("/id"),
        infer("C34", "id_fp32", with("FP32", r#""id":null,"#)).ok().absent("/id"),
        infer("C35", "id_fp32", id("")).ok().check(|answer| {
            let id = answer.json()?.get("id").cloned();
            ensure!(id.is_none() || id == Some(json!("")), "the id is {id:?}");
            Ok(())
        }),
        infer("C36", "id_fp32", id(odd)).ok().at("/id", odd),
        infer("C36", "id_fp32", id(&long))
            .named("an id of 64 KiB")
            .check(move |a| echoed(a, &long)),
        infer("C37", "id_fp32", with("FP32", r#""id":42,"#)).err(400).says("id"),
        same,
        again,
    ]
}

fn outputs() -> Vec<Case> {
    let both = |case: Case| case.at("/outputs/1/name", "OUTPUT1").absent("/outputs/2");
    vec![
        both(simple("C39", "").ok()),
        both(simple("C39", r#","outputs":[]"#).ok()),
        simple("C40", r#","outputs":[{"name":"OUTPUT1"}]"#)
            .ok()
            .at("/outputs/0/name", "OUTPUT1")
            .data(differences())
            .absent("/outputs/1"),
        simple("C41", r#","outputs":[{"name":"OUTPUT7"}]"#).err(400).says("OUTPUT7"),
        simple("C42", r#","outputs":[{"name":"OUTPUT0"},{"name":"OUTPUT0"}]"#)
            .err(400)
            .says("OUTPUT0"),
        call("C42", Call::get("/v2/health/live")).ok(),
    ]
}

fn numbers() -> Vec<Case> {
    let mut cases = Vec::new();
    for (datatype, data, expected) in [
        ("INT32", "[1.0,1e0,-20.0e-1]", json!([1, 1, -2])),
        ("INT64", "[1e3]", json!([1000])),
        ("UINT8", "[255.0]", json!([255])),
    ] {
        let shape = format!("[{}]", expected.as_array().map_or(0, Vec::len));
        cases.push(echo("C52", datatype, &shape, data).ok().data(expected));
    }
    for datatype in ["INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"] {
        cases.push(echo("C52", datatype, "[1]", "[1.5]").err(400));
    }
    for (datatype, value) in [
        ("INT8", "300"),
        ("INT8", "-129"),
        ("UINT8", "-1"),
        ("UINT8", "256"),
        ("INT16", "32768"),
        ("UINT16", "65536"),
        ("INT32", "2147483648"),
        ("UINT32", "4294967296"),
        ("UINT64", "18446744073709551616"),
        ("UINT64", "-1"),
        ("INT64", "9223372036854775808"),
        ("INT64", "-9223372036854775809"),
        ("INT64", "1e400"),
    ] {
        cases.push(echo("C53", datatype, "[1]", &format!("[{value}]")).err(400));
    }
    let large = json!([9_007_199_254_740_993_i64, i64::MIN, i64::MAX]);
    cases.push(echo("C54", "INT64", "[3]", &large.to_string()).ok().data(large));
    let large = json!([u64::MAX, 9_007_199_254_740_993_u64]);
    cases.push(echo("C54", "UINT64", "[2]", &large.to_string()).ok().data(large));
    cases
}

/// The numbers of an answer are these, bit for bit.
fn bits32(expected: &'static [f32]) -> impl Fn(&Answer) -> Outcome {
    move |answer| {
        let json = answer.json()?;
        let data = json["outputs"][0]["data"].as_array().ok_or("no data")?;
        let got: Vec<u32> = data
            .iter()
            .filter_map(|value| Some(value.to_string().parse::<f32>().ok()?.to_bits()))
            .collect();
        let bits: Vec<u32> = expected.iter().map(|value| value.to_bits()).collect();
        ensure!(got == bits, "{data:?} is not {expected:?} bit for bit");
        Ok(())
    }
}

fn floats() -> Vec<Case> {
    const WORDS: &str = r#"["NaN","Infinity","-Infinity"]"#;
    let words: Value = serde_json::from_str(WORDS).expect("JSON");
    let mut cases =
        vec![
            echo("C56", "FP32", "[3]", "[1, 2.5, 1e-45]").ok().check(bits32(&[1.0, 2.5, 1e-45])),
            // Rounded once: by way of a double these would be one unit off.
            echo("C56", "FP32", "[2]", "[1.00000017881393432617187499, 7.038531e-26]")
                .ok()
                .check(bits32(&[1.000_000_1, 7.038_531e-26])),
            echo("C56", "FP32", "[4]", "[-0.0, 3.4028235e38, 16777217, 0.1]")
                .ok()
                .check(bits32(&[-0.0, f32::MAX, 16_777_216.0, 0.1])),
            echo("C56", "FP64", "[3]", "[0.1,5e-324,1.7976931348623157e308]").ok().data(json!([
                0.1,
                5e-324,
                f64::MAX
            ])),
            echo("C57", "FP32", "[1]", "[1e39]").err(400),
            echo("C57", "FP32", "[1]", "[-3.5e38]").err(400),
            echo("C57", "FP64", "[1]", "[1e400]").err(400),
            echo("C58", "INT32", "[1]", "[NaN]").err(400),
            echo("C58", "FP32", "[1]", "[nan]").err(400),
            echo("C58", "FP32", "[1]", "[+Infinity]").err(400),
        ];
    for datatype in ["FP32", "FP64"] {
        let bare = "[NaN,Infinity,-Infinity]";
        cases.push(echo("C58", datatype, "[3]", bare).ok().data(words.clone()));
        cases.push(echo("C59", datatype, "[3]", WORDS).ok().data(words.clone()));
    }
    for (model, datatype) in [("nonfinite", "FP32"), ("nonfinite64", "FP64")] {
        let body = one(datatype, "[3]", "[-1,0,1]");
        let case = infer("C60", model, body).ok().data(json!(["NaN", "-Infinity", 0.0]));
        cases.push(case.at("/outputs/1/data", json!([-1.0, "Infinity", 1.0])));
    }
    cases
}

fn strings() -> Vec<Case> {
    let text = json!(["a", "é\u{0}b", "", "\u{1F600}", "\"\\\n"]);
    vec![
        echo("C63", "BYTES", "[5]", &text.to_string()).ok().data(text),
        echo("C63", "BYTES", "[2]", r#"["\u00e9\u0000b","\ud83d\ude00"]"#)
            .ok()
            .data(json!(["é\u{0}b", "\u{1F600}"])),
        binary("C64", "id_bytes", &[("x", "BYTES", "[1]", b"\x02\0\0\0\xff\xfe")], "")
            .err(400)
            .says("'y'")
            .says("binary_data"),
        infer("C65", "id_scalar", one("FP32", "[]", "[3.5]"))
            .ok()
            .at("/outputs/0/shape", json!([]))
            .data(json!([3.5])),
        echo("C66", "FP32", "[0]", "[]").ok().at("/outputs/0/shape", json!([0])).data(json!([])),
        infer("C66", "id2_fp32", one("FP32", "[0,3]", "[]"))
            .ok()
            .at("/outputs/0/shape", json!([0, 3]))
            .data(json!([])),
    ]
}

fn odd() -> Vec<Case> {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let raw = |text: &str| one("FP32", "[1]", text);
    vec![
        infer("C69", "id_fp32", raw(&nested(50))).named("50 deep").ok_or_400(),
        infer("C69", "id_fp32", raw(&nested(120))).named("120 deep").err(400),
        infer("C69", "id_fp32", raw(&nested(100_000))).named("100 000 deep").err(400),
        infer("C70", "id_fp32", "[".repeat(250_000)).named("250 000 brackets").err(400),
        infer("C70", "id_fp32", raw(&"[".repeat(250_000))).named("as data").err(400),
        call("C70", Call::get("/v2/health/live")).ok(),
        infer("C73", "id_fp32", with("FP32", r#""parameters":{"a":"s","b":1.5,"c":true,"d":-7},"#))
            .ok()
            .data(json!([1.0])),
        simple("C73", r#","outputs":[{"name":"OUTPUT0","parameters":{"mine":"x"}}]"#).ok(),
        infer("C73", "id_fp32", one("FP32", "[1]", r#"[1],"parameters":{"mine":2}"#)).ok(),
        infer(
            "C81",
            "id_fp32",
            with("FP32", r#""parameters":{"sequence_id":7,"sequence_start":true},"#),
        )
        .ok()
        .data(json!([1.0])),
        infer(
            "C81",
            "id_fp32",
            with("FP32", r#""parameters":{"sequence_id":"s","sequence_end":true},"#),
        )
        .ok(),
    ]
}

/// Elements begin and end so, each with its index and an optional label behind it.
fn classes(expected: &'static [(&'static str, &'static str)]) -> impl Fn(&Answer) -> Outcome {
    move |answer| {
        let json = answer.json()?;
        let output = &json["outputs"][0];
        ensure!(output["datatype"] == "BYTES", "{output}");
        let data = output["data"].as_array().ok_or("no data")?;
        let fits = data.iter().zip(expected).all(|(element, (value, index))| {
            let mut parts = element.as_str().unwrap_or_default().split(':');
            parts.next().is_some_and(|part| part.starts_with(value)) && parts.next() == Some(index)
        });
        ensure!(fits && data.len() == expected.len(), "{data:?}, expected {expected:?}");
        Ok(())
    }
}

fn extensions() -> Vec<Case> {
    let classified = |id, model: &str, datatype: &str, shape: &str, data: &str, count: &str| {
        let body = format!(
            r#"{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":{shape},"data":{data}}}],"outputs":[{{"name":"y","parameters":{{"classification":{count}}}}}]}}"#
        );
        infer(id, model, body)
    };
    let row = "[1,5,10,4]";
    vec![
        classified("C79", "scores", "FP32", "[1,4]", row, "2")
            .ok()
            .at("/outputs/0/shape", json!([1, 2]))
            .check(classes(&[("10", "2"), ("5", "1")])),
        classified("C79", "scores", "FP32", "[2,4]", "[[1,5,10,4],[4,3,2,1]]", "2")
            .ok()
            .at("/outputs/0/shape", json!([2, 2]))
            .check(classes(&[("10", "2"), ("5", "1"), ("4", "0"), ("3", "1")])),
        classified("C80", "scores", "FP32", "[1,4]", row, "9")
            .ok()
            .at("/outputs/0/shape", json!([1, 4]))
            .check(classes(&[("10", "2"), ("5", "1"), ("4", "3"), ("1", "0")])),
        classified("C80", "id_bytes", "BYTES", "[1]", r#"["a"]"#, "1").err(400),
        classified("C80", "scores", "FP32", "[1,4]", row, "-1").err(400),
        classified("C80", "scores", "FP32", "[1,4]", row, r#""2""#).err(400),
        binary(
            "C80",
            "id_fp16",
            &[("x", "FP16", "[2]", b"\0\x3c\0\x40")],
            r#","outputs":[{"name":"y","parameters":{"classification":1}}]"#,
        )
        .err(400),
    ]
}
