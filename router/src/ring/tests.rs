//! The frozen ring is `hashring`'s ring, spread as theory says, and pinned.

use std::{collections::BTreeMap, fmt::Write as _};

use midspan_router_core::{
    AffinityKey, Cells, NodeSpec, RegionId, TopologyBuilder, Tuning, Weight, hash_bytes,
};

use super::*;

fn topology(names: &[(&str, u16)]) -> Topology {
    let cells = Cells::new(1024, Tuning::default()).unwrap();
    let mut builder = TopologyBuilder::new();
    for (name, weight) in names {
        let mut spec =
            NodeSpec::new(NodeKey(hash_bytes(name.as_bytes())), RegionId::new(0).unwrap());
        spec.weight = Weight::new(*weight).unwrap();
        builder = builder.node(spec);
    }
    builder.build(None, &cells).unwrap()
}

/// A key with explicit bytes.
struct Raw(u64);

impl Hash for Raw {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0.to_le_bytes());
    }
}

#[test]
fn the_frozen_ring_owns_what_hashring_owns() {
    let topology = topology(&[("edge-a", 100), ("edge-b", 100), ("edge-c", 50)]);
    let (ring, frozen) = (build(&topology), freeze(&topology));
    assert_eq!(ring.len(), frozen.len());
    assert_eq!(frozen.len(), 160 + 160 + 80);
    for key in 0..10_000_u64 {
        let hashed = AffinityKey(DefaultHashBuilder.hash_one(Raw(key)));
        let owner = ring.get(&Raw(key)).unwrap().slot;
        assert_eq!(frozen.walk(hashed).next(), Some(owner), "key {key}");
    }
}

#[test]
fn keys_spread_by_weight_and_few_move_when_a_node_leaves() {
    let all = topology(&[("edge-a", 100), ("edge-b", 100), ("edge-c", 100), ("edge-d", 200)]);
    let fewer = topology(&[("edge-a", 100), ("edge-b", 100), ("edge-d", 200)]);
    let (before, after) = (freeze(&all), freeze(&fewer));
    let keys = 50_000_u64;
    let owner = |topology: &Topology, ring: &FrozenRing, key: u64| {
        let slot = ring.walk(AffinityKey(midspan_router_core::mix(key))).next().unwrap();
        topology.node(slot).unwrap().key
    };
    let mut share = BTreeMap::<u64, u64>::new();
    let mut moved = 0;
    let gone = NodeKey(hash_bytes(b"edge-c"));
    for key in 0..keys {
        let (old, new) = (owner(&all, &before, key), owner(&fewer, &after, key));
        *share.entry(old.0).or_default() += 1;
        if old != gone {
            assert_eq!(old, new, "a key of a surviving node moved");
        } else {
            moved += 1;
        }
    }
    let of = |name: &str| share[&hash_bytes(name.as_bytes())] as f64 / keys as f64;
    // 160 points: the share's relative deviation is about 1/sqrt(160) = 8 %; three of them.
    for (name, expected) in [("edge-a", 0.2), ("edge-b", 0.2), ("edge-c", 0.2), ("edge-d", 0.4)] {
        assert!((of(name) - expected).abs() < expected * 0.24, "{name}: {}", of(name));
    }
    assert!(moved > 0);
}

#[test]
fn placement_is_pinned() {
    let topology = topology(&[("edge-a", 100), ("edge-b", 100), ("edge-c", 100)]);
    let ring = freeze(&topology);
    let mut text = String::new();
    for key in 0..64_u64 {
        let key = AffinityKey(hash_bytes(format!("key-{key}").as_bytes()));
        let order: Vec<u32> = ring.walk(key).take(4).map(|slot| slot.index).collect();
        writeln!(text, "{:016x} {order:?}", key.0).unwrap();
    }
    expect_test::expect_file!["placement.golden"].assert_eq(&text);
}
