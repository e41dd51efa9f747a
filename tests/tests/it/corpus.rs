//! Every fuzz target on its committed corpus, and on bounded noise and mutations of it. The
//! rounds are `MIDSPAN_FUZZ_ROUNDS`, 256 without it; the same rounds are the same inputs.

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use midspan_router_core::Rng;
use system_tests::{
    fuzz::{self, Outcome, TARGETS, mutate},
    repo,
};

/// What to do when a format was changed on purpose.
const REWRITE: &str = "`cargo run -p system-tests --example seeds` writes binary seeds anew";

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = repo::root().join("tests/fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{target}: {error}"));
    let mut seeds: Vec<(String, Vec<u8>)> = entries
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    seeds.sort();
    seeds
}

fn stems(folder: PathBuf) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn every_target_has_a_binary_and_a_corpus() {
    let names: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let fuzz = repo::root().join("tests/fuzz");
    assert_eq!(stems(fuzz.join("corpus")), names, "tests/fuzz/corpus");
    assert_eq!(stems(fuzz.join("fuzz_targets")), names, "tests/fuzz/fuzz_targets");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for name in &names {
        let path = format!("path = \"fuzz_targets/{name}.rs\"");
        assert!(manifest.contains(&path), "tests/fuzz/Cargo.toml has no {name}");
        let source = fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(source.contains(&format!("\"{name}\"")), "{name}.rs runs another target");
    }
}

#[test]
fn seeds_are_taken_and_refused_as_they_are_named() {
    for (target, run) in TARGETS {
        let mut seen = [0, 0];
        for (name, data) in corpus(target) {
            let (outcome, count) = match name.split('-').next() {
                Some("ok") => (Outcome::Taken, &mut seen[0]),
                Some("bad") => (Outcome::Refused, &mut seen[1]),
                _ => panic!("{target}/{name} is named neither ok- nor bad-"),
            };
            *count += 1;
            assert_eq!(run(&data), outcome, "{target}/{name}; {REWRITE}");
        }
        assert!(seen.iter().all(|count| *count > 0), "{target}: {seen:?} good and bad seeds");
    }
}

/// Noise and mutated seeds of one target.
fn mutated(target: &str) {
    let rounds = std::env::var("MIDSPAN_FUZZ_ROUNDS").ok();
    let rounds: u64 = rounds.map_or(256, |rounds| rounds.parse().unwrap());
    let seeds: Vec<Vec<u8>> = corpus(target).into_iter().map(|(_, data)| data).collect();
    let mut taken = 0_u64;
    for round in 0..rounds {
        let mut rng = Rng::new(round);
        let data = match round % 8 {
            0 => mutate::noise(&mut rng, 256),
            _ => mutate::mutate(&seeds, &mut rng),
        };
        match catch_unwind(AssertUnwindSafe(|| fuzz::run(target, &data))) {
            Ok(outcome) => taken += u64::from(outcome == Outcome::Taken),
            Err(_) => panic!("{target}, round {round}: \"{}\"", data.escape_ascii()),
        }
    }
    assert!(taken > 0, "{target}: no mutation of a good seed is good");
}

macro_rules! mutated {
    ($($target:ident)*) => {
        const MUTATED: &[&str] = &[$(stringify!($target)),*];
        mod mutated {
            $(#[test]
            fn $target() {
                super::mutated(stringify!($target));
            })*
        }
    };
}

mutated! {
    content_coding context_header decision_record frame grpc_peek grpc_request grpc_response
    infer_request infer_response load_report manifest node_config picture route router_config
    server_timing
}

#[test]
fn every_target_is_mutated() {
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, MUTATED);
}

#[test]
#[should_panic(expected = "no fuzz target is called nothing")]
fn an_unknown_target_is_said() {
    fuzz::run("nothing", b"");
}
