//! The planner on profiles that are made up, so that every number can be told in advance.

use midspan_runtime::ElementType;
use proptest::prelude::*;

use super::*;
use crate::candidate::{InputForm, WirePrecision};
use crate::manifest::PLAIN;
use crate::profile::{
    CodecTime, CutNotes, Device, ModelNotes, Part, PartTime, PictureTime, Timing, VariantNotes,
};

fn timing(us: f64) -> Timing {
    Timing::of(vec![us]).unwrap()
}

/// A model of 1,000 us whose cuts `c0`, `c1`... of so many elements lie evenly; those of `timed`
/// are measured as their share of the work.
fn profile(elements: &[usize], timed: &[usize]) -> Profile {
    let share = |index: usize| (index + 1) as f64 / (elements.len() + 1) as f64;
    let cut = |(index, size): (usize, &usize)| CutNotes {
        tensor: format!("c{index}"),
        datatype: ElementType::F32.oip_name().into(),
        shape: vec![1, *size],
        front_share: share(index),
    };
    let part = |part, us| PartTime { part, variant: PLAIN.into(), batch: 1, time: timing(us) };
    let mut parts = vec![part(Part::Whole, 1000.0)];
    for index in timed {
        let cut = format!("c{index}");
        parts.push(part(Part::Front { cut: cut.clone() }, share(*index) * 1000.0));
        parts.push(part(Part::Tail { cut }, (1.0 - share(*index)) * 1000.0));
    }
    let codec = timed.iter().map(|index| CodecTime {
        cut: format!("c{index}"),
        precision: WirePrecision::Bits(4),
        encode: timing(elements[*index] as f64 / 100.0),
        decode: timing(elements[*index] as f64 / 200.0),
    });
    Profile {
        format: crate::profile::FORMAT,
        model: ModelNotes { sha256: Digest([1; 32]), input_bytes: 40_000, output_bytes: 40 },
        device: Device {
            cpu: "<a & b>".into(),
            cores: 1,
            arch: "x".into(),
            os: "y".into(),
            onnx_runtime: "z".into(),
        },
        date: "2026-01-01".into(),
        slowdown: 1.0,
        variants: vec![VariantNotes { name: PLAIN.into(), sha256: Digest([1; 32]) }],
        cuts: elements.iter().enumerate().map(cut).collect(),
        parts,
        codec: codec.collect(),
        pictures: [InputForm::WebpLossless, InputForm::Jpeg(75)]
            .map(|form| PictureTime { form, encode: timing(300.0), decode: timing(100.0) })
            .to_vec(),
    }
}

fn inputs<'a>(edge: &'a Profile, cloud: &'a Profile, fidelity: &'a [Fidelity]) -> Inputs<'a> {
    Inputs {
        edge,
        cloud,
        fidelity,
        edge_slowdown: 1.0,
        rows: 1,
        load: Load::default(),
        exits: &[],
        heads: Heads { up: 0.0, down: 0.0 },
    }
}

fn activation(cut: &str, precision: WirePrecision) -> Candidate {
    Candidate::Activation { cut: cut.into(), precision, variant: PLAIN.into() }
}

fn measured(candidate: Candidate, bytes: f64, agreeing: u64) -> Fidelity {
    let agreement_lower = crate::stats::lower_bound(agreeing, 1000, 0.95);
    let bytes_p95 = bytes as u64;
    Fidelity { candidate, bytes, bytes_p95, samples: 1000, agreeing, agreement_lower }
}

fn link(text: &str) -> Link {
    text.parse().unwrap()
}

fn best(inputs: &Inputs<'_>, text: &str) -> Plan {
    let bounds = Bounds { min_agreement: 0.99, ..Bounds::default() };
    plan(inputs, &link(text), Goal::Latency, &bounds).unwrap()
}

fn planned<'a>(plan: &'a Plan, candidate: &Candidate) -> &'a Planned {
    plan.candidates.iter().find(|planned| planned.candidate == *candidate).unwrap()
}

const FAST: &str = "up=1Gbps,down=1Gbps,rtt=1ms";

#[test]
fn a_fast_edge_on_a_slow_link_does_not_split() {
    let profile = profile(&[1000, 100, 1000], &[0, 1, 2]);
    let plan = best(&inputs(&profile, &profile, &[]), "3g");
    assert_eq!(
        plan.verdict,
        Verdict::Local { candidate: Candidate::Local { variant: PLAIN.into() } }
    );
    assert_eq!(plan.recommended().unwrap().latency_us, 1000.0);
    assert!(plan.verdict.to_string().starts_with("do not split"));
    assert!(report::summary(&plan).contains("; the best split is send c"));
}

#[test]
fn a_slow_edge_on_a_fast_link_splits_where_it_is_cheapest() {
    let profile = profile(&[40_000, 500, 2000], &[0, 1, 2]);
    let four = activation("c1", WirePrecision::Bits(4));
    let fidelity = [measured(four.clone(), 314.0, 1000)];
    let slow = Inputs { edge_slowdown: 20.0, ..inputs(&profile, &profile, &fidelity) };
    let plan = best(&slow, "up=1Mbps,down=1Gbps,rtt=0ms");
    assert_eq!(plan.verdict, Verdict::Split { candidate: four.clone() });
    // Front and writing twenty times slower, 314 bytes, tail and reading, the answer's 40 bytes.
    let expected = 20.0 * (500.0 + 5.0) + 314.0 * 8.0 + 500.0 + 2.5 + 0.32;
    assert!((planned(&plan, &four).latency_us - expected).abs() < 1e-6);
    assert!(planned(&plan, &four).timed && planned(&plan, &four).pareto);
    assert_eq!(planned(&plan, &four).edge_us, 20.0 * 505.0);
}

#[test]
fn a_small_input_is_sent() {
    let mut profile = profile(&[40_000, 50_000], &[0]);
    profile.model.input_bytes = 100;
    let slow = Inputs { edge_slowdown: 50.0, ..inputs(&profile, &profile, &[]) };
    let plan = best(&slow, FAST);
    let tensor = Candidate::Input { form: InputForm::Tensor };
    assert_eq!(plan.verdict, Verdict::SendInput { candidate: tensor });
    assert!(plan.verdict.to_string().starts_with("do not split"));
}

#[test]
fn halves_that_were_not_timed_lie_between_those_that_were() {
    let profile = profile(&[10, 10, 10, 10], &[0, 3]);
    let plan = best(&inputs(&profile, &profile, &[]), FAST);
    let between = planned(&plan, &activation("c1", WirePrecision::Raw));
    assert!(!between.timed);
    assert!((between.edge_us - 400.0).abs() < 1e-9, "{between:?}");
    assert!((between.cloud_us - 600.0).abs() < 1e-9, "{between:?}");
    assert!(planned(&plan, &activation("c0", WirePrecision::Raw)).timed);
}

#[test]
fn agreement_must_be_shown_not_seen() {
    let profile = profile(&[500, 500], &[0, 1]);
    let at = |cut, bits| activation(cut, WirePrecision::Bits(bits));
    let mut fidelity = vec![measured(at("c0", 4), 100.0, 992), measured(at("c0", 8), 300.0, 999)];
    fidelity.push(Fidelity {
        candidate: Candidate::Activation {
            cut: "c0".into(),
            precision: WirePrecision::Raw,
            variant: "int8".into(),
        },
        ..measured(at("c0", 1), 1.0, 1000)
    });
    let plan = best(&inputs(&profile, &profile, &fidelity), FAST);
    // 992 of 1,000 were seen, but no more than 98.6 % can be promised.
    assert!(matches!(planned(&plan, &at("c0", 4)).fate, Fate::Agreement { lower } if lower < 0.99));
    assert!(planned(&plan, &at("c0", 8)).agreement.lower().unwrap() > 0.99);
    // The variant has no time: it is no candidate.
    assert!(plan.candidates.iter().all(|planned| !planned.candidate.to_string().contains("int8")));
    let half = planned(&plan, &activation("c1", WirePrecision::Half));
    assert_eq!(half.agreement, Agreement::Assumed);
    // What is the same by construction needs no samples, unless they show that it is not.
    let raw = activation("c1", WirePrecision::Raw);
    assert_eq!(planned(&plan, &raw).agreement, Agreement::Exact);
    let fidelity = [measured(raw.clone(), 2064.0, 999)];
    let plan = best(&inputs(&profile, &profile, &fidelity), FAST);
    assert!(matches!(planned(&plan, &raw).agreement, Agreement::Measured { .. }));
}

#[test]
fn variants_are_candidates_of_their_own_and_must_be_measured() {
    let mut profile = profile(&[500], &[0]);
    profile.variants.push(VariantNotes { name: "int8".into(), sha256: Digest([2; 32]) });
    for part in [Part::Whole, Part::Front { cut: "c0".into() }] {
        let us = if part == Part::Whole { 300.0 } else { 150.0 };
        profile.parts.push(PartTime { part, variant: "int8".into(), batch: 1, time: timing(us) });
    }
    let local = Candidate::Local { variant: "int8".into() };
    let plan_without = best(&inputs(&profile, &profile, &[]), FAST);
    assert_eq!(planned(&plan_without, &local).fate, Fate::Unmeasured);
    let fidelity = [measured(local.clone(), 0.0, 1000)];
    let plan = best(&inputs(&profile, &profile, &fidelity), FAST);
    assert_eq!(plan.verdict, Verdict::Local { candidate: local });
}

#[test]
fn exits_answer_their_share_at_their_loss() {
    let profile = profile(&[500], &[0]);
    let exits = [ExitShare { cut: Some("c0".into()), share: 0.75, loss: 0.004 }];
    let with = Inputs { exits: &exits, ..inputs(&profile, &profile, &[]) };
    let plan = best(&with, "up=8Mbps,down=1Gbps,rtt=10ms");
    let raw = planned(&plan, &activation("c0", WirePrecision::Raw));
    let sent = 10_000.0 + 2064.0 + 0.32 + 500.0;
    assert!((raw.latency_us - (500.0 + 0.25 * sent)).abs() < 1e-6, "{raw:?}");
    assert_eq!(raw.uplink_bytes, 0.25 * 2064.0);
    assert_eq!(raw.agreement.lower(), Some(0.996));
}

#[test]
fn busy_sides_take_longer() {
    let profile = profile(&[500], &[0]);
    let load = Load { edge: 0.5, cloud: 0.75 };
    let busy = Inputs { load, ..inputs(&profile, &profile, &[]) };
    let plan = best(&busy, FAST);
    let raw = planned(&plan, &activation("c0", WirePrecision::Raw));
    let exchange = link(FAST).exchange_us(2064.0, 40.0);
    assert!((raw.latency_us - (2.0 * 500.0 + exchange + 4.0 * 500.0)).abs() < 1e-6);
    assert_eq!(raw.edge_us, 500.0);
}

#[test]
fn pictures_cost_their_writing_and_reading() {
    let profile = profile(&[500], &[0]);
    let form = |form| Candidate::Input { form };
    let fidelity = [
        measured(form(InputForm::Received), 3000.0, 1000),
        measured(form(InputForm::WebpLossless), 2000.0, 1000),
        measured(form(InputForm::Jpeg(90)), 1000.0, 700),
    ];
    let plan = best(&inputs(&profile, &profile, &fidelity), FAST);
    let edge = |candidate: &Candidate| planned(&plan, candidate).edge_us;
    // As it came in nobody reads it here; anything else starts by reading it.
    assert_eq!(edge(&form(InputForm::Received)), 0.0);
    assert_eq!(edge(&form(InputForm::WebpLossless)), 100.0 + 300.0);
    assert_eq!(edge(&Candidate::Local { variant: PLAIN.into() }), 100.0 + 1000.0);
    assert_eq!(planned(&plan, &form(InputForm::Received)).agreement, Agreement::Exact);
    assert!(matches!(planned(&plan, &form(InputForm::Jpeg(90))).fate, Fate::Agreement { .. }));
}

#[test]
fn bounds_and_goals_choose() {
    let profile = profile(&[2000, 100], &[0, 1]);
    let inputs = inputs(&profile, &profile, &[]);
    let costs = Costs::of(&inputs).unwrap();
    let bounds = Bounds { max_edge_us: Some(700.0), ..Bounds::default() };
    let few = costs.on(&link("4g"), Goal::Bytes, &bounds);
    // The last cut has the fewest bytes in half precision.
    let half = activation("c1", WirePrecision::Half);
    assert_eq!(few.verdict, Verdict::Split { candidate: half });
    let local = planned(&few, &Candidate::Local { variant: PLAIN.into() });
    assert!(matches!(local.fate, Fate::Over { what: "edge work in us", .. }), "{local:?}");
    let least = costs.on(&link("4g"), Goal::EdgeWork, &Bounds::default());
    assert!(matches!(least.verdict, Verdict::SendInput { .. }));
    let bounds = Bounds { max_latency_us: Some(1.0), ..Bounds::default() };
    let none = costs.on(&link("4g"), Goal::Latency, &bounds);
    assert_eq!(none.verdict, Verdict::Nothing);
    assert!(none.recommended().is_none());
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let one = profile(&[500], &[0]);
    let mut other = one.clone();
    other.model.sha256 = Digest([9; 32]);
    let fault = |inputs: &Inputs<'_>| Costs::of(inputs).unwrap_err().to_string();
    assert!(
        fault(&inputs(&one, &other, &[])).starts_with("the cloud's profile is of the model 0909")
    );
    let rows = Inputs { rows: 4, ..inputs(&one, &one, &[]) };
    assert_eq!(
        fault(&rows),
        "the edge's profile has no time of the whole model at 4 rows; it has [1]"
    );
    let fidelity = [measured(activation("x", WirePrecision::Raw), 1.0, 1)];
    assert_eq!(fault(&inputs(&one, &one, &fidelity)), "the edge's profile knows no cut \"x\"");
    let load = Load { edge: 1.0, cloud: 0.0 };
    let busy = Inputs { load, ..inputs(&one, &one, &[]) };
    assert_eq!(fault(&busy), "the edge's load is 1: it must be 0 to 0.99");
}

#[test]
fn a_report_stands_alone_and_names_are_no_markup() {
    let json = serde_json::to_string(&profile(&[4000, 500, 200], &[0, 1, 2])).unwrap();
    let profile: Profile = serde_json::from_str(&json.replace("c1", "<i>c1")).unwrap();
    let at = |bits| activation("<i>c1", WirePrecision::Bits(bits));
    let fidelity = [measured(at(8), 564.0, 1000), measured(at(4), 314.0, 995)];
    let inputs = Inputs { edge_slowdown: 20.0, ..inputs(&profile, &profile, &fidelity) };
    let costs = Costs::of(&inputs).unwrap();
    let bounds = Bounds { min_agreement: 0.99, ..Bounds::default() };
    let plans = ["wifi", "4g"].map(|name| costs.on(&link(name), Goal::Latency, &bounds));
    let page = report::html(&inputs, &costs, &plans).unwrap();
    assert_eq!(page.matches("<svg").count(), 3);
    assert_eq!(page.matches("class=\"best\"").count(), 2);
    assert!(page.contains("&lt;i&gt;c1") && !page.contains("<i>"));
    assert!(page.contains("&lt;a &amp; b&gt;"));
    // Nothing is fetched: no address but the names of XML's own spaces.
    let addresses = page.matches("http").count();
    assert_eq!(addresses, page.matches("http://www.w3.org/").count());
}

fn any_profile() -> impl Strategy<Value = (Profile, Vec<Fidelity>)> {
    let cuts = prop::collection::vec(1usize..50_000, 1..12);
    (cuts, any::<u16>(), any::<u64>()).prop_map(|(elements, timed, seed)| {
        let timed: Vec<usize> = (0..elements.len()).filter(|at| timed >> at & 1 == 1).collect();
        let mut fidelity = Vec::new();
        for (index, elements) in elements.iter().enumerate() {
            for bits in [4u8, 8] {
                let agreeing = 900 + (seed.rotate_left(index as u32 * 5) % 101);
                let bytes = (64 + elements.div_ceil(8) * usize::from(bits)) as f64;
                let candidate = activation(&format!("c{index}"), WirePrecision::Bits(bits));
                fidelity.push(measured(candidate, bytes, agreeing));
            }
        }
        (profile(&elements, &timed), fidelity)
    })
}

proptest! {
    #[test]
    fn the_best_is_best_and_the_beaten_are_beaten(
        (profile, fidelity) in any_profile(),
        mbps in 0.1..1000.0_f64,
        rtt in 0.0..200.0_f64,
        slowdown in 1.0..50.0_f64,
        min_agreement in 0.9..1.0_f64,
    ) {
        let inputs = Inputs { edge_slowdown: slowdown, ..inputs(&profile, &profile, &fidelity) };
        let link = link(&format!("up={mbps}Mbps,down={mbps}Mbps,rtt={rtt}ms"));
        let bounds = Bounds { min_agreement, ..Bounds::default() };
        let plan = plan(&inputs, &link, Goal::Latency, &bounds).unwrap();
        let lower = |planned: &Planned| planned.agreement.lower().unwrap_or(-1.0);
        let best = plan.recommended().unwrap();
        prop_assert!(lower(best) >= min_agreement);
        for one in plan.candidates.iter().filter(|one| lower(one) >= min_agreement) {
            prop_assert!(best.latency_us <= one.latency_us * 1.01 + 1e-9, "{best:?} {one:?}");
        }
        let beats = |a: &Planned, b: &Planned| {
            let costs = |planned: &Planned| {
                [planned.latency_us, planned.uplink_bytes, planned.edge_us, -lower(planned)]
            };
            let (a, b) = (costs(a), costs(b));
            a != b && a.iter().zip(&b).all(|(a, b)| a <= b)
        };
        for one in &plan.candidates {
            let beaten = plan.candidates.iter().any(|other| beats(other, one));
            prop_assert_eq!(one.pareto, !beaten, "{:?}", one);
            if let Fate::Dominated { by } = &one.fate {
                let by = planned(&plan, by);
                prop_assert!(by.pareto && beats(by, one), "{by:?} {one:?}");
            }
        }
    }
}

#[test]
fn thousands_of_candidates_are_planned_at_once() {
    let elements: Vec<usize> = (0..400).map(|index| 1000 + (index * 7919) % 90_000).collect();
    let profile = profile(&elements, &[0, 50, 100, 200, 300, 399]);
    let mut fidelity = Vec::new();
    for (index, elements) in elements.iter().enumerate() {
        for bits in 1..=8 {
            let candidate = activation(&format!("c{index}"), WirePrecision::Bits(bits));
            fidelity.push(measured(candidate, *elements as f64 * f64::from(bits) / 8.0, 1000));
        }
    }
    let inputs = inputs(&profile, &profile, &fidelity);
    let costs = Costs::of(&inputs).unwrap();
    let bounds = Bounds::default();
    for preset in link::PRESETS {
        let plan = costs.on(&link(preset), Goal::Latency, &bounds);
        assert_eq!(plan.candidates.len(), 400 * 10 + 2);
        assert!(plan.recommended().is_some());
    }
}
