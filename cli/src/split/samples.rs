//! The flags by which commands are told what to measure on, the same for all of them.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use midspan_runtime::{Dim, TensorSpec};
use midspan_split::preprocess::Preprocess;
use midspan_split::samples::{self, LoadOptions, Sample};
use midspan_split::{Bundle, Manifest};

use crate::progress;

/// What to run a model on.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Samples")]
pub(crate) struct SampleArgs {
    /// Samples: a folder of pictures (sub-folders named by numbers give classes), an .npy or .npz,
    /// idx images, or a folder of ONNX test data sets.
    #[arg(long, value_name = "PATH")]
    pub(crate) samples: Option<PathBuf>,
    /// Classes of the samples: an .npy of integers or idx labels.
    #[arg(long, value_name = "FILE", requires = "samples")]
    pub(crate) labels: Option<PathBuf>,
    /// How a picture becomes the model's input: a TOML file with the keys of `preprocess`, or a
    /// spec of a bundle; a bundle's own without it.
    #[arg(long, value_name = "FILE", requires = "samples")]
    pub(crate) preprocess: Option<PathBuf>,
    /// This many samples of random numbers.
    #[arg(long, value_name = "N", conflicts_with = "samples")]
    pub(crate) random: Option<usize>,
    /// Shape of an input for random samples, where the model leaves it open; an input without it
    /// has 1 in each open dimension. Repeatable.
    #[arg(long, value_name = "INPUT=1x3x224x224", requires = "random")]
    pub(crate) shape: Vec<String>,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Most samples to take, evenly over the set.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

impl SampleArgs {
    /// The samples, at least one, for a model with these inputs: as the flags say, else the
    /// labelled set of the bundle.
    pub(crate) fn load(
        &self,
        inputs: &[TensorSpec],
        bundle: Option<&Bundle>,
    ) -> anyhow::Result<Vec<Sample>> {
        ensure!(self.limit != Some(0) && self.random != Some(0), "at least 1 sample is needed");
        if let Some(count) = self.random {
            return Ok(samples::random(&shaped(inputs, &self.shape)?, count, self.seed)?);
        }
        let Some(path) = &self.samples else {
            let labelled = bundle.map(Bundle::labelled).transpose()?.flatten();
            let (Some(labelled), [input]) = (labelled, inputs) else {
                bail!("there are no samples: give --samples PATH or --random N");
            };
            let all = samples::of_labelled(&labelled, &input.name);
            let count = self.limit.unwrap_or(all.len());
            return Ok(samples::spread(all, count));
        };
        let preprocess = self.preprocess(bundle.map(Bundle::manifest))?;
        let (labels, preprocess) = (self.labels.as_deref(), preprocess.as_ref());
        let options = LoadOptions { labels, preprocess, limit: self.limit };
        let bar = progress::counting(0, "reading samples");
        let samples = samples::load(path, inputs, &options, &mut |done, all| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        });
        bar.finish_and_clear();
        Ok(samples?)
    }

    /// How pictures become inputs: of the flag, else of the bundle.
    pub(crate) fn preprocess(
        &self,
        manifest: Option<&Manifest>,
    ) -> anyhow::Result<Option<Preprocess>> {
        match &self.preprocess {
            Some(file) => Ok(Some(samples::read_preprocess(file)?)),
            None => Ok(manifest.and_then(|manifest| manifest.preprocess.clone())),
        }
    }
}

/// The inputs with their open dimensions as the flags say.
fn shaped(inputs: &[TensorSpec], shapes: &[String]) -> anyhow::Result<Vec<TensorSpec>> {
    let mut inputs = inputs.to_vec();
    for text in shapes {
        let wrong = || format!("--shape {text}: not an input and its sizes, such as x=1x3x224x224");
        let (name, sizes) = text.rsplit_once('=').with_context(wrong)?;
        let sizes: Vec<usize> =
            sizes.split('x').map(str::parse).collect::<Result<_, _>>().with_context(wrong)?;
        let Some(input) = inputs.iter_mut().find(|input| input.name == name) else {
            let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
            bail!("--shape {text}: the model has no input \"{name}\"; its inputs are {names:?}");
        };
        let dims = input.dims_text();
        ensure!(input.admits(&sizes), "--shape {text}: input \"{name}\" has shape {dims}");
        input.dims = sizes.into_iter().map(Dim::Fixed).collect();
    }
    Ok(inputs)
}
