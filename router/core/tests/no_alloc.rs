//! A decision allocates nothing: gather, choose, book, release and observe,
//! once their buffers exist. A process of its own, because it counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use midspan_router_core::*;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting per thread.
struct Counting;

#[expect(unsafe_code, reason = "an allocator cannot be counted otherwise; it only forwards")]
// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn deciding_allocates_nothing() {
    let cells = Arc::new(Cells::new(200, Tuning::default()).unwrap());
    let model = ModelId(1);
    let mut builder = TopologyBuilder::new().class(RegionSet::from_bits([1, 0, 0, 0]));
    for i in 0..200 {
        let served = Served { model, held: Held::Resident, service: None };
        let region = RegionId::new(i % 3).unwrap();
        let key = NodeKey(mix(u64::from(i)));
        builder = builder.node(NodeSpec { models: vec![served], ..NodeSpec::new(key, region) });
    }
    let topology = builder.build(None, &cells).unwrap();
    let points: Vec<_> = topology.nodes().map(|(slot, node)| (node.key.0, slot)).collect();
    let topology = topology.with_ring(FrozenRing::new(points));
    sweep(Timestamp(0), &topology, &cells);

    let (mut rng, mut decision) = (Rng::new(3), Decision::new());
    for name in Policy::NAMES {
        let mut inputs = Inputs::new(Policy::from_name(name).unwrap());
        // All regions, an indexed set, one that is not indexed; with a key and without.
        for (regions, key) in [(u64::MAX, Some(7)), (1, None), (6, Some(9))] {
            let request = Request {
                allowed: RegionSet::from_bits([regions; 4]),
                key: key.map(AffinityKey),
                ..Request::new(model)
            };
            let before = ALLOCATIONS.get();
            for i in 0..50 {
                let now = Timestamp(i);
                gather(now, &topology, &cells, &request, &mut rng, &mut inputs);
                choose(&inputs, rng.next_u64(), &mut decision);
                let first = decision.choices()[0];
                let lease = book(&cells, first.slot, first.cap).unwrap();
                observe(&cells, now, Event::ProbeFailed { slot: lease.slot() });
            }
            assert_eq!(ALLOCATIONS.get() - before, 0, "{name} {regions} {key:?}");
        }
    }
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get() - before, 1, "the counter counts");
}
