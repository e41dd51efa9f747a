//! `midspan split bundle`: make bundles.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Args as ClapArgs;
use midspan_split::{make::make, spec::Spec};

/// Make a bundle from a whole ONNX model and a spec file.
///
/// Example:  midspan split bundle models/fashion.onnx --spec models/fashion.toml --out models/fashion
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The whole model.
    model: PathBuf,
    /// Names, cuts, exits, preprocessing and labels (models/fashion.toml is an example).
    #[arg(long, value_name = "FILE")]
    spec: PathBuf,
    /// Folder of the bundle; replaced when it holds one.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Args { model, spec, out } = args;
    let bytes = fs::read(model).with_context(|| model.display().to_string())?;
    let base = spec.parent().unwrap_or(Path::new("."));
    let made = make(&bytes, &Spec::read(spec)?, base, out)?;
    out!("bundle    {}", out.display());
    out!("split id  {}", made.split_id.map_or("none".into(), |id| id.to_string()));
    out!("blobs     {} ({} bytes)", made.blobs, made.bytes);
    Ok(())
}
