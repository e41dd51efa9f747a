//! `midspan split bundle make`: a bundle of a whole model.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Args as ClapArgs;
use midspan_runtime::session;
use midspan_split::{
    make::{MakeError, make},
    scale::{Fit, fill},
    spec::Spec,
};
use serde_json::json;

use crate::split::samples::SampleArgs;
use crate::{progress, runtime};

/// Make a bundle from a whole ONNX model and a spec file.
///
/// Example:  midspan split bundle make models/fashion.onnx --spec models/fashion.toml --out fashion
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The whole model.
    model: PathBuf,
    /// Names, cuts, exits, preprocessing and labels (models/fashion.toml is an example). The range
    /// of a cut, lo and hi, may be left out where there are samples to measure it on.
    #[arg(long, value_name = "FILE")]
    spec: PathBuf,
    #[command(flatten)]
    samples: SampleArgs,
    /// Folder of the bundle; replaced when it holds one.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Args { model, spec, samples, out, json } = args;
    runtime::ensure()?;
    let bytes = fs::read(model).with_context(|| model.display().to_string())?;
    let base = spec.parent().unwrap_or(Path::new("."));
    let mut wanted = Spec::read(spec)?;
    if samples.samples.is_some() || samples.random.is_some() {
        measure_scales(&mut wanted, spec, &bytes, samples)?;
    }
    let made = make(&bytes, &wanted, base, out).map_err(|error| {
        let of_model = matches!(error, MakeError::Onnx(_) | MakeError::Types(_));
        let error = anyhow::Error::new(error);
        if of_model { error.context(model.display().to_string()) } else { error }
    })?;
    if *json {
        let (id, blobs, bytes) = (made.split_id, made.blobs, made.bytes);
        out!("{}", json!({ "bundle": out, "split_id": id, "blobs": blobs, "bytes": bytes }));
        return Ok(());
    }
    out!("bundle    {}", out.display());
    out!("split id  {}", made.split_id.map_or("none".into(), |id| id.to_string()));
    out!("blobs     {} ({} bytes)", made.blobs, made.bytes);
    Ok(())
}

/// Measures the ranges that cuts of the spec lack.
fn measure_scales(
    spec: &mut Spec,
    path: &Path,
    model: &[u8],
    args: &SampleArgs,
) -> anyhow::Result<()> {
    let inputs = session::describe(model)?.inputs;
    let mut args = args.clone();
    // The spec is where a bundle says how a picture becomes an input.
    if args.preprocess.is_none() && spec.preprocess.is_some() {
        args.preprocess = Some(path.to_owned());
    }
    let samples = args.load(&inputs, None)?;
    let bar = progress::counting(0, "measuring scales");
    fill(spec, model, &samples, Fit::default(), &mut |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    Ok(())
}
