//! `midspan runtime`: the ONNX Runtime library.

use std::path::PathBuf;

use clap::Subcommand;
use indicatif::ProgressBar;
use midspan_runtime::{LibraryError, Progress, install, library};

use crate::progress;

/// Install or show ONNX Runtime.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Fetch the library from PyPI with pip into the user's cache, checked by hash.
    ///
    /// Example:  midspan runtime install
    #[command(verbatim_doc_comment)]
    Install,
    /// Say which library would be used, and what it is.
    ///
    /// Example:  midspan runtime show
    #[command(verbatim_doc_comment)]
    Show,
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Install => out!("{}", installed()?.display()),
        Command::Show => {
            let path = library::find()?;
            library::open(&path)?;
            out!("path     {}", path.display());
            out!("version  {}", library::VERSION);
            out!("build    {}", library::build_info().unwrap_or("unknown"));
        }
    }
    Ok(())
}

/// The library's path, installed with a progress bar where a machine has none.
pub(crate) fn ensure() -> anyhow::Result<PathBuf> {
    match library::find() {
        Ok(path) => Ok(path),
        Err(LibraryError::NotFound { .. }) => {
            let version = library::VERSION;
            crate::say(format_args!("ONNX Runtime {version} is not on this machine; fetching it"));
            installed()
        }
        Err(error) => Err(error.into()),
    }
}

fn installed() -> anyhow::Result<PathBuf> {
    let mut bar: Option<ProgressBar> = None;
    let mut unpacking = false;
    let path = install(&mut |step| match step {
        Progress::Downloading { bytes } => {
            bar.get_or_insert_with(|| progress::unknown("downloading")).set_position(bytes);
        }
        Progress::Unpacking { bytes, total } => {
            if !std::mem::replace(&mut unpacking, true) {
                let old = bar.replace(progress::bytes(total, "unpacking"));
                old.into_iter().for_each(|old| old.finish_and_clear());
            }
            if let Some(bar) = &bar {
                bar.set_position(bytes);
            }
        }
        Progress::Done { .. } => bar.iter().for_each(ProgressBar::finish_and_clear),
    })?;
    Ok(path)
}
