//! 6b of the table, what is refused: inferences that are wrong in form, type, shape or value.

use crate::{
    b_infer_json::simple,
    c_binary::binary,
    case::{Call, Case, call, echo, ensure, infer, one},
};

pub(crate) fn cases() -> Vec<Case> {
    let sections = [inputs(), members(), shapes(), values(), halves(), documents(), parameters()];
    sections.into_iter().flatten().collect()
}

const ROW: &str = "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]";

/// `simple` with these inputs: name, datatype, shape, data.
fn asked(id: &'static str, inputs: &[(&str, &str, &str, &str)]) -> Case {
    let inputs = inputs.iter().map(|(name, datatype, shape, data)| {
        format!(r#"{{"name":"{name}","datatype":"{datatype}","shape":{shape},"data":{data}}}"#)
    });
    let inputs = inputs.collect::<Vec<_>>().join(",");
    infer(id, "simple", format!(r#"{{"inputs":[{inputs}]}}"#))
}

fn inputs() -> Vec<Case> {
    let first = ("INPUT0", "INT32", "[1,16]", ROW);
    let second = ("INPUT1", "INT32", "[1,16]", ROW);
    vec![
        asked("C43", &[first, second, second]).err(400).says("INPUT1"),
        asked("C43", &[first, first]).err(400).says("INPUT0"),
        asked("C44", &[first]).err(400).says("INPUT1"),
        asked("C44", &[second]).err(400).says("INPUT0"),
        asked("C44", &[]).err(400).says("INPUT0"),
        asked("C44", &[first, second, ("INPUT7", "INT32", "[1]", "[1]")]).err(400).says("INPUT7"),
        asked("C47", &[first, ("INPUT1", "INT64", "[1,16]", ROW)]).err(400).says("INPUT1"),
        asked("C49", &[first, ("INPUT1", "INT32", "[1,16]", "[1,2]")]).err(400).says("INPUT1"),
        asked(
            "C50",
            &[first, ("INPUT1", "INT32", "[1,15]", "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14]")],
        )
        .err(400)
        .says("INPUT1")
        .says("15"),
        asked("C50", &[first, ("INPUT1", "INT32", "[16]", ROW)]).err(400).says("[16]"),
    ]
}

fn members() -> Vec<Case> {
    const MEMBERS: [(&str, &str); 4] =
        [("name", r#""x""#), ("datatype", r#""FP32""#), ("shape", "[1]"), ("data", "[1]")];
    let tensor = |skip: &str, instead: Option<&str>| {
        let member = |(name, value): &(&str, &str)| match instead {
            _ if *name != skip => Some(format!(r#""{name}":{value}"#)),
            Some(instead) => Some(format!(r#""{name}":{instead}"#)),
            None => None,
        };
        let members: Vec<String> = MEMBERS.iter().filter_map(member).collect();
        format!(r#"{{"inputs":[{{{}}}]}}"#, members.join(","))
    };
    let mut cases = Vec::new();
    for (member, _) in MEMBERS {
        for instead in [None, Some("null"), Some("{}"), Some("7")] {
            let case = infer("C45", "id_fp32", tensor(member, instead)).err(400).says(member);
            // By its place, or by its name where it has one.
            cases.push(case.check(move |answer| {
                let text = answer.error()?;
                let named =
                    text.contains("inputs[0]") || (member == "data" && text.contains("'x'"));
                ensure!(named, "the error does not say which input");
                Ok(())
            }));
        }
    }
    for body in ["{}", r#"{"inputs":null}"#, r#"{"inputs":{}}"#, r#"{"inputs":"x"}"#] {
        cases.push(infer("C45", "id_fp32", body).err(400).says("inputs"));
    }
    for body in [r#"{"inputs":[null]}"#, r#"{"inputs":[7]}"#, r#"{"inputs":[[]]}"#] {
        cases.push(infer("C45", "id_fp32", body).err(400).says("inputs[0]"));
    }
    for outputs in ["null_", "{}", "[{}]", r#"[{"name":7}]"#, r#"["y"]"#] {
        let outputs = outputs.replace("null_", "7");
        let body = one("FP32", "[1]", "[1]");
        let body = format!(r#"{},"outputs":{outputs}}}"#, &body[..body.len() - 1]);
        cases.push(infer("C45", "id_fp32", body).err(400).says("outputs"));
    }
    for datatype in ["FLOAT", "fp32", "FP33", "INT", ""] {
        let body = one(datatype, "[1]", "[1]");
        cases.push(infer("C48", "id_fp32", body).err(400).says("datatype"));
    }
    for datatype in ["FP64", "INT32", "BOOL"] {
        let data = if datatype == "BOOL" { "[true]" } else { "[1]" };
        let body = one(datatype, "[1]", data);
        cases.push(infer("C47", "id_fp32", body).err(400).says("FP32").says(datatype));
    }
    cases
}

fn shapes() -> Vec<Case> {
    let mut cases = Vec::new();
    for (shape, data) in [("[3]", "[1,2]"), ("[1]", "[1,2]"), ("[0]", "[1]"), ("[1]", "[]")] {
        cases.push(echo("C49", "FP32", shape, data).err(400));
    }
    for (shape, data) in [("[1,3]", "[1,2,3]"), ("[2,1]", "[1,2]"), ("[2]", "[1,2]")] {
        let body = one("FP32", shape, data);
        cases.push(infer("C50", "fixed", body).err(400).says("expected").says("[1,2]"));
    }
    cases.push(echo("C50", "FP32", "[1,1]", "[1]").err(400).says("expected"));
    cases.push(echo("C50", "FP32", "[]", "[1]").err(400).says("expected"));
    for shape in ["[-1,2]", "[1.5,2]", r#"["1",2]"#, "[null,2]", "[[1],2]", "2", r#""2""#] {
        let body = one("FP32", shape, "[1,2]");
        cases.push(infer("C51", "id2_fp32", body).err(400).says("shape"));
    }
    for shape in [
        "[16,1152921504606846978]",
        "[4611686018427387904,8]",
        "[18446744073709551615,18446744073709551615]",
        "[1099511627776,1]",
    ] {
        let body = one("FP32", shape, "[]");
        cases.push(infer("C67", "id2_fp32", body).err(400));
        let blobs: [(&str, &str, &str, &[u8]); 1] = [("x", "FP32", shape, b"\0\0\0\0")];
        cases.push(binary("C67", "id2_fp32", &blobs, "").err(400));
    }
    for data in ["[[1,2,3],[4]]", "[[1,2],3,4]", "[[1,2],[[3,4]]]", "[[],[1,2,3,4]]"] {
        cases.push(infer("C68", "id2_fp32", one("FP32", "[2,2]", data)).err(400));
    }
    cases
}

fn values() -> Vec<Case> {
    let mut cases = Vec::new();
    for (datatype, data) in [
        ("BOOL", "[1,0]"),
        ("BOOL", r#"["true","false"]"#),
        ("BYTES", "[5,6]"),
        ("BYTES", r#"["a",null]"#),
        ("BYTES", r#"["a","\ud800"]"#),
        ("FP32", "[true,1]"),
        ("FP32", r#"["1","2"]"#),
        ("FP32", "[null,1]"),
        ("FP32", "[{},1]"),
        ("INT32", "[true,1]"),
        ("INT32", r#"["1",2]"#),
        ("INT32", "[null,1]"),
        ("INT32", r#"["NaN",1]"#),
        ("FP32", "[01,2]"),
        ("FP32", "[1.,2]"),
        ("FP32", "[.5,2]"),
        ("FP32", "[+1,2]"),
        ("FP32", "[0x1,2]"),
        ("INT32", "[- 1,2]"),
        ("INT32", "[1,2,]"),
        ("INT32", "[1 2]"),
    ] {
        cases.push(echo("C55", datatype, "[2]", data).err(400));
    }
    cases
}

fn halves() -> Vec<Case> {
    let mut cases = Vec::new();
    for datatype in ["FP16", "BF16"] {
        let model = format!("id_{}", datatype.to_lowercase());
        cases.push(echo("C61", datatype, "[2]", "[1,2]").err(400).says("binary"));
        let blobs: [(&str, &str, &str, &[u8]); 1] = [("x", datatype, "[1]", b"\0\x3c")];
        let refused = binary("C62", &model, &blobs, "").err(400).says("binary");
        cases.push(refused.says("'y'"));
    }
    cases
}

fn documents() -> Vec<Case> {
    let good = one("FP32", "[1]", "[1]");
    let mut cases: Vec<Case> = ["", "{", "[]", "null", "7", r#""x""#, "{]", " "]
        .map(|body| infer("C71", "id_fp32", body).err(400))
        .into();
    for tail in ["x", "{}", "\0", ",", "\n\u{b}"] {
        cases.push(infer("C71", "id_fp32", format!("{good}{tail}")).err(400));
    }
    for head in [&b"\xef\xbb\xbf"[..], b"\xff\xfe", b"\0"] {
        cases.push(infer("C71", "id_fp32", [head, good.as_bytes()].concat()).err(400));
    }
    let invalid = good.replace("\"x\"", "\"x\u{1}\"").replace('\u{1}', "?").into_bytes();
    let invalid: Vec<u8> =
        invalid.into_iter().map(|byte| if byte == b'?' { 0xff } else { byte }).collect();
    cases.push(infer("C71", "id_fp32", invalid).named("0xff in a name").err(400));
    cases.push(infer("C71", "id_bytes", one("BYTES", "[1]", "[\"a\tb\"]")).err(400));
    cases.push(infer("C71", "id_fp32", format!(" \r\n\t{good}\n ")).ok());
    let inner = good.trim_start_matches('{').trim_end_matches('}');
    for body in [
        format!("{{{inner},{inner}}}"),
        format!(r#"{{"id":"a","id":"b",{inner}}}"#),
        format!(r#"{{"parameters":{{"a":1,"a":2}},{inner}}}"#),
        good.replace(r#""shape":[1]"#, r#""shape":[1],"shape":[1]"#),
        good.replace(r#""data":[1]"#, r#""data":[1],"data":[1]"#),
        good.replace(r#""name":"x""#, r#""name":"x","n\u0061me":"x""#),
    ] {
        cases.push(infer("C72", "id_fp32", body).err(400));
    }
    cases
}

fn parameters() -> Vec<Case> {
    let with = |id, parameters: &str| {
        let body = one("FP32", "[1]", "[1]");
        let body = format!(r#"{},"parameters":{parameters}}}"#, &body[..body.len() - 1]);
        infer(id, "id_fp32", body)
    };
    let mut cases = Vec::new();
    for value in ["{}", "[]", "null", r#"{"b":1}"#, "[1]"] {
        cases.push(with("C74", &format!(r#"{{"a":{value}}}"#)).err(400).says("a"));
        let tensor = one("FP32", "[1]", &format!(r#"[1],"parameters":{{"a":{value}}}"#));
        cases.push(infer("C74", "id_fp32", tensor).err(400));
        let output = format!(r#","outputs":[{{"name":"OUTPUT0","parameters":{{"a":{value}}}}}]"#);
        cases.push(simple("C74", &output).err(400));
    }
    cases.push(with("C74", "[]").err(400));
    cases.push(with("C74", "7").err(400));
    cases.push(with("C75", r#"{"triton_x":1}"#).err(400).says("triton_x"));
    cases.push(with("C75", r#"{"triton_":"s"}"#).err(400).says("triton_"));
    for bad in [
        r#"{"priority":-1}"#,
        r#"{"priority":"1"}"#,
        r#"{"priority":1.5}"#,
        r#"{"priority":true}"#,
        r#"{"timeout":"5"}"#,
        r#"{"timeout":-5}"#,
        r#"{"timeout":false}"#,
    ] {
        let name = if bad.contains("priority") { "priority" } else { "timeout" };
        cases.push(with("C76", bad).err(400).says(name));
    }
    cases.push(with("C76", r#"{"priority":0,"timeout":0}"#).ok());
    cases.push(with("C76", r#"{"priority":2,"timeout":60000000}"#).ok());
    cases.push(call("C76", Call::get("/v2/health/live")).ok());
    cases
}
