//! `midspan split quantise`: a variant in 8-bit integers of what an edge runs.

use std::{fs, path::PathBuf, time::SystemTime};

use anyhow::{Context, ensure};
use clap::{Args as ClapArgs, ValueEnum};
use indicatif::ProgressBar;
use midspan_runtime::{TensorSpec, session::describe};
use midspan_split::{
    Bundle,
    manifest::InnerTensor,
    quantise::{
        Calibration, Environment, Options, QuantiseError, Quantised, Step, quantise, quantise_model,
    },
    samples::Sample,
    stats,
};
use serde_json::json;

use super::bundle::bytes;
use super::samples::SampleArgs;
use crate::{open, progress, table};

/// Make a variant in 8-bit integers of the stages that an edge runs: static QDQ with ONNX Runtime's
/// own Python tools, which are fetched into the user's cache, checked by hash. Some samples give
/// the ranges, the others tell how often the variant answers as the plain stages do. No split id
/// changes; nodes run it by `variant = "int8"`.
///
/// Example:  midspan split quantise --bundle models/fashion --out fashion-int8
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// An ONNX file to quantise whole, instead of a bundle.
    #[arg(conflicts_with = "bundle")]
    model: Option<PathBuf>,
    /// The bundle's folder; the bundle inside the program without it and without a model.
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// Folder of the bundle with the variant, which may be the same one; of a model, the new file.
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Name of the variant.
    #[arg(long, value_name = "NAME", default_value = "int8")]
    name: String,
    /// Samples that give the ranges, evenly over the set; the others measure.
    #[arg(long, value_name = "N", default_value_t = 200)]
    calibration: usize,
    /// How ranges are found.
    #[arg(long, value_enum, default_value_t = Method::Minmax)]
    method: Method,
    /// Weights of 7 bits: more exact on CPUs without VNNI or dot product instructions.
    #[arg(long)]
    reduce_range: bool,
    #[command(flatten)]
    samples: SampleArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// How ranges are found.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Method {
    /// From the least to the largest value seen.
    Minmax,
    /// Without the outermost values.
    Percentile,
    /// Where the distribution loses least.
    Entropy,
}

impl From<Method> for Calibration {
    fn from(method: Method) -> Self {
        match method {
            Method::Minmax => Self::MinMax,
            Method::Percentile => Self::Percentile,
            Method::Entropy => Self::Entropy,
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(model) = &args.model {
        open::refuse_same(model, &args.out)?;
    }
    let source = Source::open(args)?;
    let (inputs, bundle) = source.inputs()?;
    let all = args.samples.load(&inputs, bundle)?;
    let (calibration, held_out) = divided(all, args.calibration)?;
    let environment = environment()?;
    let options = Options {
        name: args.name.clone(),
        calibration: args.method.into(),
        reduce_range: args.reduce_range,
        date: today(),
    };
    let mut bar: Option<(Option<usize>, ProgressBar)> = None;
    let mut show = |step: Step| {
        let (stage, done, total, text) = match step {
            Step::Calibrating { stage, done, total } => (Some(stage), done, total, "calibrating"),
            Step::Measuring { done, total } => (None, done, total, "measuring"),
        };
        if bar.as_ref().is_none_or(|(shown, _)| *shown != stage) {
            let fresh = (stage, progress::counting(total as u64, text));
            bar.replace(fresh).into_iter().for_each(|(_, old)| old.finish_and_clear());
        }
        bar.iter().for_each(|(_, bar)| bar.set_position(done as u64));
    };
    let sets = (calibration.as_slice(), held_out.as_slice());
    let made = match &source {
        Source::Bundle(bundle) => {
            quantise(bundle, sets, &options, &environment, &args.out, &mut show)
        }
        Source::Model(model) => quantise_model(model, sets, &options, &environment, &mut show)
            .and_then(|(bytes, made)| {
                let failed =
                    |source| QuantiseError::Io { doing: "write", path: args.out.clone(), source };
                fs::write(&args.out, bytes).map_err(failed)?;
                Ok(made)
            }),
    };
    bar.into_iter().for_each(|(_, bar)| bar.finish_and_clear());
    print(args, &made?, calibration.len());
    Ok(())
}

/// What is to be quantised.
enum Source {
    Bundle(Box<Bundle>),
    Model(Vec<u8>),
}

impl Source {
    fn open(args: &Args) -> anyhow::Result<Self> {
        let Some(path) = &args.model else {
            return Ok(Self::Bundle(Box::new(open::bundle(args.bundle.as_ref())?)));
        };
        Ok(Self::Model(fs::read(path).with_context(|| path.display().to_string())?))
    }

    /// What samples must have, and the bundle that may have some.
    fn inputs(&self) -> anyhow::Result<(Vec<TensorSpec>, Option<&Bundle>)> {
        Ok(match self {
            Self::Bundle(bundle) => {
                let first = bundle.manifest().stages.first();
                let inputs = first.into_iter().flat_map(|stage| &stage.inputs);
                (inputs.filter_map(InnerTensor::spec).collect(), Some(bundle))
            }
            Self::Model(model) => (describe(model)?.inputs, None),
        })
    }
}

/// The samples for the ranges, evenly over the set, and the others.
fn divided(all: Vec<Sample>, wanted: usize) -> anyhow::Result<(Vec<Sample>, Vec<Sample>)> {
    let count = all.len();
    ensure!(
        wanted > 0 && wanted < count,
        "--calibration {wanted}: there are {count} samples, and both sides need some"
    );
    let taken = |index: usize| (index + 1) * wanted / count > index * wanted / count;
    let (mut calibration, mut others) = (Vec::new(), Vec::new());
    for (index, sample) in all.into_iter().enumerate() {
        if taken(index) { calibration.push(sample) } else { others.push(sample) }
    }
    Ok((calibration, others))
}

fn environment() -> anyhow::Result<Environment> {
    let mut bar: Option<ProgressBar> = None;
    let made = Environment::ensure(&mut |count| {
        bar.get_or_insert_with(|| progress::unknown("installing the quantisation tools"))
            .set_position(count);
    });
    bar.into_iter().for_each(|bar| bar.finish_and_clear());
    Ok(made?)
}

fn today() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.chars().take("YYYY-MM-DD".len()).collect()
}

fn print(args: &Args, made: &Quantised, calibration: usize) {
    let Quantised { stages, tensors, per_channel, bytes: sizes, counts, dropped } = made;
    let lower = |same: u64| stats::lower_bound(same, counts.samples, 0.95);
    if args.json {
        let share = |same: u64| json!({ "agreeing": same, "lower_bound": lower(same) });
        let exits: Vec<_> = counts.exits.iter().map(|exit| exit.map(share)).collect();
        out!(
            "{}",
            json!({
                "out": args.out,
                "variant": args.name,
                "stages": stages,
                "quantised_tensors": tensors,
                "per_channel": per_channel,
                "bytes": { "plain": sizes.0, "variant": sizes.1 },
                "calibration_samples": calibration,
                "samples": counts.samples,
                "answer": counts.agreeing.map(share),
                "exits": exits,
                "relative_error": counts.error,
                "dropped_certificates": dropped,
            })
        );
        return;
    }
    let share = |same: u64| {
        let (all, bound) = (counts.samples, lower(same) * 100.0);
        format!("{same} of {all} (at least {bound:.2} % with 95 % confidence)")
    };
    let scales = if *per_channel { "per channel" } else { "per tensor" };
    let mut rows = vec![
        vec!["variant".into(), format!("{} of {stages} stage(s)", args.name)],
        vec!["quantised tensors".into(), format!("{tensors}, weights {scales}")],
        vec!["size".into(), format!("{}, was {}", bytes(sizes.1), bytes(sizes.0))],
        vec!["calibrated on".into(), format!("{calibration} samples")],
    ];
    if let Some(same) = counts.agreeing {
        rows.push(vec!["same answer".into(), share(same)]);
    }
    for (stage, same) in counts.exits.iter().enumerate() {
        if let Some(same) = same {
            rows.push(vec![format!("same class at exit {stage}"), share(*same)]);
        }
    }
    rows.push(vec!["error of what crosses".into(), format!("{:.2} %", counts.error * 100.0)]);
    if *dropped > 0 {
        rows.push(vec!["certificates dropped".into(), dropped.to_string()]);
    }
    rows.push(vec!["written".into(), args.out.display().to_string()]);
    out!("{}", table::render(&["MEASURE", "VALUE"], &rows));
}
