//! One `[[model]]` of a node's file: a bundle or a plain ONNX file, and what of it is run.

use std::path::Path;

use midspan_net::config::Problem;
use midspan_split::{Bundle, BundleError};

use super::{ModelSource, RawModel, Role, Run, segment};

impl RawModel {
    /// `signed` says that only what a trusted key signed may be loaded.
    pub(super) fn validate(
        self,
        key: &str,
        base: &Path,
        role: Role,
        signed: bool,
    ) -> Result<ModelSource, Problem> {
        if self.local_stages == Some(0) {
            return Err(Problem::new(format!("{key}.local_stages"), "must be at least 1"));
        }
        if self.variant.is_some() && role == Role::Cloud {
            let problem = "a cloud runs all stages as they were cut; remove this";
            return Err(Problem::new(format!("{key}.variant"), problem));
        }
        let run = Run { local_stages: self.local_stages, variant: self.variant.clone() };
        match (&self.bundle, &self.onnx) {
            (Some(_), Some(_)) => Err(Problem::new(key, "has both bundle and onnx; keep one")),
            (None, None) => Err(Problem::new(key, "needs bundle or onnx")),
            (Some(_), None) if self.name.is_some() => {
                Err(Problem::new(format!("{key}.name"), "a bundle has its own name; remove this"))
            }
            (Some(_), None) if self.version.is_some() => Err(Problem::new(
                format!("{key}.version"),
                "a bundle has its own version; remove this",
            )),
            (Some(bundle), None) if bundle == "embedded" => {
                run.check_variant(key, Bundle::embedded)?;
                Ok(ModelSource::Embedded { run })
            }
            (Some(bundle), None) => {
                let path = base.join(bundle);
                if !path.is_dir() {
                    let problem = format!("{} is no folder", path.display());
                    return Err(Problem::new(format!("{key}.bundle"), problem));
                }
                run.check_variant(key, || Bundle::open(&path))?;
                Ok(ModelSource::Bundle { path, run })
            }
            (None, Some(_)) if self.variant.is_some() => Err(Problem::new(
                format!("{key}.variant"),
                "an ONNX file has no variants; remove this, or make a bundle of it",
            )),
            (None, Some(_)) if signed => Err(Problem::new(
                format!("{key}.onnx"),
                "trusted_keys is set and an ONNX file cannot be signed; make a bundle of it",
            )),
            (None, Some(onnx)) => self.onnx(key, base.join(onnx)),
        }
    }

    fn onnx(&self, key: &str, path: std::path::PathBuf) -> Result<ModelSource, Problem> {
        if !path.is_file() {
            let problem = format!("{} is no file", path.display());
            return Err(Problem::new(format!("{key}.onnx"), problem));
        }
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let name = self.name.clone().or(stem).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Problem::new(format!("{key}.name"), "is needed"))?;
        segment(&name).map_err(|problem| Problem::new(format!("{key}.name"), problem))?;
        let version = self.version.clone().unwrap_or_else(|| "1".into());
        segment(&version).map_err(|problem| Problem::new(format!("{key}.version"), problem))?;
        Ok(ModelSource::Onnx { path, name, version })
    }
}

impl Run {
    /// Whether the bundle has the variant, where one is asked for.
    fn check_variant(
        &self,
        key: &str,
        open: impl FnOnce() -> Result<Bundle, BundleError>,
    ) -> Result<(), Problem> {
        let Some(name) = &self.variant else { return Ok(()) };
        let problem = |error: BundleError| match error {
            BundleError::NoPart { reason, .. } => {
                Problem::new(format!("{key}.variant"), format!("there is none: {reason}"))
            }
            other => Problem::new(format!("{key}.bundle"), other.to_string()),
        };
        let bundle = open().map_err(problem)?;
        let held = self.local_stages.unwrap_or(bundle.manifest().local_stages);
        bundle.check_variant(0..held.min(bundle.stages()), name).map_err(problem)
    }
}
