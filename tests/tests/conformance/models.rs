//! The models that the table's cases ask for.

use system_tests::onnx_models::{ELEMENTS, TestModel, add_sub, identity, nonfinite, slow, unary};

fn number(datatype: &str) -> i32 {
    ELEMENTS.iter().find(|(name, _)| *name == datatype).expect("a datatype").1
}

/// Those of the main pair.
pub(crate) fn all() -> Vec<TestModel> {
    let vectors = ELEMENTS.iter().map(|(name, number)| {
        TestModel::new(format!("id_{}", name.to_lowercase()), identity(*number, &[-1]))
    });
    let matrices = ELEMENTS.iter().map(|(name, number)| {
        TestModel::new(format!("id2_{}", name.to_lowercase()), identity(*number, &[-1, -1]))
    });
    let (fp32, fp64) = (number("FP32"), number("FP64"));
    let mut models: Vec<TestModel> = vectors.chain(matrices).collect();
    models.extend([
        TestModel::new("id_scalar", identity(fp32, &[])),
        TestModel::new("fixed", identity(fp32, &[1, 2])),
        TestModel::new("pair_bytes", identity(number("BYTES"), &[2])),
        TestModel::new("scores", identity(fp32, &[-1, 4])),
        TestModel::new("simple", add_sub()),
        TestModel::new("nonfinite", nonfinite(fp32)),
        TestModel::new("nonfinite64", nonfinite(fp64)),
        TestModel::new("mödel a", identity(fp32, &[-1])),
        TestModel::new("versioned", identity(fp32, &[-1])),
        TestModel::new("versioned", unary("Neg", fp32, &[-1])).version("v10"),
    ]);
    models
}

/// Those of the other pairs.
pub(crate) fn few() -> Vec<TestModel> {
    vec![
        TestModel::new("id_fp32", identity(number("FP32"), &[-1])),
        TestModel::new("simple", add_sub()),
        TestModel::new("slow", slow()),
    ]
}
