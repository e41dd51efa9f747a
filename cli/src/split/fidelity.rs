//! `midspan split fidelity`: what would cross, and would the answers still be the same?

use std::{fs, num::NonZero, path::PathBuf, thread};

use anyhow::{Context, bail, ensure};
use clap::Args as ClapArgs;
use midspan_runtime::session;
use midspan_split::{
    Digest,
    candidate::{Candidate, Fidelity, InputForm, WirePrecision},
    fidelity::{self, Data, FORMAT, FidelityFile, Options, Phase, Rule},
    samples::{self, LoadOptions, Sample},
    scale::{Clip, Fit, Headroom, Unit},
};

use super::samples::SampleArgs;
use crate::{open, progress, table};

/// Of this many samples one is kept for the scales where they have no samples of their own.
const SHARE: usize = 4;

/// Measure what each way of offloading puts on the wire and how often its answer is the whole
/// model's: the input as tensor, as received, as WebP or JPEG, and the tensors of cuts at every
/// precision. The ranges of tensors are measured on samples that are not tested.
///
/// Example:  midspan split fidelity net.onnx --cut b3.0,b5.0 --samples pictures
///             --preprocess net.preprocess.toml --out fidelity.json
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The whole model.
    model: PathBuf,
    /// Tensors at which to divide.
    #[arg(long, value_name = "TENSOR", value_delimiter = ',')]
    cut: Vec<String>,
    /// Bits per element of quantised tensors: numbers and ranges. Raw and half precision are
    /// always measured.
    #[arg(long, default_value = "1-8", value_parser = ranges)]
    bits: Numbers,
    /// Qualities of JPEG.
    #[arg(long, default_value = "75,90,98", value_parser = ranges)]
    jpeg: Numbers,
    #[command(flatten)]
    samples: SampleArgs,
    /// Samples for the scales, read as the others are; without it every fourth of the others,
    /// which is then not tested.
    #[arg(long, value_name = "PATH")]
    calibration: Option<PathBuf>,
    /// What shares a scale: all values of the tensor, those of a channel, or those of a channel in
    /// one frame, which then carries its scales.
    #[arg(long, value_enum, default_value_t)]
    scales: Scales,
    /// Values outside of a scale: none of those seen, a share of them on each side (such as 0.001),
    /// or least-error, which weighs what is cut off against the smaller steps.
    #[arg(long, default_value = "none", value_parser = clip, value_name = "none|SHARE|least-error")]
    clip: Clip,
    /// Widens each scale by this share of its width on both sides, for what the samples of the
    /// scales do not show.
    #[arg(long, default_value = "0", value_parser = headroom, value_name = "SHARE")]
    headroom: Headroom,
    /// Answers agree when no value differs by more than this; without it, when the class is the
    /// same.
    #[arg(long, value_name = "DIFFERENCE")]
    within: Option<f32>,
    /// The smallest activation is named whose agreement is at least this at 95 % confidence.
    #[arg(long, value_name = "SHARE", default_value_t = 0.99)]
    at_least: f64,
    /// Samples that run at once; without it, as many as there are cores.
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// File for the result, as the planner reads it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What shares a scale.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq)]
enum Scales {
    #[default]
    Tensor,
    Channel,
    Frame,
}

/// Numbers of a list such as `1-4,8`.
#[derive(Clone, Debug)]
struct Numbers(Vec<u8>);

fn ranges(text: &str) -> Result<Numbers, String> {
    let mut numbers = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let number =
            |text: &str| text.parse::<u8>().map_err(|_| format!("\"{text}\" is no number"));
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("\"{part}\" is empty"));
        }
        numbers.extend(first..=last);
    }
    Ok(Numbers(numbers))
}

fn clip(text: &str) -> Result<Clip, String> {
    match text {
        "none" => Ok(Clip::Nothing),
        "least-error" => Ok(Clip::LeastError),
        _ => match text.parse() {
            Ok(share) if (0.0..0.5).contains(&share) => Ok(Clip::Tails(share)),
            _ => Err("must be none, least-error, or a share below 0.5".into()),
        },
    }
}

fn headroom(text: &str) -> Result<Headroom, String> {
    let share = text.parse().ok().and_then(Headroom::new);
    share.ok_or_else(|| "must be a share of 0 to 4".into())
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let options = options(args)?;
    ensure!((0.0..=1.0).contains(&args.at_least), "--at-least must be 0 to 1");
    if let Some(out) = &args.out {
        open::refuse_same(&args.model, out)?;
    }
    let model = fs::read(&args.model).with_context(|| args.model.display().to_string())?;
    let inputs =
        session::describe(&model).with_context(|| args.model.display().to_string())?.inputs;
    let preprocess = args.samples.preprocess(None)?;
    let all = args.samples.load(&inputs, None)?;
    let (calibration, tested) = match &args.calibration {
        Some(path) => {
            let options = LoadOptions { preprocess: preprocess.as_ref(), ..Default::default() };
            (samples::load(path, &inputs, &options, &mut |_, _| {})?, all)
        }
        None if args.scales == Scales::Frame => (vec![], all),
        None => divided(all),
    };
    ensure!(!tested.is_empty(), "one sample is too few: some are needed for the scales");
    let scales = progress::counting(0, "measuring scales");
    let bar = progress::counting(0, "running candidates");
    let data =
        Data { samples: &tested, calibration: &calibration, preprocess: preprocess.as_ref() };
    let measured = fidelity::measure(&model, data, &options, &|phase, done, all| {
        let bar = if phase == Phase::Scales { &scales } else { &bar };
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    scales.finish_and_clear();
    bar.finish_and_clear();
    let measured = measured.with_context(|| args.model.display().to_string())?;
    let file = FidelityFile {
        format: FORMAT,
        model: Digest::of(&model),
        samples: Some(samples::digest(&tested)),
        calibration: (!calibration.is_empty()).then(|| samples::digest(&calibration)),
        fidelity: measured.fidelity.clone(),
        scales: measured.scales.clone(),
    };
    let json = serde_json::to_string_pretty(&file)?;
    if let Some(out) = &args.out {
        fs::write(out, format!("{json}\n")).with_context(|| out.display().to_string())?;
    }
    if args.json {
        out!("{json}");
        return Ok(());
    }
    print(&file, &measured.refused, args.at_least);
    out!("{} samples, scales from {} others", tested.len(), calibration.len());
    Ok(())
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let Numbers(bits) = &args.bits;
    if let Some(wrong) = bits.iter().find(|bits| !(1..=8).contains(*bits)) {
        bail!("--bits {wrong}: bits must be 1 to 8");
    }
    let quality = args.jpeg.0.iter().find(|quality| !(1..=100).contains(*quality));
    ensure!(quality.is_none(), "--jpeg: qualities are 1 to 100");
    ensure!(args.within.is_none_or(|most| most >= 0.0), "--within must not be negative");
    let mut inputs = vec![InputForm::Tensor, InputForm::Received, InputForm::WebpLossless];
    inputs.extend(args.jpeg.0.iter().map(|quality| InputForm::Jpeg(*quality)));
    let mut precisions = vec![WirePrecision::Raw, WirePrecision::Half];
    precisions.extend(bits.iter().map(|bits| WirePrecision::Bits(*bits)));
    let cores = thread::available_parallelism().ok();
    let fit = |unit| Some(Fit { unit, clip: args.clip, headroom: args.headroom });
    Ok(Options {
        inputs,
        cuts: args.cut.clone(),
        precisions,
        fit: match args.scales {
            Scales::Tensor => fit(Unit::Tensor),
            Scales::Channel => fit(Unit::Channel),
            Scales::Frame => None,
        },
        rule: args.within.map_or(Rule::SameClass, Rule::Within),
        threads: args.threads.or(cores).map_or(1, NonZero::get),
    })
}

/// Every fourth sample for the scales, and the others.
fn divided(samples: Vec<Sample>) -> (Vec<Sample>, Vec<Sample>) {
    let (mut calibration, mut tested) = (Vec::new(), Vec::new());
    for (index, sample) in samples.into_iter().enumerate() {
        let set = if index % SHARE == 0 { &mut calibration } else { &mut tested };
        set.push(sample);
    }
    (calibration, tested)
}

fn print(file: &FidelityFile, refused: &[(Candidate, String)], at_least: f64) {
    let lossless = Candidate::Input { form: InputForm::WebpLossless };
    let lossless = file.fidelity.iter().find(|entry| entry.candidate == lossless);
    let of_lossless = |entry: &Fidelity| {
        lossless.map_or(String::new(), |all| format!("{:.3}", entry.bytes / all.bytes.max(1.0)))
    };
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let rows = file.fidelity.iter().map(|entry| {
        vec![
            name(&entry.candidate),
            format!("{:.0}", entry.bytes),
            entry.bytes_p95.to_string(),
            of_lossless(entry),
            format!("{} of {}", entry.agreeing, entry.samples),
            percent(entry.agreeing as f64 / entry.samples.max(1) as f64),
            percent(entry.agreement_lower),
        ]
    });
    let head = ["WHAT CROSSES", "BYTES", "95TH", "OF WEBP", "AGREE", "SHARE", "95 % BOUND"];
    out!("{}", table::render(&head, &rows.collect::<Vec<_>>()));
    for (candidate, reason) in refused {
        out!("not measured: {candidate}: {reason}");
    }
    let bound = percent(at_least);
    match file.smallest(at_least) {
        Some(entry) => out!(
            "smallest activation with a bound of at least {bound}: {}, {:.0} bytes{}",
            name(&entry.candidate),
            entry.bytes,
            lossless
                .map_or(String::new(), |_| format!(", {} of lossless WebP", of_lossless(entry)))
        ),
        None => out!("no activation has a bound of at least {bound}"),
    }
}

/// A candidate in few words.
fn name(candidate: &Candidate) -> String {
    match candidate {
        Candidate::Input { form } => format!("input, {form}"),
        Candidate::Activation { cut, precision, .. } => format!("{cut}, {precision}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges_are_read() {
        let numbers = |text| ranges(text).map(|numbers| numbers.0);
        assert_eq!(numbers("1-3, 8"), Ok(vec![1, 2, 3, 8]));
        assert_eq!(numbers(""), Ok(vec![]));
        assert!(numbers("3-1").is_err() && numbers("a").is_err() && numbers("1-300").is_err());
        assert_eq!(clip("0.001"), Ok(Clip::Tails(0.001)));
        assert!(clip("0.5").is_err() && clip("some").is_err());
    }
}
