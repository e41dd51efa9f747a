//! `midspan split profile`: how long the halves of a model take on this device.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail, ensure};
use clap::Args as ClapArgs;
use midspan_split::profile::{
    Part, Profile, Slowdown,
    measure::{Request, Wanted, measure},
};
use midspan_split::{manifest::PLAIN, profile::PartTime};

use crate::{open, progress, runtime, table};

/// Time a model, its fronts, its tails, the codec and pictures on this device, and write a profile
/// that `split plan` reads, here or elsewhere.
///
/// Runs are interleaved, one thread each, as nodes run them. A cut that is not timed is placed
/// between its neighbours by the planner.
///
/// Example:  midspan split profile models/fashion.onnx --out edge.json
/// Example:  midspan split profile net.onnx --cuts 16 --variant int8=net.int8.onnx --out edge.json
/// Example:  midspan split profile --show edge.json
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The whole model.
    #[arg(required_unless_present = "show")]
    model: Option<PathBuf>,
    /// The profile to write.
    #[arg(long, value_name = "FILE", required_unless_present = "show")]
    out: Option<PathBuf>,
    /// Print this profile instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "out"])]
    show: Option<PathBuf>,
    /// Cuts to time: `all`, how many evenly over the model's work, or tensors.
    #[arg(long, value_delimiter = ',', default_value = "12", value_name = "all|K|TENSOR")]
    cuts: Vec<String>,
    /// Rows of a run; those above 1 are left out for a model of a fixed batch.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    batch: Vec<usize>,
    /// Another way to run the model or its fronts: a name and a file with the same tensor names.
    #[arg(long, value_name = "NAME=FILE")]
    variant: Vec<String>,
    /// Bits on the wire at which the codec is timed, beside raw and half precision.
    #[arg(long, value_delimiter = ',', default_value = "4,8")]
    bits: Vec<u8>,
    /// Runs of each part that count.
    #[arg(long, default_value_t = 30)]
    runs: usize,
    /// Stand in for a device so many times slower: every run holds its core that much longer.
    #[arg(long, default_value_t = 1.0, value_name = "K")]
    slowdown: f64,
    /// A picture, or a folder of them, whose writing as WebP and JPEG is timed; a made-up one
    /// without it.
    #[arg(long, value_name = "PATH")]
    pictures: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(path) = &args.show {
        return show(&Profile::read(path)?, args.json);
    }
    let (Some(model), Some(out)) = (&args.model, &args.out) else { bail!("MODEL and --out") };
    runtime::ensure()?;
    open::refuse_same(model, out)?;
    let bytes = fs::read(model).with_context(|| model.display().to_string())?;
    let slowdown = Slowdown::new(args.slowdown)
        .with_context(|| format!("--slowdown {}: must be 1 to 1000", args.slowdown))?;
    ensure!(args.bits.iter().all(|bits| (1..=8).contains(bits)), "--bits: must be 1 to 8");
    let variants = variants(&args.variant)?;
    let pictures = args.pictures.as_deref().map_or(Ok(vec![]), files)?;
    let request = Request {
        model: &bytes,
        variants: &variants,
        cuts: wanted(&args.cuts)?,
        batches: &args.batch,
        bits: &args.bits,
        runs: args.runs,
        slowdown,
        pictures: &pictures,
        date: &today()?,
    };
    let bar = progress::counting(1, "timing");
    let profile = measure(&request, &mut |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let profile = profile.with_context(|| model.display().to_string())?;
    profile.write(out)?;
    show(&profile, args.json)?;
    let disturbed = profile.disturbed() * 100.0;
    if disturbed > 10.0 {
        crate::say(format_args!(
            "the runs of {disturbed:.0} % of the parts differ by more than a fifth: the device was \
             busy; measure again when it is not"
        ));
    }
    Ok(())
}

fn wanted(cuts: &[String]) -> anyhow::Result<Wanted> {
    let [only] = cuts else { return Ok(Wanted::Named(cuts.to_vec())) };
    if only == "all" {
        return Ok(Wanted::All);
    }
    Ok(match only.parse() {
        Ok(0) => bail!("--cuts 0: at least 1"),
        Ok(count) => Wanted::Evenly(count),
        Err(_) => Wanted::Named(cuts.to_vec()),
    })
}

fn variants(texts: &[String]) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut variants: Vec<(String, Vec<u8>)> = Vec::new();
    for text in texts {
        let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, file) =
            parts.with_context(|| format!("--variant {text}: NAME=FILE is expected"))?;
        let taken = name == PLAIN || variants.iter().any(|(other, _)| other == name);
        ensure!(!taken, "--variant {text}: the name {name} is taken");
        variants.push((name.to_owned(), fs::read(file).with_context(|| file.to_owned())?));
    }
    Ok(variants)
}

/// The file, or the files of the folder in their order by name.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let name = || path.display().to_string();
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).with_context(name)? {
        files.push(entry.with_context(name)?.path());
    }
    files.retain(|file| file.is_file());
    files.sort();
    ensure!(!files.is_empty(), "{}: the folder is empty", path.display());
    Ok(files)
}

/// The day in UTC, `YYYY-MM-DD`.
fn today() -> anyhow::Result<String> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is wrong")?;
    Ok(day((seconds.as_secs() / 86_400) as i64))
}

/// The date of a day after 1970-01-01 in the Gregorian calendar, years beginning in March.
fn day(days: i64) -> String {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

fn show(profile: &Profile, json: bool) -> anyhow::Result<()> {
    if json {
        out!("{}", serde_json::to_string(profile)?);
        return Ok(());
    }
    let device = &profile.device;
    out!("model     {}", profile.model.sha256);
    out!("device    {}, {} cores, {} {}", device.cpu, device.cores, device.arch, device.os);
    out!("runtime   ONNX Runtime {}", device.onnx_runtime);
    out!("date      {}", profile.date);
    if profile.slowdown > 1.0 {
        out!("slowdown  {} times", profile.slowdown);
    }
    out!("cuts      {}\n", profile.cuts.len());
    let share = |cut: &str| {
        let found = profile.cuts.iter().find(|known| known.tensor == cut);
        found.map_or(0.0, |known| known.front_share)
    };
    let row = |timed: &PartTime| {
        let (part, work) = match &timed.part {
            Part::Whole => ("whole".to_owned(), 1.0),
            Part::Front { cut } => (format!("front to {cut}"), share(cut)),
            Part::Tail { cut } => (format!("tail from {cut}"), 1.0 - share(cut)),
        };
        let time = &timed.time;
        vec![
            part,
            timed.variant.clone(),
            timed.batch.to_string(),
            format!("{:.0} %", work * 100.0),
            format!("{:.1}", time.median_us),
            format!("{:.1}", time.p95_us),
            format!("{:.1} %", time.spread() * 100.0),
        ]
    };
    let rows: Vec<Vec<String>> = profile.parts.iter().map(row).collect();
    let head = ["PART", "VARIANT", "ROWS", "WORK", "MEDIAN US", "P95 US", "SPREAD"];
    out!("{}", table::render(&head, &rows));
    let codec = profile.codec.iter().map(|entry| {
        (format!("{} at {}", entry.cut, entry.precision), &entry.encode, &entry.decode)
    });
    let pictures =
        profile.pictures.iter().map(|entry| (entry.form.to_string(), &entry.encode, &entry.decode));
    let rows: Vec<Vec<String>> = codec
        .chain(pictures)
        .map(|(what, encode, decode)| {
            let us = |us: f64| format!("{us:.1}");
            vec![what, us(encode.median_us), us(decode.median_us)]
        })
        .collect();
    if !rows.is_empty() {
        out!("\n{}", table::render(&["ON THE WIRE", "WRITE US", "READ US"], &rows));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        assert_eq!(day(0), "1970-01-01");
        assert_eq!(day(11_016), "2000-02-29");
        assert_eq!(day(20_787), "2026-11-30");
    }

    #[test]
    fn cuts_are_all_some_or_named() {
        let wanted = |text: &str| {
            wanted(&text.split(',').map(str::to_owned).collect::<Vec<_>>())
                .map_err(|e| e.to_string())
        };
        assert_eq!(wanted("all"), Ok(Wanted::All));
        assert_eq!(wanted("7"), Ok(Wanted::Evenly(7)));
        assert_eq!(wanted("a,b"), Ok(Wanted::Named(vec!["a".into(), "b".into()])));
        assert_eq!(wanted("0"), Err("--cuts 0: at least 1".into()));
    }
}
