//! The planner against the frozen table of measured latencies: see `model-split/measure/regret`.

use midspan_split::plan::regret::{Judged, Table};

/// Most that a choice may take longer than the best.
const MOST: f64 = 0.05;

fn table() -> Table {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/regret.json");
    let json = std::fs::read(path).unwrap_or_else(|error| {
        panic!("{path}: {error}; take the table with model-split/measure/regret")
    });
    serde_json::from_slice(&json).unwrap()
}

#[test]
#[ignore = "its table is taken on a quiet machine"]
fn the_planner_is_near_the_best_in_every_cell() {
    let table = table();
    assert!(table.runs >= 30, "{} runs", table.runs);
    let judged = table.judge().unwrap();
    for judged in &judged {
        assert!(judged.regret() <= MOST, "{:.2} %: {judged:?}", judged.regret() * 100.0);
    }
    // Three links by three edges, of a small and a large model.
    assert_eq!(judged.len(), 2 * 9);
    let taken = |judged: &&Judged| judged.taken.to_string().starts_with("local");
    assert!(judged.iter().any(|judged| !taken(&judged)), "some cell is worth sending something");
    let all: f64 = judged.iter().map(Judged::regret).sum();
    let worst = judged.iter().map(Judged::regret).fold(0.0, f64::max);
    let mean = all / judged.len() as f64;
    println!("mean regret {:.2} %, worst {:.2} %", mean * 100.0, worst * 100.0);
}

#[test]
#[ignore = "its table is taken on a quiet machine"]
fn the_planner_sees_a_fifth_of_the_cuts_and_no_cell() {
    for measured in table().models {
        assert!(measured.seen() <= 0.2, "{}: {}", measured.name, measured.seen());
        assert_eq!(measured.profile.slowdown, 1.0);
        // Every cut that the planner may choose has its measured latencies.
        for cut in &measured.profile.cuts {
            let of_cut = |name: &str| {
                measured.candidates.iter().any(|entry| {
                    entry.candidate.to_string().starts_with(&format!("send {name} at raw"))
                })
            };
            assert!(of_cut(&cut.tensor), "{}", cut.tensor);
        }
    }
}

/// The judge can find fault: with the times of fronts told wrong, the planner goes astray.
#[test]
#[ignore = "its table is taken on a quiet machine"]
fn a_wrong_profile_costs() {
    let mut table = table();
    for measured in &mut table.models {
        for part in &mut measured.profile.parts {
            let time = &mut part.time;
            // The whole model is said to take no time at all wherever it runs.
            if part.part == midspan_split::profile::Part::Whole {
                time.median_us = 0.0;
            }
        }
    }
    let worst = table.judge().unwrap().iter().map(Judged::regret).fold(0.0, f64::max);
    assert!(worst > MOST, "{worst}");
}

/// Sums of what parts took are what requests take, or the table would say nothing of them.
#[test]
#[ignore = "its table is taken on a quiet machine"]
fn whole_requests_take_what_their_parts_take() {
    let mut ratios = table().whole_over_parts();
    assert!(ratios.len() >= 2 * 9 * 3, "{}", ratios.len());
    ratios.sort_by(f64::total_cmp);
    let middle = ratios[ratios.len() / 2];
    assert!((0.9..1.1).contains(&middle), "median {middle}");
    let (low, high) = (ratios[ratios.len() / 20], ratios[ratios.len() * 19 / 20]);
    assert!(low > 0.75 && high < 1.33, "nine tenths lie in {low}..{high}");
}
