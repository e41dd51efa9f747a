//! `midspan node`: one node from a configuration file.

use std::path::PathBuf;

use clap::Parser;
use midspan_net::{config, telemetry};

use crate::stop::{Stop, stopped};

/// Run one node, edge or cloud.
///
/// Example:  midspan node -c configs/edge-a.toml
#[derive(Parser)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Configuration file (docs/CONFIG.md).
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    stop: Stop,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    telemetry::init_logs(args.stop.json_logs);
    let config = config::load::<midspan_node::RawConfig>(&args.config)?;
    crate::runtime::ensure()?;
    let name = config.name.clone();
    let from_stdin = args.stop.until_stdin_closes;
    midspan_node::run(config, stopped(from_stdin), |addr| {
        out!("midspan node {name} listening on {addr}");
    })?;
    Ok(())
}
