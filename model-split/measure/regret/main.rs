//! Measures the table of regret: every candidate of a model on several links and edges, from what
//! the halves take here and what their bytes take through the link emulator, and then the
//! contenders of each cell end to end. The table's form and its judge are the library's.
//!
//! `cargo run --release -p midspan --example regret -- --model fashion=models/fashion.onnx \
//!  --fidelity fashion=fashion.json --out model-split/tests/golden/regret.json`

#![allow(clippy::print_stdout, reason = "a program of its own")]

mod relay;
mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Parser;
use midspan_split::candidate::{Candidate, InputForm, WirePrecision};
use midspan_split::fidelity::FidelityFile;
use midspan_split::plan::Link;
use midspan_split::plan::regret::{Cell, Entry, FORMAT, Measured, Table};
use midspan_split::profile::measure::{Request, Wanted, measure};
use midspan_split::profile::{Part, Profile, Slowdown};

/// Bytes beside each body, both ways: a length and what is asked for.
const HEAD: usize = 8;
const LINKS: [&str; 3] = ["3g", "4g", "wifi"];
const SLOWDOWNS: [f64; 3] = [1.0, 4.0, 10.0];
/// One cut in so many is shown to the planner.
const SEEN: usize = 5;

#[derive(Parser)]
struct Args {
    /// A model; several may be given.
    #[arg(long, value_name = "NAME=FILE", required = true)]
    model: Vec<String>,
    /// Its fidelities, made by `midspan split fidelity`.
    #[arg(long, value_name = "NAME=FILE")]
    fidelity: Vec<String>,
    /// Pictures whose writing is timed.
    #[arg(long, value_name = "NAME=DIR")]
    pictures: Vec<String>,
    /// Runs of which each latency is the median.
    #[arg(long, default_value_t = 30)]
    runs: usize,
    /// Agreement that a candidate must keep, by its lower bound.
    #[arg(long, default_value_t = 0.99)]
    min_agreement: f64,
    /// Today, `YYYY-MM-DD`.
    #[arg(long)]
    date: String,
    /// The table.
    #[arg(long)]
    out: PathBuf,
}

fn named<'a>(texts: &'a [String], name: &str) -> Option<&'a str> {
    texts.iter().find_map(|text| text.split_once('=').filter(|(key, _)| *key == name).map(|x| x.1))
}

fn main() -> anyhow::Result<()> {
    midspan_runtime::library::forbid_telemetry();
    let args = Args::parse();
    let mut models = Vec::new();
    for text in &args.model {
        let (name, file) = text.split_once('=').context("--model NAME=FILE")?;
        let bytes = std::fs::read(file).with_context(|| file.to_owned())?;
        models.push(measured(&args, name, &bytes).with_context(|| name.to_owned())?);
    }
    let heads = (HEAD as f64, HEAD as f64);
    let (runs, min_agreement) = (args.runs, args.min_agreement);
    let table = Table { format: FORMAT, runs, min_agreement, heads, models };
    for judged in table.judge()? {
        println!(
            "{:8} {:4} x{:<2}  {:6.2} %  took {:8.2} ms (planned {:8.2}): {}; best {:8.2} ms: {}",
            judged.model,
            judged.cell.link,
            judged.cell.slowdown,
            judged.regret() * 100.0,
            judged.taken_us / 1e3,
            judged.planned_us / 1e3,
            judged.taken,
            judged.best_us / 1e3,
            judged.best,
        );
    }
    let whole = table.whole_over_parts();
    let (low, high) = whole
        .iter()
        .fold((f64::INFINITY, 0.0f64), |(low, high), ratio| (low.min(*ratio), high.max(*ratio)));
    println!("end to end over the sums of parts: {low:.3} to {high:.3} in {} cases", whole.len());
    std::fs::write(&args.out, serde_json::to_vec(&table)?)?;
    Ok(())
}

fn say(text: &str) {
    eprintln!("regret: {text}");
}

/// The pictures of a model's folder, sorted.
fn pictures(args: &Args, name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let Some(folder) = named(&args.pictures, name) else { return Ok(vec![]) };
    let entries = std::fs::read_dir(folder).with_context(|| folder.to_owned())?;
    let mut pictures =
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    pictures.sort();
    Ok(pictures)
}

/// What each size of a body takes over each link, and the answer back, in microseconds.
fn transfers(
    name: &str,
    sizes: &BTreeMap<Candidate, usize>,
    answer: usize,
    runs: usize,
) -> anyhow::Result<Vec<BTreeMap<usize, f64>>> {
    let distinct: BTreeSet<usize> = sizes.values().copied().filter(|bytes| *bytes > 0).collect();
    LINKS
        .iter()
        .map(|link| {
            say(&format!("{name}: {} sizes of bodies over {link}", distinct.len()));
            let line: Link = link.parse()?;
            let near = distinct.iter().copied();
            let near = near.filter(|bytes| *bytes as f64 * 8e6 / line.up_bps <= Entry::NOT_RUN_US);
            relay::transfers(link, &near.collect::<Vec<_>>(), answer, runs)
        })
        .collect()
}

fn measured(args: &Args, name: &str, model: &[u8]) -> anyhow::Result<Measured> {
    let fidelity = match named(&args.fidelity, name) {
        Some(file) => FidelityFile::read(file.as_ref())?.fidelity,
        None => vec![],
    };
    let pictures = pictures(args, name)?;
    let bits: BTreeSet<u8> = fidelity
        .iter()
        .filter_map(|entry| match entry.candidate {
            Candidate::Activation { precision: WirePrecision::Bits(bits), .. } => Some(bits),
            _ => None,
        })
        .collect();
    let profile = |cuts, slowdown: f64, bits: &[u8], runs| -> anyhow::Result<Profile> {
        let slowdown = Slowdown::new(slowdown).context("a slowdown out of range")?;
        let batches = &[1];
        let pictures = &pictures;
        let date = args.date.as_str();
        let request =
            Request { model, variants: &[], cuts, batches, bits, runs, slowdown, pictures, date };
        Ok(measure(&request, &mut |_, _| {})?)
    };
    say(&format!("{name}: what the planner sees"));
    let cuts = profile(Wanted::Evenly(1), 1.0, &[], 1)?.cuts.len();
    let seen = profile(Wanted::Evenly((cuts / SEEN).max(1)), 1.0, &[4, 8], args.runs)?;
    let bits: Vec<u8> = bits.into_iter().collect();
    let mut edges: Vec<Profile> = Vec::new();
    for slowdown in SLOWDOWNS {
        say(&format!("{name}: all halves, the edge {slowdown} times slower"));
        // A slower edge writes frames so many times slower: that needs no runs of its own.
        let bits = if slowdown > 1.0 { &[][..] } else { bits.as_slice() };
        edges.push(profile(Wanted::All, slowdown, bits, args.runs)?);
    }
    let mut candidates = all(&edges[0]);
    candidates.extend(fidelity.iter().map(|entry| entry.candidate.clone()));
    let measured =
        |candidate: &Candidate| fidelity.iter().find(|entry| entry.candidate == *candidate);
    let answer = edges[0].model.output_bytes as usize;
    let mut sizes: BTreeMap<Candidate, usize> = BTreeMap::new();
    for candidate in &candidates {
        let bytes = measured(candidate).map(|entry| entry.bytes.round() as usize);
        let bytes = bytes.or_else(|| bytes_of(&edges[0], candidate));
        sizes.insert(candidate.clone(), bytes.context("a candidate without bytes")?);
    }
    let transfers = transfers(name, &sizes, answer, args.runs)?;
    let mut cells = Vec::new();
    let mut entries: Vec<Entry> = candidates
        .iter()
        .map(|candidate| Entry {
            candidate: candidate.clone(),
            fidelity: measured(candidate).cloned(),
            us: vec![],
            whole_us: vec![],
        })
        .collect();
    for (link, transfers) in LINKS.iter().zip(&transfers) {
        for (slowdown, edge) in SLOWDOWNS.iter().zip(&edges) {
            cells.push(Cell { link: (*link).to_owned(), slowdown: *slowdown });
            for entry in &mut entries {
                let sent = sizes.get(&entry.candidate).copied().unwrap_or(0);
                let us = parts(edge, &edges[0], &entry.candidate)
                    .with_context(|| format!("{} was not timed", entry.candidate))?;
                let moved = if sent == 0 { Some(0.0) } else { transfers.get(&sent).copied() };
                entry.us.push(moved.map(|moved| (us + moved).round()));
            }
        }
    }
    let mut measured =
        Measured { name: name.to_owned(), profile: seen, cells, candidates: entries };
    ensure!(measured.seen() <= 0.2, "the planner would see {} of the cuts", measured.seen());
    whole::contenders(&mut measured, model, args.runs, answer)?;
    Ok(measured)
}

/// What can be done without a measurement of fidelity.
fn all(edge: &Profile) -> BTreeSet<Candidate> {
    let variant = || "plain".to_owned();
    let mut all = BTreeSet::from([
        Candidate::Local { variant: variant() },
        Candidate::Input { form: InputForm::Tensor },
    ]);
    for cut in &edge.cuts {
        for precision in [WirePrecision::Raw, WirePrecision::Half] {
            let (cut, variant) = (cut.tensor.clone(), variant());
            all.insert(Candidate::Activation { cut, precision, variant });
        }
    }
    all
}

fn bytes_of(edge: &Profile, candidate: &Candidate) -> Option<usize> {
    let frame = |bytes: u64| (midspan_split::codec::HEADER_LEN as u64 + bytes) as usize;
    Some(match candidate {
        Candidate::Local { .. } | Candidate::Exit { .. } => 0,
        Candidate::Input { form: InputForm::Tensor } => edge.model.input_bytes as usize,
        Candidate::Input { .. } => return None,
        Candidate::Activation { cut, precision, .. } => {
            let notes = edge.cuts.iter().find(|notes| notes.tensor == *cut)?;
            match precision {
                WirePrecision::Raw => frame(notes.bytes()),
                WirePrecision::Half => frame(notes.elements() * 2),
                WirePrecision::Bits(bits) => frame(notes.elements().div_ceil(8) * u64::from(*bits)),
            }
        }
    })
}

/// What a candidate takes on both machines, by medians.
fn parts(edge: &Profile, cloud: &Profile, candidate: &Candidate) -> Option<f64> {
    let part = |side: &Profile, part| side.part_us(&part, "plain", 1);
    match candidate {
        Candidate::Local { .. } => part(edge, Part::Whole),
        Candidate::Exit { cut, .. } => part(edge, Part::Front { cut: cut.clone() }),
        Candidate::Input { form } => {
            let find = |side: &Profile| side.pictures.iter().find(|p| p.form == *form).cloned();
            let picture = match form {
                InputForm::Tensor | InputForm::Received => 0.0,
                _ => find(edge)?.encode.median_us + find(cloud)?.decode.median_us,
            };
            Some(picture + part(cloud, Part::Whole)?)
        }
        Candidate::Activation { cut, precision, .. } => {
            let mut codec = cloud.codec.iter();
            let codec = codec.find(|entry| entry.cut == *cut && entry.precision == *precision)?;
            let (front, tail) = (Part::Front { cut: cut.clone() }, Part::Tail { cut: cut.clone() });
            let halves = part(edge, front)? + part(cloud, tail)?;
            Some(halves + codec.encode.median_us * edge.slowdown + codec.decode.median_us)
        }
    }
}
