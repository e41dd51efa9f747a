//! Profiles of the default model, made here and read again.

use std::path::{Path, PathBuf};

use midspan_runtime::{library, test_support};
use midspan_split::Digest;
use midspan_split::plan::{Bounds, Costs, Goal, Heads, Inputs, Link, Load};
use midspan_split::profile::measure::{MeasureError, Request, Wanted, measure};
use midspan_split::profile::{Part, Profile, Slowdown};

fn model() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fashion.onnx");
    std::fs::read(path).unwrap()
}

fn request<'a>(model: &'a [u8], cuts: Wanted, batches: &'a [usize]) -> Request<'a> {
    Request {
        model,
        variants: &[],
        cuts,
        batches,
        bits: &[4],
        runs: 3,
        slowdown: Slowdown::NONE,
        pictures: &[],
        date: "2026-01-02",
    }
}

fn measured(request: &Request<'_>) -> Profile {
    test_support::library();
    let mut last = (0, 0);
    let profile = measure(request, &mut |done, total| {
        assert!(done > last.0 && done <= total, "{done} of {total} after {last:?}");
        last = (done, total);
    })
    .unwrap();
    assert_eq!(last.0, last.1, "progress ends");
    profile
}

#[test]
fn halves_of_the_default_model_are_timed_and_planned() {
    let model = model();
    let variants = [("again".to_owned(), model.clone())];
    let request = Request { variants: &variants, ..request(&model, Wanted::Evenly(2), &[1, 4]) };
    let profile = measured(&request);
    assert_eq!(profile.model.sha256, Digest::of(&model));
    assert_eq!((profile.model.input_bytes, profile.model.output_bytes), (784 * 4, 3 * 10 * 4));
    assert_eq!(profile.device.onnx_runtime, library::VERSION);
    assert!(profile.cuts.is_sorted_by(|a, b| a.front_share <= b.front_share));
    let z0 = profile.cuts.iter().find(|cut| cut.tensor == "/seg0/bott/Clip_output_0").unwrap();
    assert_eq!((z0.shape.as_slice(), z0.bytes()), ([1, 8, 7, 7].as_slice(), 392 * 4));
    // The whole and two fronts in two variants, two tails, all at two batches.
    assert_eq!(profile.parts.len(), (2 + 4 + 2) * 2);
    for part in &profile.parts {
        assert!(part.time.runs == 3 && part.time.min_us > 0.0, "{part:?}");
    }
    // Raw, half and four bits at two cuts; the input is a picture of 28 by 28.
    assert_eq!((profile.codec.len(), profile.pictures.len()), (6, 4));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edge.json");
    profile.write(&path).unwrap();
    assert_eq!(Profile::read(&path).unwrap(), profile);

    let inputs = Inputs {
        edge: &profile,
        cloud: &profile,
        fidelity: &[],
        edge_slowdown: 1.0,
        rows: 4,
        load: Load::default(),
        exits: &[],
        heads: Heads { up: 0.0, down: 0.0 },
    };
    let plan = Costs::of(&inputs).unwrap().on(
        &Link::preset("3g").unwrap(),
        Goal::Latency,
        &Bounds::default(),
    );
    assert!(!plan.verdict.splits(), "{}", plan.verdict);
}

#[test]
fn named_cuts_are_timed_and_a_slow_device_is_slower() {
    let model = model();
    let cut = "/seg0/bott/Clip_output_0".to_owned();
    let fast = Request { runs: 10, ..request(&model, Wanted::Named(vec![cut.clone()]), &[1]) };
    let slow = Request { slowdown: Slowdown::new(8.0).unwrap(), ..fast.clone() };
    let least = |request: &Request<'_>| {
        let profile = measured(request);
        let front = Part::Front { cut: cut.clone() };
        let found = profile.parts.iter().find(|part| part.part == front).unwrap();
        found.time.min_us
    };
    let (fast, slow) = (least(&fast), least(&slow));
    // Whatever else the machine does can make the fast one slow, hardly eight times in every run.
    assert!(slow > fast * 2.0, "{slow} us against {fast} us");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    test_support::library();
    let model = model();
    let fault = |request: &Request<'_>| measure(request, &mut |_, _| {}).unwrap_err();
    let named = request(&model, Wanted::Named(vec!["nothing".into()]), &[1]);
    let error = fault(&named);
    assert!(matches!(&error, MeasureError::NoSuchCut { tensor, .. } if tensor == "nothing"));
    assert!(error.to_string().contains("such as /"), "{error}");
    assert!(matches!(fault(&request(b"none", Wanted::All, &[1])), MeasureError::Onnx { .. }));
    let none = Request { runs: 0, ..request(&model, Wanted::All, &[1]) };
    assert!(matches!(fault(&none), MeasureError::Request(_)));
}

#[test]
fn a_profile_that_makes_no_sense_is_refused_by_its_key() {
    let good = include_str!("../golden/profile.json");
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("edge.json");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Profile::read(&path)
            .map_err(|error| error.to_string().replace(&path.display().to_string(), "edge.json"))
    };
    let profile = read(good).unwrap();
    assert_eq!(profile.parts.len(), 3);
    for (from, to, message) in [
        ("\"format\": 1", "\"format\": 2", "edge.json: format: format 2 is not supported, only 1"),
        ("\"slowdown\": 1.0", "\"slowdown\": 0.5", "edge.json: slowdown: must be 1 to 1000"),
        ("\"FP32\"", "\"FP33\"", "edge.json: cuts[0].datatype: not a type that can cross"),
        (
            "\"front_share\": 0.5",
            "\"front_share\": 1.5",
            "edge.json: cuts[0].front_share: must be 0 to 1",
        ),
        ("\"tensor\": \"z\"", "\"tensor\": \"y\"", "edge.json: parts[1].part.cut: not one of cuts"),
        (
            "\"median_us\": 20.0",
            "\"median_us\": 90.0",
            "edge.json: parts[0].time: no rows, or times that are not in order",
        ),
    ] {
        assert!(good.contains(from), "{from}");
        assert_eq!(read(&good.replacen(from, to, 1)).unwrap_err(), message);
    }
    assert!(
        read(&good.replacen("\"date\"", "\"day\"", 1)).unwrap_err().contains("unknown field `day`")
    );
}
