//! `midspan router`: one router from a configuration file.

use std::path::PathBuf;

use clap::Parser;
use midspan_net::{config, tasks::stop_signal, telemetry};
use tokio::io::AsyncReadExt;

/// Run one router.
///
/// Example:  midspan router -c configs/router.toml
#[derive(Parser)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Configuration file (docs/CONFIG.md).
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    stop: Stop,
}

/// Options of a long-running process.
#[derive(clap::Args)]
pub(crate) struct Stop {
    /// Log as JSON lines. `MIDSPAN_LOG` filters, for example `MIDSPAN_LOG=debug`.
    #[arg(long)]
    pub(crate) json_logs: bool,
    /// Also drain and end when standard input closes, so that a parent's death ends this process.
    #[arg(long, hide = true)]
    pub(crate) until_stdin_closes: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    telemetry::init_logs(args.stop.json_logs);
    let config = config::load::<midspan_router::RawConfig>(&args.config)?;
    let name = config.name.clone();
    let from_stdin = args.stop.until_stdin_closes;
    midspan_router::run(config, stopped(from_stdin), move |apps, admin| {
        out!("midspan router {name} listening on {apps} admin {admin}");
    })?;
    Ok(())
}

/// Resolves when the process should drain.
pub(crate) async fn stopped(from_stdin: bool) {
    let closed = async {
        if !from_stdin {
            return std::future::pending().await;
        }
        let mut input = tokio::io::stdin();
        let mut rest = [0_u8; 64];
        while input.read(&mut rest).await.is_ok_and(|read| read > 0) {}
    };
    tokio::select! {
        biased;
        signal = stop_signal() => match signal {
            Ok(name) => tracing::info!(signal = name, "stopping"),
            Err(error) => tracing::error!(%error, "no signal handler; stopping"),
        },
        () = closed => tracing::info!("standard input closed; stopping"),
    }
}
