//! The digests by which two sites, or a measurement and a manifest, know that they mean the same.

use sha2::{Digest as _, Sha256};

use super::*;

impl Manifest {
    /// The split id of a cut: SHA-256 over the canonical JSON of the tail's graph and weight
    /// digests, the tensors that cross, the codec version and the scales. Exits, thresholds and
    /// all before the cut stay outside it.
    pub fn split_id(&self, cut: usize) -> Option<SplitId> {
        #[derive(Serialize)]
        struct Part<'a> {
            graph: &'a Digest,
            weights: &'a Digest,
        }
        #[derive(Serialize)]
        struct Identity<'a> {
            codec_version: u8,
            scales: &'a [StaticScale],
            tail: Vec<Part<'a>>,
            tensors: &'a [InnerTensor],
        }
        let at = self.stages.get(cut)?.cut.as_ref()?;
        let tail = self.stages[cut + 1..]
            .iter()
            .map(|stage| Part { graph: &stage.graph, weights: &stage.weights });
        let identity = Identity {
            codec_version: at.codec.version,
            scales: &at.codec.scales,
            tail: tail.collect(),
            tensors: &at.tensors,
        };
        // Strings and integers only: these always have a JSON form.
        let json = serde_jcs::to_vec(&identity).ok()?;
        Some(SplitId(Sha256::digest(json).into()))
    }

    /// SHA-256 over the canonical JSON of the exits up to and with stage `cut`: their outputs,
    /// heads and temperatures. Thresholds stay outside it.
    pub fn heads(&self, cut: usize) -> Digest {
        #[derive(Serialize)]
        struct Part<'a> {
            stage: usize,
            output: &'a str,
            temperature_milli: u32,
            head: &'a Option<Head>,
        }
        let stages = self.stages.iter().enumerate().take(cut + 1);
        let parts: Vec<Part<'_>> = stages
            .filter_map(|(stage, parts)| {
                let Exit { output, temperature_milli, head, .. } = parts.exit.as_ref()?;
                Some(Part { stage, output, temperature_milli: *temperature_milli, head })
            })
            .collect();
        // Strings and integers only: these always have a JSON form.
        Digest::of(&serde_jcs::to_vec(&parts).unwrap_or_default())
    }

    /// Thresholds of the exits up to and with stage `cut`, in order, in thousandths.
    pub fn thresholds_milli(&self, cut: usize) -> Vec<u32> {
        let exits = self.stages.iter().take(cut + 1).filter_map(|stage| stage.exit.as_ref());
        exits.filter_map(|exit| exit.threshold_milli).collect()
    }

    /// The last cut that a node which runs `local_stages` stages reaches; its exits and those before
    /// it are all that can answer early there. None for a model that was not cut.
    pub fn last_cut(&self, local_stages: usize) -> Option<usize> {
        local_stages.min(self.stages.len().checked_sub(1)?).checked_sub(1)
    }

    /// The certificates that hold for what a node runs: this variant of the stages up to and with
    /// `cut`, its exits and thresholds as they are now, and these bits on the wire.
    pub fn certified(
        &self,
        cut: usize,
        variant: &str,
        bits: u8,
    ) -> impl Iterator<Item = &Certificate> {
        let (id, heads) = (self.split_id(cut), self.heads(cut));
        let thresholds = self.thresholds_milli(cut);
        self.certificates.iter().filter(move |found| {
            Some(found.split_id) == id
                && found.variant == variant
                && found.heads == heads
                && found.thresholds_milli == thresholds
                && found.bits == bits
        })
    }
}
