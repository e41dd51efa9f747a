//! The default model's answers: in batches and one by one, by its file and by its stages.

use midspan_runtime::{ElementType, test_support};

use super::*;
use crate::exit::classify;
use crate::samples::{of_labelled, spread};

fn samples(count: usize) -> Vec<Sample> {
    let labelled = Bundle::embedded().unwrap().labelled().unwrap().unwrap();
    spread(of_labelled(&labelled, "image"), count)
}

fn file() -> Vec<u8> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fashion.onnx")).unwrap()
}

fn near(one: &Logits, other: &Logits) -> bool {
    one.len() == other.len()
        && one.values.iter().zip(&other.values).all(|(one, other)| (one - other).abs() < 1e-4)
}

#[test]
fn batches_files_and_stages_give_the_same_answers() {
    test_support::library();
    let (bundle, file) = (Bundle::embedded().unwrap(), file());
    let samples = samples(70);
    let subject = Subject { bundle: &bundle, whole: Some(&file), variant: PLAIN, cut: 0 };
    let mut steps = vec![];
    let batched = answers(&subject, &samples, &mut |done| steps.push(done)).unwrap();
    assert_eq!(steps, [32, 64, 70]);
    assert_eq!((batched.exits.len(), batched.exits[0].stage), (1, 0));
    assert_eq!((batched.whole.len(), batched.labels.len()), (70, 70));
    let subject = Subject { whole: None, ..subject };
    let staged = answers(&subject, &samples, &mut |_| {}).unwrap();
    assert!(near(&staged.whole, &batched.whole));
    for (index, sample) in samples.iter().enumerate().step_by(23) {
        let one = answers(&subject, std::slice::from_ref(sample), &mut |_| {}).unwrap();
        let rows = [&batched.exits[0].logits, &batched.whole]
            .map(|all| Logits::new(10, all.row(index).unwrap().to_vec()));
        assert!(near(&one.exits[0].logits, &rows[0]) && near(&one.whole, &rows[1]), "{index}");
    }
    let right = batched.whole.rows().zip(&batched.labels);
    let right = right.filter(|(row, label)| Some(classify(row, 1.0).0) == **label).count();
    assert!((58..=70).contains(&right), "{right}");
}

#[test]
fn what_does_not_fit_is_named() {
    test_support::library();
    let bundle = Bundle::embedded().unwrap();
    let (file, few) = (file(), samples(3));
    let subject = Subject { bundle: &bundle, whole: Some(&file), variant: PLAIN, cut: 0 };
    let front = bundle.stage_model(0).unwrap();
    let error = |subject: &Subject<'_>, samples: &[Sample]| {
        answers(subject, samples, &mut |_| {}).unwrap_err().to_string()
    };
    assert_eq!(
        error(&Subject { whole: Some(&front), ..subject }, &few),
        "the whole model has no output \"logits3\""
    );
    assert_eq!(
        error(&Subject { variant: "int8", ..subject }, &few),
        "no stage up to the cut has a variant \"int8\"; known are [\"plain\"]"
    );
    let mut other = few.clone();
    other[1].inputs[0].1 = Tensor::new(ElementType::U8, vec![1, 1, 28, 28], vec![0; 784]).unwrap();
    let text = error(&subject, &other);
    assert!(text.starts_with("stages[0], sample 1: input \"image\" must be FP32"), "{text}");
    let text = error(&Subject { whole: Some(b"x"), ..subject }, &few);
    assert!(text.starts_with("the whole model: ONNX Runtime refused the model"), "{text}");
    let cut = |local_stages| bundle.manifest().last_cut(local_stages);
    assert_eq!([0, 1, 2, 3].map(cut), [None, Some(0), Some(0), Some(0)]);
}

#[test]
fn only_rows_of_logits_are_taken() {
    let mut logits = Logits::default();
    let floats = |shape: &[usize]| {
        Tensor::from_f32s(shape.to_vec(), &vec![0.5; shape.iter().product()]).unwrap()
    };
    logits.push(&floats(&[2, 3]), 2).unwrap();
    assert_eq!(
        logits.push(&floats(&[2, 4]), 2),
        Err("it gave FP32 [2, 4] for 2 rows".to_owned()),
        "another number of classes"
    );
    assert!(logits.push(&floats(&[3, 3]), 2).is_err(), "another number of rows");
    assert!(logits.push(&floats(&[2, 3, 1]), 2).is_err());
    let whole = Tensor::new(ElementType::I64, vec![2, 3], vec![0; 48]).unwrap();
    assert!(logits.push(&whole, 2).is_err());
    assert_eq!((logits.len(), logits.row(1)), (2, Some(&[0.5; 3][..])));
    assert_eq!((logits.row(2), Logits::default().row(0), Logits::default().len()), (None, None, 0));
}
