//! What differs between two manifests, by what an operator has to do about it. Every field of a
//! manifest is compared, also those that this file knows nothing of. Pure.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use crate::digest::SplitId;
use crate::manifest::{Manifest, ManifestError};

/// What a difference means to those who run nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Consequence {
    /// A split id changes.
    Split,
    /// The first stage computes something else, though what crosses means the same to the tail.
    Front,
    /// Apps see another model.
    Apps,
    /// Which exits there are, or what they compute.
    Exits,
    /// From which confidence on exits answer.
    Thresholds,
    /// Other ways to run a stage.
    Variants,
    /// How many bits cross by default or may be asked for.
    Bits,
    /// Which stages an edge runs by default.
    Stages,
    /// What was measured.
    Certificates,
    /// Samples that come with it.
    Samples,
    /// Anything else.
    Other,
}

impl Consequence {
    /// What to do, in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Split => "the split id changes: clouds and edges must both get it",
            Self::Front => {
                "the first stage changes, no split id: every node that runs it must get it, and \
                 certificates must be measured anew"
            }
            Self::Apps => "what apps see changes: every node must get it",
            Self::Exits => {
                "exits change, no split id: edges must get it, and certificates of the old exits \
                 do not hold"
            }
            Self::Thresholds => {
                "only thresholds, no id changes: edges must get it, and certificates at the old \
                 thresholds do not hold"
            }
            Self::Variants => "variants change, no id changes: edges that run one must get it",
            Self::Bits => "bits on the wire, no id changes: edges must get it",
            Self::Stages => "stages that an edge runs by default: edges must get it",
            Self::Certificates => "certificates only: nodes that report them must get it",
            Self::Samples => "samples only: no node needs it",
            Self::Other => "other fields",
        }
    }
}

/// One field that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// What it means.
    pub consequence: Consequence,
    /// The field, as a path.
    pub key: String,
    /// Its value in the first manifest; none where it has no such field.
    pub before: Option<Value>,
    /// Its value in the second.
    pub after: Option<Value>,
}

/// The split ids at one cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SplitIds {
    /// In the first manifest.
    pub before: Option<SplitId>,
    /// In the second.
    pub after: Option<SplitId>,
}

/// Every field that differs, by consequence, and the split ids of all cuts.
///
/// # Errors
/// When a manifest has no JSON form.
pub fn changes(
    before: &Manifest,
    after: &Manifest,
) -> Result<(Vec<Change>, Vec<SplitIds>), ManifestError> {
    let mut changes = Vec::new();
    let (a, b) = (serde_json::to_value(before)?, serde_json::to_value(after)?);
    compare("", Some(&a), Some(&b), &mut changes);
    changes.sort_by(|a: &Change, b| (a.consequence, &a.key).cmp(&(b.consequence, &b.key)));
    let cuts = before.stages.len().max(after.stages.len()).saturating_sub(1);
    let ids = |cut| SplitIds { before: before.split_id(cut), after: after.split_id(cut) };
    Ok((changes, (0..cuts).map(ids).collect()))
}

/// Lists whose elements have no place of their own: what is new and what is gone is told, not that
/// the rest moved.
fn is_set(key: &str) -> bool {
    matches!(key, "certificates" | "golden")
}

fn compare(key: &str, a: Option<&Value>, b: Option<&Value>, changes: &mut Vec<Change>) {
    if a == b {
        return;
    }
    let below = |part: &str| {
        if key.is_empty() { part.to_owned() } else { format!("{key}.{part}") }
    };
    match (a, b) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                compare(&below(name), a.get(name), b.get(name), changes);
            }
        }
        (a, b) if is_set(key) => {
            let list = |value: Option<&Value>| {
                value.and_then(Value::as_array).cloned().unwrap_or_default()
            };
            let (a, b) = (list(a), list(b));
            for (index, gone) in a.iter().enumerate().filter(|(_, value)| !b.contains(value)) {
                push(format!("{key}[{index}]"), Some(gone), None, changes);
            }
            for (index, new) in b.iter().enumerate().filter(|(_, value)| !a.contains(value)) {
                push(format!("{key}[{index}]"), None, Some(new), changes);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for index in 0..a.len().max(b.len()) {
                compare(&format!("{key}[{index}]"), a.get(index), b.get(index), changes);
            }
        }
        (a, b) => push(key.to_owned(), a, b, changes),
    }
}

fn push(key: String, a: Option<&Value>, b: Option<&Value>, changes: &mut Vec<Change>) {
    let consequence = consequence(&key);
    changes.push(Change { consequence, key, before: a.cloned(), after: b.cloned() });
}

fn consequence(key: &str) -> Consequence {
    let (field, rest) = key.split_once(['[', '.']).unwrap_or((key, ""));
    match field {
        "name" | "version" | "platform" | "inputs" | "outputs" | "stateful" | "preprocess"
        | "labels" => Consequence::Apps,
        "local_stages" => Consequence::Stages,
        "certificates" => Consequence::Certificates,
        "labelled" | "golden" => Consequence::Samples,
        "stages" => of_stage(rest),
        _ => Consequence::Other,
    }
}

/// Of the rest of a key after `stages[`.
fn of_stage(rest: &str) -> Consequence {
    let (index, field) = rest.split_once("].").unwrap_or((rest, ""));
    let first = index == "0";
    match field.split(['.', '[']).next().unwrap_or_default() {
        "graph" | "weights" if first => Consequence::Front,
        "variants" => Consequence::Variants,
        "exit" if field == "exit.threshold_milli" => Consequence::Thresholds,
        "exit" => Consequence::Exits,
        "cut" if field == "cut.codec.bits" || field.starts_with("cut.codec.allowed") => {
            Consequence::Bits
        }
        "inputs" if first => Consequence::Apps,
        "inputs" | "cut" | "graph" | "weights" | "" => Consequence::Split,
        _ => Consequence::Other,
    }
}
