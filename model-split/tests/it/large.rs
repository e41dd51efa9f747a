//! A model of more than protobuf's 2 GiB: its weights are holes in a file, which take no room.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use midspan_runtime::{
    ElementType, Executor, Session, SessionOptions, Tensor, TensorRef, test_support,
};
use midspan_split::cut::{Cut, Options, Types, cuts, halves};
use midspan_split::onnx::{self, ModelProto, pb};

use crate::graphs::build::{FLOAT, INT, Value, declare, node};

/// Rows and columns of each of the two tables: 1.5 GiB.
const TABLE: [usize; 2] = [786_432, 512];
const BYTES: u64 = 4 * (TABLE[0] * TABLE[1]) as u64;

fn table(name: &str, offset: u64) -> pb::TensorProto {
    let entry = |key: &str, value: String| pb::StringStringEntryProto {
        key: Some(key.to_owned()),
        value: Some(value),
    };
    pb::TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(FLOAT),
        dims: TABLE.iter().map(|size| *size as i64).collect(),
        external_data: vec![
            entry("location", "tables".into()),
            entry("offset", offset.to_string()),
            entry("length", BYTES.to_string()),
        ],
        data_location: Some(pb::tensor_proto::DataLocation::External as i32),
        ..Default::default()
    }
}

/// `y = second[argmax(relu(first[x]))]`
fn model() -> ModelProto {
    let value = |name: &str, element, shape: &[usize]| {
        declare(&Value { name: name.into(), element, shape: shape.to_vec() }, true)
    };
    let mut best = node("ArgMax", &["h"], &["best"]);
    best.attribute = [("axis", 1), ("keepdims", 0)]
        .map(|(name, number)| pb::AttributeProto {
            name: Some(name.into()),
            r#type: Some(pb::attribute_proto::AttributeType::Int as i32),
            i: Some(number),
            ..Default::default()
        })
        .to_vec();
    let graph = pb::GraphProto {
        name: Some("tables".into()),
        node: vec![
            node("Gather", &["first", "x"], &["row"]),
            node("Relu", &["row"], &["h"]),
            best,
            node("Gather", &["second", "best"], &["y"]),
        ],
        initializer: vec![table("first", 0), table("second", BYTES)],
        input: vec![value("x", INT, &[1])],
        output: vec![value("y", FLOAT, &[1, TABLE[1]])],
        ..Default::default()
    };
    let opset = pb::OperatorSetIdProto { domain: None, version: Some(17) };
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![opset],
        graph: Some(graph),
        ..Default::default()
    }
}

/// Two marks in otherwise empty tables: row 700,000 of the first is largest at 3, and row 3 of the
/// second begins with 5.
fn write_tables(path: &Path) {
    let mut file = File::create(path).unwrap();
    file.set_len(2 * BYTES).unwrap();
    let mut mark = |table: u64, row: usize, column: usize, value: f32| {
        let at = table * BYTES + 4 * (row * TABLE[1] + column) as u64;
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&value.to_le_bytes()).unwrap();
    };
    mark(0, 700_000, 3, 1.0);
    mark(1, 3, 0, 5.0);
}

fn run(model: &Path, name: &str, input: TensorRef<'_>) -> Tensor {
    let mut session = Session::load_path(model, &SessionOptions::default(), None).unwrap();
    session.run(&[(name, input)]).unwrap().swap_remove(0)
}

#[test]
#[ignore = "maps 3 GiB: cargo test -p midspan-split --test it large -- --ignored"]
fn a_model_over_two_gibibytes_is_cut_without_reading_it() {
    test_support::library();
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.onnx");
    fs::write(&whole, onnx::encode(&model())).unwrap();
    write_tables(&folder.path().join("tables"));
    let opened = onnx::open(&whole).unwrap();
    let types = Types::infer_in(&opened.model, &opened.folder, &[]).unwrap();
    let found = cuts(&opened.model, &types, &Options::default()).unwrap().found;
    let names: Vec<&str> = found.iter().map(|found| found.cut.tensors[0].as_str()).collect();
    assert_eq!(names, ["row", "h", "best"]);
    let (front, tail) = halves(&opened.model, &types, &Cut::at(["h"])).unwrap();
    let paths = ["front.onnx", "tail.onnx"].map(|name| folder.path().join(name));
    for (part, path) in [front, tail].iter().zip(&paths) {
        let written = onnx::write(part, &opened.folder, path, false).unwrap();
        assert_eq!(written.data.unwrap().1, BYTES);
    }
    let x = Tensor::new(ElementType::I64, vec![1], 700_000i64.to_le_bytes().to_vec()).unwrap();
    let expected = run(&whole, "x", x.view());
    assert_eq!(expected.f32s().unwrap()[..2], [5.0, 0.0]);
    let crossing = run(&paths[0], "x", x.view());
    assert_eq!(run(&paths[1], "h", crossing.view()), expected);
}
