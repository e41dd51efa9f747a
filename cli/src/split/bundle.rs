//! `midspan split bundle`: make, show, compare, part and sign bundles. One file per command.

mod diff;
mod make;
mod show;
mod sign;
mod take;

use clap::Subcommand;

/// Make, show, compare, part and sign bundles.
#[derive(Subcommand)]
pub(crate) enum Command {
    Make(make::Args),
    Show(show::Args),
    Diff(diff::Args),
    Take(take::Args),
    Keygen(sign::KeygenArgs),
    Sign(sign::Args),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Make(args) => make::run(args),
        Command::Show(args) => show::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Take(args) => take::run(args),
        Command::Keygen(args) => sign::keygen(args),
        Command::Sign(args) => sign::run(args),
    }
}

/// Bytes for people.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..1_024 => format!("{count} B"),
        1_024..1_048_576 => format!("{:.1} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / 1_048_576.0),
    }
}
