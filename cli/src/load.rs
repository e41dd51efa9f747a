//! `midspan load`: drive a running system.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use http::Uri;
use midspan_load::{
    links::fetch_links,
    live::{LiveOptions, Protocol, run as drive},
    workload::{BodyForm, Labelled, Pace, Rate, Workload},
};
use midspan_net::tasks::stop_signal;
use midspan_protocol::ExitMode;
use midspan_split::Bundle;
use tokio_util::sync::CancellationToken;

use crate::{fetch, progress};

/// Load a running system and report what it answered.
#[derive(Subcommand)]
pub(crate) enum Command {
    Live(Args),
}

/// Drive a running system with labelled pictures: accuracy, share answered at the edge, bytes per
/// hard case on the uplink, latency by kind of answer.
///
/// Examples:
///   midspan load live --labelled models/fashion --requests 1000 --concurrency 8
///   midspan load live --labelled models/fashion --requests 2000 --rate 200 --json report.json
#[derive(Parser)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Folder of the bundle whose labelled samples are sent; the one inside the program without it.
    #[arg(long, value_name = "DIR")]
    labelled: Option<PathBuf>,
    /// Requests to send.
    #[arg(long, default_value_t = 1000)]
    requests: usize,
    /// Requests in flight: exactly in a closed loop, at most in an open one.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    concurrency: u64,
    /// Open loop: so many requests per second, latency counted from the intended send time.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Where requests go.
    #[arg(long, default_value = "http://127.0.0.1:8080", value_name = "URL")]
    endpoint: Uri,
    /// Where the emulated links' counters are; taken when it answers, unless it is named.
    #[arg(long, value_name = "URL")]
    links: Option<Uri>,
    /// HTTP version towards the endpoint.
    #[arg(long, default_value = "h1")]
    protocol: Http,
    /// Send JSON tensors instead of binary ones.
    #[arg(long)]
    json_tensors: bool,
    /// The early exit: `auto`, `never` or `force`.
    #[arg(long, value_parser = ["auto", "never", "force"])]
    exit: Option<String>,
    /// Order of the samples.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Patience with one request, milliseconds.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    timeout_ms: u64,
    /// Stop at the first error.
    #[arg(long)]
    fail_fast: bool,
    /// Also write the report as JSON; `-` prints it instead of the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// HTTP version.
#[derive(Clone, Copy, ValueEnum)]
enum Http {
    /// HTTP/1.1.
    H1,
    /// HTTP/2 with prior knowledge.
    H2,
}

/// Where `midspan up` serves its links.
const UP_LINKS: &str = "http://127.0.0.1:9091/links";

pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    let Command::Live(args) = command;
    let bundle = match &args.labelled {
        Some(folder) => Bundle::open(folder)?,
        None => Bundle::embedded()?,
    };
    let samples = bundle.labelled()?.context("the bundle has no labelled samples")?;
    let manifest = bundle.manifest();
    let input = &manifest.inputs.first().context("the bundle has no input")?.name;
    let form = if args.json_tensors { BodyForm::Json } else { BodyForm::Binary };
    let set = Labelled::of_samples(&samples, input.clone());
    let workload = Arc::new(Workload::new(&set, args.requests, args.seed, form)?);
    fetch::block_on(live(&args, manifest.name.clone(), workload))
}

async fn live(args: &Args, model: String, workload: Arc<Workload>) -> anyhow::Result<()> {
    let mut options = LiveOptions::new(fetch::join(&args.endpoint, "/")?, model);
    options.concurrency = usize::try_from(args.concurrency)?.try_into()?;
    options.timeout = Duration::from_millis(args.timeout_ms);
    options.protocol = match args.protocol {
        Http::H1 => Protocol::H1,
        Http::H2 => Protocol::H2,
    };
    options.keep_going = !args.fail_fast;
    options.exit = args.exit.as_deref().and_then(ExitMode::parse);
    if let Some(rate) = args.rate {
        let rate = Rate::per_second(rate);
        options.pace =
            Pace::Even(rate.context("--rate: between 1 per hour and 1000000 per second")?);
    }
    options.links = match &args.links {
        Some(uri) => Some(uri.clone()),
        None => {
            let uri: Uri = UP_LINKS.parse()?;
            fetch_links(&uri).await.is_ok().then_some(uri)
        }
    };
    let cancel = CancellationToken::new();
    let bar = progress::counting(workload.len() as u64, "requests");
    let show = |done: usize, errors: usize| {
        bar.set_position(done as u64);
        if errors > 0 {
            bar.set_message(format!("requests ({errors} failed)"));
        }
    };
    let driving = drive(Arc::clone(&workload), &options, &show, &cancel);
    let mut driving = std::pin::pin!(driving);
    let run = tokio::select! {
        biased;
        run = &mut driving => run,
        _signal = stop_signal() => {
            cancel.cancel();
            driving.await
        }
    };
    bar.finish_and_clear();
    let run = run?;
    match &args.json {
        Some(path) if path.as_os_str() == "-" => {
            out!("{}", serde_json::to_string_pretty(&run.report)?)
        }
        Some(path) => {
            fs::write(path, serde_json::to_string_pretty(&run.report)?)
                .with_context(|| path.display().to_string())?;
            out!("{}", run.report.render());
        }
        None => out!("{}", run.report.render()),
    }
    ensure!(run.report.answers > 0, "nothing was answered");
    if run.report.answers < run.report.requests {
        bail!(
            "{} of {} requests failed",
            run.report.requests - run.report.answers,
            run.report.requests
        );
    }
    Ok(())
}
