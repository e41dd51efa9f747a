//! `midspan split bundle show`: all that an operator may ask of a bundle.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args as ClapArgs;
use midspan_split::{
    Bundle,
    bundle::{BlobState, CertificateReport, Report, StageReport},
    manifest::{AppTensor, InnerTensor},
    sign::TrustedKey,
    stats,
};
use serde_json::{Value, json};

use super::bytes;
use crate::{open, progress, table};

/// Show a bundle: stages, cuts and split ids, exits, variants, certificates and whether they hold,
/// the signature, and whether every blob is what its name says; exit code 1 when one is not.
///
/// Example:  midspan split bundle show models/fashion
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The bundle's folder; the bundle inside the program without it.
    #[arg(value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// The folder may hold a part only: blobs that are not there are no damage.
    #[arg(long)]
    partial: bool,
    /// Public keys (PEM) of which one must have signed it.
    #[arg(long, value_name = "FILE")]
    trusted_key: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What is known of the signature.
enum Signature {
    Absent,
    /// There is one, and no key to check it with.
    Unchecked,
    By(String),
    Refused(String),
}

impl Signature {
    fn of(bundle: &Bundle, report: &Report, keys: &[TrustedKey]) -> Self {
        if keys.is_empty() {
            return if report.signed { Self::Unchecked } else { Self::Absent };
        }
        match bundle.signer(keys) {
            Ok(key) => Self::By(key.file.clone()),
            Err(error) => Self::Refused(error.to_string()),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Absent => "none".into(),
            Self::Unchecked => "there, not checked (--trusted-key FILE checks it)".into(),
            Self::By(file) => format!("by {file}"),
            Self::Refused(reason) => format!("refused: {reason}"),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Absent => json!({ "state": "absent" }),
            Self::Unchecked => json!({ "state": "unchecked" }),
            Self::By(file) => json!({ "state": "trusted", "key": file }),
            Self::Refused(reason) => json!({ "state": "refused", "reason": reason }),
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let bundle = open::bundle(args.bundle.as_ref())?;
    let keys = args.trusted_key.iter().map(|path| TrustedKey::read(path));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let bar = progress::counting(bundle.blobs().len() as u64, "checking blobs");
    let report = bundle.report(&mut |done, _| bar.set_position(done as u64));
    bar.finish_and_clear();
    let signature = Signature::of(&bundle, &report, &keys);
    let sound = report.sound(args.partial);
    if args.json {
        let mut value = serde_json::to_value(&report)?;
        value["signature"] = signature.json();
        value["sound"] = json!(sound);
        out!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        print(&report, &signature, args.partial);
    }
    if !sound {
        let place = args.bundle.as_ref().map_or("the bundle".into(), |p| p.display().to_string());
        let absent = |state: &BlobState| *state == BlobState::Absent;
        if report.sound(true) {
            let count = report.blobs.iter().filter(|blob| absent(&blob.state)).count();
            bail!("{place} lacks {count} blobs; --partial if it is meant to");
        }
        bail!("{place} is damaged");
    }
    if let Signature::Refused(reason) = signature {
        bail!("{reason}");
    }
    Ok(())
}

fn print(report: &Report, signature: &Signature, partial: bool) {
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let apps = |tensors: &[AppTensor]| {
        let text = |t: &AppTensor| format!("{} {} {:?}", t.name, t.datatype, t.shape);
        tensors.iter().map(text).collect::<Vec<_>>().join("; ")
    };
    let sound = report.blobs.iter().filter(|b| matches!(b.state, BlobState::Sound { .. })).count();
    let (count, size) = (report.blobs.len(), bytes(report.bytes()));
    let rows = [
        ("model", format!("{} version {}", report.name, report.version)),
        ("inputs", apps(&report.inputs)),
        ("outputs", apps(&report.outputs)),
        ("takes pictures", yes(report.pictures)),
        ("stateful", yes(report.stateful)),
        ("labels", report.labels.to_string()),
        ("labelled samples", yes(report.labelled)),
        ("stages on an edge", format!("{} of {}", report.local_stages, report.stages.len())),
        ("manifest", report.manifest.to_string()),
        ("signature", signature.text()),
        ("blobs", format!("{sound} of {count} sound, {size}")),
    ];
    let rows: Vec<_> = rows.map(|(key, value)| vec![key.to_owned(), value]).into();
    out!("{}", table::render(&["BUNDLE", ""], &rows));
    for (index, stage) in report.stages.iter().enumerate() {
        let head = format!("STAGE {index}");
        out!("\n{}", table::render(&[head.as_str(), ""], &of_stage(stage)));
    }
    let blobs: Vec<_> = report
        .blobs
        .iter()
        .map(|blob| {
            let (size, state) = match &blob.state {
                BlobState::Sound { bytes: size } => (bytes(*size), "sound".to_owned()),
                BlobState::Absent if partial => ("-".into(), "not here".into()),
                BlobState::Absent => ("-".into(), "MISSING".into()),
                BlobState::Damaged { bytes: size, got } => {
                    (bytes(*size), format!("DAMAGED: its sha256 is {got}"))
                }
                BlobState::Unreadable { reason } => ("-".into(), format!("UNREADABLE: {reason}")),
            };
            vec![blob.digest.to_string(), size, state, blob.keys.join(", ")]
        })
        .collect();
    out!("\n{}", table::render(&["BLOB", "SIZE", "STATE", "KEYS"], &blobs));
    if !report.certificates.is_empty() {
        let rows: Vec<_> = report.certificates.iter().map(of_certificate).collect();
        let head = ["CERTIFICATE", "VARIANT", "LOSS", "SAMPLES", "EARLY", "DATE", "HOLDS"];
        out!("\n{}", table::render(&head, &rows));
    }
}

fn inner(tensors: &[InnerTensor]) -> String {
    let text = |t: &InnerTensor| format!("{} {} {:?}", t.name, t.datatype, t.shape);
    tensors.iter().map(text).collect::<Vec<_>>().join("; ")
}

fn of_stage(stage: &StageReport) -> Vec<Vec<String>> {
    let here = |size: Option<u64>| size.map_or("not here".into(), bytes);
    let mut rows = vec![
        vec!["reads".into(), inner(&stage.inputs)],
        vec!["graph and weights".into(), here(stage.bytes)],
    ];
    let mut row = |key: &str, value: String| rows.push(vec![key.to_owned(), value]);
    if let Some(exit) = &stage.exit {
        let threshold = exit.threshold.map_or("always answers".into(), |threshold| {
            format!("answers from confidence {threshold:.3} on")
        });
        let head = if exit.head { ", head of its own" } else { "" };
        let (output, temperature) = (&exit.output, exit.temperature);
        row("exit", format!("{output}: {threshold}, temperature {temperature:.3}{head}"));
    }
    if let Some(cut) = &stage.cut {
        row("hands on", inner(&cut.tensors));
        row("split id", cut.split_id.map_or("none".into(), |id| id.to_string()));
        let allowed: Vec<_> = cut.allowed.iter().map(u8::to_string).collect();
        let scale = match cut.scales.as_slice() {
            [] => "no scale".to_owned(),
            [[lo, hi]] => format!("range {lo} to {hi}"),
            more => format!("{} ranges", more.len()),
        };
        let size = cut.elements.zip(cut.bits).map_or(String::new(), |(elements, bits)| {
            let packed = elements.saturating_mul(bits.into()).div_ceil(8);
            format!(", {} a row before entropy coding", bytes(packed))
        });
        let now = cut.bits.map_or("unquantised".into(), |bits| format!("{bits} bits"));
        let (codec, allowed) = (cut.codec, allowed.join(", "));
        row("codec", format!("version {codec}, {now} ({allowed} allowed), {scale}{size}"));
    }
    for variant in &stage.variants {
        let mut text = here(variant.bytes);
        if let Some(measured) = &variant.measured {
            let (samples, date) = (measured.samples, &measured.date);
            let share = |same: u64| {
                let lower = stats::lower_bound(same, samples, 0.95) * 100.0;
                format!("{same} of {samples} (at least {lower:.2} % with 95 % confidence)")
            };
            if let Some(same) = measured.agreeing {
                text.push_str(&format!(", same answer for {}", share(same)));
            }
            if let Some(same) = measured.exit_agreeing {
                text.push_str(&format!(", same exit for {}", share(same)));
            }
            text.push_str(&format!(", {}, {date}", measured.method));
        }
        row(&format!("variant {}", variant.name), text);
    }
    rows
}

fn of_certificate(report: &CertificateReport) -> Vec<String> {
    let found = &report.certificate;
    let loss = serde_json::to_value(found.loss).ok();
    let loss = loss.as_ref().and_then(Value::as_str).unwrap_or("loss").to_owned();
    let share = found.answered as f64 / found.samples.max(1) as f64 * 100.0;
    let (budget, confidence) = (found.budget * 100.0, found.confidence * 100.0);
    vec![
        report.cut.map_or("no cut".into(), |cut| format!("cut {cut} at {} bits", found.bits)),
        found.variant.clone(),
        format!("{loss} at most {budget:.2} % ({confidence:.0} %)"),
        found.samples.to_string(),
        format!("{share:.1} %"),
        found.date.clone(),
        if report.holds { "yes".into() } else { format!("no: {}", report.doubts.join("; ")) },
    ]
}
