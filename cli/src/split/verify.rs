//! `midspan split verify`: are the stages of a bundle still the whole model?

use std::{fs, path::PathBuf};

use anyhow::{Context, ensure};
use clap::Args as ClapArgs;
use midspan_split::verify;
use serde_json::json;

use crate::{open::bundle, progress, table};

/// Run a bundle's stages and the whole model on samples and compare; exit code 1 when they
/// differ by more than the tolerance.
///
/// Example:  midspan split verify --model models/fashion.onnx --bundle models/fashion
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The whole model.
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// The bundle's folder; the bundle inside the program without it.
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// Labelled samples of the bundle to run; all without it.
    #[arg(long)]
    samples: Option<usize>,
    /// Bits on the wire to compare at.
    #[arg(long, value_delimiter = ',', default_value = "8,4")]
    bits: Vec<u8>,
    /// Largest difference of an output, nothing quantised, that still counts as equal.
    #[arg(long, default_value_t = 1e-4)]
    tolerance: f32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let bundle = bundle(args.bundle.as_ref())?;
    let (tolerance, json) = (args.tolerance, args.json);
    let whole = fs::read(&args.model).with_context(|| args.model.display().to_string())?;
    let labelled = bundle.labelled()?.context("the bundle has no labelled samples to run")?;
    let mut all = verify::samples_of(&labelled);
    let wanted = args.samples.unwrap_or(all.len()).min(all.len());
    ensure!(wanted > 0, "--samples must be at least 1");
    // Evenly over the set: the first samples of a set are often its easiest.
    let stride = all.len() / wanted;
    all = all.into_iter().step_by(stride.max(1)).take(wanted).collect();
    let bar = progress::counting(all.len() as u64, "comparing");
    let report = verify::verify(&bundle, &whole, &all, &args.bits, &mut |done, _| {
        bar.set_position(done as u64)
    });
    bar.finish_and_clear();
    let report = report?;
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    if json {
        let agreement: Vec<_> = report
            .agreement
            .iter()
            .map(|(bits, share)| json!({ "bits": bits, "agreement": share }))
            .collect();
        let accuracy = report
            .accuracy
            .map(|accuracy| json!({ "whole": accuracy.whole, "served": accuracy.served }));
        out!(
            "{}",
            json!({
                "samples": report.samples,
                "bit_exact": report.bit_exact,
                "max_abs_diff": report.max_abs_diff,
                "agreement_raw": report.agreement_raw,
                "agreement": agreement,
                "exit_share": report.exit_share,
                "accuracy": accuracy,
            })
        );
    } else {
        let mut rows = vec![
            vec!["samples".into(), report.samples.to_string()],
            vec!["bit exact".into(), report.bit_exact.to_string()],
            vec!["largest difference".into(), format!("{:e}", report.max_abs_diff)],
            vec!["same answer, unquantised".into(), percent(report.agreement_raw)],
        ];
        for (bits, share) in &report.agreement {
            rows.push(vec![format!("same answer at {bits} bits"), percent(*share)]);
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
    ensure!(
        report.max_abs_diff <= tolerance,
        "the stages differ from the whole model by {:e}, more than {tolerance:e}",
        report.max_abs_diff
    );
    Ok(())
}
