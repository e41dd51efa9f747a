//! Why a model cannot be cut somewhere: a closed list. It must not look at graphs.

/// Why there is no cut at a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Uncuttable {
    /// Other tensors are needed behind it too, more of them than a cut may have.
    #[error("{live} tensors are needed behind it, \"{beside}\" among them; a cut may have {limit}")]
    Live {
        /// Tensors that would have to cross.
        live: usize,
        /// Tensors that a cut may have.
        limit: usize,
        /// One of the others.
        beside: String,
    },
    /// A body of a later If, Loop or Scan reads another tensor from around itself.
    #[error("the body of {node} reads \"{beside}\" too")]
    Captured {
        /// The node with the body.
        node: String,
        /// The tensor.
        beside: String,
    },
    /// Inside of a body of an If, Loop or Scan: it runs any number of times, or not at all.
    #[error("inside of {node}")]
    Body {
        /// The node with the body.
        node: String,
    },
    /// Inside of a function that the model brings: the graph calls it as one operator.
    #[error("inside of the model's function {name}")]
    Function {
        /// Name of the function.
        name: String,
    },
    /// A sequence, an optional value, a map or a sparse tensor.
    #[error("it is a {found}, not a tensor")]
    NotTensor {
        /// What it is.
        found: String,
    },
    /// A tensor whose elements have no form on the wire.
    #[error("its elements are {found}, which do not cross")]
    Element {
        /// Type of the elements.
        found: String,
    },
    /// Its number of dimensions depends on values, which a model's input cannot declare.
    #[error("its number of dimensions depends on values")]
    UnknownRank,
    /// ONNX Runtime gives it no type.
    #[error("ONNX Runtime does not say what it is")]
    Untyped,
    /// Both parts would draw random numbers of their own where the whole draws one.
    #[error("both parts would need what {node} draws at random")]
    Random {
        /// The node.
        node: String,
    },
}

impl Uncuttable {
    /// All reasons as [`Uncuttable::reason`] writes them.
    pub const REASONS: [&str; 9] = [
        "live",
        "captured",
        "body",
        "function",
        "not_tensor",
        "element",
        "unknown_rank",
        "untyped",
        "random",
    ];

    /// The reason as one word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Live { .. } => "live",
            Self::Captured { .. } => "captured",
            Self::Body { .. } => "body",
            Self::Function { .. } => "function",
            Self::NotTensor { .. } => "not_tensor",
            Self::Element { .. } => "element",
            Self::UnknownRank => "unknown_rank",
            Self::Untyped => "untyped",
            Self::Random { .. } => "random",
        }
    }
}

/// Neighbouring tensors at which there is no cut for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first tensor in the order of the graph.
    pub first: String,
    /// The last.
    pub last: String,
    /// How many there are.
    pub tensors: usize,
    /// Why the first is no cut; the others differ at most in the details.
    pub why: Uncuttable,
}
