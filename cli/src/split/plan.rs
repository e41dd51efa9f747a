//! `midspan split plan`: what should cross a link, if anything.

use std::{fs, path::PathBuf};

use anyhow::{Context, bail, ensure};
use clap::{Args as ClapArgs, ValueEnum};
use midspan_split::candidate::Fidelity;
use midspan_split::fidelity::FidelityFile;
use midspan_split::plan::{
    Bounds, Costs, ExitShare, Goal, Heads, Inputs, Link, Load, Plan, Planned, State, link, report,
};
use midspan_split::profile::Profile;
use serde_json::json;

use crate::{open, table};

/// Compare every way to answer a request (the whole model on the edge, sending the input, sending
/// the tensor of a cut) on one or more links, and recommend one; exit code 1 when nothing keeps the
/// bounds on some link.
///
/// Agreement counts by its lower bound at 95 % confidence. Without --fidelity, activations are
/// planned as they are and in half precision only, and pictures are not.
///
/// Example:  midspan split plan --edge edge.json --cloud cloud.json --fidelity fidelity.json
/// Example:  midspan split plan --edge edge.json --cloud cloud.json --link up=5Mbps,down=20Mbps,rtt=40ms
/// Example:  midspan split plan --edge edge.json --cloud cloud.json --link trace.csv --report plan.html
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Profile of the edge device.
    #[arg(long, value_name = "FILE")]
    edge: PathBuf,
    /// Profile of the cloud machine.
    #[arg(long, value_name = "FILE")]
    cloud: PathBuf,
    /// What `split fidelity` measured of the model.
    #[arg(long, value_name = "FILE")]
    fidelity: Option<PathBuf>,
    /// A link: 3g, 4g, wifi; pairs such as up=5Mbps,down=20Mbps,rtt=40ms,loss=0.5%,start=slow; both
    /// (4g,rtt=80ms); or a trace with columns seconds, up_mbps, down_mbps, rtt_ms, loss_percent.
    #[arg(long, value_name = "LINK", default_values_t = link::PRESETS.map(str::to_owned))]
    link: Vec<String>,
    /// Least agreement with the whole model, 0 to 1.
    #[arg(long, default_value_t = 0.99)]
    min_agreement: f64,
    /// What the best is best in.
    #[arg(long, value_enum, default_value_t = By::Latency)]
    goal: By,
    /// Most latency, milliseconds.
    #[arg(long, value_name = "MS")]
    max_latency: Option<f64>,
    /// Most bytes of a request towards the cloud.
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<f64>,
    /// Most time of the edge's CPU for a request, milliseconds.
    #[arg(long, value_name = "MS")]
    max_edge: Option<f64>,
    /// Share of requests that an exit at the cut (or at every cut) answers, with the share of all
    /// requests that it may answer otherwise than the whole model, as its certificate says.
    #[arg(long, value_name = "[CUT=]SHARE[@LOSS]")]
    exit_share: Vec<String>,
    /// The edge is so many times slower than where its profile was made.
    #[arg(long, default_value_t = 1.0, value_name = "K")]
    edge_slowdown: f64,
    /// Share of time that the edge is busy otherwise.
    #[arg(long, default_value_t = 0.0)]
    edge_load: f64,
    /// Share of time that the cloud is busy otherwise.
    #[arg(long, default_value_t = 0.0)]
    cloud_load: f64,
    /// Rows of a request; one of the batches of both profiles.
    #[arg(long, default_value_t = 1)]
    rows: usize,
    /// Candidates to print for each link; the Pareto set is always printed.
    #[arg(long, default_value_t = 12)]
    top: usize,
    /// Write an HTML report with pictures.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What the best is best in.
#[derive(Clone, Copy, ValueEnum)]
enum By {
    /// Least latency.
    Latency,
    /// Fewest bytes towards the cloud.
    Bytes,
    /// Least time of the edge's CPU.
    EdgeWork,
}

/// Heads of HTTP/2 between nodes, after the first request of a connection.
const HEADS: Heads = Heads { up: 120.0, down: 120.0 };

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (edge, cloud) = (Profile::read(&args.edge)?, Profile::read(&args.cloud)?);
    let fidelity = fidelity(args, &edge)?;
    let exits =
        args.exit_share.iter().map(|text| exit(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let inputs = Inputs {
        edge: &edge,
        cloud: &cloud,
        fidelity: &fidelity,
        edge_slowdown: args.edge_slowdown,
        rows: args.rows,
        load: Load { edge: args.edge_load, cloud: args.cloud_load },
        exits: &exits,
        heads: HEADS,
    };
    let bounds = Bounds {
        min_agreement: args.min_agreement,
        max_latency_us: args.max_latency.map(|ms| ms * 1e3),
        max_uplink_bytes: args.max_bytes,
        max_edge_us: args.max_edge.map(|ms| ms * 1e3),
    };
    ensure!(
        (0.0..=1.0).contains(&bounds.min_agreement),
        "--min-agreement {}: must be 0 to 1",
        bounds.min_agreement
    );
    let goal = match args.goal {
        By::Latency => Goal::Latency,
        By::Bytes => Goal::Bytes,
        By::EdgeWork => Goal::EdgeWork,
    };
    let most = [
        ("--max-latency", args.max_latency),
        ("--max-bytes", args.max_bytes),
        ("--max-edge", args.max_edge),
    ];
    for (flag, value) in most {
        ensure!(value.is_none_or(|most| most > 0.0), "{flag} must be above 0");
    }
    if let Some(report) = &args.report {
        for read in [Some(&args.edge), Some(&args.cloud), args.fidelity.as_ref()] {
            read.map_or(Ok(()), |read| open::refuse_same(read, report))?;
        }
    }
    let costs = Costs::of(&inputs)?;
    let mut plans: Vec<(f64, Plan)> = Vec::new();
    for text in &args.link {
        for State { link, seconds } in states(text)? {
            plans.push((seconds, costs.on(&link, goal, &bounds)));
        }
    }
    if let Some(path) = &args.report {
        // A trace has more states than anyone reads pictures of.
        let shown: Vec<Plan> = plans.iter().take(8).map(|(_, plan)| plan.clone()).collect();
        let page = report::html(&inputs, &costs, &shown)?;
        fs::write(path, page).with_context(|| path.display().to_string())?;
    }
    print(args, &plans)?;
    let without: Vec<&str> = plans
        .iter()
        .filter(|(_, plan)| plan.verdict.candidate().is_none())
        .map(|(_, plan)| plan.link.name.as_str())
        .collect();
    ensure!(without.is_empty(), "nothing keeps the bounds on: {}", without.join(", "));
    Ok(())
}

fn fidelity(args: &Args, edge: &Profile) -> anyhow::Result<Vec<Fidelity>> {
    let Some(path) = &args.fidelity else { return Ok(vec![]) };
    let file = FidelityFile::read(path)?;
    ensure!(
        file.model == edge.model.sha256,
        "{} is of the model {}, {} of {}",
        path.display(),
        file.model,
        args.edge.display(),
        edge.model.sha256
    );
    Ok(file.fidelity)
}

/// A link, or the states of a trace's file.
fn states(text: &str) -> anyhow::Result<Vec<State>> {
    if text.to_ascii_lowercase().ends_with(".csv") {
        let trace = fs::read_to_string(text).with_context(|| text.to_owned())?;
        return link::trace(&trace).with_context(|| text.to_owned());
    }
    let link: Link = text.parse().with_context(|| format!("--link {text}"))?;
    Ok(vec![State { link, seconds: 1.0 }])
}

fn exit(text: &str) -> anyhow::Result<ExitShare> {
    let (cut, rest) = match text.rsplit_once('=') {
        Some((cut, rest)) => (Some(cut.to_owned()), rest),
        None => (None, text),
    };
    let (share, loss) = rest.split_once('@').unwrap_or((rest, "0"));
    let number = |part: &str| part.parse::<f64>().ok().filter(|value| (0.0..=1.0).contains(value));
    let (Some(share), Some(loss)) = (number(share), number(loss)) else {
        bail!("--exit-share {text}: [CUT=]SHARE[@LOSS] is expected, both numbers 0 to 1");
    };
    Ok(ExitShare { cut, share, loss })
}

fn print(args: &Args, plans: &[(f64, Plan)]) -> anyhow::Result<()> {
    if args.json {
        let plan = |(seconds, plan): &(f64, Plan)| json!({ "seconds": seconds, "plan": plan });
        out!("{}", json!({ "links": plans.iter().map(plan).collect::<Vec<_>>() }));
        return Ok(());
    }
    if plans.len() > 8 {
        summary_of_trace(plans);
        return Ok(());
    }
    for (index, (_, plan)) in plans.iter().enumerate() {
        if index > 0 {
            out!("");
        }
        out!("{}\n{}", plan.link, report::summary(plan));
        let shown = |(index, planned): &(usize, &Planned)| *index < args.top || planned.pareto;
        let rows =
            plan.candidates.iter().enumerate().filter(shown).map(|(_, planned)| row(planned));
        let head = ["CANDIDATE", "LATENCY MS", "BYTES UP", "EDGE MS", "AGREEMENT", "PARETO", ""];
        out!("{}", table::render(&head, &rows.collect::<Vec<_>>()));
    }
    Ok(())
}

fn row(planned: &Planned) -> Vec<String> {
    vec![
        planned.candidate.to_string(),
        format!("{:.2}{}", planned.latency_us / 1e3, if planned.timed { "" } else { " ~" }),
        format!("{:.0}", planned.uplink_bytes),
        format!("{:.2}", planned.edge_us / 1e3),
        report::agreement(&planned.agreement),
        if planned.pareto { "yes" } else { "" }.to_owned(),
        planned.fate.to_string(),
    ]
}

/// What is best for which share of the time.
fn summary_of_trace(plans: &[(f64, Plan)]) {
    let all: f64 = plans.iter().map(|(seconds, _)| seconds).sum();
    let mut times: Vec<(String, f64)> = Vec::new();
    for (seconds, plan) in plans {
        let verdict = plan.verdict.to_string();
        match times.iter_mut().find(|(known, _)| *known == verdict) {
            Some((_, time)) => *time += seconds,
            None => times.push((verdict, *seconds)),
        }
    }
    times.sort_by(|a, b| b.1.total_cmp(&a.1));
    let rows = times
        .into_iter()
        .map(|(verdict, time)| vec![verdict, format!("{:.1} %", time / all * 100.0)]);
    out!("{}", table::render(&["BEST", "OF THE TIME"], &rows.collect::<Vec<_>>()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_of_a_cut_or_of_all() {
        let parsed = |text| exit(text).map_err(|error| error.to_string());
        let share =
            |cut: Option<&str>, share, loss| ExitShare { cut: cut.map(str::to_owned), share, loss };
        assert_eq!(parsed("0.8"), Ok(share(None, 0.8, 0.0)));
        assert_eq!(parsed("/a/b=c=0.8@0.01"), Ok(share(Some("/a/b=c"), 0.8, 0.01)));
        for bad in ["", "x", "1.5", "a=0.5@2"] {
            assert!(parsed(bad).unwrap_err().starts_with("--exit-share"), "{bad}");
        }
    }
}
