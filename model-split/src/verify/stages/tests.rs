//! That differences are seen: a whole model is compared with stages that are not its own. The
//! agreement of the default model is tested from outside.

use midspan_runtime::test_support;

use super::*;
use crate::onnx;
use crate::samples::of_labelled;

fn whole() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fashion.onnx");
    std::fs::read(path).unwrap()
}

fn some_samples(bundle: &Bundle, count: usize) -> Vec<Sample> {
    let mut samples = of_labelled(&bundle.labelled().unwrap().unwrap(), "image");
    samples.truncate(count);
    samples
}

#[test]
fn another_whole_model_is_found_out() {
    test_support::library();
    let bundle = Bundle::embedded().unwrap();
    let mut model = onnx::decode(whole().into()).unwrap();
    // Ten f32 are the bias of a last layer: shift one class of each exit far up.
    for weight in &mut model.graph.as_mut().unwrap().initializer {
        if let Some(data) = weight.raw_data.as_mut().filter(|data| data.len() == 40) {
            let mut bytes = data.to_vec();
            bytes[..4].copy_from_slice(&1000f32.to_le_bytes());
            *data = bytes.into();
        }
    }
    let samples = some_samples(&bundle, 20);
    let report = verify(&bundle, &onnx::encode(&model), &samples, &[8], &mut |_, _| {}).unwrap();
    assert!(report.difference.max_abs > 500.0, "{report:?}");
    assert!(report.agreement_raw < 0.5, "{report:?}");
    let accuracy = report.accuracy.unwrap();
    assert!(accuracy.served > 0.7 && accuracy.whole < 0.5, "{report:?}");
}

#[test]
fn unlabelled_samples_have_no_accuracy_and_wrong_ones_are_named() {
    test_support::library();
    let bundle = Bundle::embedded().unwrap();
    let mut samples = some_samples(&bundle, 2);
    samples[1].label = None;
    let report = verify(&bundle, &whole(), &samples, &[], &mut |_, _| {}).unwrap();
    assert_eq!((report.accuracy, report.cuts[0].agreement.len()), (None, 0));
    samples[1].inputs[0].1 = Tensor::from_f32s(vec![1, 1, 28, 27], &[0.0; 28 * 27]).unwrap();
    let error = verify(&bundle, &whole(), &samples, &[], &mut |_, _| {}).unwrap_err().to_string();
    assert!(error.starts_with("sample 1: input \"image\" must have shape"), "{error}");
    samples.truncate(1);
    let error = verify(&bundle, &whole(), &samples, &[9], &mut |_, _| {}).unwrap_err().to_string();
    assert!(error.starts_with("sample 0: cannot write FP32 elements at Bits(9)"), "{error}");
}
