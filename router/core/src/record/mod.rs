//! The decision record: inputs, seed and decision as bytes. It is the log
//! line, the simulator's trace and what `explain` shows. Little endian, fixed
//! field order, versioned, at most [`MAX_RECORD_BYTES`]; floats by their bits.
//! Decides nothing; a record that breaks a type's rules is refused, whatever
//! made it.
//!
//! ```text
//! "MSDR" | version u16 | policy | now u64 | epoch u64 | request
//!        | 4 x horizon load | excluded | n u8 | n x candidate
//!        | seed u64 | outcome u8 | n x (verdict, cost) | k u8 | k x choice
//! ```
//!
//! A field that may be absent is a byte 0, or 1 and the value. An enum is a
//! byte and the values of its variant.

mod layout;
mod wire;

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt;

use self::wire::{Reader, Wire};
use crate::decision::Decision;
use crate::inputs::Inputs;
use crate::policy::choose;

const MAGIC: [u8; 4] = *b"MSDR";
const VERSION: u16 = 1;

/// No record is longer.
pub const MAX_RECORD_BYTES: usize = 4_096;

/// Bytes that are not a decision record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// They do not begin with the magic number.
    NotARecord,
    /// They are of a version that this program does not know.
    Version {
        /// The version found.
        got: u16,
    },
    /// They end too early.
    Truncated {
        /// Where more was expected.
        at: usize,
    },
    /// They go on after the record.
    Trailing {
        /// How many bytes too many.
        bytes: usize,
    },
    /// A value is outside its range.
    Invalid {
        /// What it was to be.
        what: &'static str,
        /// Where it ends.
        at: usize,
    },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotARecord => write!(f, "not a decision record"),
            Self::Version { got } => {
                write!(f, "decision record of version {got}, expected {VERSION}")
            }
            Self::Truncated { at } => write!(f, "decision record ends early, at byte {at}"),
            Self::Trailing { bytes } => write!(f, "{bytes} bytes after the decision record"),
            Self::Invalid { what, at } => {
                write!(f, "decision record: invalid {what} before byte {at}")
            }
        }
    }
}

impl core::error::Error for RecordError {}

/// A decision and what it was made from: replays alone.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionRecord {
    /// What was known.
    pub inputs: Inputs,
    /// The seed given to `choose`.
    pub seed: u64,
    /// What was decided.
    pub decision: Decision,
}

impl DecisionRecord {
    /// Appends the record's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(&self.inputs, self.seed, &self.decision, out);
    }

    /// Reads a record: all of `bytes`, no more, no less.
    ///
    /// # Errors
    /// When the bytes are no record of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::new(bytes);
        if <[u8; 4]>::take(&mut reader).ok() != Some(MAGIC) {
            return Err(RecordError::NotARecord);
        }
        let got = u16::take(&mut reader)?;
        if got != VERSION {
            return Err(RecordError::Version { got });
        }
        let inputs = Inputs::take(&mut reader)?;
        let seed = u64::take(&mut reader)?;
        let decision = layout::take_decision(&inputs, &mut reader)?;
        match reader.left() {
            0 => Ok(Self { inputs, seed, decision }),
            bytes => Err(RecordError::Trailing { bytes }),
        }
    }
}

/// Appends the bytes of a record without making one: nothing is copied.
pub fn encode(inputs: &Inputs, seed: u64, decision: &Decision, out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    VERSION.put(out);
    inputs.put(out);
    seed.put(out);
    layout::put_decision(decision, out);
}

/// Decides again what a record decided. The same program gives the decision
/// of the record; another policy version may not, which is what it is for.
pub fn replay(record: &DecisionRecord) -> Decision {
    let mut decision = Decision::new();
    choose(&record.inputs, record.seed, &mut decision);
    decision
}
