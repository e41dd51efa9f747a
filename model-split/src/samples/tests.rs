//! Samples of random numbers, their digest, and taking some of many.

use super::*;

fn specs() -> Vec<TensorSpec> {
    let spec = |name: &str, element, dims| TensorSpec { name: name.into(), element, dims };
    let open = || Dim::Symbolic("N".into());
    vec![
        spec("x", ElementType::F32, vec![open(), Dim::Fixed(3)]),
        spec("ids", ElementType::I64, vec![open(), Dim::Fixed(2)]),
    ]
}

#[test]
fn a_seed_gives_the_same_samples_and_another_seed_others() {
    let samples = random(&specs(), 2, 7).unwrap();
    assert_eq!(samples, random(&specs(), 2, 7).unwrap());
    assert_ne!(digest(&samples), digest(&random(&specs(), 2, 8).unwrap()));
    let [(name, x), (_, ids)] = samples[1].inputs.as_slice() else { panic!("two inputs") };
    assert_eq!((name.as_str(), x.shape(), ids.shape()), ("x", &[1, 3][..], &[1, 2][..]));
    assert!(x.f32s().unwrap().iter().all(|value| (-1.0..=1.0).contains(value)));
    assert!(ids.bytes().chunks(8).all(|word| word[0] < 8 && word[1..] == [0; 7]));
    assert_eq!(samples[0].single(), None);
}

#[test]
fn more_random_numbers_than_are_held_are_refused_before_they_are_made() {
    let error = random(&specs(), 1 << 30, 0).unwrap_err();
    assert!(matches!(error, SamplesError::Large { count } if count == 1 << 30), "{error}");
    let dims = vec![Dim::Fixed(usize::MAX), Dim::Fixed(2)];
    let huge = TensorSpec { name: "x".into(), element: ElementType::F32, dims };
    assert!(matches!(random(&[huge], 1, 0).unwrap_err(), SamplesError::Large { .. }));
}

#[test]
fn strings_are_refused_by_name() {
    let text = TensorSpec { name: "text".into(), element: ElementType::String, dims: vec![] };
    let error = random(&[text], 1, 0).unwrap_err().to_string();
    assert_eq!(error, "input \"text\" is BYTES: no random values can stand in for it");
}

#[test]
fn some_of_many_are_taken_evenly() {
    let labels = |count| -> Vec<usize> {
        let all = (0..10).map(|label| Sample { inputs: vec![], label: Some(label), picture: None });
        spread(all.collect(), count).iter().map(|sample| sample.label.unwrap()).collect()
    };
    assert_eq!(labels(5), [1, 3, 5, 7, 9]);
    assert_eq!(labels(3), [3, 6, 9]);
    assert_eq!(labels(99).len(), 10);
    assert!(labels(0).is_empty());
}
