//! `midspan config`: check files, print schemas, render the reference.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use midspan_net::config::load;
#[cfg(feature = "router")]
use midspan_net::config::markdown;
use schemars::{Schema, schema_for};

/// Check configuration files or print their schema.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Check files without starting anything; exit code 64 when one cannot be used.
    ///
    /// Example:  midspan config check configs/*.toml
    #[command(verbatim_doc_comment)]
    Check {
        /// Router or node files; a file with [[node]] is a router's, one with [[model]] a node's.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Print the JSON schema of a kind of file.
    ///
    /// Example:  midspan config schema node > node.schema.json
    #[command(verbatim_doc_comment)]
    Schema {
        /// Which kind.
        kind: Kind,
    },
    /// Print docs/CONFIG.md.
    #[cfg(feature = "router")]
    #[command(hide = true)]
    Docs,
}

/// A kind of configuration file.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Kind {
    /// A router's.
    #[cfg(feature = "router")]
    Router,
    /// A node's.
    Node,
}

impl Kind {
    fn schema(self) -> Schema {
        match self {
            #[cfg(feature = "router")]
            Self::Router => schema_for!(midspan_router::RawConfig),
            Self::Node => schema_for!(midspan_node::RawConfig),
        }
    }
}

pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Check { files } => {
            // Every file is looked at; all but the last problem are said on the way.
            let problems = files.iter().filter_map(|file| check(file).err());
            match problems.reduce(|first, next| {
                crate::say(format_args!("{}", crate::describe(&first)));
                next
            }) {
                Some(problem) => Err(problem),
                None => Ok(()),
            }
        }
        Command::Schema { kind } => {
            out!("{}", serde_json::to_string_pretty(&kind.schema())?);
            Ok(())
        }
        #[cfg(feature = "router")]
        Command::Docs => {
            out!("{}", docs().trim_end());
            Ok(())
        }
    }
}

fn check(file: &Path) -> anyhow::Result<()> {
    if is_routers(file)? {
        #[cfg(feature = "router")]
        load::<midspan_router::RawConfig>(file)?;
        #[cfg(not(feature = "router"))]
        anyhow::bail!("{}: a router's file, and this program has no router", file.display());
    } else {
        load::<midspan_node::RawConfig>(file)?;
    }
    out!("{}: ok", file.display());
    Ok(())
}

/// A file with [[node]] is a router's, one with [[model]] a node's; of one with neither its name
/// decides.
fn is_routers(file: &Path) -> anyhow::Result<bool> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let has = |table: &str| text.lines().any(|line| line.trim() == table);
    Ok(has("[[node]]") || (!has("[[model]]") && file.to_string_lossy().contains("router")))
}

/// The configuration reference.
#[cfg(feature = "router")]
fn docs() -> String {
    let router = markdown("Router", &Kind::Router.schema());
    let node = markdown("Node", &Kind::Node.schema());
    format!(
        "# Configuration\n\n\
         Files are TOML; an unknown key is an error, and so is a value without its unit. A file that\n\
         cannot be used is refused before any port is bound: exit code 64, and a message with file,\n\
         line, key and value. `midspan config check FILE` checks without starting,\n\
         `midspan config schema router|node` prints a JSON schema. Examples: `configs/`.\n\n\
         This page is printed by `midspan config docs`; a test compares.\n\n{router}\n{node}"
    )
}
