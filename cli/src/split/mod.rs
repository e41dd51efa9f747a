//! `midspan split`: divide models between sites, by measurement. One file per command.

mod bundle;
mod verify;

use clap::Subcommand;

use crate::runtime;

/// Divide models between sites: inspect, cut, verify and bundle them.
#[derive(Subcommand)]
pub(crate) enum Command {
    Bundle(bundle::Args),
    Verify(verify::Args),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    runtime::ensure()?;
    match command {
        Command::Bundle(args) => bundle::run(args),
        Command::Verify(args) => verify::run(args),
    }
}
