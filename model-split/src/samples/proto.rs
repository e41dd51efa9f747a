//! Samples as the ONNX project keeps them beside its models: folders `test_data_set_N` of files
//! `input_N.pb`, each a `TensorProto`. No length is believed before it is checked.

use std::path::{Path, PathBuf};

use midspan_runtime::{ElementType, Tensor, TensorSpec};
use prost::Message as _;

use super::pictures::entries;
use super::{Sample, SamplesError, is_taken};
use crate::bundle::read_bounded;
use crate::onnx::pb;

/// Largest file of one tensor; protobuf itself ends at 2 GiB.
const LARGEST: u64 = 2 << 30;

/// The data sets of a folder; none when it holds none.
pub(super) fn data_sets(folder: &Path) -> Result<Vec<PathBuf>, SamplesError> {
    if folder.join("input_0.pb").is_file() {
        return Ok(vec![folder.to_owned()]);
    }
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        path.is_dir() && name.is_some_and(|name| name.starts_with("test_data_set_"))
    };
    Ok(entries(folder)?.into_iter().filter(named).collect())
}

/// Reads `count` data sets, evenly taken.
pub(super) fn read(
    sets: &[PathBuf],
    inputs: &[TensorSpec],
    count: usize,
) -> Result<Vec<Sample>, SamplesError> {
    let taken = sets.iter().enumerate().filter(|(index, _)| is_taken(*index, sets.len(), count));
    taken
        .map(|(_, set)| {
            let tensor = |(index, input): (usize, &TensorSpec)| {
                Ok((input.name.clone(), file(&set.join(format!("input_{index}.pb")), input)?))
            };
            let inputs = inputs.iter().enumerate().map(tensor);
            let inputs = inputs.collect::<Result<Vec<_>, SamplesError>>()?;
            Ok(Sample { inputs, label: None, picture: None })
        })
        .collect()
}

fn file(path: &Path, input: &TensorSpec) -> Result<Tensor, SamplesError> {
    let bytes = read_bounded(path, LARGEST)
        .map_err(|source| SamplesError::Read { path: path.to_owned(), source })?;
    let refuse = |reason: String| SamplesError::file(path, reason);
    let proto = pb::TensorProto::decode(bytes.as_slice()).map_err(|e| refuse(e.to_string()))?;
    let tensor = tensor_of(&proto).map_err(refuse)?;
    if tensor.element() != input.element {
        let (got, name, wanted) = (tensor.element(), &input.name, input.element);
        return Err(refuse(format!("it holds {got}, but input \"{name}\" is {wanted}")));
    }
    Ok(tensor)
}

/// The values of a tensor as ONNX files hold it.
///
/// # Errors
/// When the values lie in a file of their own, are of another number than the dimensions ask for,
/// or of a type that no input of ours has; as text.
pub fn tensor_of(proto: &pb::TensorProto) -> Result<Tensor, String> {
    use pb::tensor_proto::DataLocation;
    if proto.data_location == Some(DataLocation::External as i32) {
        return Err("its values are kept in another file".into());
    }
    let number = proto.data_type.unwrap_or_default();
    let element = ElementType::from_onnx(number)
        .ok_or_else(|| format!("tensors of ONNX type {number} are not supported"))?;
    let shape = proto.dims.iter().map(|size| usize::try_from(*size));
    let shape: Vec<usize> = shape.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    if element == ElementType::String {
        return Tensor::from_strings(shape, &proto.string_data).map_err(|error| error.to_string());
    }
    let bytes = match &proto.raw_data {
        Some(raw) if !raw.is_empty() => raw.to_vec(),
        _ => typed(proto, element),
    };
    Tensor::new(element, shape, bytes).map_err(|error| error.to_string())
}

/// The values where they are kept by type instead of as bytes.
fn typed(proto: &pb::TensorProto, element: ElementType) -> Vec<u8> {
    use ElementType as E;
    let size = element.size().unwrap_or_default();
    // Small types lie in the lower bytes of wider ones.
    match element {
        E::F32 => proto.float_data.iter().flat_map(|value| value.to_le_bytes()).collect(),
        E::F64 => proto.double_data.iter().flat_map(|value| value.to_le_bytes()).collect(),
        E::I64 => proto.int64_data.iter().flat_map(|value| value.to_le_bytes()).collect(),
        E::U32 | E::U64 => {
            let words = proto.uint64_data.iter();
            words.flat_map(|value| value.to_le_bytes().into_iter().take(size)).collect()
        }
        _ => {
            let words = proto.int32_data.iter();
            words.flat_map(|value| value.to_le_bytes().into_iter().take(size)).collect()
        }
    }
}
