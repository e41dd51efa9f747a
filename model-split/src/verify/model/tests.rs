//! Cuts of graphs written here: several inputs, outputs and tensors that cross, any element type.

use midspan_runtime::ElementType;

use super::super::test_models::{classifier, infer, info, model, names, node, sample, weight};
use super::*;
use crate::onnx::pb;
use crate::samples::random;

fn check(model: &ModelProto, cut: &[&str], samples: &[Sample], bits: &[u8]) -> CutReport {
    let options = CheckOptions { bits: bits.to_vec() };
    check_cut(model, &infer(model), &names(cut), samples, &options).unwrap()
}

#[test]
fn a_classifier_is_compared_with_all_it_answers() {
    let model = classifier();
    let types = infer(&model);
    let samples = random(&halves::input_specs(&model, &types).unwrap(), 50, 3).unwrap();
    let report = check(&model, &["r"], &samples, &[8, 1]);
    assert_eq!((report.exactness, report.worst, report.samples), (Exactness::BitExact, None, 50));
    // Both outputs are of the form of a classification, with one row each.
    assert_eq!(report.agreement, Some(Agreement { same: 100, of: 100 }));
    assert_eq!(report.bytes, 64.0 + 16.0);
    let [fine, coarse] = report.quantised.as_slice() else { panic!("{report:?}") };
    assert_eq!((fine.bits, fine.bytes, coarse.bytes), (8, 64.0 + 8.0, 64.0 + 1.0));
    assert!(fine.difference.max_abs > 0.0 && fine.difference.max_abs < 0.02, "{fine:?}");
    assert!(coarse.difference.max_abs > 0.1, "{coarse:?}");
    let agreements = (fine.agreement.unwrap().same, coarse.agreement.unwrap().same);
    assert!(agreements.0 > 97 && agreements.1 < agreements.0, "{agreements:?}");
}

#[test]
fn several_tensors_cross_and_inputs_reach_both_sides() {
    let model = model(
        vec![
            node("Add", &["x", "y"], &["a"]),
            node("Mul", &["x", "y"], &["b"]),
            node("Sub", &["a", "b"], &["z"]),
        ],
        vec![],
        vec![info("x", ElementType::F32, &[2]), info("y", ElementType::F32, &[2])],
        vec![info("z", ElementType::F32, &[2])],
    );
    let samples = [sample(&[("x", &[2], &[1.0, 2.0]), ("y", &[2], &[3.0, 4.0])])];
    let report = check(&model, &["a", "b"], &samples, &[]);
    assert_eq!((report.exactness, report.agreement), (Exactness::BitExact, None));
    let refused =
        check_cut(&model, &infer(&model), &names(&["a"]), &samples, &CheckOptions::default());
    let error = refused.unwrap_err();
    assert_eq!(error.refusal(), Refusal::DoesNotDivide, "{error}");
    let unknown =
        check_cut(&model, &infer(&model), &names(&["q"]), &samples, &CheckOptions::default());
    assert!(unknown.is_err());
    // A tail of another tool may read an input of the model beside what crosses.
    let part = |outputs: &[&str], inputs: &[&str]| {
        crate::cut::extract(&model, &infer(&model), &names(inputs), &names(outputs)).unwrap()
    };
    let (front, tail) = (part(&["a"], &["x", "y"]), part(&["z"], &["a", "x", "y"]));
    let files = Halves::of_files(front.clone(), tail.clone()).unwrap();
    assert_eq!(files.crossing, ["a"]);
    let checker = Checker::new(&model, &samples, &mut || {}).unwrap();
    let report = checker.check(&files, &CheckOptions::default(), &mut || {}).unwrap();
    assert_eq!(report.exactness, Exactness::BitExact);
    let error = Halves::of_files(tail, front).unwrap_err();
    assert!(error.contains("the tail reads [\"x\", \"y\"]"), "{error}");
}

#[test]
fn integers_scalars_and_nans_cross_as_they_are() {
    let mut top = node("ArgMax", &["logs"], &["top"]);
    let attribute = |name: &str, value| pb::AttributeProto {
        name: Some(name.into()),
        r#type: Some(pb::attribute_proto::AttributeType::Int as i32),
        i: Some(value),
        ..Default::default()
    };
    top.attribute = vec![attribute("axis", 1)];
    let mut sum = node("ReduceSum", &["logs"], &["sum"]);
    sum.attribute = vec![attribute("keepdims", 0)];
    let mut cast = node("Cast", &["top"], &["class"]);
    cast.attribute = vec![attribute("to", 1)];
    let x = info("x", ElementType::F32, &[0, 3]);
    let ints = model(
        vec![node("Log", &["x"], &["logs"]), top, cast],
        vec![],
        vec![x.clone()],
        vec![info("class", ElementType::F32, &[0, 1])],
    );
    let samples = [sample(&[("x", &[1, 3], &[1.0, 5.0, 2.0])])];
    let report = check(&ints, &["top"], &samples, &[4]);
    assert_eq!((report.exactness, report.bytes), (Exactness::BitExact, 64.0 + 8.0));
    assert!(report.quantised.is_empty(), "integers are not quantised");
    let scalar = model(
        vec![node("Log", &["x"], &["logs"]), sum, node("Neg", &["sum"], &["y"])],
        vec![],
        vec![x],
        vec![info("y", ElementType::F32, &[])],
    );
    let nan = [sample(&[("x", &[1, 3], &[1.0, -5.0, 2.0])])];
    let report = check(&scalar, &["logs"], &nan, &[8]);
    assert_eq!(report.exactness, Exactness::BitExact, "a NaN is the same NaN");
    assert!(report.quantised[0].difference.within(0.0), "rows with a NaN travel raw");
}

#[test]
fn what_does_not_run_is_named_with_its_sample() {
    let model = classifier();
    let types = infer(&model);
    let good = sample(&[("x", &[1, 3], &[0.0; 3])]);
    let bad = sample(&[("x", &[1, 2], &[0.0; 2])]);
    let error = Checker::new(&model, &[good.clone(), bad], &mut || {}).err().unwrap();
    assert_eq!(error.refusal(), Refusal::WholeFails);
    assert!(error.to_string().starts_with("the whole model, sample 1: input \"x\""), "{error}");
    let mut halves = Halves::at(&model, &types, &names(&["r"])).unwrap();
    halves.tail.graph.as_mut().unwrap().node[0].op_type = Some("NoSuchOperator".into());
    let samples = [good];
    let checker = Checker::new(&model, &samples, &mut || {}).unwrap();
    let error = checker.check(&halves, &CheckOptions::default(), &mut || {}).unwrap_err();
    assert_eq!(error.refusal(), Refusal::TailRefused, "{error}");
    let short = Halves { tail: halves.front.clone(), ..halves };
    assert!(checker.check(&short, &CheckOptions::default(), &mut || {}).is_err());
}

#[test]
fn a_wrong_weight_is_a_difference() {
    let model = classifier();
    let mut halves = Halves::at(&model, &infer(&model), &names(&["r"])).unwrap();
    halves.tail.graph.as_mut().unwrap().initializer = vec![weight("w2", &[4, 3], &[0.5; 12])];
    let samples = [
        sample(&[("x", &[1, 3], &[0.0; 3])]),
        sample(&[("x", &[1, 3], &[0.1; 3])]),
        sample(&[("x", &[1, 3], &[9.0; 3])]),
    ];
    let checker = Checker::new(&model, &samples, &mut || {}).unwrap();
    let report = checker.check(&halves, &CheckOptions::default(), &mut || {}).unwrap();
    assert_eq!(report.worst, Some(2));
    assert!(!report.difference.within(0.1), "{report:?}");
}
