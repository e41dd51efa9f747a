//! What the types of a manifest leave open: every value that makes no sense is refused by its key.

use super::*;

fn fault(key: impl Into<String>, reason: impl Into<String>) -> ManifestError {
    ManifestError::Value { key: key.into(), reason: reason.into() }
}

fn require(holds: bool, key: impl Into<String>, reason: &str) -> Result<(), ManifestError> {
    if holds { Ok(()) } else { Err(fault(key, reason)) }
}

impl Manifest {
    /// Checks every value that the types leave open.
    ///
    /// # Errors
    /// The first that makes no sense, by its key.
    pub fn validate(&self) -> Result<(), ManifestError> {
        require(self.format == FORMAT, "format", "this version reads format 1 only")?;
        require(is_path_part(&self.name), "name", "must be 1 to 128 of A-Z a-z 0-9 . _ -")?;
        require(is_path_part(&self.version), "version", "must be 1 to 128 of A-Z a-z 0-9 . _ -")?;
        require(self.platform == PLATFORM, "platform", "must be onnx_onnxv1")?;
        for (key, list) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            require(!list.is_empty(), key, "must not be empty")?;
            for (index, tensor) in list.iter().enumerate() {
                let key = format!("{key}[{index}]");
                require(!tensor.name.is_empty(), &key, "name is empty")?;
                require(tensor.spec().is_some(), key, "datatype or shape is not one of OIP")?;
            }
        }
        require((1..=64).contains(&self.stages.len()), "stages", "must be 1 to 64")?;
        let local = self.local_stages >= 1 && self.local_stages <= self.stages.len();
        require(local, "local_stages", "must be at least 1 and at most the number of stages")?;
        for (index, stage) in self.stages.iter().enumerate() {
            self.validate_stage(index, stage)?;
        }
        // A class is an index into the last dimension of the logits.
        let classes = self.outputs.first().and_then(|output| output.shape.last());
        let fixed = classes.and_then(|count| usize::try_from(*count).ok());
        let named = self.labels.is_empty() || fixed.is_none_or(|count| count == self.labels.len());
        require(named, "labels", "must be as many as the first output has classes")?;
        for (index, certificate) in self.certificates.iter().enumerate() {
            let share = |value: f64| (0.0..=1.0).contains(&value);
            let key = format!("certificates[{index}]");
            require(share(certificate.budget), format!("{key}.budget"), "must be 0 to 1")?;
            require(share(certificate.confidence), format!("{key}.confidence"), "must be 0 to 1")?;
            let counts = certificate.losses <= certificate.answered
                && certificate.answered <= certificate.samples;
            require(counts, key, "has more losses than answers, or more answers than samples")?;
        }
        if let Some(preprocess) = &self.preprocess {
            preprocess.validate().map_err(|reason| fault("preprocess", reason))?;
        }
        Ok(())
    }

    fn validate_stage(&self, index: usize, stage: &Stage) -> Result<(), ManifestError> {
        let key = |rest: &str| format!("stages[{index}].{rest}");
        let sound = |tensors: &[InnerTensor]| {
            !tensors.is_empty() && tensors.iter().all(|tensor| tensor.spec().is_some())
        };
        require(sound(&stage.inputs), key("inputs"), "empty, or a datatype or shape not of OIP")?;
        let last = index + 1 == self.stages.len();
        require(last != stage.cut.is_some(), key("cut"), "all stages but the last have a cut")?;
        if let Some(cut) = &stage.cut {
            require(sound(&cut.tensors), key("cut.tensors"), "empty, or a shape not of OIP")?;
            let next = &self.stages[index + 1].inputs;
            require(
                *next == cut.tensors,
                key("cut.tensors"),
                "differ from the next stage's inputs",
            )?;
            cut.codec.validate(&cut.tensors).map_err(|reason| fault(key("cut.codec"), reason))?;
        }
        for (at, variant) in stage.variants.iter().enumerate() {
            let key = key(&format!("variants[{at}].name"));
            require(is_path_part(&variant.name) && variant.name != PLAIN, &key, "is no free name")?;
            let twice = stage.variants[..at].iter().any(|other| other.name == variant.name);
            require(!twice, key, "is there twice")?;
        }
        if let Some(exit) = &stage.exit {
            let temperature = (1..=1_000_000).contains(&exit.temperature_milli);
            require(temperature, key("exit.temperature_milli"), "must be 1 to 1000000")?;
            let threshold = exit.threshold_milli.is_none_or(|milli| milli <= 1000);
            require(threshold, key("exit.threshold_milli"), "must be at most 1000")?;
        }
        Ok(())
    }
}

impl CodecSpec {
    fn validate(&self, tensors: &[InnerTensor]) -> Result<(), String> {
        if self.version != codec::VERSION {
            return Err(format!("version must be {}", codec::VERSION));
        }
        if !self.allowed.contains(&self.bits) {
            return Err("bits must be one of allowed".into());
        }
        if !self.allowed.iter().all(|bits| matches!(bits, 1..=8 | &HALF_BITS | &RAW_BITS)) {
            return Err("allowed must be 1 to 8 bits, 16 or 32".into());
        }
        let counts = [0, tensors.len(), units(tensors)];
        if !counts.contains(&self.scales.len()) {
            return Err("scales must be none, one per tensor or one per channel".into());
        }
        match self.scales.iter().find(|scale| scale.parse().is_none()) {
            Some(scale) => Err(format!("scale {scale:?} is no finite range, low to high")),
            None => Ok(()),
        }
    }
}

/// How many scales the only tensor of a cut may have at most.
fn units(tensors: &[InnerTensor]) -> usize {
    let [tensor] = tensors else { return 0 };
    let row = tensor.shape.iter().skip(1).map(|size| usize::try_from(*size).ok());
    row.collect::<Option<Vec<_>>>().map_or(0, |row| codec::units(&row).into())
}

/// Whether text may stand in a request path as it is.
fn is_path_part(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(allowed) && text != "." && text != ".."
}
