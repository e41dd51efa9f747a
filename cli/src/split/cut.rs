//! `midspan split cut`: write the two halves of a model as ONNX files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Args as ClapArgs;
use midspan_split::cut::{Cut, MOST_TENSORS, Options, Types, cuts, halves};
use midspan_split::onnx::{self, FileError, Opened, Written};
use serde_json::{Value, json};

use crate::progress;

/// Write the front and the tail of a cut as ONNX files that run in any runtime. The front answers
/// the tensors of the cut, and those outputs of the model that do not follow from them; the tail
/// reads the tensors of the cut and answers the other outputs. Weights of large models go into a
/// file beside each half.
///
/// Example:  midspan split cut models/fashion.onnx --at /seg0/bott/Clip_output_0
///           midspan split cut models/fashion.onnx --all halves --tensors 2
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The model; weights that it keeps in other files are looked for beside it.
    model: PathBuf,
    /// The tensors to cut at; repeat for names with a comma in them.
    #[arg(long, value_name = "TENSOR[,TENSOR]", required_unless_present = "all")]
    at: Vec<String>,
    /// File of the front; MODEL.front.onnx without it.
    #[arg(long, value_name = "FILE", conflicts_with = "all")]
    front: Option<PathBuf>,
    /// File of the tail; MODEL.tail.onnx without it.
    #[arg(long, value_name = "FILE", conflicts_with = "all")]
    tail: Option<PathBuf>,
    /// Write the halves of every cut into this folder instead, numbered as `inspect` lists them.
    #[arg(long, value_name = "DIR", conflicts_with = "at")]
    all: Option<PathBuf>,
    /// With --all: cuts of up to this many tensors.
    #[arg(long, value_name = "K", default_value_t = 1, requires = "all",
          value_parser = clap::value_parser!(u8).range(1..=MOST_TENSORS as i64))]
    tensors: u8,
    /// Overwrite files.
    #[arg(long)]
    force: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let opened = onnx::open(&args.model)?;
    let types = Types::infer_in(&opened.model, &opened.folder, &[])
        .with_context(|| args.model.display().to_string())?;
    let source = Source { path: &args.model, opened, types, force: args.force };
    let halves = match &args.all {
        Some(folder) => source.write_all(folder, args.tensors.into())?,
        None => {
            let suffixed = |half: &str| args.model.with_extension(format!("{half}.onnx"));
            let front = args.front.clone().unwrap_or_else(|| suffixed("front"));
            let tail = args.tail.clone().unwrap_or_else(|| suffixed("tail"));
            vec![source.write(&source.named(&args.at), front, tail)?]
        }
    };
    if args.json {
        out!("{}", Value::from(halves.iter().map(Halves::as_json).collect::<Vec<_>>()));
    } else {
        for half in &halves {
            half.print();
        }
    }
    Ok(())
}

/// The two files of a cut.
struct Halves {
    cut: Cut,
    files: [(PathBuf, Written); 2],
}

impl Halves {
    fn as_json(&self) -> Value {
        let file = |(path, written): &(PathBuf, Written)| {
            let data = written.data.as_ref();
            json!({
                "file": path.display().to_string(),
                "bytes": written.bytes,
                "data": data.map(|(path, bytes)| {
                    json!({ "file": path.display().to_string(), "bytes": bytes })
                }),
            })
        };
        let [front, tail] = &self.files;
        json!({ "cut": self.cut.tensors, "front": file(front), "tail": file(tail) })
    }

    fn print(&self) {
        out!("cut    {}", self.cut.tensors.join(", "));
        for (half, (path, written)) in ["front", "tail"].iter().zip(&self.files) {
            out!("{half:<5}  {} ({} bytes)", path.display(), written.bytes);
            if let Some((path, bytes)) = &written.data {
                out!("       {} ({bytes} bytes)", path.display());
            }
        }
    }
}

struct Source<'a> {
    path: &'a Path,
    opened: Opened,
    types: Types,
    force: bool,
}

impl Source<'_> {
    /// The tensors that these arguments name: each is a name itself, or names between commas.
    fn named(&self, at: &[String]) -> Cut {
        let parts = |name: &String| -> Vec<String> {
            if self.types.get(name).is_ok() {
                return vec![name.clone()];
            }
            name.split(',').map(str::to_owned).collect()
        };
        Cut { tensors: at.iter().flat_map(parts).collect() }
    }

    fn write(&self, cut: &Cut, front: PathBuf, tail: PathBuf) -> anyhow::Result<Halves> {
        let (front_part, tail_part) = halves(&self.opened.model, &self.types, cut)?;
        let write = |part, path: PathBuf| -> anyhow::Result<(PathBuf, Written)> {
            anyhow::ensure!(
                !same(&path, self.path),
                "{} is the model itself: a half is not written over it",
                path.display()
            );
            let written = onnx::write(&part, &self.opened.folder, &path, self.force)?;
            Ok((path, written))
        };
        anyhow::ensure!(front != tail, "--front and --tail name the same file");
        self.refuse([&front, &tail])?;
        let front = write(front_part, front)?;
        Ok(Halves { cut: cut.clone(), files: [front, write(tail_part, tail)?] })
    }

    /// Nothing is written where some of it would be refused.
    fn refuse<'p>(&self, paths: impl IntoIterator<Item = &'p PathBuf>) -> anyhow::Result<()> {
        match paths.into_iter().find(|path| !self.force && path.exists()) {
            Some(path) => Err(FileError::Exists(path.clone()).into()),
            None => Ok(()),
        }
    }

    fn write_all(&self, folder: &Path, tensors: usize) -> anyhow::Result<Vec<Halves>> {
        let found = cuts(&self.opened.model, &self.types, &Options { tensors })?.found;
        anyhow::ensure!(!found.is_empty(), "{}: there is no cut", self.path.display());
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let width = found.len().to_string().len();
        let file = |index: usize, half: &str| folder.join(format!("{index:0width$}.{half}.onnx"));
        let both = |index: usize| [file(index, "front"), file(index, "tail")];
        self.refuse(&(0..found.len()).flat_map(both).collect::<Vec<_>>())?;
        let bar = progress::counting(found.len() as u64, "writing");
        let mut halves = Vec::new();
        for (index, found) in found.iter().enumerate() {
            let [front, tail] = both(index);
            halves.push(self.write(&found.cut, front, tail)?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(halves)
    }
}

fn same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
