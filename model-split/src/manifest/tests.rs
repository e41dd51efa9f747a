//! The default manifest, and what is said of it when one value is changed.

use serde_json::{Value, json};

use super::*;
use crate::bundle::Bundle;

fn default() -> Manifest {
    Bundle::embedded().unwrap().manifest().clone()
}

/// What is said of the default manifest with the value at a JSON pointer replaced or added.
fn refused(pointer: &str, value: Value) -> String {
    let mut json: Value = serde_json::to_value(default()).unwrap();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = json.pointer_mut(parent).unwrap();
    match parent {
        Value::Array(list) => list[key.parse::<usize>().unwrap()] = value,
        _ => parent[key] = value,
    }
    Manifest::parse(json.to_string().as_bytes()).unwrap_err().to_string()
}

#[test]
fn mistakes_are_named_by_their_keys() {
    let one_path = "must be 1 to 128 of A-Z a-z 0-9 . _ -";
    assert_eq!(refused("/format", json!(2)), "format: this version reads format 1 only");
    assert_eq!(refused("/name", json!("../etc")), format!("name: {one_path}"));
    assert_eq!(refused("/version", json!("..")), format!("version: {one_path}"));
    assert_eq!(refused("/outputs", json!([])), "outputs: must not be empty");
    assert_eq!(
        refused("/inputs/0/datatype", json!("FLOAT")),
        "inputs[0]: datatype or shape is not one of OIP"
    );
    assert_eq!(
        refused("/labels", json!(["Trouser"])),
        "labels: must be as many as the first output has classes"
    );
    assert_eq!(
        refused("/local_stages", json!(3)),
        "local_stages: must be at least 1 and at most the number of stages"
    );
    assert_eq!(
        refused("/stages/1/inputs/0/shape", json!([-1, 9, 7, 7])),
        "stages[0].cut.tensors: differ from the next stage's inputs"
    );
    assert_eq!(
        refused("/stages/0/cut/codec/version", json!(2)),
        "stages[0].cut.codec: version must be 1"
    );
    assert!(refused("/stages/0/cut/codec/scales/0/lo", json!("zz")).contains("no finite range"));
    assert!(refused("/stages/0/cut/codec/scales/0/lo", json!("+0000000")).contains("no finite"));
    assert_eq!(
        refused("/stages/0/exit/temperature_milli", json!(0)),
        "stages[0].exit.temperature_milli: must be 1 to 1000000"
    );
    assert!(refused("/surprise", json!(1)).contains("unknown field `surprise`"));
    assert!(refused("/stages/0/graph", json!("abc")).contains("not 64 lower-case hexadecimal"));
    assert!(refused("/preprocess/scale", json!([1, 2])).starts_with("preprocess: scale and bias"));
}

#[test]
fn canonical_json_round_trips() {
    let manifest = default();
    let json = manifest.to_json().unwrap();
    assert_eq!(Manifest::parse(&json).unwrap(), manifest);
    assert_eq!(Manifest::parse(&json).unwrap().to_json().unwrap(), json);
}

#[test]
fn the_split_id_is_pinned() {
    // A change of this is a change of the wire: nodes of two versions would no longer understand
    // each other.
    let id = default().split_id(0).unwrap().to_string();
    assert_eq!(id, "a2b448c860de133ba4a5bd93acbbbe70fb7a27028e02b2158f645165f556ff12");
    assert_eq!(default().split_id(1), None);
}

#[test]
fn only_what_the_tail_must_agree_on_is_in_the_split_id() {
    let id = default().split_id(0);
    let changed = |change: fn(&mut Manifest)| {
        let mut manifest = default();
        change(&mut manifest);
        manifest.split_id(0) != id
    };
    assert!(!changed(|m| m.stages[0].exit.as_mut().unwrap().threshold_milli = Some(900)));
    assert!(!changed(|m| m.stages[0].graph = Digest::of(b"another front")));
    assert!(!changed(|m| m.stages[0].cut.as_mut().unwrap().codec.bits = 8));
    assert!(!changed(|m| m.labels.clear()));
    assert!(changed(|m| m.stages[1].graph = Digest::of(b"another tail")));
    assert!(changed(|m| m.stages[1].weights = Digest::of(b"other weights")));
    assert!(changed(|m| m.stages[0].cut.as_mut().unwrap().codec.version = 2));
    assert!(changed(|m| {
        m.stages[0].cut.as_mut().unwrap().codec.scales[0] = StaticScale::new(0.0, 6.5);
    }));
    assert!(changed(|m| m.stages[0].cut.as_mut().unwrap().tensors[0].shape[1] = 9));
}

#[test]
fn codec_and_rules_come_out_as_they_went_in() {
    let manifest = default();
    let codec = manifest.codec(0).unwrap();
    assert_eq!((codec.row_shape(), codec.elements()), (&[8, 7, 7][..], 392));
    assert_eq!(codec.scales(), [Scale::new(0.0, 6.0).unwrap()]);
    assert_eq!(manifest.precision(0), Some(Precision::Bits(4)));
    assert_eq!(manifest.codec(1), None);
    let rule = manifest.stages[0].exit.as_ref().unwrap().rule().unwrap();
    assert_eq!((rule.temperature, rule.threshold), (1.07, 0.785));
    assert_eq!(manifest.stages[1].exit.as_ref().unwrap().rule(), None);
}
