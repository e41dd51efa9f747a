//! What holds whatever happens: random fleets, events, swaps and decisions.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread;

use midspan_router_core::Rng;
use midspan_router_core::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Sweep,
    Rebuild { keep: u32, ring: bool },
    Probe { node: usize, rtt: u64, total: u32, boot: u32, draining: bool },
    ProbeFails(usize),
    Answer { node: usize, latency: u64, server: Option<u64> },
    Fail(usize),
    Decide(Box<(Request, Policy, u64)>),
    Release(usize),
}

fn request() -> impl Strategy<Value = Request> {
    let key = proptest::option::of(any::<u64>());
    let deadline = proptest::option::of(0_u64..300_000);
    let place = proptest::option::of((-90.0..=90.0, -180.0..=180.0));
    (0_u32..4, 0_u64..16, key, deadline, 0_u64..300_000, 0_u8..=100, place).prop_map(
        |(model, regions, key, deadline, bytes, hard, place)| Request {
            allowed: RegionSet::from_bits([regions, 0, 0, 0]),
            key: key.map(AffinityKey),
            deadline: deadline.map(Micros),
            payload: PayloadClass::of_len(bytes),
            hard: Probability::percent(hard),
            client: place.map(|(lat, lon)| Place::new(lat, lon).unwrap()),
            ..Request::new(ModelId(model))
        },
    )
}

fn policy() -> impl Strategy<Value = Policy> {
    (0..Policy::NAMES.len()).prop_map(|i| Policy::from_name(Policy::NAMES[i]).unwrap())
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0_usize..24;
    let probe = (node.clone(), 0_u64..400_000, 0_u32..300, 1_u32..4, proptest::bool::weighted(0.1));
    let answer = (node.clone(), 0_u64..400_000, proptest::option::of(0_u64..400_000));
    prop_oneof![
        2 => (0_u64..8_000_000).prop_map(Step::Pass),
        2 => Just(Step::Sweep),
        1 => (any::<u32>(), any::<bool>()).prop_map(|(keep, ring)| Step::Rebuild { keep, ring }),
        4 => probe.prop_map(|(node, rtt, total, boot, draining)| {
            Step::Probe { node, rtt, total, boot, draining }
        }),
        3 => node.clone().prop_map(Step::ProbeFails),
        3 => answer.prop_map(|(node, latency, server)| Step::Answer { node, latency, server }),
        4 => node.prop_map(Step::Fail),
        8 => (request(), policy(), any::<u64>()).prop_map(|d| Step::Decide(Box::new(d))),
        2 => any::<usize>().prop_map(Step::Release),
    ]
}

fn spec(i: u32) -> NodeSpec {
    let draw = mix(u64::from(i));
    let held = if draw & 1 == 0 { Held::Resident } else { Held::Loadable(Micros(draw % 900_000)) };
    let models = (0..3).filter(|m| draw >> (m + 4) & 1 == 1);
    NodeSpec {
        place: (draw & 2 == 0).then(|| Place::new((draw % 90) as f64, 10.0).unwrap()),
        weight: Weight::new((draw >> 8) as u16 % 300 + 1).unwrap(),
        workers: Workers::new((draw >> 20) as u16 % 16 + 1).unwrap(),
        drained: draw.is_multiple_of(11),
        price: Millicost((draw >> 30) as u32 % 3),
        offload: (draw & 4 == 0).then_some(Micros(70_000)),
        models: models.map(|m| Served { model: ModelId(m), held, service: None }).collect(),
        ..NodeSpec::new(NodeKey(draw), RegionId::new((draw >> 40) as u16 % 4).unwrap())
    }
}

struct World {
    now: Timestamp,
    cells: Arc<Cells>,
    topology: Topology,
    leases: Vec<Lease>,
}

impl World {
    fn new() -> Self {
        // Fewer slots than nodes were ever seen: indices are reused.
        let cells = Arc::new(Cells::new(24, Tuning::default()).unwrap());
        let topology = TopologyBuilder::new().build(None, &cells).unwrap();
        let mut world = Self { now: Timestamp(0), cells, topology, leases: vec![] };
        world.rebuild(u32::MAX, true);
        world
    }

    fn rebuild(&mut self, keep: u32, ring: bool) {
        let mut builder = TopologyBuilder::new().here(Some(Place::new(48.0, 2.0).unwrap()));
        builder = builder.class(RegionSet::from_bits([3, 0, 0, 0]));
        for i in (0..24).filter(|i| keep >> i & 1 == 1) {
            // The upper bits choose between two populations.
            builder = builder.node(spec(i + 24 * (keep >> (24 + i % 8) & 1)));
        }
        self.topology = builder.build(Some(&self.topology), &self.cells).unwrap();
        if ring {
            let nodes: Vec<_> = self.topology.nodes().map(|(s, n)| (s, n.key.0)).collect();
            let points = nodes.iter().flat_map(|(s, k)| (0..8).map(|i| (mix(*k ^ mix(i)), *s)));
            let ring = FrozenRing::new(points.collect());
            let empty =
                TopologyBuilder::new().build(None, &Cells::new(0, Tuning::default()).unwrap());
            let topology = std::mem::replace(&mut self.topology, empty.unwrap());
            self.topology = topology.with_ring(ring);
        }
    }

    fn slot(&self, node: usize) -> Slot {
        // Beyond the fleet: a slot that is not, or no longer, anyone's.
        let stale = Slot { index: node as u32, generation: 0 };
        self.topology.nodes().nth(node).map_or(stale, |(slot, _)| slot)
    }

    fn run(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Pass(us) => self.now = now.after(Micros(us)),
            Step::Sweep => drop(sweep(now, &self.topology, &self.cells)),
            Step::Rebuild { keep, ring } => self.rebuild(keep, ring),
            Step::Probe { node, rtt, total, boot, draining } => {
                let boot = BootId(NonZeroU32::new(boot).unwrap());
                let share = Rif(total / 2);
                let report = Some(Report { boot, total: Rif(total), share, draining });
                let (slot, rtt) = (self.slot(node), Micros(rtt));
                let server_time = Micros(rtt.0 / 3);
                observe(&self.cells, now, Event::ProbeOk { slot, rtt, server_time, report });
            }
            Step::ProbeFails(node) => {
                observe(&self.cells, now, Event::ProbeFailed { slot: self.slot(node) });
            }
            Step::Answer { node, latency, server } => {
                let (slot, latency) = (self.slot(node), Micros(latency));
                let server_time = server.map(Micros);
                let event = Event::Answered { slot, latency, server_time, report: None };
                observe(&self.cells, now, event);
            }
            Step::Fail(node) => {
                let kind = FailureKind::Reset;
                observe(&self.cells, now, Event::Failed { slot: self.slot(node), kind });
            }
            Step::Decide(decide) => {
                let (request, policy, seed) = *decide;
                self.decide(&request, policy, seed);
            }
            Step::Release(at) if !self.leases.is_empty() => {
                drop(self.leases.swap_remove(at % self.leases.len()));
            }
            Step::Release(_) => {}
        }
        let current = |lease: &&Lease| self.cells.view(lease.slot(), self.now).is_some();
        let outstanding = self.leases.iter().filter(current).count();
        invariants::check_leases(&self.cells, outstanding).unwrap();
    }

    fn decide(&mut self, request: &Request, policy: Policy, seed: u64) {
        let gathered = || {
            let (mut inputs, mut rng) = (Inputs::new(policy), Rng::new(seed));
            gather(self.now, &self.topology, &self.cells, request, &mut rng, &mut inputs);
            inputs
        };
        let inputs = gathered();
        assert_eq!(inputs, gathered());
        let mut decision = Decision::new();
        choose(&inputs, seed, &mut decision);
        invariants::check(&inputs, &decision).unwrap();
        for choice in decision.choices() {
            let node = self.topology.node(choice.slot).unwrap();
            assert!(request.allowed.contains(node.region) && !node.drained);
            assert!(node.models.iter().any(|served| served.model == request.model));
        }

        // A used decision as target must not show through.
        let mut again = decision.clone();
        choose(&inputs, seed, &mut again);
        let (mut bytes, mut bytes_again) = (vec![], vec![]);
        encode(&inputs, seed, &decision, &mut bytes);
        encode(&inputs, seed, &again, &mut bytes_again);
        assert_eq!(bytes, bytes_again);
        assert!(bytes.len() <= MAX_RECORD_BYTES, "{}", bytes.len());
        let record = DecisionRecord::decode(&bytes).unwrap();
        assert_eq!(replay(&record), decision);
        assert_eq!(record, DecisionRecord { inputs, seed, decision: decision.clone() });

        let mut tries = decision.choices().iter();
        let booked = tries.find_map(|c| book(&self.cells, c.slot, c.cap).ok());
        assert_eq!(booked.is_some(), !decision.choices().is_empty(), "nobody else was booking");
        self.leases.extend(booked);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_interleaving_keeps_the_invariants(
        steps in proptest::collection::vec(step(), 1..120)
    ) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.run(step));
        world.leases.clear();
        prop_assert_eq!(world.cells.total_leases(), Rif(0));
    }
}

#[test]
fn threads_never_exceed_the_cap_and_leave_nothing_behind() {
    let cells = Arc::new(Cells::new(1, Tuning::default()).unwrap());
    let node = NodeSpec::new(NodeKey(1), RegionId::new(0).unwrap());
    let topology = TopologyBuilder::new().node(node).build(None, &cells).unwrap();
    let slot = topology.slot_of(NodeKey(1)).unwrap();
    let booked: usize = thread::scope(|scope| {
        let work = || {
            let mut held = Vec::new();
            let mut booked = 0;
            for i in 0..20_000 {
                match book(&cells, slot, Rif(5)) {
                    Ok(lease) => held.push(lease),
                    Err(OverCap::Full { leases, cap, .. }) => assert!(leases <= cap),
                    Err(OverCap::Gone { .. }) => panic!("the node is there"),
                }
                assert!(cells.total_leases() <= Rif(5));
                if i % 3 == 0 {
                    booked += held.len();
                    held.clear();
                }
            }
            booked + held.len()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert!(booked > 0);
    invariants::check_leases(&cells, 0).unwrap();
}

#[test]
fn deciding_beside_a_sweep_and_events_keeps_the_invariants() {
    let world = World::new();
    let (cells, topology) = (&world.cells, &world.topology);
    let slots: Vec<_> = topology.nodes().map(|(slot, _)| slot).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..2_000 {
                sweep(Timestamp(i * 250_000), topology, cells);
            }
        });
        scope.spawn(|| {
            let mut rng = Rng::new(1);
            for i in 0..100_000 {
                let slot = slots[rng.below(slots.len() as u32) as usize];
                let (rtt, server_time) = (Micros(rng.next_u64() % 200_000), Micros(10));
                let event = match i % 4 {
                    0 => Event::ProbeFailed { slot },
                    1 => Event::Failed { slot, kind: FailureKind::Connect },
                    _ => Event::ProbeOk { slot, rtt, server_time, report: None },
                };
                observe(cells, Timestamp(i * 5_000), event);
            }
        });
        let mut placed = 0;
        for (i, name) in (0..30_000).zip(Policy::NAMES.iter().cycle()) {
            let mut inputs = Inputs::new(Policy::from_name(name).unwrap());
            let (mut rng, mut decision) = (Rng::new(i), Decision::new());
            let request = Request { key: Some(AffinityKey(i)), ..Request::new(ModelId(1)) };
            gather(Timestamp(i * 16_000), topology, cells, &request, &mut rng, &mut inputs);
            choose(&inputs, i, &mut decision);
            invariants::check(&inputs, &decision).unwrap();
            placed += usize::from(!decision.choices().is_empty());
        }
        assert!(placed > 0);
    });
}
