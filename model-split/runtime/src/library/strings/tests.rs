//! Counts and lengths that do not add up are refused; what passes a real model is tested with the
//! session.

use super::*;
use crate::test_support;

#[test]
fn as_many_strings_as_the_shape_says() {
    test_support::library();
    let strings = |count: usize| iter::repeat_n(&b"\xff\0"[..], count);
    let value = tensor(&[2, 3], strings(6)).unwrap().into_dyn();
    let (shape, bytes) = extract(&value).unwrap();
    assert_eq!((shape, bytes), (vec![2, 3], b"\x02\0\0\0\xff\0".repeat(6)));
    let text = |count| tensor(&[2, 3], strings(count)).unwrap_err().to_string();
    assert_eq!(text(5), "5 strings where shape [2, 3] has 6");
    assert_eq!(text(7), "more strings than the 6 of shape [2, 3]");
    let (shape, bytes) = extract(&tensor(&[0, 3], strings(0)).unwrap().into_dyn()).unwrap();
    assert_eq!((shape, bytes), (vec![0, 3], vec![]));
}

#[test]
fn only_strings_are_extracted() {
    test_support::library();
    let allocator = Allocator::default();
    let numbers = DynTensor::new(&allocator, TensorElementType::Int64, [2_usize]).unwrap();
    let error = extract(&numbers.into_dyn()).unwrap_err();
    assert!(error.to_string().starts_with("expected a string tensor, got"), "{error}");
}

#[test]
fn lengths_go_before_the_strings_in_one_buffer() {
    test_support::library();
    let put = |text: &str, starts: &[usize]| {
        let from = 4 * starts.len();
        let mut bytes = [vec![0xee; from], text.into()].concat();
        prefix(&mut bytes, from, starts).map(|()| bytes).map_err(|error| error.to_string())
    };
    assert_eq!(put("abc", &[0]).unwrap(), b"\x03\0\0\0abc");
    assert_eq!(put("abc", &[0, 1, 1]).unwrap(), b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc");
    assert_eq!(put("", &[0, 0]).unwrap(), [0; 8]);
    let unordered = "ONNX Runtime gave strings that are out of order";
    for starts in [&[0, 2, 1][..], &[0, 4], &[usize::MAX, 0], &[0, usize::MAX]] {
        assert_eq!(put("abc", starts).unwrap_err(), unordered, "{starts:?}");
    }
    assert!(put("abc", &[1, 2]).unwrap_err().contains("gap"));
}
