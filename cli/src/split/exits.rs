//! `midspan split exits`: trained heads at the cuts of a bundle.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args as ClapArgs, ValueEnum};
use midspan_runtime::TensorSpec;
use midspan_split::Bundle;
use midspan_split::exits::{self, Against, NewExit, Options, Score, Step, Trained};
use midspan_split::manifest::InnerTensor;
use midspan_split::rewrite::rewrite;
use serde_json::{Value, json};

use super::samples::SampleArgs;
use crate::{open::bundle, progress, table};

/// Train early exits for the stages of a bundle, on labels or on what the whole model answers, and
/// write the bundle with them. Thresholds are provisional until they are calibrated.
///
/// Example:  midspan split exits --bundle models/fashion --model models/fashion.onnx --out with-exits
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The bundle's folder; the bundle inside the program without it.
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// The whole model; without it the bundle's stages, one after the other.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    #[command(flatten)]
    samples: SampleArgs,
    /// What heads learn; without it labels where all samples have one, else the model's answers.
    #[arg(long, value_enum)]
    against: Option<Learn>,
    /// Stages that get an exit.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    stage: Vec<usize>,
    /// Grids to try: the cut's tensor is averaged over k x k bins.
    #[arg(long, value_name = "K", value_delimiter = ',', default_value = "1,3,7")]
    k: Vec<usize>,
    /// Units of a hidden layer to try; 0 for none.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0,64")]
    hidden: Vec<usize>,
    /// Most time that a head may add, as a share of all in front of its cut.
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    most_time: f64,
    /// Share of samples that may get another answer than the whole model's.
    #[arg(long, value_name = "SHARE", default_value_t = 0.01)]
    budget: f64,
    /// Refuse a stage that has an exit instead of replacing it.
    #[arg(long)]
    keep: bool,
    /// Other samples, to score the exits of the old and the new bundle on.
    #[arg(long, value_name = "PATH")]
    test: Option<PathBuf>,
    /// Their classes.
    #[arg(long, value_name = "FILE", requires = "test")]
    test_labels: Option<PathBuf>,
    /// Folder of the new bundle; replaced when it holds one.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Learn {
    /// The labels of the samples.
    Labels,
    /// What the whole model answers.
    Model,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let bundle = bundle(args.bundle.as_ref())?;
    let read = |path: &PathBuf| fs::read(path).with_context(|| path.display().to_string());
    let whole = args.model.as_ref().map(read).transpose()?;
    let inputs = &bundle.manifest().stages[0].inputs;
    let inputs: Vec<TensorSpec> = inputs.iter().filter_map(InnerTensor::spec).collect();
    let samples = args.samples.load(&inputs, Some(&bundle))?;
    let test = match &args.test {
        Some(path) => {
            let options = SampleArgs {
                samples: Some(path.clone()),
                labels: args.test_labels.clone(),
                preprocess: args.samples.preprocess.clone(),
                ..SampleArgs::default()
            };
            options.load(&inputs, Some(&bundle))?
        }
        None => vec![],
    };
    let labelled = samples.iter().all(|sample| sample.label.is_some());
    let against = match args.against {
        Some(Learn::Labels) => Against::Labels,
        None if labelled => Against::Labels,
        Some(Learn::Model) | None => Against::Model,
    };
    let options = Options {
        stages: args.stage.clone(),
        grids: args.k.clone(),
        hidden: args.hidden.clone(),
        against,
        seed: args.samples.seed,
        most_time: args.most_time,
        budget: args.budget,
        keep: args.keep,
    };
    let whole = whole.as_deref();
    let trained = shown(|progress| exits::train(&bundle, whole, &samples, &options, progress))?;
    let (manifest, blobs) = (trained.manifest.clone(), trained.blobs.clone());
    let written = rewrite(&bundle, manifest, blobs, &args.out)?;
    let score = |bundle: &Bundle| {
        if test.is_empty() {
            return Ok(vec![]);
        }
        shown(|progress| exits::score(bundle, whole, &test, args.budget, progress))
    };
    let (before, after) = (score(&bundle)?, score(&written)?);
    if args.json {
        out!("{}", document(&trained, against, &before, &after));
    } else {
        print(args, &trained, against, &before, &after);
    }
    Ok(())
}

/// Runs something under progress bars, one for each step of it.
fn shown<T, E: Into<anyhow::Error>>(
    work: impl FnOnce(exits::Progress<'_>) -> Result<T, E>,
) -> anyhow::Result<T> {
    let mut bar: Option<(Step, indicatif::ProgressBar)> = None;
    let result = work(&mut |step, done, all| {
        if bar.as_ref().is_none_or(|(shown, _)| *shown != step) {
            let message = match step {
                Step::Running => "running samples",
                Step::Fitting => "fitting heads",
                Step::Scoring => "scoring exits",
            };
            if let Some((_, old)) = bar.take() {
                old.finish_and_clear();
            }
            bar = Some((step, progress::counting(all as u64, message)));
        }
        if let Some((_, bar)) = &bar {
            bar.set_position(done as u64);
        }
    });
    if let Some((_, bar)) = bar {
        bar.finish_and_clear();
    }
    result.map_err(Into::into)
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn name(against: Against) -> &'static str {
    match against {
        Against::Labels => "labels",
        Against::Model => "the whole model's answers",
    }
}

fn print(args: &Args, trained: &Trained, against: Against, before: &[Score], after: &[Score]) {
    out!("bundle      {}", args.out.display());
    let counts = (trained.trained_on, trained.held_out);
    out!("trained on  {} of {} samples, {} held out", name(against), counts.0, counts.1);
    for exit in &trained.exits {
        print_exit(exit);
    }
    if after.is_empty() {
        return;
    }
    let row = |which: &str, score: &Score| {
        vec![
            which.to_owned(),
            score.stage.to_string(),
            percent(score.answered),
            score.threshold_milli.to_string(),
            percent(score.agreement),
            score.accuracy.map_or("-".into(), percent),
            percent(score.calibration_error),
        ]
    };
    let rows: Vec<Vec<String>> = before
        .iter()
        .map(|score| row("old", score))
        .chain(after.iter().map(|score| row("new", score)))
        .collect();
    let samples = after.first().map_or(0, |score| score.samples);
    out!("\non {samples} other samples, at most {} answered otherwise", percent(args.budget));
    let head = ["EXIT", "STAGE", "ANSWERED", "FROM", "AGREES", "RIGHT", "CALIBRATION ERROR"];
    out!("{}", table::render(&head, &rows));
    out!("these thresholds (FROM, in thousandths) were looked for on those samples");
}

fn print_exit(exit: &NewExit) {
    out!("\nstage {}, reads \"{}\"", exit.stage, exit.tensor);
    let rows: Vec<Vec<String>> = exit
        .tried
        .iter()
        .map(|tried| {
            let chosen = (tried.grid, tried.hidden) == (exit.grid, exit.hidden);
            let loss = tried.held_out.map_or("too slow".into(), |loss| format!("{loss:.4}"));
            let grid = format!("{0} x {0}", tried.grid);
            let mark = if chosen { "chosen" } else { "" };
            let alone = format!("{:.1} us", tried.alone_us);
            vec![grid, tried.hidden.to_string(), percent(tried.time), alone, loss, mark.into()]
        })
        .collect();
    let head = ["GRID", "HIDDEN", "ADDS", "ADDS TO ONE ROW", "HELD-OUT LOSS", ""];
    out!("{}", table::render(&head, &rows));
    let front = format!("{:.1} us", exit.front_us);
    out!("front {front} a row, {} weights, penalty {}", exit.parameters, exit.penalty);
    let (temperature, threshold) = (exit.temperature_milli, exit.threshold_milli);
    out!("temperature {temperature} and threshold {threshold} thousandths (not certified)");
    let (agreement, answered) = (percent(exit.agreement), percent(exit.answered));
    out!("held out: agrees with the whole model on {agreement}, answers {answered}");
}

fn document(trained: &Trained, against: Against, before: &[Score], after: &[Score]) -> Value {
    let tried = |exit: &NewExit| -> Vec<Value> {
        let tried = exit.tried.iter().map(|tried| {
            json!({
                "grid": tried.grid,
                "hidden": tried.hidden,
                "time": tried.time,
                "alone_us": tried.alone_us,
                "held_out_loss": tried.held_out,
            })
        });
        tried.collect()
    };
    let exits = trained.exits.iter().map(|exit| {
        json!({
            "stage": exit.stage,
            "tensor": exit.tensor,
            "grid": exit.grid,
            "hidden": exit.hidden,
            "penalty": exit.penalty,
            "parameters": exit.parameters,
            "temperature_milli": exit.temperature_milli,
            "threshold_milli": exit.threshold_milli,
            "certified": false,
            "front_us": exit.front_us,
            "time": exit.time,
            "alone_us": exit.alone_us,
            "held_out": { "agreement": exit.agreement, "answered": exit.answered },
            "tried": tried(exit),
        })
    });
    let score = |score: &Score| {
        json!({
            "stage": score.stage,
            "samples": score.samples,
            "answered": score.answered,
            "threshold_milli": score.threshold_milli,
            "agreement": score.agreement,
            "accuracy": score.accuracy,
            "calibration_error": score.calibration_error,
        })
    };
    json!({
        "against": match against { Against::Labels => "labels", Against::Model => "model" },
        "trained_on": trained.trained_on,
        "held_out": trained.held_out,
        "exits": exits.collect::<Vec<_>>(),
        "test": {
            "old": before.iter().map(score).collect::<Vec<_>>(),
            "new": after.iter().map(score).collect::<Vec<_>>(),
        },
    })
}
