//! Why a frame could not be written or read: the cause and its values, for logs and answers.

use midspan_runtime::ElementType;

use super::{HEADER_LEN, Precision, VERSION};

/// Why something could not be written as a frame, or bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Fewer bytes than a header.
    #[error("{0} bytes are no frame: its header alone has {HEADER_LEN}")]
    Short(usize),
    /// Other first bytes.
    #[error("not a frame: it starts with {0:02x?}")]
    Magic([u8; 4]),
    /// A version that this program does not speak.
    #[error("frame version {0} is not supported, only {VERSION}")]
    Version(u8),
    /// An entropy coder that this program does not know.
    #[error("coder {0} is not supported")]
    Coder(String),
    /// A header field out of range.
    #[error("frame header: {0}")]
    Header(&'static str),
    /// A coded payload that does not decode to what the header says.
    #[error("frame payload, coder {coder}: {reason}")]
    Coded {
        /// Name of the coder.
        coder: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A frame of more rows than whoever reads it has room for.
    #[error("frame decodes to {bytes} bytes, at most {most} are taken")]
    Large {
        /// Bytes of the tensor.
        bytes: u64,
        /// Most that are taken.
        most: u64,
    },
    /// The payload has another length than the header says.
    #[error("frame payload has {got} bytes, its header asks for {expected}")]
    Length {
        /// Bytes that the header asks for.
        expected: u64,
        /// Bytes there.
        got: u64,
    },
    /// The bytes were changed on the way.
    #[error("frame checksum {got:08x} differs from {expected:08x} in its header")]
    Checksum {
        /// As the header says.
        expected: u32,
        /// As computed.
        got: u32,
    },
    /// A frame of another cut.
    #[error("frame has rows of {got}, this cut has rows of {expected}")]
    Rows {
        /// Elements and type of the cut.
        expected: String,
        /// Elements and type of the frame.
        got: String,
    },
    /// A tensor that is no batch of rows of the cut.
    #[error("a tensor of shape {got:?} is no batch of rows {row:?}")]
    Shape {
        /// Dimensions of a row.
        row: Vec<usize>,
        /// Dimensions given.
        got: Vec<usize>,
    },
    /// Quantisation without a range, or of elements that are no `f32`.
    #[error("cannot write {element} elements at {precision:?}{reason}")]
    Precision {
        /// Type of the elements.
        element: ElementType,
        /// Precision asked for.
        precision: Precision,
        /// Why not, as the end of the sentence.
        reason: &'static str,
    },
}
