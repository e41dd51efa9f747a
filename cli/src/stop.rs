//! What makes a long-running process drain.

use midspan_net::tasks::stop_signal;
use tokio::io::AsyncReadExt;

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
