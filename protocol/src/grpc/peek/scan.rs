//! Scans the protobuf wire format for two string fields, byte by byte, so that it does not matter
//! where the bytes were cut. Everything else is skipped by its length, nested messages unread.

use super::{MAX_NAME, PeekError, WINDOW};
use crate::{ModelName, grpc::method::NameFields};

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH: u8 = 2;
const FIXED32: u8 = 5;

/// One of the fields looked for, or any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Version,
    Other,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// In a field's number and wire type; also between fields.
    Tag(Varint),
    /// In a number that nobody asked for.
    Number(Varint),
    /// In the length of a field.
    Length(Field, Varint),
    /// So many bytes are of no interest.
    Skip(u64),
    /// So many bytes of a name are still to come.
    Name(Field, usize),
}

/// A varint as far as it was read.
#[derive(Clone, Copy, Debug, Default)]
struct Varint {
    value: u64,
    bytes: u8,
}

impl Varint {
    /// Whether `byte` was the last.
    fn push(&mut self, byte: u8) -> Result<bool, PeekError> {
        // Ten bytes hold 64 bits; the tenth only one.
        if self.bytes == 9 && byte > 1 {
            return Err(PeekError::Malformed("a number of more than 64 bits"));
        }
        self.value |= u64::from(byte & 0x7f) << (7 * u32::from(self.bytes));
        self.bytes += 1;
        Ok(byte < 0x80)
    }
}

/// The scanner of one message.
#[derive(Clone, Debug)]
pub(super) struct Scanner {
    fields: NameFields,
    /// Length of the message, where it is known.
    length: Option<usize>,
    seen: usize,
    full: bool,
    state: State,
    /// The values so far; of a field that comes twice, the last.
    name: Vec<u8>,
    version: Vec<u8>,
}

impl Scanner {
    pub(super) fn new(fields: NameFields, length: Option<usize>) -> Self {
        Self {
            fields,
            length,
            seen: 0,
            full: false,
            state: State::Tag(Varint::default()),
            name: Vec::new(),
            version: Vec::new(),
        }
    }

    /// Whether no byte after those seen can matter.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Takes the message's next bytes, as far as the window reaches.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), PeekError> {
        while !self.full && !bytes.is_empty() {
            let room = WINDOW - self.seen;
            let taken = match self.state {
                State::Skip(left) => {
                    let left = usize::try_from(left).unwrap_or(usize::MAX);
                    bytes.len().min(left).min(room)
                }
                State::Name(_, left) => bytes.len().min(left).min(room),
                _ => 1,
            };
            let (now, rest) = bytes.split_at(taken);
            self.seen += taken;
            bytes = rest;
            self.step(now)?;
            let skips_all = match self.state {
                State::Skip(left) => left >= (WINDOW - self.seen) as u64,
                _ => false,
            };
            // A message that ends with the window was seen whole.
            let ends_here = self.length == Some(self.seen);
            self.full = !ends_here && (self.seen == WINDOW || skips_all && self.may_go_on());
        }
        Ok(())
    }

    /// Whether the message is longer than the window, or may be.
    fn may_go_on(&self) -> bool {
        self.length.is_none_or(|length| length > WINDOW)
    }

    /// One byte, or several inside of a field's content.
    fn step(&mut self, now: &[u8]) -> Result<(), PeekError> {
        let byte = now.first().copied().unwrap_or_default();
        self.state = match self.state {
            State::Tag(mut varint) => match varint.push(byte)? {
                true => self.field(varint.value)?,
                false => State::Tag(varint),
            },
            State::Number(mut varint) => match varint.push(byte)? {
                true => State::Tag(Varint::default()),
                false => State::Number(varint),
            },
            State::Length(field, mut varint) => match varint.push(byte)? {
                true => self.content(field, varint.value)?,
                false => State::Length(field, varint),
            },
            State::Skip(left) => skip(left.saturating_sub(now.len() as u64)),
            State::Name(field, left) => {
                let value = if field == Field::Name { &mut self.name } else { &mut self.version };
                value.extend_from_slice(now);
                match left.saturating_sub(now.len()) {
                    0 => State::Tag(Varint::default()),
                    left => State::Name(field, left),
                }
            }
        };
        Ok(())
    }

    /// What follows a tag.
    fn field(&self, key: u64) -> Result<State, PeekError> {
        let key = u32::try_from(key).map_err(|_| PeekError::Malformed("a field's number"))?;
        let (number, wire) = (key >> 3, (key & 7) as u8);
        let field = match number {
            0 => return Err(PeekError::Malformed("field number 0")),
            number if number == self.fields.name => Field::Name,
            number if Some(number) == self.fields.version => Field::Version,
            _ => Field::Other,
        };
        if field != Field::Other && wire != LENGTH {
            return Err(PeekError::Malformed("the model's name is no string"));
        }
        match wire {
            VARINT => Ok(State::Number(Varint::default())),
            FIXED64 => self.skips(8),
            FIXED32 => self.skips(4),
            LENGTH => Ok(State::Length(field, Varint::default())),
            3 | 4 => Err(PeekError::Malformed("groups are not part of the protocol")),
            _ => Err(PeekError::Malformed("an unknown wire type")),
        }
    }

    /// What follows a field's length.
    fn content(&mut self, field: Field, length: u64) -> Result<State, PeekError> {
        let value = match field {
            Field::Other => return self.skips(length),
            Field::Name => &mut self.name,
            Field::Version => &mut self.version,
        };
        value.clear();
        let short = usize::try_from(length).ok().filter(|length| *length <= MAX_NAME);
        let short = short.ok_or(PeekError::NameTooLong(length))?;
        self.fits(length)?;
        Ok(if short == 0 { State::Tag(Varint::default()) } else { State::Name(field, short) })
    }

    fn skips(&self, length: u64) -> Result<State, PeekError> {
        self.fits(length)?;
        Ok(skip(length))
    }

    /// A field must end within its message.
    fn fits(&self, length: u64) -> Result<(), PeekError> {
        let left = self.length.map(|all| all.saturating_sub(self.seen) as u64);
        if left.is_some_and(|left| length > left) {
            return Err(PeekError::Malformed("a field is longer than the message"));
        }
        Ok(())
    }

    /// The message has ended: its model.
    pub(super) fn end(&self) -> Result<ModelName, PeekError> {
        if !matches!(self.state, State::Tag(Varint { bytes: 0, .. })) {
            return Err(PeekError::Malformed("it ends within a field"));
        }
        self.names(PeekError::Missing)
    }

    /// The window has ended: the model as far as it is known.
    pub(super) fn beyond(&self) -> Result<ModelName, PeekError> {
        if matches!(self.state, State::Name(..)) {
            return Err(PeekError::Beyond);
        }
        self.names(PeekError::Beyond)
    }

    fn names(&self, missing: PeekError) -> Result<ModelName, PeekError> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| PeekError::NotUtf8);
        let (name, version) = (text(&self.name)?, text(&self.version)?);
        if name.is_empty() && !(self.fields.optional && missing == PeekError::Missing) {
            return Err(missing);
        }
        Ok(ModelName { name, version: Some(version).filter(|version| !version.is_empty()) })
    }
}

fn skip(left: u64) -> State {
    if left == 0 { State::Tag(Varint::default()) } else { State::Skip(left) }
}
