//! `midspan split bundle take`: the part of a bundle that a node runs.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use midspan_split::bundle::Part;
use serde_json::json;

use super::bytes;
use crate::open;

/// Copy a part of a bundle: the whole manifest with its signature, and only the blobs of the stages
/// that a node runs. An edge needs no more than its own stages.
///
/// Example:  midspan split bundle take models/fashion --stages 1 --out fashion-edge
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The bundle's folder.
    #[arg(value_name = "DIR")]
    bundle: PathBuf,
    /// Take this many stages from the first on; the number that an edge runs by default without it.
    #[arg(long, value_name = "N", conflicts_with = "tail")]
    stages: Option<usize>,
    /// Take all stages after the first N instead.
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    /// Take stages in this variant alone, where they have it; in all without it.
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Take the labelled samples too.
    #[arg(long)]
    labelled: bool,
    /// Folder of the part; replaced when it holds a bundle.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let bundle = open::bundle(Some(&args.bundle))?;
    open::refuse_same(&args.bundle, &args.out)?;
    let part = match (args.tail, args.stages) {
        (Some(after), _) => Part::After(after),
        (None, Some(stages)) => Part::First(stages),
        (None, None) => Part::First(bundle.manifest().local_stages),
    };
    let taken = bundle.take(part, args.variant.as_deref(), args.labelled, &args.out)?;
    let (blobs, size, left) = (taken.blobs, taken.bytes, taken.left);
    if args.json {
        out!("{}", json!({ "bundle": args.out, "blobs": blobs, "bytes": size, "left": left }));
    } else {
        out!("{}: {blobs} blobs, {}; {left} left behind", args.out.display(), bytes(size));
    }
    Ok(())
}
