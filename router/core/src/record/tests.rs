//! Records that are none: every one is refused, none panics.

use alloc::string::ToString;
use alloc::vec::Vec;
use std::vec;

use super::*;
use crate::cells::{Cells, Tuning};
use crate::gather::gather;
use crate::place::{Place, RegionId};
use crate::policy::Policy;
use crate::request::{ModelId, Request};
use crate::rng::Rng;
use crate::topology::{Held, NodeKey, NodeSpec, Served, TopologyBuilder};
use crate::units::{Micros, Timestamp};

fn record() -> DecisionRecord {
    let cells = Cells::new(20, Tuning::default()).unwrap();
    let served = Served { model: ModelId(1), held: Held::Loadable(Micros(5)), service: None };
    let spec = |k| NodeSpec {
        models: vec![served],
        offload: Some(Micros(9)),
        ..NodeSpec::new(NodeKey(k), RegionId::ZERO)
    };
    let topology = (0..20).fold(TopologyBuilder::new(), |b, k| b.node(spec(k)));
    let topology = topology.build(None, &cells).unwrap();
    let mut inputs = Inputs::new(Policy::from_name("nearest").unwrap());
    let client = Some(Place::new(-0.0, 12.5).unwrap());
    let (deadline, client_rtt) = (Some(Micros(9_000_000)), Some(Micros(4)));
    let request = Request { client, deadline, client_rtt, ..Request::new(ModelId(1)) };
    gather(Timestamp(7), &topology, &cells, &request, &mut Rng::new(1), &mut inputs);
    let mut decision = Decision::new();
    choose(&inputs, 3, &mut decision);
    DecisionRecord { inputs, seed: 3, decision }
}

fn bytes() -> Vec<u8> {
    let mut bytes = vec![];
    record().encode(&mut bytes);
    bytes
}

#[test]
fn a_full_record_is_bounded_and_comes_back() {
    let bytes = bytes();
    let back = DecisionRecord::decode(&bytes).unwrap();
    assert_eq!(back.inputs.len(), 16);
    assert_eq!(back, record());
    let lat = back.inputs.request.client.unwrap().lat();
    assert!(lat.is_sign_negative(), "floats come back by their bits");
    // Every optional field of a candidate adds at most 9 + 17 bytes here.
    assert!(bytes.len() + 16 * 17 <= MAX_RECORD_BYTES, "{}", bytes.len());
}

#[test]
fn every_prefix_and_every_suffix_is_refused() {
    let bytes = bytes();
    for end in 0..bytes.len() {
        let err = DecisionRecord::decode(&bytes[..end]).unwrap_err();
        let expected =
            if end < 4 { RecordError::NotARecord } else { RecordError::Truncated { at: end } };
        assert_eq!(err, expected);
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(DecisionRecord::decode(&longer), Err(RecordError::Trailing { bytes: 1 }));
}

#[test]
fn no_changed_byte_panics_and_what_is_accepted_encodes_to_itself() {
    let bytes = bytes();
    let mut accepted = 0;
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bad = bytes.clone();
            bad[at] ^= flip;
            if let Ok(record) = DecisionRecord::decode(&bad) {
                let mut again = vec![];
                record.encode(&mut again);
                assert_eq!(again, bad);
                replay(&record);
                accepted += 1;
            }
        }
    }
    assert!(accepted > 0, "most fields are free");
}

#[test]
fn errors_say_what_and_where() {
    let mut version = bytes();
    version[4] = 9;
    let mut policy = bytes();
    policy[6] = 77;
    let say = |b: &[u8]| DecisionRecord::decode(b).unwrap_err().to_string();
    expect_test::expect![[r#"
        not a decision record
        decision record of version 9, expected 1
        decision record: invalid policy before byte 7
        decision record ends early, at byte 40
    "#]]
    .assert_eq(&std::format!(
        "{}\n{}\n{}\n{}\n",
        say(b"nope"),
        say(&version),
        say(&policy),
        say(&bytes()[..40]),
    ));
}

/// The layout of version 1, pinned: a change of it needs a new version.
#[test]
fn layout_is_pinned() {
    let hash = crate::hash::hash_bytes(&bytes());
    expect_test::expect!["3261 bytes, 0x859224df31fdd45a"]
        .assert_eq(&std::format!("{} bytes, {hash:#018x}", bytes().len()));
}
