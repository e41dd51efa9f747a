//! What a refused request is told.

use bytes::Bytes;
use expect_test::{Expect, expect};

use super::{super::InferRequest, parse};

fn check(json: &str, expected: Expect) {
    expected.assert_eq(&parse(json).unwrap_err().to_string());
}

#[test]
fn form_errors_name_the_path() {
    check("", expect!["JSON: expected an object, found the end at byte 0"]);
    check("{}", expect!["JSON: inputs: required, but missing"]);
    check("[]", expect!["JSON: expected an object, found an array at byte 0"]);
    check("\u{feff}{}", expect![[r#"JSON: expected an object, found '\u{feff}' at byte 0"#]]);
    check("{\"inputs\":[]} x", expect!["JSON: expected the end, found 'x' at byte 14"]);
    check("{\"inputs\":null}", expect!["JSON: inputs: expected an array, found null at byte 10"]);
    check(
        "{\"inputs\":{}}",
        expect!["JSON: inputs: expected an array, found an object at byte 10"],
    );
    check(
        "{\"id\":42,\"inputs\":[]}",
        expect!["JSON: id: expected a string, found a number at byte 6"],
    );
    check("{\"id\":\"a\",\"inputs\":[],\"i\\u0064\":\"b\"}", expect!["JSON: id: given twice"]);
    check(
        "{\"x\":{\"y\":[1,{\"z\":1,\"z\":2}]},\"inputs\":[]}",
        expect!["JSON: x.y[1].z: given twice"],
    );
    check("{\"x\":NaN,\"inputs\":[]}", expect!["JSON: x: expected a number, found 'N' at byte 5"]);
}

#[test]
fn form_errors_name_the_input() {
    let good = r#"{"name":"a","shape":[1],"datatype":"FP32","data":[1]}"#;
    let second = |input: &str| format!(r#"{{"inputs":[{good},{input}]}}"#);
    let with = |shape: &str| {
        second(&format!(r#"{{"name":"b","shape":{shape},"datatype":"FP32","data":[1]}}"#))
    };
    check(
        &second(r#"{"shape":[1],"datatype":"FP32","data":[1]}"#),
        expect!["JSON: inputs[1].name: required, but missing"],
    );
    check(
        &second(r#"{"name":"b","datatype":"FP32","data":[1]}"#),
        expect!["JSON: inputs[1].shape: required, but missing"],
    );
    check(
        &second(r#"{"name":"b","shape":[1],"data":[1]}"#),
        expect!["JSON: inputs[1].datatype: required, but missing"],
    );
    check(&second("7"), expect!["JSON: inputs[1]: expected an object, found a number at byte 65"]);
    check(
        &with("[-1]"),
        expect!["JSON: inputs[1].shape[0]: expected a non-negative integer, found -1 at byte 86"],
    );
    check(
        &with("[2,1.5]"),
        expect!["JSON: inputs[1].shape[1]: expected a non-negative integer, found 1.5 at byte 88"],
    );
    check(
        &with("[\"1\"]"),
        expect!["JSON: inputs[1].shape[0]: expected a number, found a string at byte 86"],
    );
    check(
        &with("[null]"),
        expect!["JSON: inputs[1].shape[0]: expected a number, found null at byte 86"],
    );
    check(
        &with("null"),
        expect!["JSON: inputs[1].shape: expected an array, found null at byte 85"],
    );
    check(
        &with("[18446744073709551616]"),
        expect![
            "JSON: inputs[1].shape[0]: expected a non-negative integer, found 18446744073709551616 at byte 86"
        ],
    );
    check(
        &with(&format!("[1{}]", ",1".repeat(40))),
        expect!["JSON: inputs[1].shape[32]: at most 32 dimensions are accepted"],
    );
    check(
        &second(r#"{"name":"b","shape":[1],"datatype":"FP32","data":[1}"#),
        expect!["JSON: inputs[1].data: expected ',' or ']', found '}' at byte 116"],
    );
    check(
        &second(r#"{"data":[1,],"name":"b","shape":[1],"datatype":"FP32"}"#),
        expect!["JSON: inputs[1].data[1]: expected a number, found ']' at byte 76"],
    );
}

#[test]
fn form_errors_name_the_parameter_or_output() {
    check(
        r#"{"inputs":[],"parameters":{"a":{}}}"#,
        expect![
            "JSON: parameters: parameter 'a': invalid type: map, expected a parameter: string, number or boolean"
        ],
    );
    check(
        r#"{"inputs":[],"parameters":{"a":null}}"#,
        expect![
            "JSON: parameters: parameter 'a': invalid type: null, expected a parameter: string, number or boolean"
        ],
    );
    check(
        r#"{"inputs":[],"parameters":{"a":1e400}}"#,
        expect!["JSON: parameters: parameter 'a': number out of range"],
    );
    check(
        r#"{"inputs":[],"parameters":{"a":NaN}}"#,
        expect!["JSON: parameters.a: expected a number, found 'N' at byte 31"],
    );
    check(
        r#"{"inputs":[],"parameters":{"triton_x":1}}"#,
        expect!["JSON: parameters: parameter 'triton_x' is reserved"],
    );
    check(
        r#"{"inputs":[],"parameters":{"a":1,"a":1}}"#,
        expect!["JSON: parameters.a: given twice"],
    );
    check(
        r#"{"inputs":[],"outputs":[{"parameters":{}}]}"#,
        expect!["JSON: outputs[0].name: required, but missing"],
    );
    check(
        r#"{"inputs":[],"outputs":[{"name":1}]}"#,
        expect!["JSON: outputs[0].name: expected a string, found a number at byte 32"],
    );
    check(&"[".repeat(250_000), expect!["JSON: expected an object, found an array at byte 0"]);
    let deep = parse(&format!("{{\"x\":{}", "[".repeat(250_000))).unwrap_err().to_string();
    assert!(
        deep.starts_with("JSON: x[0][0]") && deep.ends_with("…: nested deeper than 64"),
        "{deep}"
    );
}

#[test]
fn tensor_errors_name_the_tensor() {
    let input = |members: &str| format!(r#"{{"inputs":[{{"name":"a",{members}}}]}}"#);
    check(
        &input(r#""shape":[2],"datatype":"FP32","data":[1]"#),
        expect!["input 'a': expected 2 elements for its shape, got 1"],
    );
    check(
        &input(r#""data":[1,2],"shape":[1],"datatype":"FP32""#),
        expect!["input 'a': more than the 1 elements of its shape"],
    );
    check(
        &input(r#""shape":[1],"datatype":"fp32","data":[1]"#),
        expect!["input 'a': unknown datatype 'fp32'"],
    );
    check(
        &input(r#""shape":[1],"datatype":"INT8","data":[300]"#),
        expect!["input 'a': element 0: 300 is out of range for INT8"],
    );
    check(
        &input(r#""shape":[1],"datatype":"FP16","data":[1]"#),
        expect!["input 'a': FP16 has no JSON form; send it as binary data"],
    );
    check(
        &input(r#""shape":[1],"datatype":"INT8","data":null"#),
        expect!["input 'a': has neither data nor binary_data_size"],
    );
    check(
        &input(r#""shape":[16,1152921504606846978],"datatype":"FP32","data":[1]"#),
        expect![
            "input 'a': shape [16, 1152921504606846978] has more elements than can be addressed"
        ],
    );
    check(
        &input(r#""shape":[1],"datatype":"INT8","data":[1],"parameters":{"binary_data_size":1}"#),
        expect!["input 'a': has both data and binary_data_size"],
    );
    let good = r#"{"name":"a","shape":[1],"datatype":"FP32","data":[1]}"#;
    check(&format!(r#"{{"inputs":[{good},{good}]}}"#), expect!["input 'a': sent twice"]);
    check(
        &format!(r#"{{"inputs":[{good}],"outputs":[{{"name":"o"}},{{"name":"o"}}]}}"#),
        expect!["output 'o': requested twice"],
    );
    // The name comes after what is wrong.
    check(
        r#"{"inputs":[{"shape":[1],"datatype":"INT8","data":[300],"name":"a"}]}"#,
        expect!["JSON: inputs[0].data: element 0: 300 is out of range for INT8"],
    );
    check(
        r#"{"inputs":[{"datatype":"int8","name":"a"}]}"#,
        expect!["JSON: inputs[0].datatype: unknown datatype 'int8'"],
    );
    let long = format!(
        r#"{{"inputs":[{{"name":"{}","shape":[1],"datatype":"INT8"}}]}}"#,
        "n".repeat(9999)
    );
    assert!(parse(&long).unwrap_err().to_string().len() < 300);
    assert!(InferRequest::parse(&Bytes::from_static(b"\xff\xfe"), None).is_err());
}
