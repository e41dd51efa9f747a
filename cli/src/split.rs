//! `midspan split`: make and verify bundles.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use clap::Subcommand;
use midspan_split::{Bundle, make::make, spec::Spec, verify};
use serde_json::json;

use crate::{progress, runtime, table};

/// Cut models into stages: make and verify bundles.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make a bundle from a whole ONNX model and a spec file.
    ///
    /// Example:  midspan split bundle models/fashion.onnx --spec models/fashion.toml --out models/fashion
    #[command(verbatim_doc_comment)]
    Bundle {
        /// The whole model.
        model: PathBuf,
        /// Names, cuts, exits, preprocessing and labels (models/fashion.toml is an example).
        #[arg(long, value_name = "FILE")]
        spec: PathBuf,
        /// Folder of the bundle; replaced when it holds one.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Run a bundle's stages and the whole model on samples and compare; exit code 1 when they
    /// differ by more than the tolerance.
    ///
    /// Example:  midspan split verify --model models/fashion.onnx --bundle models/fashion
    #[command(verbatim_doc_comment)]
    Verify {
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
    },
}

pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    runtime::ensure()?;
    match command {
        Command::Bundle { model, spec, out } => bundle(&model, &spec, &out),
        Command::Verify { model, bundle, samples, bits, tolerance, json } => {
            let bundle = open(bundle.as_ref())?;
            compare(&model, &bundle, samples, &bits, tolerance, json)
        }
    }
}

/// A bundle's folder, or the embedded one.
pub(crate) fn open(folder: Option<&PathBuf>) -> anyhow::Result<Bundle> {
    Ok(match folder {
        Some(folder) => Bundle::open(folder)?,
        None => Bundle::embedded()?,
    })
}

fn bundle(model: &Path, spec: &Path, out: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(model).with_context(|| model.display().to_string())?;
    let base = spec.parent().unwrap_or(Path::new("."));
    let made = make(&bytes, &Spec::read(spec)?, base, out)?;
    out!("bundle    {}", out.display());
    out!("split id  {}", made.split_id.map_or("none".into(), |id| id.to_string()));
    out!("blobs     {} ({} bytes)", made.blobs, made.bytes);
    Ok(())
}

fn compare(
    model: &Path,
    bundle: &Bundle,
    samples: Option<usize>,
    bits: &[u8],
    tolerance: f32,
    json: bool,
) -> anyhow::Result<()> {
    let whole = fs::read(model).with_context(|| model.display().to_string())?;
    let labelled = bundle.labelled()?.context("the bundle has no labelled samples to run")?;
    let mut all = verify::samples_of(&labelled);
    let wanted = samples.unwrap_or(all.len()).min(all.len());
    ensure!(wanted > 0, "--samples must be at least 1");
    // Evenly over the set: the first samples of a set are often its easiest.
    let stride = all.len() / wanted;
    all = all.into_iter().step_by(stride.max(1)).take(wanted).collect();
    let bar = progress::counting(all.len() as u64, "comparing");
    let report =
        verify::verify(bundle, &whole, &all, bits, &mut |done, _| bar.set_position(done as u64));
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
