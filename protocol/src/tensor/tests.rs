//! Shapes and sizes at their edges.

use super::*;

fn new(datatype: Datatype, shape: &[u64], data: &[u8]) -> Result<Tensor, ProtocolError> {
    Tensor::new("x", datatype, shape.to_vec(), Bytes::copy_from_slice(data))
}

#[test]
fn sizes_must_match_shape() {
    assert!(new(Datatype::Fp32, &[2], &[0; 8]).is_ok());
    assert!(new(Datatype::Fp32, &[], &[0; 4]).is_ok());
    assert!(new(Datatype::Fp32, &[0, 3], &[]).is_ok());
    let error = new(Datatype::Fp32, &[2], &[0; 7]).unwrap_err().to_string();
    assert_eq!(error, "input 'x': expected 8 bytes for its shape, got 7");
}

#[test]
fn hostile_shapes_are_refused_without_allocating() {
    let empty = [vec![1 << 32, 0], vec![0, (1 << 20) + 1], vec![1 << 62, 0, 8]];
    assert!(new(Datatype::Uint8, &[0, 1 << 20], &[]).is_ok());
    for shape in [vec![1 << 4, (1 << 60) + 2], vec![1 << 62, 8], vec![u64::MAX], vec![1; 33]]
        .into_iter()
        .chain(empty)
    {
        assert!(new(Datatype::Uint8, &shape, &[]).is_err(), "{shape:?}");
        assert!(new(Datatype::Bytes, &shape, &[]).is_err(), "{shape:?}");
    }
}

#[test]
fn bytes_elements_are_walked() {
    let data = [3, 0, 0, 0, 0xff, 0x00, 0x61, 0, 0, 0, 0];
    let tensor = new(Datatype::Bytes, &[2], &data).unwrap();
    assert_eq!(tensor.to_byte_strings().unwrap(), [&b"\xff\x00a"[..], b""]);
    assert!(new(Datatype::Bytes, &[1], &data).is_err());
    assert!(new(Datatype::Bytes, &[1], &[4, 0, 0, 0, 1]).is_err());
    assert!(new(Datatype::Bytes, &[1], &[0xff, 0xff, 0xff, 0xff]).is_err());
    assert!(new(Datatype::Bytes, &[1], &[1, 0]).is_err());
}

#[test]
fn a_bool_is_zero_or_one() {
    assert!(new(Datatype::Bool, &[2], &[0, 1]).is_ok());
    assert!(new(Datatype::Bool, &[2], &[0, 2]).is_err());
}
