//! The table of types, and shapes and lengths that must not be believed.

use super::*;

#[test]
fn the_table_is_in_the_order_of_the_enum() {
    for (index, row) in TYPES.iter().enumerate() {
        assert_eq!(row.0 as usize, index);
        assert_eq!(ElementType::from_oip(row.1), Some(row.0));
        assert_eq!(ElementType::from_onnx(row.2), Some(row.0));
    }
    assert_eq!(ElementType::from_oip("fp32"), None);
}

#[test]
fn overflowing_shapes_are_refused() {
    let shape = [usize::MAX, 2];
    assert_eq!(
        TensorRef::new(ElementType::U8, &shape, &[]),
        Err(TensorError::TooLarge(shape.to_vec()))
    );
    let wide = [usize::MAX / 2];
    assert_eq!(
        TensorRef::new(ElementType::F32, &wide, &[]),
        Err(TensorError::TooLarge(wide.to_vec()))
    );
    assert!(TensorRef::new(ElementType::F32, &[usize::MAX, 0, 7], &[]).is_ok());
}

#[test]
fn lengths_must_match() {
    let error = TensorRef::new(ElementType::F32, &[2, 3], &[0; 23]).unwrap_err();
    assert_eq!(error.to_string(), "FP32 tensor of shape [2, 3] needs 24 bytes, got 23");
    assert!(TensorRef::new(ElementType::F64, &[], &[0; 8]).is_ok());
}

#[test]
fn f32s_reads_unaligned_bytes() {
    let mut buffer = vec![0u8];
    for value in [1.5f32, -2.0] {
        buffer.extend_from_slice(&value.to_le_bytes());
    }
    for start in 0..4 {
        let mut shifted = vec![0u8; start];
        shifted.extend_from_slice(&buffer[1..]);
        let tensor = TensorRef::new(ElementType::F32, &[2], &shifted[start..]).unwrap();
        assert_eq!(&*tensor.f32s().unwrap(), [1.5, -2.0]);
    }
    let other = TensorRef::new(ElementType::I32, &[0], &[]).unwrap();
    assert!(other.f32s().is_err());
}

#[test]
fn strings_round_trip_and_hostile_prefixes_are_refused() {
    let tensor = Tensor::from_strings(vec![3], &[&b"a"[..], b"", b"\x00\xff"]).unwrap();
    let back: Vec<&[u8]> = tensor.view().strings().collect();
    assert_eq!(back, [&b"a"[..], b"", b"\x00\xff"]);
    let huge = [0xff, 0xff, 0xff, 0xff, b'a'];
    assert!(Tensor::new(ElementType::String, vec![1], huge.to_vec()).is_err());
    assert!(Tensor::new(ElementType::String, vec![usize::MAX], vec![]).is_err());
    let trailing = [1, 0, 0, 0, b'a', 9];
    let error = Tensor::new(ElementType::String, vec![1], trailing.to_vec()).unwrap_err();
    assert!(error.to_string().contains("bytes after the last element at byte 5"), "{error}");
}

#[test]
fn specs_admit_by_rank_and_fixed_dimensions() {
    let spec = TensorSpec {
        name: "image".into(),
        element: ElementType::F32,
        dims: vec![Dim::Symbolic("N".into()), Dim::Fixed(1), Dim::Fixed(28)],
    };
    assert!(spec.admits(&[7, 1, 28]));
    assert!(!spec.admits(&[7, 2, 28]));
    assert!(!spec.admits(&[1, 28]));
    assert_eq!(spec.dims_text(), "[N,1,28]");
    let unknown = TensorSpec { dims: vec![], ..spec };
    assert!(unknown.admits(&[]) && unknown.admits(&[3, 4]));
}
