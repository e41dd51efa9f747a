//! The protocol's tensor datatypes: names and element sizes. Case-sensitive, as the protocol says.

/// A tensor element type of the Open Inference Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Datatype {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned 8 bits.
    Uint8,
    /// Unsigned 16 bits.
    Uint16,
    /// Unsigned 32 bits.
    Uint32,
    /// Unsigned 64 bits.
    Uint64,
    /// Signed 8 bits.
    Int8,
    /// Signed 16 bits.
    Int16,
    /// Signed 32 bits.
    Int32,
    /// Signed 64 bits.
    Int64,
    /// IEEE 754 half precision; travels in binary only.
    Fp16,
    /// bfloat16; travels in binary only.
    Bf16,
    /// IEEE 754 single precision.
    Fp32,
    /// IEEE 754 double precision.
    Fp64,
    /// Variable-length byte strings; each element is a little-endian u32 length and its bytes.
    Bytes,
}

const ALL: [(Datatype, &str, usize); 14] = [
    (Datatype::Bool, "BOOL", 1),
    (Datatype::Uint8, "UINT8", 1),
    (Datatype::Uint16, "UINT16", 2),
    (Datatype::Uint32, "UINT32", 4),
    (Datatype::Uint64, "UINT64", 8),
    (Datatype::Int8, "INT8", 1),
    (Datatype::Int16, "INT16", 2),
    (Datatype::Int32, "INT32", 4),
    (Datatype::Int64, "INT64", 8),
    (Datatype::Fp16, "FP16", 2),
    (Datatype::Bf16, "BF16", 2),
    (Datatype::Fp32, "FP32", 4),
    (Datatype::Fp64, "FP64", 8),
    (Datatype::Bytes, "BYTES", 0),
];

impl Datatype {
    /// The protocol's name, for example `FP32`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        ALL[self as usize].1
    }

    /// The protocol's names of all datatypes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|entry| entry.1)
    }

    /// Parses the protocol's name; `None` for anything else, `fp32` included.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        ALL.iter().find(|entry| entry.1 == name).map(|entry| entry.0)
    }

    /// Bytes per element; `None` for [`Datatype::Bytes`], whose elements vary.
    #[must_use]
    pub fn size(self) -> Option<usize> {
        Some(ALL[self as usize].2).filter(|size| *size > 0)
    }

    /// Whether elements can be written as JSON (half precision cannot).
    #[must_use]
    pub fn has_json_form(self) -> bool {
        !matches!(self, Self::Fp16 | Self::Bf16)
    }
}

impl std::fmt::Display for Datatype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_indexed_by_discriminant_and_names_are_case_sensitive() {
        for (index, (datatype, name, _)) in ALL.into_iter().enumerate() {
            assert_eq!(datatype as usize, index);
            assert_eq!(Datatype::parse(name), Some(datatype));
        }
        assert_eq!(Datatype::parse("fp32"), None);
        assert_eq!(Datatype::parse("FLOAT"), None);
        assert_eq!(Datatype::Bytes.size(), None);
    }
}
