//! Response forms: JSON, binary, mixed.

use super::*;
use crate::{Datatype, Parameter};

fn response() -> InferResponse {
    let mut parameters = Parameters::default();
    parameters.set("midspan_places", Parameter::Text("exit:1".into()));
    InferResponse {
        model_name: "m".into(),
        model_version: Some("1".into()),
        id: Some("42".into()),
        parameters,
        outputs: vec![
            Tensor::from_f32("a", vec![2], &[1.5, f32::NAN]).unwrap(),
            Tensor::from_f32("b", vec![1], &[3.0]).unwrap(),
        ],
    }
}

fn form(all: bool, named: &[(&str, Option<bool>)]) -> OutputForm {
    let mut parameters = Parameters::default();
    parameters.set("binary_data_output", Parameter::Bool(all));
    let outputs: Vec<_> = named
        .iter()
        .map(|(name, flag)| {
            let mut parameters = Parameters::default();
            if let Some(flag) = flag {
                parameters.set("binary_data", Parameter::Bool(*flag));
            }
            RequestedOutput { name: (*name).into(), parameters }
        })
        .collect();
    OutputForm::of(&parameters, &outputs).unwrap()
}

#[test]
fn json_form_has_no_header_length_and_no_bare_nan() {
    let encoded = response().encode(&OutputForm::default()).unwrap();
    assert_eq!(encoded.json_length, None);
    expect_test::expect![[r#"{"model_name":"m","model_version":"1","id":"42","parameters":{"midspan_places":"exit:1"},"outputs":[{"name":"a","shape":[2],"datatype":"FP32","data":[1.5,"NaN"]},{"name":"b","shape":[1],"datatype":"FP32","data":[3.0]}]}"#]]
    .assert_eq(std::str::from_utf8(&encoded.body).unwrap());
}

#[test]
fn every_form_parses_back() {
    for form in [
        OutputForm::default(),
        OutputForm::binary(),
        form(true, &[("a", Some(false)), ("b", None)]),
        form(false, &[("b", Some(true))]),
    ] {
        let encoded = response().encode(&form).unwrap();
        let parsed = InferResponse::parse(&encoded.body, encoded.json_length).unwrap();
        assert_eq!(parsed.outputs[1].to_f32().unwrap(), [3.0]);
        assert!(parsed.outputs[0].to_f32().unwrap()[1].is_nan());
        assert_eq!(parsed.parameters, response().parameters);
    }
    let mixed = response().encode(&form(true, &[("a", Some(false)), ("b", None)])).unwrap();
    assert_eq!(mixed.body.len() - mixed.json_length.unwrap(), 4);
}

#[test]
fn half_precision_needs_binary() {
    let half = Tensor::new("h", Datatype::Fp16, vec![1], Bytes::from_static(&[0, 0])).unwrap();
    let response = InferResponse { outputs: vec![half], ..response() };
    assert!(
        response.encode(&OutputForm::default()).unwrap_err().to_string().contains("binary_data")
    );
    assert!(response.encode(&OutputForm::binary()).is_ok());
}
