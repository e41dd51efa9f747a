//! The language of the scenarios: one command a line, times in milliseconds.
//! Every decision in it is also made twice, checked against the invariants,
//! encoded, decoded and replayed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::num::NonZeroU32;
use std::sync::Arc;

use midspan_router_core as core;
use midspan_router_core::*;

/// Runs a scenario and compares what it says.
pub(crate) fn check(scenario: &str, expected: expect_test::Expect) {
    let mut world = World::new();
    for line in scenario.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        world.run(line);
    }
    invariants::check_leases(&world.cells, world.leases.len()).unwrap();
    expected.assert_eq(&world.out);
}

struct World {
    now: Timestamp,
    cells: Arc<Cells>,
    topology: Option<Topology>,
    nodes: BTreeMap<String, NodeSpec>,
    here: Option<Place>,
    classes: Vec<RegionSet>,
    regions: Vec<String>,
    inputs: Inputs,
    rng: Rng,
    leases: Vec<(String, Lease)>,
    out: String,
}

/// The words of a command: what stands alone, and `name=value`.
struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find_map(|w| w.strip_prefix(name)?.strip_prefix('='))
    }
    fn num<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name).map(|v| v.parse().ok().unwrap_or_else(|| panic!("{name}={v}")))
    }
    fn ms(&self, name: &str) -> Option<Micros> {
        self.num::<f64>(name).map(|ms| Micros((ms * 1_000.0) as u64))
    }
    fn has(&self, word: &str) -> bool {
        self.0.contains(&word)
    }
    fn times(&self) -> usize {
        self.0.iter().find_map(|w| w.strip_prefix('x')?.parse().ok()).unwrap_or(1)
    }
}

fn place(text: &str) -> Place {
    let (lat, lon) = text.split_once(',').unwrap();
    Place::new(lat.parse().unwrap(), lon.parse().unwrap()).unwrap()
}

fn model(name: &str) -> ModelId {
    ModelId(u32::from(name.as_bytes()[0]))
}

impl World {
    fn new() -> Self {
        Self {
            now: Timestamp(0),
            cells: Arc::new(Cells::new(64, Tuning::default()).unwrap()),
            topology: None,
            nodes: BTreeMap::new(),
            here: None,
            classes: vec![],
            regions: vec![],
            inputs: Inputs::new(Policy::default()),
            rng: Rng::new(1),
            leases: vec![],
            out: String::new(),
        }
    }

    fn run(&mut self, line: &str) {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words = Words(rest.split_whitespace().collect());
        let name = words.0.first().copied().unwrap_or("");
        match command {
            "here" => self.here = Some(place(name)),
            "class" => {
                let class = self.set(name);
                self.classes.push(class);
            }
            "node" => self.node(name, &words),
            "remove" => drop(self.nodes.remove(name).unwrap()),
            "build" => self.build(words.num("ring")),
            "policy" => self.inputs = Inputs::new(Policy::from_name(name).unwrap()),
            "at" => self.now = Timestamp(name.parse::<u64>().unwrap() * 1_000),
            "sweep" => {
                let swept = sweep(self.now, self.topology.as_ref().unwrap(), &self.cells);
                let Swept { ejected, spared, half_opened, recovered, moved } = swept;
                let counts = [
                    ("ejected", ejected),
                    ("spared", spared),
                    ("half_opened", half_opened),
                    ("recovered", recovered),
                    ("moved", moved),
                ];
                write!(self.out, "sweep:").unwrap();
                for (what, n) in counts.into_iter().filter(|(_, n)| *n > 0) {
                    write!(self.out, " {what} {n}").unwrap();
                }
                writeln!(self.out).unwrap();
            }
            "hold" => {
                for _ in 0..words.times() {
                    let lease = book(&self.cells, self.slot(name), Rif(u32::MAX)).unwrap();
                    self.leases.push((name.to_owned(), lease));
                }
            }
            "release" => {
                for _ in 0..words.times() {
                    let at = self.leases.iter().position(|(n, _)| n == name).unwrap();
                    drop(self.leases.remove(at));
                }
            }
            "decide" => self.decide(&words),
            "show" => self.show(name),
            event => {
                for _ in 0..words.times() {
                    observe(&self.cells, self.now, self.event(event, name, &words));
                }
            }
        }
    }

    fn region(&mut self, name: &str) -> RegionId {
        let at = self.regions.iter().position(|r| r == name).unwrap_or_else(|| {
            self.regions.push(name.to_owned());
            self.regions.len() - 1
        });
        RegionId::new(at as u16).unwrap()
    }

    fn set(&mut self, names: &str) -> RegionSet {
        let regions: Vec<_> = names.split(',').map(|n| self.region(n)).collect();
        RegionSet::of(regions)
    }

    fn slot(&self, name: &str) -> Slot {
        let key = NodeKey(hash_bytes(name.as_bytes()));
        self.topology.as_ref().unwrap().slot_of(key).unwrap()
    }

    fn name(&self, key: NodeKey) -> &str {
        let hashed = |n: &&String| hash_bytes(n.as_bytes()) == key.0;
        self.nodes.keys().find(hashed).map_or("?", |n| n)
    }

    fn node(&mut self, name: &str, words: &Words<'_>) {
        let region = self.region(words.get("in").unwrap_or("eu"));
        let held = words.ms("loadable").map_or(Held::Resident, Held::Loadable);
        let service = words.ms("service");
        let served = |m| Served { model: model(m), held, service };
        let spec = NodeSpec {
            place: words.get("at").map(place),
            weight: Weight::new(words.num("weight").unwrap_or(100)).unwrap(),
            workers: Workers::new(words.num("workers").unwrap_or(4)).unwrap(),
            drained: words.has("drained"),
            price: Millicost(words.num("price").unwrap_or(0)),
            carbon: GramsPerKwh(words.num("carbon").unwrap_or(0)),
            offload: words.ms("offload"),
            models: words.get("models").unwrap_or("m").split(',').map(served).collect(),
            ..NodeSpec::new(NodeKey(hash_bytes(name.as_bytes())), region)
        };
        self.nodes.insert(name.to_owned(), spec);
    }

    fn build(&mut self, points: Option<u32>) {
        let mut builder = TopologyBuilder::new().here(self.here);
        builder = self.classes.iter().fold(builder, |b, class| b.class(*class));
        builder = self.nodes.values().fold(builder, |b, node| b.node(node.clone()));
        let mut topology = builder.build(self.topology.as_ref(), &self.cells).unwrap();
        if let Some(points) = points {
            let point = |key: NodeKey, i: u32| mix(key.0 ^ mix(u64::from(i)));
            let nodes: Vec<_> = topology.nodes().map(|(s, n)| (s, n.key)).collect();
            let points = nodes
                .into_iter()
                .flat_map(|(slot, key)| (0..points).map(move |i| (point(key, i), slot)));
            topology = topology.with_ring(FrozenRing::new(points.collect()));
        }
        self.topology = Some(topology);
    }

    fn event(&self, event: &str, name: &str, words: &Words<'_>) -> Event {
        let slot = self.slot(name);
        let report = words.num("total").map(|total| Report {
            boot: BootId(NonZeroU32::new(words.num("boot").unwrap_or(1)).unwrap()),
            total: Rif(total),
            share: Rif(words.num("share").unwrap_or(0)),
            draining: words.has("draining"),
        });
        match event {
            "probe" => Event::ProbeOk {
                slot,
                rtt: words.ms("rtt").unwrap(),
                server_time: words.ms("server").unwrap_or_default(),
                report,
            },
            "probe-fails" => Event::ProbeFailed { slot },
            "answer" => Event::Answered {
                slot,
                latency: words.ms("latency").unwrap(),
                server_time: words.ms("server"),
                report,
            },
            "fail" => Event::Failed { slot, kind: FailureKind::ServerError },
            "drain" => Event::Draining { slot },
            other => panic!("no such command: {other}"),
        }
    }

    fn decide(&mut self, words: &Words<'_>) {
        let allowed = words.get("allowed").map_or(RegionSet::ALL, |names| self.set(names));
        let request = Request {
            allowed,
            key: words.get("key").map(|k| AffinityKey(hash_bytes(k.as_bytes()))),
            deadline: words.ms("deadline"),
            client_rtt: words.ms("client_rtt"),
            client: words.get("client").map(place),
            hard: Probability::percent(words.num("hard").unwrap_or(0)),
            payload: PayloadClass::of_len(words.num("bytes").unwrap_or(0)),
            ..Request::new(model(words.get("model").unwrap_or("m")))
        };
        let (decision, seed) = self.decided(&request);
        write!(self.out, "{}:", decision.outcome().as_str()).unwrap();
        let mut text = String::new();
        for choice in decision.choices() {
            let found = self.inputs.candidates()[usize::from(choice.candidate)].found.as_str();
            let (name, cap) = (self.name(choice.node), choice.cap.0);
            write!(text, " {name}({found} {} cap {cap})", choice.predicted).unwrap();
        }
        for (c, verdict) in self.inputs.candidates().iter().zip(decision.verdicts()) {
            match verdict {
                Verdict::Listed(_) => {}
                Verdict::Spare(_, reason) => {
                    write!(text, " +{}({})", self.name(c.node), reason.as_str()).unwrap();
                }
                Verdict::Rejected(reason) => {
                    write!(text, " -{}({})", self.name(c.node), reason.as_str()).unwrap();
                }
            }
        }
        for (what, n) in self.inputs.excluded.by_reason().into_iter().filter(|(_, n)| *n > 0) {
            write!(text, " {what}={n}").unwrap();
        }
        writeln!(self.out, "{text}").unwrap();
        if words.has("book") {
            let first = decision.choices()[0];
            let lease = book(&self.cells, first.slot, first.cap).unwrap();
            self.leases.push((self.name(first.node).to_owned(), lease));
        }
        if words.has("cost") {
            let first = decision.choices()[0];
            let Cost { network, queue, service, load, offload, errors } =
                decision.costs()[usize::from(first.candidate)];
            writeln!(
                self.out,
                "  network {network} queue {queue} service {service} load {load} \
                 offload {offload} errors {errors}"
            )
            .unwrap();
        }
        self.replays(decision, seed);
    }

    fn decided(&mut self, request: &Request) -> (Decision, u64) {
        let topology = self.topology.as_ref().unwrap();
        gather(self.now, topology, &self.cells, request, &mut self.rng, &mut self.inputs);
        let (seed, mut decision) = (self.rng.next_u64(), Decision::new());
        choose(&self.inputs, seed, &mut decision);
        invariants::check(&self.inputs, &decision).unwrap();
        (decision, seed)
    }

    fn replays(&self, decision: Decision, seed: u64) {
        let record = DecisionRecord { inputs: self.inputs.clone(), seed, decision };
        let (mut bytes, mut again) = (vec![], vec![]);
        record.encode(&mut bytes);
        core::encode(&record.inputs, seed, &replay(&record), &mut again);
        assert_eq!(bytes, again);
        assert_eq!(DecisionRecord::decode(&bytes), Ok(record));
    }

    fn show(&mut self, name: &str) {
        let view = self.cells.view(self.slot(name), self.now).unwrap();
        let or_unknown = |t: Option<Micros>| t.map_or("?".to_owned(), |t| t.to_string());
        writeln!(
            self.out,
            "{name}: {} horizon {} leases {} load {} floor {} service {} errors {} failures {}",
            view.health.as_str(),
            view.horizon,
            view.leases.0,
            view.load,
            or_unknown(view.floor),
            or_unknown(view.service),
            view.errors,
            view.failures,
        )
        .unwrap();
    }
}
