//! Types and shapes of all tensors of a model, as ONNX Runtime infers them: it is given the model
//! with every inner tensor as an output. Of large weights only the shape matters for that, so a
//! file of nothing stands in for them. It must not run a model.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::Path;

use midspan_runtime::session::{self, Described, LoadError};
use midspan_runtime::{Dim, TensorSpec};

use super::{CutError, Uncuttable};
use crate::onnx::external::{self, ExternalError};
use crate::onnx::{self, ModelProto, pb};

/// Weights of more bytes have no say in a shape: shapes are short lists of numbers.
const LARGE: usize = 4096;
/// With fewer bytes of weights in all, the model is handed over as it is.
const SMALL_MODEL: usize = 16 << 20;
/// The file that stands in for large weights.
const NOTHING: &str = "nothing";

/// Types and shapes of all tensors of a model by name.
#[derive(Clone, Debug, Default)]
pub struct Types {
    tensors: HashMap<String, TensorSpec>,
    scalars: HashSet<String>,
    others: HashMap<String, String>,
}

impl Types {
    /// Asks ONNX Runtime for the types of all tensors of a model. Opens the library if nobody did.
    ///
    /// # Errors
    /// When there is no library, it refuses the model, or weights are outside of the model.
    pub fn infer(model: &ModelProto) -> Result<Self, CutError> {
        Self::of(model, None, &[])
    }

    /// As [`Types::infer`], for a model whose weights may be in files in `folder`, and with the
    /// symbolic dimensions of its inputs that are named in `sizes` fixed.
    ///
    /// # Errors
    /// As [`Types::infer`], and when a weight's file does not hold it.
    pub fn infer_in(
        model: &ModelProto,
        folder: &Path,
        sizes: &[(String, i64)],
    ) -> Result<Self, CutError> {
        Self::of(model, Some(folder), sizes)
    }

    fn of(
        model: &ModelProto,
        folder: Option<&Path>,
        sizes: &[(String, i64)],
    ) -> Result<Self, CutError> {
        let mut exposed = model.clone();
        let graph = exposed.graph.as_mut().ok_or(CutError::NoGraph)?;
        expose(graph);
        fix(&mut graph.input, sizes);
        // Declared sizes of outputs would contradict what was fixed.
        if !sizes.is_empty() {
            graph.output.iter_mut().for_each(forget_shape);
        }
        Ok(Self::from(describe(exposed, folder)?))
    }

    /// Type and shape of one tensor.
    ///
    /// # Errors
    /// When the model has no such tensor, or it is none of a supported type.
    pub fn get(&self, tensor: &str) -> Result<&TensorSpec, CutError> {
        self.tensors.get(tensor).ok_or_else(|| match self.others.get(tensor) {
            Some(found) => CutError::NotTensor { tensor: tensor.to_owned(), found: found.clone() },
            None => CutError::NoSuchTensor { tensor: tensor.to_owned() },
        })
    }

    /// Whether the number of dimensions of a tensor is known.
    pub fn is_ranked(&self, tensor: &str) -> bool {
        self.scalars.contains(tensor)
            || self.tensors.get(tensor).is_some_and(|spec| !spec.dims.is_empty())
    }

    /// Why this tensor, whatever its place in the graph, cannot cross from a front to a tail.
    pub fn uncuttable(&self, tensor: &str) -> Option<Uncuttable> {
        let Some(spec) = self.tensors.get(tensor) else {
            return Some(match self.others.get(tensor) {
                Some(found) if !found.starts_with("Tensor") => {
                    Uncuttable::NotTensor { found: found.clone() }
                }
                Some(found) => Uncuttable::Element { found: found.clone() },
                None => Uncuttable::Untyped,
            });
        };
        if spec.element == midspan_runtime::ElementType::String {
            return Some(Uncuttable::Element { found: spec.element.to_string() });
        }
        (!self.is_ranked(tensor)).then_some(Uncuttable::UnknownRank)
    }

    /// How a graph declares this tensor as its input or output.
    pub(crate) fn declaration(&self, tensor: &str) -> Result<pb::ValueInfoProto, CutError> {
        Ok(value_info(self.get(tensor)?, self.is_ranked(tensor)))
    }
}

impl From<Described> for Types {
    fn from(described: Described) -> Self {
        let specs = described.inputs.into_iter().chain(described.outputs);
        Self {
            tensors: specs.map(|spec| (spec.name.clone(), spec)).collect(),
            scalars: described.scalars.into_iter().collect(),
            others: described.others.into_iter().collect(),
        }
    }
}

/// Makes every tensor that a node makes an output.
fn expose(graph: &mut pb::GraphProto) {
    graph.value_info.clear();
    let mut known: HashSet<String> =
        graph.output.iter().map(|output| output.name().to_owned()).collect();
    let inner = graph.node.iter().flat_map(|node| &node.output).filter(|name| !name.is_empty());
    for name in inner {
        if known.insert(name.clone()) {
            let info = pb::ValueInfoProto { name: Some(name.clone()), ..Default::default() };
            graph.output.push(info);
        }
    }
}

fn tensor_type(info: &mut pb::ValueInfoProto) -> Option<&mut pb::type_proto::Tensor> {
    match &mut info.r#type.as_mut()?.value {
        Some(pb::type_proto::Value::TensorType(tensor)) => Some(tensor),
        _ => None,
    }
}

fn fix(inputs: &mut [pb::ValueInfoProto], sizes: &[(String, i64)]) {
    use pb::tensor_shape_proto::dimension::Value;
    let shapes = inputs.iter_mut().filter_map(tensor_type).flat_map(|tensor| &mut tensor.shape);
    for dim in shapes.flat_map(|shape| &mut shape.dim) {
        if let Some(Value::DimParam(name)) = &dim.value
            && let Some((_, size)) = sizes.iter().find(|(wanted, _)| wanted == name)
        {
            dim.value = Some(Value::DimValue(*size));
        }
    }
}

fn forget_shape(info: &mut pb::ValueInfoProto) {
    if let Some(tensor) = tensor_type(info) {
        tensor.shape = None;
    }
}

fn describe(mut model: ModelProto, folder: Option<&Path>) -> Result<Described, CutError> {
    let (mut inside, mut outside) = (0usize, None);
    external::visit(&model, &mut |tensor| {
        inside += tensor.raw_data.as_ref().map_or(0, |data| data.len());
        if external::is_external(tensor) && outside.is_none() {
            outside = Some(tensor.name().to_owned());
        }
    });
    if let (Some(tensor), None) = (&outside, folder) {
        return Err(CutError::ExternalData { tensor: tensor.clone() });
    }
    if outside.is_none() && inside <= SMALL_MODEL {
        return Ok(session::describe(&onnx::encode(&model))?);
    }
    let whole = outside.is_none().then(|| model.clone());
    hollow(&mut model, folder)?;
    match (without_weights(&mut model)?, whole) {
        (Ok(described), _) => Ok(described),
        // A kernel may look at values of its weights.
        (Err(_), Some(whole)) if onnx::fits_one_file(&whole) => {
            Ok(session::describe(&onnx::encode(&whole))?)
        }
        (Err(error), _) => Err(error.into()),
    }
}

/// Puts small outside weights inside, and takes large weights out.
fn hollow(model: &mut ModelProto, folder: Option<&Path>) -> Result<(), ExternalError> {
    external::visit_mut(model, &mut |tensor, place| {
        let mut bytes = tensor.raw_data.as_ref().map_or(0, |data| data.len() as u64);
        if external::is_external(tensor) {
            let span = external::locate(tensor, folder.unwrap_or(Path::new("")))?;
            if span.length <= LARGE as u64 || place == external::Place::Attribute {
                external::inline(tensor, &span)?;
            }
            bytes = span.length;
        }
        if bytes > LARGE as u64 && place == external::Place::Weight {
            external::point(tensor, NOTHING, 0, bytes);
        }
        Ok(())
    })
}

/// Describes a model whose large weights are nothing. All of them lie over each other in a file
/// that takes no room.
fn without_weights(model: &mut ModelProto) -> Result<Result<Described, LoadError>, CutError> {
    let mut length = 0;
    external::visit(model, &mut |tensor| {
        length = external::stated(tensor, "length").unwrap_or(0).max(length);
    });
    let folder = tempfile::tempdir().map_err(scratch)?;
    let file = folder.path().join("model.onnx");
    fs::write(&file, onnx::encode(model)).map_err(scratch)?;
    let nothing = File::create(folder.path().join(NOTHING)).map_err(scratch)?;
    nothing.set_len(length).map_err(scratch)?;
    Ok(session::describe_path(&file))
}

fn scratch(source: io::Error) -> CutError {
    CutError::Scratch { source }
}

pub(super) fn value_info(spec: &TensorSpec, ranked: bool) -> pb::ValueInfoProto {
    use pb::tensor_shape_proto::{Dimension, dimension::Value};
    let dim = spec.dims.iter().map(|dim| Dimension {
        denotation: None,
        value: match dim {
            Dim::Fixed(size) => Some(Value::DimValue(i64::try_from(*size).unwrap_or(i64::MAX))),
            Dim::Symbolic(name) if name.is_empty() => None,
            Dim::Symbolic(name) => Some(Value::DimParam(name.clone())),
        },
    });
    let tensor = pb::type_proto::Tensor {
        elem_type: Some(spec.element.onnx_number()),
        // A shape without dimensions would claim that what has an unknown number is a scalar.
        shape: ranked.then(|| pb::TensorShapeProto { dim: dim.collect() }),
    };
    pb::ValueInfoProto {
        name: Some(spec.name.clone()),
        r#type: Some(pb::TypeProto {
            denotation: None,
            value: Some(pb::type_proto::Value::TensorType(tensor)),
        }),
        ..Default::default()
    }
}
