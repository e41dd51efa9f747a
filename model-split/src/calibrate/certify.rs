//! Writing what was found into a manifest: the threshold of the exits, and a certificate for each
//! loss and each number of bits on the wire. It changes nothing that a split id covers.

use super::{Calibrated, METHOD};
use crate::codec::Precision;
use crate::digest::Digest;
use crate::manifest::{Certificate, Manifest};

/// What was measured, and on what.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The cut whose exits were measured: those of stages 0 to `cut`.
    pub cut: usize,
    /// The variant of the stages.
    pub variant: &'a str,
    /// SHA-256 over the samples.
    pub data: Digest,
    /// Day of the measurement, `YYYY-MM-DD`.
    pub date: &'a str,
}

/// The manifest with the threshold and certificates of `found`, which take the place of those for
/// the same cut, variant, bits and loss; none where there is no such cut. Others that do not hold
/// for the new threshold are left out when it is written ([`crate::rewrite::rewrite`]).
pub fn certified(
    manifest: &Manifest,
    found: &Calibrated,
    setting: &Setting<'_>,
) -> Option<Manifest> {
    let Setting { cut, variant, data, date } = *setting;
    let mut manifest = manifest.clone();
    let split_id = manifest.split_id(cut)?;
    for exit in manifest.stages.iter_mut().take(cut + 1).filter_map(|stage| stage.exit.as_mut()) {
        exit.threshold_milli = Some(found.threshold_milli);
    }
    let (heads, thresholds_milli) = (manifest.heads(cut), manifest.thresholds_milli(cut));
    let mut fresh = Vec::new();
    for measured in found.measured.iter().filter(|measured| measured.certified) {
        fresh.extend(wire_bits(&manifest, cut).into_iter().map(|bits| Certificate {
            split_id,
            variant: variant.to_owned(),
            heads,
            thresholds_milli: thresholds_milli.clone(),
            bits,
            loss: measured.loss,
            method: METHOD.to_owned(),
            samples: found.samples,
            answered: found.answered,
            losses: measured.losses,
            budget: found.budget.share(),
            confidence: found.budget.confidence(),
            data,
            date: date.to_owned(),
        }));
    }
    let same = |old: &Certificate, new: &Certificate| {
        old.split_id == new.split_id
            && old.variant == new.variant
            && old.bits == new.bits
            && old.loss == new.loss
    };
    let old = std::mem::take(&mut manifest.certificates);
    let kept = old.into_iter().filter(|old| !fresh.iter().any(|new| same(old, new)));
    let kept: Vec<Certificate> = kept.collect();
    manifest.certificates = kept.into_iter().chain(fresh).collect();
    Some(manifest)
}

/// The bits on the wire that nodes may use at a cut, as certificates state them. The loss of an
/// exit is the same at all of them: what an exit answers does not cross.
fn wire_bits(manifest: &Manifest, cut: usize) -> Vec<u8> {
    let spec = manifest.stages.get(cut).and_then(|stage| stage.cut.as_ref());
    match (manifest.precision(cut), spec) {
        (Some(Precision::Bits(_)), Some(cut)) => cut.codec.allowed.clone(),
        _ => vec![0],
    }
}
