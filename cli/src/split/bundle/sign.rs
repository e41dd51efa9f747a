//! `midspan split bundle keygen` and `sign`: whose bundles a node loads.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Args as ClapArgs;
use midspan_split::{
    Bundle,
    sign::{PrivateKey, SIGNATURE},
};
use serde_json::json;

/// Make a pair of Ed25519 keys: the private one in the file named, only for its owner to read, the
/// public one beside it as `.pub.pem`. OpenSSL's keys serve as well:
/// openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out key.pub.pem
///
/// Example:  midspan split bundle keygen --out key.pem
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct KeygenArgs {
    /// File of the private key; never replaced.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Sign a bundle's manifest, and with it, through their digests, all blobs: writes manifest.sig.
/// Nodes whose file lists the public key in `trusted_keys` load no other bundles.
///
/// Example:  midspan split bundle sign fashion --key key.pem
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The bundle's folder.
    #[arg(value_name = "DIR")]
    bundle: PathBuf,
    /// File of the private key.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn keygen(args: &KeygenArgs) -> anyhow::Result<()> {
    let public = args.out.with_extension("pub.pem");
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).context("the system gives no random numbers")?;
    let key = PrivateKey::from_seed(seed);
    write_new(&args.out, 0o600, key.to_pem()?.as_ref())?;
    if let Err(error) = write_new(&public, 0o644, &key.public().to_pem()?) {
        // Half a pair helps nobody, and would be in the way of the next attempt.
        let _stays = fs::remove_file(&args.out);
        return Err(error);
    }
    let id = key.public().id();
    if args.json {
        out!("{}", json!({ "private": args.out, "public": public, "id": id }));
        return Ok(());
    }
    out!("private  {}", args.out.display());
    out!("public   {}", public.display());
    out!("id       {id}");
    Ok(())
}

fn write_new(path: &Path, mode: u32, text: &str) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let file = options.open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let bundle = Bundle::open(&args.bundle)?;
    let key = PrivateKey::read(&args.key)?;
    let path = args.bundle.join(SIGNATURE);
    let failed = || format!("cannot write {}", path.display());
    // In one step: a node may be reading.
    let mut file = tempfile::Builder::new()
        .prefix(".signature-")
        .tempfile_in(&args.bundle)
        .with_context(failed)?;
    file.write_all(&key.sign(bundle.manifest_bytes())).with_context(failed)?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(readable).with_context(failed)?;
    file.persist(&path).with_context(failed)?;
    let id = key.public().id();
    if args.json {
        out!("{}", json!({ "signature": path, "key": id }));
    } else {
        out!("signed  {}", path.display());
        out!("key     {id}");
    }
    Ok(())
}
