//! `midspan split calibrate`: thresholds of exits whose loss keeps a budget, with certificates.

use std::{collections::BTreeMap, fs, path::PathBuf, time::SystemTime};

use anyhow::Context;
use clap::{Args as ClapArgs, ValueEnum};
use midspan_split::{
    Bundle, Manifest,
    answers::{Answers, Subject, answers},
    calibrate::{self, Budget, Calibrated, Measured, Setting},
    manifest::{InnerTensor, Loss, PLAIN},
    rewrite::rewrite,
    samples::{self, Sample},
};
use serde_json::json;

use super::samples::SampleArgs;
use crate::{open::bundle, progress, table};

/// Set the thresholds of a bundle's exits so that their loss keeps a budget, with a stated
/// confidence over the draw of the samples, and write the certificates into a new bundle. Split
/// ids stay as they are. Exit code 1, and no bundle, when nothing can be certified.
///
/// The samples must be drawn as requests will be, and must be new to the model, its exits and
/// their temperatures. Thresholds are certified by testing 1.000, 0.999, ... in this order, each
/// with an exact binomial test, up to the first that fails (Learn then Test, arXiv:2110.01052).
///
/// Example:  midspan split calibrate --model models/fashion.onnx --samples t10k-images-idx3-ubyte.gz \
///           --labels t10k-labels-idx1-ubyte.gz --limit 5000 --budget 0.01 --out fashion-certified
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The bundle's folder; the bundle inside the program without it.
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// The whole model; without it the bundle's stages, nothing quantised between them, stand for
    /// it.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    #[command(flatten)]
    given: SampleArgs,
    /// Most that the mean loss per request may be.
    #[arg(long, value_name = "SHARE", default_value_t = 0.01)]
    budget: f64,
    /// Probability that it is not more.
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    confidence: f64,
    /// What counts as a loss.
    #[arg(long, value_enum, default_value_t = Aim::Disagreement)]
    loss: Aim,
    /// Variant of the stages that the edge runs.
    #[arg(long, value_name = "NAME", default_value = PLAIN)]
    variant: String,
    /// Stages that the edge runs; what the bundle says without it.
    #[arg(long, value_name = "N")]
    local_stages: Option<usize>,
    /// Fit the exits' temperatures anew on a fifth of the samples, and certify on the others.
    #[arg(long)]
    refit_temperature: bool,
    /// Day of the certificates; today without it.
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    date: Option<String>,
    /// Folder of the new bundle; replaced when it holds one.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Aim {
    /// An exit answers and its class is not the whole model's.
    Disagreement,
    /// An exit answers wrong where the whole model is right; needs labels.
    Label,
    /// Both; as disagreement, which is never less, but needs labels.
    Both,
}

fn day(text: &str) -> Result<String, String> {
    let parsed = humantime::parse_rfc3339(&format!("{text}T00:00:00Z"));
    parsed.map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn today() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.chars().take("YYYY-MM-DD".len()).collect()
}

/// Heads may have been trained on the labelled samples of their bundle, which then promise nothing.
fn refuse_used(args: &Args, bundle: &Bundle) -> anyhow::Result<()> {
    let mut exits = bundle.manifest().stages.iter().filter_map(|stage| stage.exit.as_ref());
    let own = args.given.samples.is_none() && args.given.random.is_none();
    anyhow::ensure!(
        !(own && exits.any(|exit| exit.head.is_some())),
        "the bundle has trained heads, perhaps trained on its own labelled samples: give others by \
         --samples PATH"
    );
    Ok(())
}

/// A label that is no class would never count as a loss.
fn refuse_classes(bundle: &Bundle, samples: &[Sample]) -> anyhow::Result<()> {
    let classes = bundle.manifest().outputs.first().and_then(|output| output.shape.last());
    let Some(classes) = classes.and_then(|count| usize::try_from(*count).ok()) else {
        return Ok(());
    };
    for (index, sample) in samples.iter().enumerate() {
        if let Some(label) = sample.label.filter(|label| *label >= classes) {
            anyhow::bail!("sample {index} has the label {label} of {classes} classes");
        }
    }
    Ok(())
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // All that can be refused is refused before the samples are run, which takes long.
    let budget = Budget::new(args.budget, args.confidence)?;
    let bundle = bundle(args.bundle.as_ref())?;
    let inputs = bundle.manifest().stages.first().map(|stage| stage.inputs.as_slice());
    let inputs: Vec<_> = inputs.unwrap_or_default().iter().filter_map(InnerTensor::spec).collect();
    let mut chosen = args.given.load(&inputs, Some(&bundle))?;
    let local_stages = args.local_stages.unwrap_or(bundle.manifest().local_stages);
    let cut = bundle.manifest().last_cut(local_stages);
    let cut = cut.context("--local-stages must be at least 1, of a bundle that has a cut")?;
    let unlabelled = chosen.iter().position(|sample| sample.label.is_none());
    if let (Aim::Label | Aim::Both, Some(index)) = (args.loss, unlabelled) {
        anyhow::bail!("--loss label and both need labels: sample {index} has none");
    }
    refuse_used(args, &bundle)?;
    refuse_classes(&bundle, &chosen)?;
    calibrate::enough(chosen.len() as u64, budget)?;
    let mut found = answer(args, &bundle, cut, &chosen)?;
    let mut manifest = bundle.manifest().clone();
    if args.refit_temperature {
        let refitted = calibrate::refit(&manifest, &found, args.given.seed);
        chosen = refitted.left.iter().filter_map(|index| chosen.get(*index).cloned()).collect();
        (manifest, found) = (refitted.manifest, refitted.answers);
    }
    let loss = if args.loss == Aim::Label { Loss::Label } else { Loss::Disagreement };
    let calibrated = calibrate::calibrate(&calibrate::rows(&manifest, &found), budget, loss)?;
    let date = args.date.clone().unwrap_or_else(today);
    let data = samples::digest(&chosen);
    let setting = Setting { cut, variant: &args.variant, data, date: &date };
    let manifest = calibrate::certified(&manifest, &calibrated, &setting);
    let manifest = manifest.context("the bundle has no such cut")?;
    let written = rewrite(&bundle, manifest, BTreeMap::new(), &args.out)?;
    report(args, cut, written.manifest(), &calibrated);
    Ok(())
}

fn answer(args: &Args, bundle: &Bundle, cut: usize, chosen: &[Sample]) -> anyhow::Result<Answers> {
    let read = |path: &PathBuf| fs::read(path).with_context(|| path.display().to_string());
    let whole = args.model.as_ref().map(read).transpose()?;
    let whole = whole.as_deref();
    let subject = Subject { bundle, whole, variant: &args.variant, cut };
    let bar = progress::counting(chosen.len() as u64, "answering");
    let found = answers(&subject, chosen, &mut |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    Ok(found?)
}

fn loss_name(loss: Loss) -> &'static str {
    match loss {
        Loss::Disagreement => "disagreement",
        Loss::Label => "label",
    }
}

fn report(args: &Args, cut: usize, manifest: &Manifest, found: &Calibrated) {
    let threshold = f64::from(found.threshold_milli) / 1000.0;
    let samples = found.samples as f64;
    let answered = found.answered as f64 / samples;
    let split_id = manifest.split_id(cut).map(|id| id.to_string()).unwrap_or_default();
    let exits = manifest.stages.iter().take(cut + 1).filter_map(|stage| stage.exit.as_ref());
    let temperatures: Vec<f64> =
        exits.map(|exit| f64::from(exit.temperature_milli) / 1000.0).collect();
    if args.json {
        let report = json!({
            "split_id": split_id,
            "cut": cut,
            "variant": args.variant,
            "samples": found.samples,
            "budget": args.budget,
            "confidence": args.confidence,
            "temperatures": temperatures,
            "threshold": threshold,
            "answered": found.answered,
            "answered_share": answered,
            "answered_share_lower": found.share.0,
            "answered_share_upper": found.share.1,
            "losses": found.measured.iter().map(|one| loss_json(one, samples)).collect::<Vec<_>>(),
            "out": args.out,
        });
        return out!("{report}");
    }
    let (low, high) = (percent(found.share.0), percent(found.share.1));
    let mut rows = vec![
        vec!["split id".into(), split_id],
        vec!["variant".into(), args.variant.clone()],
        vec!["samples".into(), found.samples.to_string()],
        vec!["temperatures".into(), format!("{temperatures:?}")],
        vec!["threshold".into(), format!("{threshold:.3}")],
        vec!["answered at an exit".into(), format!("{} ({low} to {high})", percent(answered))],
    ];
    for one in &found.measured {
        let observed = percent(one.losses as f64 / samples);
        let bound = match one.certified {
            true => format!("certified: at most {}", percent(args.budget)),
            false => format!("not certified: up to {}", percent(one.upper)),
        };
        let sure = percent(args.confidence);
        let text = format!("{observed} observed; {bound} with {sure} confidence");
        rows.push(vec![format!("loss by {}", loss_name(one.loss)), text]);
    }
    rows.push(vec!["bundle".into(), args.out.display().to_string()]);
    out!("{}", table::render(&["MEASURE", "VALUE"], &rows));
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn loss_json(one: &Measured, samples: f64) -> serde_json::Value {
    json!({
        "loss": loss_name(one.loss),
        "losses": one.losses,
        "observed": one.losses as f64 / samples,
        "upper": one.upper,
        "p_value": one.p_value,
        "certified": one.certified,
    })
}
