//! Slots, generations and the ring.

use alloc::string::ToString;
use alloc::vec::Vec;
use std::vec;

use super::*;
use crate::cells::{Cells, Tuning};
use crate::hash::AffinityKey;
use crate::observe::{Event, observe};
use crate::units::{Micros, Rif, Timestamp};

fn node(key: u64, models: &[u32]) -> NodeSpec {
    let served = |m: &u32| Served { model: ModelId(*m), held: Held::Resident, service: None };
    let models = models.iter().map(served).collect();
    NodeSpec { models, ..NodeSpec::new(NodeKey(key), RegionId::ZERO) }
}

fn cells(capacity: u16) -> Cells {
    Cells::new(capacity, Tuning::default()).unwrap()
}

fn build(nodes: &[u64], before: Option<&Topology>, cells: &Cells) -> Topology {
    let builder = nodes.iter().fold(TopologyBuilder::new(), |b, k| b.node(node(*k, &[1])));
    builder.build(before, cells).unwrap()
}

#[test]
fn a_surviving_node_keeps_its_slot_and_a_reused_index_gets_a_new_generation() {
    let cells = cells(3);
    let first = build(&[10, 20, 30], None, &cells);
    let gone = first.slot_of(NodeKey(20)).unwrap();
    let second = build(&[30, 10], Some(&first), &cells);
    for key in [10, 30] {
        assert_eq!(first.slot_of(NodeKey(key)), second.slot_of(NodeKey(key)));
    }
    assert!(cells.view(gone, Timestamp(0)).is_none(), "closed at once");
    assert!(second.node(gone).is_none());

    let third = build(&[10, 40, 30], Some(&second), &cells);
    let reused = third.slot_of(NodeKey(40)).unwrap();
    assert_eq!(reused.index, gone.index);
    assert_ne!(reused.generation, gone.generation);
    assert_eq!((first.epoch(), second.epoch(), third.epoch()), (1, 2, 3));
}

#[test]
fn what_is_said_of_an_outdated_slot_is_ignored() {
    let cells = cells(1);
    let first = build(&[1], None, &cells);
    let old = first.slot_of(NodeKey(1)).unwrap();
    cells.take(old, Rif(9)).unwrap();
    let second = build(&[2], Some(&first), &cells);
    let new = second.slot_of(NodeKey(2)).unwrap();
    cells.take(new, Rif(9)).unwrap();

    cells.give_back(old);
    assert_eq!(cells.take(old, Rif(9)), Err(None));
    let rtt = Micros(5_000);
    observe(
        &cells,
        Timestamp(1),
        Event::ProbeOk { slot: old, rtt, server_time: Micros(0), report: None },
    );
    let view = cells.view(new, Timestamp(1)).unwrap();
    assert_eq!((view.leases, view.floor), (Rif(1), None));
}

#[test]
fn bad_fleets_are_refused_by_name_and_change_nothing() {
    let cells = cells(2);
    let before = build(&[1, 2], None, &cells);
    let refused = |b: TopologyBuilder| b.build(Some(&before), &cells).unwrap_err().to_string();
    let new = TopologyBuilder::new;
    let many: Vec<u32> = (0..1_025).collect();
    expect_test::expect![[r#"
        two nodes have the key 0x0000000000000007
        node 0x0000000000000007 lists model 3 twice
        3 nodes, but room for 2
        node 0x0000000000000007: 1025 models, at most 1024
        65 sets of regions, at most 64
    "#]]
    .assert_eq(&std::format!(
        "{}\n{}\n{}\n{}\n{}\n",
        refused(new().node(node(7, &[])).node(node(7, &[]))),
        refused(new().node(node(7, &[3, 1, 3]))),
        refused((0..3).fold(new(), |b, k| b.node(node(k, &[])))),
        refused(new().node(node(7, &many))),
        refused((0..65).fold(new(), |b, i| b.class(RegionSet::from_bits([i, 1, 0, 0])))),
    ));
    assert!(before.nodes().all(|(slot, _)| cells.view(slot, Timestamp(0)).is_some()));
}

#[test]
fn ring_is_walked_once_around_from_the_first_point_at_or_after_the_key() {
    let slot = |index| Slot { index, generation: 1 };
    let ring = FrozenRing::new(vec![(30, slot(3)), (10, slot(1)), (20, slot(2))]);
    let walk = |key| ring.walk(AffinityKey(key)).map(|s| s.index).collect::<Vec<_>>();
    assert_eq!(walk(0), [1, 2, 3]);
    assert_eq!(walk(20), [2, 3, 1]);
    assert_eq!(walk(21), [3, 1, 2]);
    assert_eq!(walk(31), [1, 2, 3]);
    assert_eq!(FrozenRing::default().walk(AffinityKey(5)).count(), 0);
}

#[test]
fn index_orders_by_horizon_then_floor_and_counts_who_is_out() {
    let cells = cells(4);
    let topology = build(&[1, 2, 3, 4], None, &cells);
    let slot = |key| topology.slot_of(NodeKey(key)).unwrap();
    for (key, ms) in [(1, 90), (2, 7), (3, 5), (4, 6)] {
        let rtt = Micros::from_millis(ms);
        let event = Event::ProbeOk { slot: slot(key), rtt, server_time: Micros(0), report: None };
        observe(&cells, Timestamp(0), event);
    }
    (0..3).for_each(|_| observe(&cells, Timestamp(0), Event::ProbeFailed { slot: slot(4) }));
    crate::sweep::sweep(Timestamp(0), &topology, &cells);

    let view = topology.view(ModelId(1), RegionSet::ALL).unwrap();
    let horizon = |h| {
        let slots = view.horizon(h).iter().map(|s| s.load(core::sync::atomic::Ordering::Relaxed));
        slots.collect::<Vec<_>>()
    };
    assert_eq!(horizon(0), [slot(3).index, slot(2).index]);
    assert_eq!((horizon(1), horizon(2)), (vec![], vec![slot(1).index]));
    assert_eq!(horizon(HORIZONS), [slot(4).index]);
    assert_eq!(view.index.out().dead, 1);
    assert_eq!(view.horizon_load(0).weight, 200);
}

#[test]
fn a_predecessor_that_the_cells_do_not_know_is_no_predecessor() {
    let (here, elsewhere) = (cells(2), cells(9));
    let foreign = build(&[1, 2, 3, 4, 5, 6, 7, 8, 9], None, &elsewhere);
    let topology = build(&[9, 8], Some(&foreign), &here);
    assert!(topology.nodes().all(|(slot, _)| here.view(slot, Timestamp(0)).is_some()));
    // Two successors of one topology: the second does not revive what the first closed.
    let without = build(&[9], Some(&topology), &here);
    let with = build(&[9, 8], Some(&topology), &here);
    assert_eq!(without.slot_of(NodeKey(9)), with.slot_of(NodeKey(9)));
    assert_ne!(topology.slot_of(NodeKey(8)), with.slot_of(NodeKey(8)));
}
