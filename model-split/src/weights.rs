//! Taking the weights out of a model into one blob, and putting them back. The graph that is left
//! is ONNX with external data: each weight names its offset and length in the blob. Weights that
//! a model keeps in typed fields, and constants inside nodes, stay in the graph.

use bytes::Bytes;

use crate::onnx::{ModelProto, external, pb};

/// What a graph calls the file of its weights.
const LOCATION: &str = "weights";
/// Offsets are multiples of this, so that a mapped blob can be used in place.
const ALIGNMENT: usize = 64;

/// Why weights do not suit a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeightsError {
    /// An entry that is not of the form written here.
    #[error("weight \"{0}\" does not say where its data is")]
    Entry(String),
    /// An entry that points outside of the blob.
    #[error("weight \"{name}\": bytes {offset}..+{length} are not in a blob of {blob}")]
    Range {
        /// Name of the weight.
        name: String,
        /// First byte.
        offset: usize,
        /// Number of bytes.
        length: usize,
        /// Bytes of the blob.
        blob: usize,
    },
}

fn weights(model: &mut ModelProto) -> impl Iterator<Item = &mut pb::TensorProto> {
    model.graph.iter_mut().flat_map(|graph| &mut graph.initializer)
}

/// Moves the raw data of all weights of the top graph out of the model.
pub(crate) fn detach(model: &mut ModelProto) -> Vec<u8> {
    let mut blob = Vec::new();
    for weight in weights(model) {
        let Some(data) = weight.raw_data.take() else { continue };
        blob.resize(blob.len().next_multiple_of(ALIGNMENT), 0);
        external::point(weight, LOCATION, blob.len() as u64, data.len() as u64);
        blob.extend_from_slice(&data);
    }
    blob
}

/// Puts weights back that [`detach`] took out; they share the memory of `blob`.
pub(crate) fn attach(model: &mut ModelProto, blob: &Bytes) -> Result<(), WeightsError> {
    for weight in weights(model) {
        if !external::is_external(weight) {
            continue;
        }
        let number = |key: &str| -> Option<usize> {
            let entry = weight.external_data.iter().find(|entry| entry.key() == key)?;
            entry.value().parse().ok()
        };
        let Some((offset, length)) = number("offset").zip(number("length")) else {
            return Err(WeightsError::Entry(weight.name().to_owned()));
        };
        let end = offset.checked_add(length).filter(|end| *end <= blob.len());
        let Some(end) = end else {
            let name = weight.name().to_owned();
            return Err(WeightsError::Range { name, offset, length, blob: blob.len() });
        };
        weight.raw_data = Some(blob.slice(offset..end));
        weight.external_data.clear();
        weight.data_location = None;
    }
    Ok(())
}
