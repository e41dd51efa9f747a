//! Elements to text and back.

use bytes::Bytes;
use proptest::prelude::*;

use super::{super::write::write_data, parse};
use crate::{Datatype, Tensor};

fn write(datatype: Datatype, count: usize, data: Vec<u8>) -> Result<String, String> {
    let tensor = Tensor::new("x", datatype, vec![count as u64], data.into()).unwrap();
    let mut out = Vec::new();
    write_data(&tensor, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn texts_are_the_shortest_that_read_back() {
    for (datatype, text) in [
        (Datatype::Int64, "[9007199254740993,-9223372036854775808]"),
        (Datatype::Uint64, "[18446744073709551615,0]"),
        (Datatype::Fp32, r#"["NaN","Infinity","-Infinity",-0.0,1e-45,0.1,3.0,16777216.0]"#),
        (Datatype::Fp64, r#"["NaN","Infinity","-Infinity",-0.0,5e-324,0.1]"#),
        (Datatype::Bool, "[true,false]"),
        (Datatype::Bytes, r#"["a","é\u0000b","","\"\\"]"#),
    ] {
        let count = text.matches(',').count() + 1;
        let data = parse(datatype, &[count as u64], text).unwrap();
        assert_eq!(write(datatype, count, data).as_deref(), Ok(text));
    }
}

#[test]
fn what_has_no_json_form_is_refused() {
    let data = vec![1, 0, 0, 0, 0xff];
    assert!(write(Datatype::Bytes, 1, data).unwrap_err().contains("binary_data"));
    assert!(write(Datatype::Bf16, 1, vec![0, 0]).unwrap_err().contains("binary_data"));
    let empty = Tensor::new("x", Datatype::Int8, vec![0], Bytes::new()).unwrap();
    let mut out = Vec::new();
    write_data(&empty, &mut out).unwrap();
    assert_eq!(out, b"[]");
}

/// NaN has one text, so that its bits do not survive.
fn one_nan(datatype: Datatype, data: &mut [u8]) {
    let size = datatype.size().unwrap();
    for element in data.chunks_mut(size) {
        match datatype {
            Datatype::Fp32 if f32::from_le_bytes(element.try_into().unwrap()).is_nan() => {
                element.copy_from_slice(&f32::NAN.to_le_bytes());
            }
            Datatype::Fp64 if f64::from_le_bytes(element.try_into().unwrap()).is_nan() => {
                element.copy_from_slice(&f64::NAN.to_le_bytes());
            }
            Datatype::Bool => element[0] &= 1,
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn every_bit_pattern_survives(
        datatype in proptest::sample::select(vec![
            Datatype::Bool, Datatype::Uint8, Datatype::Uint16, Datatype::Uint32, Datatype::Uint64,
            Datatype::Int8, Datatype::Int16, Datatype::Int32, Datatype::Int64, Datatype::Fp32,
            Datatype::Fp64,
        ]),
        words in proptest::collection::vec(any::<u64>(), 0..20),
    ) {
        let size = datatype.size().unwrap();
        let mut data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()[..size].to_vec()).collect();
        one_nan(datatype, &mut data);
        let text = write(datatype, words.len(), data.clone()).unwrap();
        prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        prop_assert_eq!(parse(datatype, &[words.len() as u64], &text), Ok(data));
    }

    #[test]
    fn every_string_survives(strings in proptest::collection::vec(any::<String>(), 0..8)) {
        let data: Vec<u8> = strings.iter()
            .flat_map(|text| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat())
            .collect();
        let text = write(Datatype::Bytes, strings.len(), data.clone()).unwrap();
        prop_assert_eq!(parse(Datatype::Bytes, &[strings.len() as u64], &text), Ok(data));
    }
}
