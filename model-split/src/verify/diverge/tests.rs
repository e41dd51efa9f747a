//! That the first layer that differs is named, and a difference that only fusing makes.

use super::super::test_models::{classifier, infer, info, model, names, node, sample, weight};
use super::*;
use midspan_runtime::ElementType;

#[test]
fn the_first_layer_that_differs_is_named() {
    let model = classifier();
    let types = infer(&model);
    let sample = sample(&[("x", &[1, 3], &[1.0, 2.0, 3.0])]);
    let good = Halves::at(&model, &types, &names(&["r"])).unwrap();
    assert_eq!(first(&model, &types, &good, &sample, 1e-6).unwrap(), None);
    let changed = |weights: &str, front: bool| {
        let mut halves = good.clone();
        let half = if front { &mut halves.front } else { &mut halves.tail };
        let graph = half.graph.as_mut().unwrap();
        let weight = graph.initializer.iter_mut().find(|weight| weight.name() == weights).unwrap();
        weight.float_data.iter_mut().for_each(|value| *value += 1.0);
        first(&model, &types, &halves, &sample, 1e-6).unwrap().unwrap()
    };
    let found = changed("w1", true);
    assert_eq!(
        (found.tensor.as_str(), found.op.as_str(), found.half),
        ("h", "MatMul", Half::Front)
    );
    assert_eq!((found.node.as_str(), found.rewriting), ("MatMul_h", Rewriting::Off));
    assert!((found.difference.max_abs - 6.0).abs() < 1e-3, "the sum of x: {found:?}");
    let found = changed("w2", false);
    assert_eq!((found.tensor.as_str(), found.half), ("logits", Half::Tail));
}

/// A convolution of which a batch normalisation becomes a part when both are in one session.
fn fused() -> ModelProto {
    let numbers = |count: usize, scale: f32| -> Vec<f32> {
        (0..count).map(|index| (index as f32 * scale).sin() + 1.1).collect()
    };
    let per_channel = |name: &str, scale| weight(name, &[8], &numbers(8, scale));
    model(
        vec![
            node("Conv", &["x", "w"], &["c"]),
            node("BatchNormalization", &["c", "gain", "bias", "mean", "var"], &["n"]),
            node("Relu", &["n"], &["y"]),
        ],
        vec![
            weight("w", &[8, 16, 3, 3], &numbers(8 * 16 * 9, 0.37)),
            per_channel("gain", 0.9),
            per_channel("bias", 1.7),
            per_channel("mean", 2.3),
            per_channel("var", 3.1),
        ],
        vec![info("x", ElementType::F32, &[1, 16, 8, 8])],
        vec![info("y", ElementType::F32, &[1, 8, 6, 6])],
    )
}

#[test]
fn a_difference_that_only_fusing_makes_is_told_as_such() {
    let model = fused();
    let types = infer(&model);
    let halves = Halves::at(&model, &types, &names(&["c"])).unwrap();
    let values: Vec<f32> = (0..16 * 64).map(|index| (index as f32 * 0.11).cos()).collect();
    let sample = sample(&[("x", &[1, 16, 8, 8], &values)]);
    let found = first(&model, &types, &halves, &sample, 0.0).unwrap().unwrap();
    // Whether reading out "c" keeps them apart depends on the library's version.
    assert!(found.rewriting != Rewriting::Off && found.half == Half::Tail, "{found:?}");
    let shared = shared(&model, &types, &halves);
    let (model, halves, sample) = (&model, &halves, &sample);
    let search = Search { model, halves, sample, tolerance: 0.0, shared };
    let alone = search.one_by_one().unwrap().unwrap();
    assert_eq!((alone.rewriting, alone.half), (Rewriting::Alone, Half::Tail), "{alone:?}");
    assert!(alone.difference.scaled < 1e-5, "{alone:?}");
}
