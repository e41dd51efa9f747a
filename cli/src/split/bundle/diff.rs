//! `midspan split bundle diff`: what differs between two bundles, by what has to be done about it.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args as ClapArgs;
use midspan_split::{
    Bundle,
    bundle::{Change, changes},
};
use serde_json::{Value, json};

/// Compare two bundles: what differs, and who must get the new one; exit code 1 when anything
/// does. Manifests are compared, which name every blob by its content.
///
/// Example:  midspan split bundle diff models/fashion fashion-recalibrated
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Folder of the first bundle.
    #[arg(value_name = "A")]
    before: PathBuf,
    /// Folder of the second bundle.
    #[arg(value_name = "B")]
    after: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Characters of a value that are shown.
const SHOWN: usize = 64;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (before, after) = (Bundle::open(&args.before)?, Bundle::open(&args.after)?);
    let (found, ids) = changes(before.manifest(), after.manifest())?;
    // The same fields may be written in other bytes, and a signature is of the bytes.
    let bytes = before.manifest_bytes() == after.manifest_bytes();
    let signature = before.signature()? == after.signature()?;
    if args.json {
        let same = json!({ "manifest_bytes": bytes, "signature": signature });
        let value = json!({ "changes": found, "split_ids": ids, "same": same });
        out!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        print(&found);
        for (cut, ids) in ids.iter().enumerate().filter(|(_, ids)| ids.before != ids.after) {
            let text = |id: Option<_>| {
                id.map_or("none".into(), |id: midspan_split::SplitId| id.to_string())
            };
            out!("split id of cut {cut}");
            out!("  - {}", text(ids.before));
            out!("  + {}", text(ids.after));
        }
        if found.is_empty() && !bytes {
            out!("the manifests say the same in other bytes");
        }
        if !signature {
            out!("the signatures differ");
        }
    }
    if !found.is_empty() || !bytes || !signature {
        bail!("{} and {} differ", args.before.display(), args.after.display());
    }
    Ok(())
}

fn print(changes: &[Change]) {
    for group in changes.chunk_by(|a, b| a.consequence == b.consequence) {
        out!("{}", group.first().map_or("", |change| change.consequence.text()));
        for Change { key, before, after, .. } in group {
            out!("  {key}: {} -> {}", shown(before.as_ref()), shown(after.as_ref()));
        }
    }
}

fn shown(value: Option<&Value>) -> String {
    let text = value.map_or("nothing".into(), Value::to_string);
    if text.chars().count() <= SHOWN {
        return text;
    }
    text.chars().take(SHOWN).chain("...".chars()).collect()
}
