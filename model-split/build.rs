//! Generates the ONNX protobuf types from the `.proto` file beside the module that uses them,
//! without `protoc`; and has the crate built again when the embedded bundle changes.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=src/onnx/onnx-ml.proto");
    println!("cargo:rerun-if-changed=../models/fashion");
    let descriptors = protox::compile(["onnx-ml.proto"], ["src/onnx"])?;
    prost_build::Config::new().bytes(["."]).compile_fds(descriptors)?;
    Ok(())
}
