//! What a decision costs: gather, choose, book and release, by fleet size and
//! policy. All fleets but the smallest spread over several horizons.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use midspan_router_core::*;

const MODEL: ModelId = ModelId(1);

fn fleet(nodes: u16) -> Option<(Arc<Cells>, Topology)> {
    let cells = Arc::new(Cells::new(nodes, Tuning::default()).ok()?);
    let mut builder = TopologyBuilder::new();
    for i in 0..nodes {
        let region = RegionId::new(i % 8).ok()?;
        let served = Served { model: MODEL, held: Held::Resident, service: None };
        let spec = NodeSpec::new(NodeKey(mix(u64::from(i))), region);
        builder = builder.node(NodeSpec { models: vec![served], ..spec });
    }
    let topology = builder.build(None, &cells).ok()?;
    let mut points = Vec::new();
    for (slot, node) in topology.nodes() {
        points.extend((0..160).map(|i| (mix(node.key.0 ^ mix(i)), slot)));
        let rtt = Micros(3_000 + u64::from(slot.index % 8) * 20_000);
        let server_time = Micros(100);
        observe(&cells, Timestamp(1), Event::ProbeOk { slot, rtt, server_time, report: None });
    }
    let topology = topology.with_ring(FrozenRing::new(points));
    sweep(Timestamp(2), &topology, &cells);
    Some((cells, topology))
}

fn decide(c: &mut Criterion) {
    for name in Policy::NAMES {
        let mut group = c.benchmark_group(name);
        for nodes in [10, 100, 1_000, 10_000] {
            let Some((cells, topology)) = fleet(nodes) else { continue };
            let Some(policy) = Policy::from_name(name) else { continue };
            let (mut inputs, mut decision) = (Inputs::new(policy), Decision::new());
            let mut rng = Rng::new(1);
            group.bench_function(BenchmarkId::from_parameter(nodes), |b| {
                b.iter(|| {
                    let key = Some(AffinityKey(rng.next_u64()));
                    let request = Request { key, ..Request::new(MODEL) };
                    gather(Timestamp(3), &topology, &cells, &request, &mut rng, &mut inputs);
                    choose(&inputs, rng.next_u64(), &mut decision);
                    let first = decision.choices().first().copied().unwrap_or_default();
                    black_box(book(&cells, first.slot, first.cap).is_ok())
                });
            });
        }
        group.finish();
    }
}

fn fleet_wide(c: &mut Criterion) {
    let mut group = c.benchmark_group("sweep");
    for nodes in [100, 10_000] {
        let Some((cells, topology)) = fleet(nodes) else { continue };
        group.bench_function(BenchmarkId::from_parameter(nodes), |b| {
            b.iter(|| black_box(sweep(Timestamp(3), &topology, &cells)));
        });
    }
    group.finish();
}

criterion_group!(benches, decide, fleet_wide);
criterion_main!(benches);
