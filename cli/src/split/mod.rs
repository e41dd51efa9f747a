//! `midspan split`: divide models between sites, by measurement. One file per command.

mod bundle;
mod calibrate;
mod cut;
mod exits;
mod fidelity;
mod inspect;
mod plan;
mod profile;
mod quantise;
mod samples;
mod verify;

use clap::Subcommand;

use crate::runtime;

/// Divide models between sites, by measurement.
#[derive(Subcommand)]
pub(crate) enum Command {
    Inspect(inspect::Args),
    Cut(cut::Args),
    Verify(verify::Args),
    Profile(profile::Args),
    Fidelity(fidelity::Args),
    Plan(plan::Args),
    #[command(subcommand)]
    Bundle(bundle::Command),
    Exits(exits::Args),
    Calibrate(calibrate::Args),
    Quantise(quantise::Args),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    // A plan is made of files alone; what of a bundle's commands runs models says so itself.
    if !matches!(command, Command::Plan(_) | Command::Profile(_) | Command::Bundle(_)) {
        runtime::ensure()?;
    }
    match command {
        Command::Inspect(args) => inspect::run(args),
        Command::Cut(args) => cut::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Fidelity(args) => fidelity::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Bundle(command) => bundle::run(command),
        Command::Exits(args) => exits::run(args),
        Command::Calibrate(args) => calibrate::run(args),
        Command::Quantise(args) => quantise::run(args),
    }
}
