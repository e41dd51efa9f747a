//! Multiply-accumulates of single nodes, by formula. An operator without one multiplies element by
//! element at most, which counts as nothing, or is known to do more and is reported as not counted.

use std::collections::BTreeMap;
use std::collections::HashMap;

use midspan_runtime::Dim;

use crate::cut::Types;
use crate::cut::flow::{Flow, bodies, domain, key};
use crate::onnx::{ModelProto, pb};

pub(super) enum Macs {
    Counted(u64),
    /// It multiplies or may multiply, but there is no telling how often.
    Unknown,
}

/// Operators that multiply matrices in ways that have no formula here.
const HEAVY: [&str; 19] = [
    "Attention",
    "BiasSplitGelu",
    "CausalConvWithState",
    "DeformConv",
    "DecoderMaskedMultiHeadAttention",
    "DFT",
    "DynamicQuantizeLSTM",
    "GatherBlockQuantized",
    "GroupQueryAttention",
    "LinearAttention",
    "LongformerAttention",
    "MoE",
    "MultiHeadAttention",
    "PackedAttention",
    "QAttention",
    "QMoE",
    "SparseAttention",
    "STFT",
    "TreeEnsemble",
];

/// The sizes of tensors, of weights too.
pub(super) struct Shapes<'f> {
    types: &'f Types,
    weights: HashMap<&'f str, &'f [i64]>,
}

impl<'f> Shapes<'f> {
    pub(super) fn new(flow: &Flow<'f>, types: &'f Types) -> Self {
        let weights = flow.graph.initializer.iter();
        Self { types, weights: weights.map(|weight| (weight.name(), &weight.dims[..])).collect() }
    }

    /// All sizes of a tensor, where all are fixed.
    fn shape(&self, name: Option<&String>) -> Option<Vec<u64>> {
        let name = name?;
        if let Some(dims) = self.weights.get(name.as_str()) {
            return dims.iter().map(|dim| u64::try_from(*dim).ok()).collect();
        }
        let spec = self.types.get(name).ok().filter(|_| self.types.is_ranked(name))?;
        let fixed = spec.dims.iter().map(|dim| match dim {
            Dim::Fixed(size) => Some(*size as u64),
            Dim::Symbolic(_) => None,
        });
        fixed.collect()
    }

    pub(super) fn macs(&self, node: &pb::NodeProto, model: &ModelProto) -> Macs {
        let own = |function: &pb::FunctionProto| {
            (domain(function.domain()), function.name(), function.overload()) == key(node)
        };
        if bodies(node).next().is_some() || model.functions.iter().any(own) {
            return Macs::Unknown;
        }
        let counted = match (domain(node.domain()), node.op_type()) {
            (_, "Conv" | "ConvInteger" | "FusedConv") => self.conv(node, 1),
            (_, "QLinearConv") => self.conv(node, 3),
            (_, "ConvTranspose") => self.transposed(node),
            (_, "MatMul" | "MatMulInteger" | "FusedMatMul" | "QLinearMatMul") => self.matmul(node),
            (_, "DynamicQuantizeMatMul" | "MatMulIntegerToFloat") => self.matmul(node),
            (_, "Gemm" | "QGemm") => self.gemm(node),
            (_, "Einsum") => self.einsum(node),
            (_, "LSTM" | "GRU" | "RNN") => self.recurrent(node),
            ("com.microsoft", "MatMulNBits" | "MatMulBnb4") => self.packed(node),
            ("" | "com.microsoft" | "ai.onnx.ml", operator) => {
                (!HEAVY.contains(&operator)).then_some(0)
            }
            // Nobody knows what operators of other domains do.
            _ => None,
        };
        counted.map_or(Macs::Unknown, Macs::Counted)
    }

    /// Every element of the output is a sum over the kernel and the channels of its group.
    fn conv(&self, node: &pb::NodeProto, weight: usize) -> Option<u64> {
        let made = product(&self.shape(node.output.first())?)?;
        made.checked_mul(product(self.shape(node.input.get(weight))?.get(1..)?)?)
    }

    /// Every element of the input goes into the kernel of all channels of its group.
    fn transposed(&self, node: &pb::NodeProto) -> Option<u64> {
        let read = product(&self.shape(node.input.first())?)?;
        read.checked_mul(product(self.shape(node.input.get(1))?.get(1..)?)?)
    }

    fn matmul(&self, node: &pb::NodeProto) -> Option<u64> {
        let shape = self.shape(node.input.first())?;
        let transposed = integer(node, "transA").unwrap_or(0) != 0;
        let back = if transposed && shape.len() > 1 { 2 } else { 1 };
        let inner = *shape.get(shape.len().checked_sub(back)?)?;
        product(&self.shape(node.output.first())?)?.checked_mul(inner)
    }

    fn gemm(&self, node: &pb::NodeProto) -> Option<u64> {
        let shape = self.shape(node.input.first())?;
        let inner = usize::from(integer(node, "transA").unwrap_or(0) == 0);
        product(&self.shape(node.output.first())?)?.checked_mul(*shape.get(inner)?)
    }

    /// A product for every combination of the letters, for two factors without ellipsis.
    fn einsum(&self, node: &pb::NodeProto) -> Option<u64> {
        let equation = node.attribute.iter().find(|attribute| attribute.name() == "equation")?;
        let equation = String::from_utf8(equation.s().to_vec()).ok()?;
        let terms = equation.split("->").next()?;
        let terms: Vec<&str> = terms.split(',').map(str::trim).collect();
        let mut sizes = BTreeMap::new();
        for (term, name) in terms.iter().zip(&node.input) {
            let (letters, shape) = (term.chars().collect::<Vec<_>>(), self.shape(Some(name))?);
            if letters.len() != shape.len() || !letters.iter().all(|c| c.is_ascii_alphabetic()) {
                return None;
            }
            sizes.extend(letters.into_iter().zip(shape));
        }
        (terms.len() == 2).then(|| product(&sizes.into_values().collect::<Vec<_>>()))?
    }

    /// Each step of each row goes through the weights of the input and those of the state.
    fn recurrent(&self, node: &pb::NodeProto) -> Option<u64> {
        let steps = product(self.shape(node.input.first())?.get(..2)?)?;
        let input = product(&self.shape(node.input.get(1))?)?;
        let state = product(&self.shape(node.input.get(2))?)?;
        steps.checked_mul(input.checked_add(state)?)
    }

    /// Weights packed into bits: their sizes are attributes.
    fn packed(&self, node: &pb::NodeProto) -> Option<u64> {
        let made = product(&self.shape(node.output.first())?)?;
        made.checked_mul(u64::try_from(integer(node, "K")?).ok()?)
    }
}

fn product(sizes: &[u64]) -> Option<u64> {
    sizes.iter().try_fold(1u64, |product, size| product.checked_mul(*size))
}

fn integer(node: &pb::NodeProto, name: &str) -> Option<i64> {
    node.attribute.iter().find(|attribute| attribute.name() == name).map(|attribute| attribute.i())
}
