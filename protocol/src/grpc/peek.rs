//! Reads just enough of a gRPC message to know which model it is about: a state machine that is
//! fed with the body's bytes as they come. At most [`WINDOW`] bytes of the message, decompressed,
//! are looked at, and none are kept but the two names. Protobuf fields may come in any order and
//! the last value of a field counts; a later value beyond the window is not seen here, so the
//! receiver must refuse a message whose model differs from the one it was sent for.

mod scan;

use std::io::{Read, Write};

use bytes::{BufMut, Bytes, BytesMut};
use flate2::{read, write};

use self::scan::Scanner;
use crate::{ModelName, grpc::method::NameFields};

/// Bytes of a message that are looked at, after decompression.
pub const WINDOW: usize = 64 << 10;
/// Longest model name or version, bytes.
pub const MAX_NAME: usize = 1024;
/// Compressed bytes that are looked at; a stream may be long and yield nothing.
const MAX_COMPRESSED: usize = 2 * WINDOW;
/// The compressed flag and the length, before each message.
const PREFIX: usize = 5;

/// How a message is compressed when its flag says so (`grpc-encoding`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Coding {
    /// Not at all; a message whose flag says otherwise is wrong.
    #[default]
    Identity,
    /// gzip.
    Gzip,
    /// deflate in the zlib format.
    Deflate,
    /// One that is not known here.
    Other(String),
}

impl Coding {
    /// Reads the value of `grpc-encoding`; none means identity.
    #[must_use]
    pub fn parse(value: Option<&str>) -> Self {
        match value {
            None | Some("identity") => Self::Identity,
            Some("gzip") => Self::Gzip,
            Some("deflate") => Self::Deflate,
            Some(other) => Self::Other(other.chars().take(32).collect()),
        }
    }
}

/// Why a message does not say its model. All are the sender's mistakes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeekError {
    /// The prefix announces more than the limit.
    #[error("the message has {length} bytes; at most {limit} are taken")]
    TooLarge {
        /// Announced length, bytes.
        length: usize,
        /// The limit, bytes.
        limit: usize,
    },
    /// The compressed flag is neither 0 nor 1.
    #[error("the message's compressed flag is {0}, not 0 or 1")]
    Flag(u8),
    /// The flag says compressed, the headers do not say how.
    #[error("the message is compressed, but grpc-encoding does not say how")]
    Uncoded,
    /// Compressed in a way that is not known here.
    #[error("messages in encoding '{0}' are not taken; use gzip, deflate or identity")]
    Coding(String),
    /// The compressed stream is damaged or ends early.
    #[error("the compressed message cannot be read: {0}")]
    Corrupt(String),
    /// Not the wire format of protocol buffers.
    #[error("the message is malformed: {0}")]
    Malformed(&'static str),
    /// A name over [`MAX_NAME`].
    #[error("the model's name or version has {0} bytes; at most {MAX_NAME} are taken")]
    NameTooLong(u64),
    /// A name that is no UTF-8.
    #[error("the model's name or version is not valid UTF-8")]
    NotUtf8,
    /// The message ended without a name.
    #[error("the message names no model")]
    Missing,
    /// The window ended without a name.
    #[error("no model is named in the first {WINDOW} bytes of the message")]
    Beyond,
    /// The body ended within the first message, or before it.
    #[error("the request ended before its message was complete")]
    CutShort,
}

/// What is known after some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed.
    More,
    /// The model. Its name is empty only where that means all models.
    Known(ModelName),
}

/// The state machine; see the module's text.
pub struct Peek {
    fields: NameFields,
    coding: Coding,
    limit: usize,
    prefix: [u8; PREFIX],
    stage: Stage,
}

enum Stage {
    Prefix { got: usize },
    Plain { left: usize, scanner: Scanner },
    Coded { left: usize, taken: usize, inflater: Box<Inflater> },
}

impl Peek {
    /// Expects a message whose names are in `fields`, of at most `limit` bytes as sent.
    #[must_use]
    pub fn new(fields: NameFields, coding: Coding, limit: usize) -> Self {
        Self { fields, coding, limit, prefix: [0; PREFIX], stage: Stage::Prefix { got: 0 } }
    }

    /// Takes the next bytes of the body. Once it has said [`Progress::Known`] or failed, it is
    /// used up.
    ///
    /// # Errors
    /// See [`PeekError`].
    pub fn push(&mut self, mut chunk: &[u8]) -> Result<Progress, PeekError> {
        loop {
            match &mut self.stage {
                Stage::Prefix { got } => {
                    let taken = chunk.len().min(PREFIX - *got);
                    let (now, rest) = chunk.split_at(taken);
                    self.prefix[*got..*got + taken].copy_from_slice(now);
                    *got += taken;
                    chunk = rest;
                    if *got < PREFIX {
                        return Ok(Progress::More);
                    }
                    self.stage = self.start()?;
                }
                Stage::Plain { left, scanner } => {
                    let now = &chunk[..chunk.len().min(*left)];
                    *left -= now.len();
                    scanner.feed(now)?;
                    if scanner.is_full() {
                        return scanner.beyond().map(Progress::Known);
                    }
                    if *left == 0 {
                        return scanner.end().map(Progress::Known);
                    }
                    return Ok(Progress::More);
                }
                Stage::Coded { left, taken, inflater } => {
                    let now = &chunk[..chunk.len().min(*left)];
                    let now = &now[..now.len().min(MAX_COMPRESSED - *taken)];
                    *left -= now.len();
                    *taken += now.len();
                    inflater.feed(now)?;
                    if inflater.sink().scanner.is_full() || *taken == MAX_COMPRESSED {
                        return inflater.sink().scanner.beyond().map(Progress::Known);
                    }
                    if *left == 0 {
                        inflater.end()?;
                        let scanner = &inflater.sink().scanner;
                        let name = if scanner.is_full() { scanner.beyond() } else { scanner.end() };
                        return name.map(Progress::Known);
                    }
                    return Ok(Progress::More);
                }
            }
        }
    }

    /// The prefix is complete.
    fn start(&self) -> Result<Stage, PeekError> {
        let (compressed, left) = announced(self.prefix, self.limit)?;
        let scanner = Scanner::new(self.fields, (!compressed).then_some(left));
        if !compressed {
            return Ok(Stage::Plain { left, scanner });
        }
        let sink = Sink { scanner, refused: None };
        let inflater = match &self.coding {
            Coding::Gzip => Inflater::Gzip(write::GzDecoder::new(sink)),
            Coding::Deflate => Inflater::Deflate(write::ZlibDecoder::new(sink)),
            Coding::Identity => return Err(PeekError::Uncoded),
            Coding::Other(name) => return Err(PeekError::Coding(name.clone())),
        };
        Ok(Stage::Coded { left, taken: 0, inflater: Box::new(inflater) })
    }
}

/// Flag and length of a message.
fn announced(prefix: [u8; PREFIX], limit: usize) -> Result<(bool, usize), PeekError> {
    let [flag, a, b, c, d] = prefix;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if flag > 1 {
        return Err(PeekError::Flag(flag));
    }
    if length > limit {
        return Err(PeekError::TooLarge { length, limit });
    }
    Ok((flag == 1, length))
}

/// Decompresses into the scanner, at most what it still looks at.
enum Inflater {
    Gzip(write::GzDecoder<Sink>),
    Deflate(write::ZlibDecoder<Sink>),
}

/// Where decompressed bytes go; it refuses more when nothing more is looked at.
struct Sink {
    scanner: Scanner,
    refused: Option<PeekError>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.refused.is_some() || self.scanner.is_full() {
            return Err(std::io::ErrorKind::Other.into());
        }
        match self.scanner.feed(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                self.refused = Some(error);
                Err(std::io::ErrorKind::Other.into())
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Inflater {
    fn sink(&self) -> &Sink {
        match self {
            Self::Gzip(decoder) => decoder.get_ref(),
            Self::Deflate(decoder) => decoder.get_ref(),
        }
    }

    fn feed(&mut self, mut bytes: &[u8]) -> Result<(), PeekError> {
        let outcome = loop {
            if bytes.is_empty() {
                break match self {
                    Self::Gzip(decoder) => decoder.flush(),
                    Self::Deflate(decoder) => decoder.flush(),
                };
            }
            let written = match self {
                Self::Gzip(decoder) => decoder.write(bytes),
                Self::Deflate(decoder) => decoder.write(bytes),
            };
            match written {
                // The stream has ended; what follows it is for the receiver to judge.
                Ok(0) => bytes = &[],
                Ok(taken) => bytes = bytes.get(taken..).unwrap_or_default(),
                Err(error) => break Err(error),
            }
        };
        self.judge(outcome)
    }

    /// No more bytes will come.
    fn end(&mut self) -> Result<(), PeekError> {
        let outcome = match self {
            Self::Gzip(decoder) => decoder.try_finish(),
            Self::Deflate(decoder) => decoder.try_finish(),
        };
        self.judge(outcome)
    }

    /// The scanner's own reasons first: what the decoder says then is only their consequence.
    fn judge(&self, outcome: std::io::Result<()>) -> Result<(), PeekError> {
        let sink = self.sink();
        if let Some(error) = &sink.refused {
            return Err(error.clone());
        }
        if sink.scanner.is_full() {
            return Ok(());
        }
        outcome.map_err(|error| PeekError::Corrupt(error.to_string()))
    }
}

/// The one message of a body that has arrived whole, decompressed, at most `limit` bytes.
///
/// # Errors
/// See [`PeekError`]; a second message is malformed.
pub fn message(body: &Bytes, coding: &Coding, limit: usize) -> Result<Bytes, PeekError> {
    let prefix = body.first_chunk::<PREFIX>().ok_or(PeekError::CutShort)?;
    let (compressed, length) = announced(*prefix, limit)?;
    let sent = body.slice(PREFIX..);
    if sent.len() < length {
        return Err(PeekError::CutShort);
    }
    if sent.len() > length {
        return Err(PeekError::Malformed("more than one message"));
    }
    if !compressed {
        return Ok(sent);
    }
    let mut out = Vec::new();
    let most = limit as u64 + 1;
    let outcome = match coding {
        Coding::Gzip => read::GzDecoder::new(&sent[..]).take(most).read_to_end(&mut out),
        Coding::Deflate => read::ZlibDecoder::new(&sent[..]).take(most).read_to_end(&mut out),
        Coding::Identity => return Err(PeekError::Uncoded),
        Coding::Other(name) => return Err(PeekError::Coding(name.clone())),
    };
    let length = outcome.map_err(|error| PeekError::Corrupt(error.to_string()))?;
    if length > limit {
        return Err(PeekError::TooLarge { length, limit });
    }
    Ok(out.into())
}

/// A message with its prefix, uncompressed. Messages are made here and small.
#[must_use]
pub fn frame(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFIX + message.len());
    out.put_u8(0);
    out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    out.put_slice(message);
    out.freeze()
}

#[cfg(test)]
mod tests;
