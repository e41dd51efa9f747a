//! Help for tests, here and in other crates, that need a real library and a model for it. Not for
//! production: it panics when there is no library and none can be installed.

use std::path::PathBuf;

use crate::tensor::{Dim, ElementType};
use crate::{install, library};

/// The library's file, opened; installed first where a machine has none.
///
/// # Panics
/// When it can be neither found nor installed nor opened.
#[expect(clippy::expect_used, reason = "tests cannot go on without the library")]
pub fn library() -> PathBuf {
    if let Some(path) = library::opened_path() {
        return path.to_owned();
    }
    let path = match library::find() {
        Ok(path) => path,
        Err(library::LibraryError::NotFound { .. }) => {
            install::install(&mut |_| {}).expect("ONNX Runtime can be installed")
        }
        Err(error) => panic!("ONNX Runtime can be found: {error}"),
    };
    library::open(&path).expect("ONNX Runtime can be opened");
    path
}

/// `y = operator(x)` as an ONNX file, written out field by field so that no protobuf is needed.
/// Each end has its type and its dimensions, where none at all means any shape; attributes are
/// text.
pub fn model(
    operator: &str,
    attributes: &[(&str, &str)],
    (input, input_dims): (ElementType, &[Dim]),
    (output, output_dims): (ElementType, &[Dim]),
) -> Vec<u8> {
    const OPSET: u64 = 17;
    let attributes = attributes.iter().flat_map(|(name, value)| {
        let text = 3;
        field(5, &[field(1, name), field(4, value), number(20, text)].concat())
    });
    let node = [field(1, "x"), field(2, "y"), field(4, operator)].concat();
    let node: Vec<u8> = node.into_iter().chain(attributes).collect();
    let graph = [
        field(1, &node),
        field(2, "g"),
        field(11, &end("x", input, input_dims)),
        field(12, &end("y", output, output_dims)),
    ];
    [number(1, 8), field(7, &graph.concat()), field(8, &number(2, OPSET))].concat()
}

fn end(name: &str, element: ElementType, dims: &[Dim]) -> Vec<u8> {
    let dim = |dim: &Dim| match dim {
        Dim::Fixed(size) => field(1, &number(1, *size as u64)),
        Dim::Symbolic(name) => field(1, &field(2, name)),
    };
    let shape: Vec<u8> = dims.iter().flat_map(dim).collect();
    let shape = if dims.is_empty() { Vec::new() } else { field(2, &shape) };
    let tensor = [number(1, u64::from(element.onnx_number().unsigned_abs())), shape].concat();
    [field(1, name), field(2, &field(1, &tensor))].concat()
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn field(number: u64, payload: &(impl AsRef<[u8]> + ?Sized)) -> Vec<u8> {
    let payload = payload.as_ref();
    [varint(number << 3 | 2), varint(payload.len() as u64), payload.to_vec()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 127 {
        bytes.push((value & 127) as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}
