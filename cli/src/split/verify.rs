//! `midspan split verify`: do the parts of a model still answer what the whole model answers?

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args as ClapArgs;
use midspan_split::cut::{Types, single_tensor_cuts};
use midspan_split::onnx::{self, ModelProto};
use midspan_split::samples::Sample;
use midspan_split::verify::compare::{Agreement, Difference, Exactness};
use midspan_split::verify::diverge::{self, Divergence, Half, Rewriting};
use midspan_split::verify::halves::{self, Halves};
use midspan_split::verify::model::{CheckOptions, Checker, CutReport};
use midspan_split::verify::{VerifyReport, verify};
use serde_json::json;

use super::samples::SampleArgs;
use crate::{open::bundle, progress, table};

/// Run a model whole and in parts on samples, and compare: at cuts of the model, in two files that
/// were cut elsewhere, or in the stages of a bundle. Exit code 1 when the answers differ by more
/// than the tolerance; then the first layer that differs is named.
///
/// Examples:
///   midspan split verify model.onnx --random 8 --shape x=1x3x224x224
///   midspan split verify model.onnx --cut relu3 --samples photos/ --preprocess prep.toml --bits 8,4
///   midspan split verify model.onnx --front front.onnx --tail tail.onnx --samples inputs.npz
///   midspan split verify models/fashion.onnx --embedded
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The whole model.
    model: PathBuf,
    /// A cut to check: one tensor, or several with commas between them. Repeatable; without it,
    /// every single tensor that divides the model.
    #[arg(long, value_name = "TENSOR[,TENSOR]")]
    cut: Vec<String>,
    /// Check every single tensor that divides the model, beside those of --cut.
    #[arg(long)]
    all: bool,
    /// The front of a model that was cut elsewhere.
    #[arg(long, value_name = "FILE", requires = "tail", conflicts_with_all = ["cut", "all"])]
    front: Option<PathBuf>,
    /// The tail of a model that was cut elsewhere.
    #[arg(long, value_name = "FILE", requires = "front")]
    tail: Option<PathBuf>,
    /// Check the stages of the bundle in this folder, on its labelled samples without others.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["cut", "all", "front"])]
    bundle: Option<PathBuf>,
    /// Check the stages of the bundle inside the program.
    #[arg(long, conflicts_with_all = ["bundle", "cut", "all", "front"])]
    embedded: bool,
    #[command(flatten)]
    samples: SampleArgs,
    /// Bits on the wire to compare at, 1 to 8.
    #[arg(long, value_delimiter = ',', default_value = "8,4")]
    bits: Vec<u8>,
    /// Largest difference that still counts as equal, nothing quantised: absolute, or relative to
    /// the whole model's value where that is above 1.
    #[arg(long, value_name = "X", default_value_t = 1e-4)]
    tolerance: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Largest model that is read.
const LARGEST: u64 = 2 << 30;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let wrong = args.bits.iter().find(|bits| !(1..=8).contains(*bits));
    ensure!(wrong.is_none(), "--bits must be 1 to 8, not {}", wrong.unwrap_or(&0));
    ensure!(args.tolerance >= 0.0, "--tolerance must not be negative, not {}", args.tolerance);
    let model = read(&args.model)?;
    if args.embedded || args.bundle.is_some() {
        return of_bundle(args, &model);
    }
    let types = Types::infer(&model).with_context(|| args.model.display().to_string())?;
    let samples = args.samples.load(&halves::input_specs(&model, &types)?, None)?;
    let parts = match (&args.front, &args.tail) {
        (Some(front), Some(tail)) => vec![of_files(front, tail)?],
        _ => of_cuts(args, &model, &types)?,
    };
    let checks = check(args, &model, &types, &samples, &parts)?;
    if args.json {
        print_json(args, &checks);
    } else {
        print_table(args, &checks);
    }
    let failed = checks.iter().filter(|check| !check.equal(args.tolerance)).count();
    ensure!(
        failed == 0,
        "{failed} of {} cuts differ from the whole model by more than {:e}, or cannot be run",
        checks.len(),
        args.tolerance
    );
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<ModelProto> {
    let name = || path.display().to_string();
    let size = std::fs::metadata(path).with_context(name)?.len();
    ensure!(size <= LARGEST, "{}: {size} bytes; at most {LARGEST} are read", name());
    let bytes = std::fs::read(path).with_context(name)?;
    onnx::decode(bytes.into()).with_context(name)
}

fn of_files(front: &Path, tail: &Path) -> anyhow::Result<Part> {
    let halves = Halves::of_files(read(front)?, read(tail)?).map_err(anyhow::Error::msg)?;
    Ok(Part { tensors: halves.crossing.clone(), halves: Ok(halves) })
}

/// A cut, and the halves if it divides the model.
struct Part {
    tensors: Vec<String>,
    halves: anyhow::Result<Halves>,
}

fn of_cuts(args: &Args, model: &ModelProto, types: &Types) -> anyhow::Result<Vec<Part>> {
    let named = args.cut.iter().map(|cut| match types.get(cut) {
        Ok(_) => vec![cut.clone()],
        Err(_) => cut.split(',').map(str::to_owned).collect(),
    });
    let mut cuts: Vec<Vec<String>> = named.collect();
    if args.all || cuts.is_empty() {
        cuts.extend(single_tensor_cuts(model)?.into_iter().map(|tensor| vec![tensor]));
    }
    if cuts.is_empty() {
        bail!("no single tensor divides the model; --cut A,B checks a cut of several");
    }
    let part = |tensors: Vec<String>| {
        let halves = Halves::at(model, types, &tensors).map_err(anyhow::Error::from);
        Part { tensors, halves }
    };
    Ok(cuts.into_iter().map(part).collect())
}

/// What was found at a cut.
struct Check {
    tensors: String,
    report: Result<CutReport, String>,
    diverges: Option<Divergence>,
}

impl Check {
    fn equal(&self, tolerance: f64) -> bool {
        self.report.as_ref().is_ok_and(|report| report.difference.within(tolerance))
    }
}

fn check(
    args: &Args,
    model: &ModelProto,
    types: &Types,
    samples: &[Sample],
    parts: &[Part],
) -> anyhow::Result<Vec<Check>> {
    let bar = progress::counting((samples.len() * (parts.len() + 1)) as u64, "comparing");
    let checker = Checker::new(model, samples, &mut || bar.inc(1))?;
    let options = CheckOptions { bits: args.bits.clone() };
    let mut checks = Vec::new();
    for part in parts {
        let before = bar.position();
        let report = match &part.halves {
            Ok(halves) => checker
                .check(halves, &options, &mut || bar.inc(1))
                .map(|report| (report, halves))
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        bar.set_position(before + samples.len() as u64);
        let diverges = match &report {
            Ok((report, halves)) if !report.difference.within(args.tolerance) => {
                let sample = &samples[report.worst.unwrap_or_default()];
                diverge::first(model, types, halves, sample, args.tolerance)?
            }
            _ => None,
        };
        let report = report.map(|(report, _)| report);
        checks.push(Check { tensors: part.tensors.join(","), report, diverges });
    }
    bar.finish_and_clear();
    Ok(checks)
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn agreement(agreement: Option<Agreement>) -> String {
    agreement.map_or("-".into(), |agreement| percent(agreement.share()))
}

fn class(exactness: Exactness) -> &'static str {
    match exactness {
        Exactness::BitExact => "bit exact",
        Exactness::Tolerance { .. } => "tolerance",
    }
}

fn print_json(args: &Args, checks: &[Check]) {
    let cut = |check: &Check| match &check.report {
        Ok(report) => json!({
            "cut": check.tensors,
            "equal": check.equal(args.tolerance),
            "report": report,
            "first_difference": check.diverges,
        }),
        Err(reason) => json!({ "cut": check.tensors, "equal": false, "refused": reason }),
    };
    let cuts: Vec<_> = checks.iter().map(cut).collect();
    out!("{}", json!({ "tolerance": args.tolerance, "cuts": cuts }));
}

fn print_table(args: &Args, checks: &[Check]) {
    let bits = args.bits.iter().flat_map(|bits| [format!("BYTES {bits} BIT"), "SAME".to_owned()]);
    let titles = ["CUT", "CLASS", "MAX DIFF", "RELATIVE", "SAME", "BYTES RAW"].map(str::to_owned);
    let titles: Vec<String> = titles.into_iter().chain(bits).collect();
    let row = |check: &Check| match &check.report {
        Ok(report) => {
            let mut cells = vec![
                check.tensors.clone(),
                class(report.exactness).into(),
                format!("{:.1e}", report.difference.max_abs),
                format!("{:.1e}", report.difference.max_rel),
                agreement(report.agreement),
                format!("{:.0}", report.bytes),
            ];
            for quantised in &report.quantised {
                cells.push(format!("{:.0}", quantised.bytes));
                cells.push(agreement(quantised.agreement));
            }
            cells
        }
        Err(_) => vec![check.tensors.clone(), "refused".into()],
    };
    let rows: Vec<Vec<String>> = checks.iter().map(row).collect();
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    out!("{}", table::render(&titles, &rows));
    for check in checks {
        if let Err(reason) = &check.report {
            out!("{}: {reason}", check.tensors);
        }
        if let Some(diverges) = &check.diverges {
            out!("{}: {}", check.tensors, told(diverges));
        }
    }
    let reports = || checks.iter().filter_map(|check| check.report.as_ref().ok());
    let exact = reports().filter(|report| report.exactness == Exactness::BitExact).count();
    let mut all = Difference::default();
    reports().for_each(|report| all.include(&report.difference));
    out!(
        "{} cuts: {exact} bit exact, {} within {:e}, largest difference {:.1e}",
        checks.len(),
        checks.iter().filter(|check| check.equal(args.tolerance)).count(),
        args.tolerance,
        all.max_abs
    );
}

fn told(first: &Divergence) -> String {
    let half = match first.half {
        Half::Front => "front",
        Half::Tail => "tail",
    };
    let rewriting = match first.rewriting {
        Rewriting::Off => "already without graph rewriting by ONNX Runtime",
        Rewriting::On => "with ONNX Runtime's graph rewriting, not without",
        Rewriting::Alone => "only where ONNX Runtime fuses nodes across the cut",
    };
    format!(
        "first differs at {} \"{}\" of the {half}: tensor \"{}\" by {:.1e}, {rewriting}",
        first.op, first.node, first.tensor, first.difference.max_abs
    )
}

fn of_bundle(args: &Args, model: &ModelProto) -> anyhow::Result<()> {
    let bundle = bundle(args.bundle.as_ref())?;
    let types = Types::infer(model)?;
    let samples = args.samples.load(&halves::input_specs(model, &types)?, Some(&bundle))?;
    let bar = progress::counting(samples.len() as u64, "comparing");
    let whole = onnx::encode(model);
    let report =
        verify(&bundle, &whole, &samples, &args.bits, &mut |done, _| bar.set_position(done as u64));
    bar.finish_and_clear();
    let report = report?;
    if args.json {
        out!("{}", serde_json::to_string(&report)?);
    } else {
        print_bundle(&report);
    }
    ensure!(
        report.difference.within(args.tolerance),
        "the stages differ from the whole model by {:e}, more than {:e}",
        report.difference.max_abs,
        args.tolerance
    );
    Ok(())
}

fn print_bundle(report: &VerifyReport) {
    let mut rows = vec![
        vec!["samples".into(), report.samples.to_string()],
        vec!["class".into(), class(report.exactness).into()],
        vec!["largest difference".into(), format!("{:e}", report.difference.max_abs)],
        vec!["same answer, unquantised".into(), percent(report.agreement_raw)],
    ];
    for cut in &report.cuts {
        let default = if cut.default { ", default" } else { "" };
        for (bits, share) in &cut.agreement {
            let title = format!("same answer at {bits} bits ({}{default})", cut.tensor);
            rows.push(vec![title, percent(*share)]);
        }
    }
    if let Some(share) = report.exit_share {
        rows.push(vec!["answered at the exit".into(), percent(share)]);
    }
    if let Some(accuracy) = report.accuracy {
        rows.push(vec!["accuracy of the whole model".into(), percent(accuracy.whole)]);
        rows.push(vec!["accuracy as served".into(), percent(accuracy.served)]);
    }
    out!("{}", table::render(&["MEASURE", "VALUE"], &rows));
}
