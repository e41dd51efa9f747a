//! What is proved of consistent hashing with bounded loads, and what a key's
//! order promises when the fleet changes.

use std::sync::Arc;

use midspan_router_core::Rng;
use midspan_router_core::*;
use proptest::prelude::*;

const MODEL: ModelId = ModelId(1);

fn spec(i: u64) -> NodeSpec {
    let served = Served { model: MODEL, held: Held::Resident, service: None };
    let region = RegionId::new(0).unwrap();
    // Enough workers for the hard limit to play no part.
    let workers = Workers::new(100).unwrap();
    NodeSpec { workers, models: vec![served], ..NodeSpec::new(NodeKey(mix(i)), region) }
}

fn fleet(nodes: impl Iterator<Item = u64>, cells: &Cells, before: Option<&Topology>) -> Topology {
    let builder = nodes.fold(TopologyBuilder::new(), |b, i| b.node(spec(i)));
    let topology = builder.build(before, cells).unwrap();
    let nodes: Vec<_> = topology.nodes().map(|(slot, node)| (slot, node.key)).collect();
    let points = nodes
        .into_iter()
        .flat_map(|(slot, key)| (0..16).map(move |i| (mix(key.0.wrapping_add(mix(i))), slot)));
    let ring = FrozenRing::new(points.collect());
    topology.with_ring(ring)
}

fn request(key: u64) -> Request {
    Request { key: Some(AffinityKey(mix(key))), ..Request::new(MODEL) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// With m static keys on n equal nodes none holds more than
    /// ceil((1 + epsilon) m / n), at any moment.
    #[test]
    fn no_bin_exceeds_the_bound(
        n in 1_u64..=64,
        keys in 1_u64..400,
        epsilon in 10_u32..2_000,
        seed: u64,
    ) {
        let policy = RingBounded { epsilon: Permille(epsilon), ..RingBounded::default() };
        let cells = Arc::new(Cells::new(64, Tuning::default()).unwrap());
        let topology = fleet(0..n, &cells, None);
        let mut inputs = Inputs::new(Policy::RingBounded(policy));
        let (mut rng, mut decision) = (Rng::new(seed), Decision::new());
        let mut leases = Vec::new();
        for m in 1..=keys {
            let now = Timestamp(m);
            gather(now, &topology, &cells, &request(m ^ seed), &mut rng, &mut inputs);
            choose(&inputs, rng.next_u64(), &mut decision);
            prop_assert_eq!(decision.outcome(), Outcome::Placed);
            let first = decision.choices()[0];
            leases.push(book(&cells, first.slot, first.cap).unwrap());
            let bound = (u64::from(1_000 + epsilon) * m).div_ceil(1_000 * n);
            let fullest = topology.nodes()
                .map(|(slot, _)| cells.view(slot, now).unwrap().leases.0)
                .max();
            prop_assert!(u64::from(fullest.unwrap()) <= bound, "{fullest:?} > {bound}");
        }
        invariants::check_leases(&cells, leases.len()).unwrap();
    }

    /// When a node leaves, only its keys move; when it comes back, they return.
    #[test]
    fn only_the_keys_of_a_lost_node_move(n in 2_u64..40, lost in 0_u64..40, seed: u64) {
        let lost = lost % n;
        let cells = Cells::new(64, Tuning::default()).unwrap();
        let primary = |topology: &Topology, key| {
            let mut inputs = Inputs::new(Policy::default());
            gather(Timestamp(0), topology, &cells, &request(key), &mut Rng::new(0), &mut inputs);
            inputs.candidates()[0].node
        };
        let whole = fleet(0..n, &cells, None);
        let before: Vec<_> = (0..200).map(|k| primary(&whole, k ^ seed)).collect();
        let less = fleet((0..n).filter(|i| *i != lost), &cells, Some(&whole));
        for (k, node) in (0..).zip(&before) {
            let after = primary(&less, k ^ seed);
            prop_assert_ne!(after, NodeKey(mix(lost)));
            prop_assert!(after == *node || *node == NodeKey(mix(lost)));
        }
        let again = fleet(0..n, &cells, Some(&less));
        let after: Vec<_> = (0..200).map(|k| primary(&again, k ^ seed)).collect();
        prop_assert_eq!(after, before);
    }
}

/// Beyond 64 nodes the mean is the last sweep's; a burst before the next one
/// must neither be held up by it nor pile up on a few nodes.
#[test]
fn a_burst_between_two_sweeps_is_placed_and_spread() {
    for name in ["ring_bounded", "capped_affinity"] {
        let cells = Arc::new(Cells::new(100, Tuning::default()).unwrap());
        let topology = fleet(0..100, &cells, None);
        sweep(Timestamp(0), &topology, &cells);
        let mut inputs = Inputs::new(Policy::from_name(name).unwrap());
        let (mut rng, mut decision) = (Rng::new(5), Decision::new());
        let mut leases = Vec::new();
        let mut queued = 0;
        for key in 0..1_000 {
            gather(Timestamp(1), &topology, &cells, &request(key), &mut rng, &mut inputs);
            choose(&inputs, rng.next_u64(), &mut decision);
            queued += usize::from(decision.outcome() == Outcome::Queued);
            let first = decision.choices()[0];
            leases.push(book(&cells, first.slot, first.cap).unwrap());
        }
        let loads = topology.nodes().map(|(s, _)| cells.view(s, Timestamp(1)).unwrap().leases.0);
        let fullest = loads.max().unwrap();
        assert!(queued <= 20, "{name}: {queued} of 1000 queued");
        assert!(fullest <= 25, "{name}: {fullest} on one node, the mean is 10");
    }
}

/// Half of the nodes are over: five draws all hit such once in 32 times, nine
/// once in 512.
#[test]
fn a_request_that_meets_only_busy_nodes_looks_further() {
    let cells = Arc::new(Cells::new(64, Tuning::default()).unwrap());
    let topology = fleet(0..64, &cells, None);
    let busy = topology.nodes().map(|(slot, _)| slot).filter(|slot| slot.index % 2 == 0);
    let leases: Vec<_> = busy
        .flat_map(|slot| (0..10).map(move |_| slot))
        .map(|s| book(&cells, s, Rif(10)))
        .collect();
    assert!(leases.iter().all(Result::is_ok));
    let mut inputs = Inputs::new(Policy::default());
    let (mut rng, mut decision) = (Rng::new(5), Decision::new());
    let mut queued = 0;
    for key in 0..2_000 {
        gather(Timestamp(1), &topology, &cells, &request(key), &mut rng, &mut inputs);
        choose(&inputs, rng.next_u64(), &mut decision);
        queued += usize::from(decision.outcome() == Outcome::Queued);
    }
    assert!(queued < 20, "{queued} of 2000 queued");
}
