//! Target of the look into gRPC messages.

use bytes::Bytes;
use midspan_protocol::{
    ModelName,
    grpc::{
        method::{GrpcMethod, NameFields},
        peek::{Coding, MAX_NAME, Peek, PeekError, Progress, WINDOW, frame, message},
    },
};

use super::Outcome::{self, Refused, Taken};

const LIMIT: usize = 1 << 20;

/// [`Peek`]: the lowest two bits of the first byte choose the method, the next two the coding, the
/// upper four the size of the pieces in which the body, which follows, is fed once more.
pub(super) fn grpc_peek(data: &[u8]) -> Outcome {
    let Some((choice, body)) = data.split_first() else { return Refused };
    let method = match choice & 3 {
        0 => GrpcMethod::ModelInfer,
        1 => GrpcMethod::RepositoryModelLoad,
        2 => GrpcMethod::ModelStatistics,
        _ => GrpcMethod::ModelStreamInfer,
    };
    let coding = match choice >> 2 & 3 {
        1 => Coding::Gzip,
        2 => Coding::Deflate,
        _ => Coding::Identity,
    };
    let Some(fields) = method.fields() else { return Refused };
    let whole = peek(fields, &coding, body, body.len());
    let pieces = peek(fields, &coding, body, usize::from(choice >> 4) + 1);
    let plain = body.first() == Some(&0);
    if let (Ok(whole), Ok(pieces)) = (&whole, &pieces) {
        assert_eq!(whole, pieces, "cut otherwise, another model");
    }
    // A damaged stream may be found out before or after the window is full.
    assert!(!plain || whole == pieces, "{whole:?} whole, {pieces:?} in pieces");
    let taken = message(&Bytes::copy_from_slice(body), &coding, LIMIT);
    if let Ok(taken) = &taken {
        assert!(taken.len() <= LIMIT);
        let again = message(&frame(taken), &Coding::Identity, LIMIT);
        assert_eq!(again.as_ref(), Ok(taken), "through a frame");
        if taken.len() < WINDOW {
            assert_eq!(whole.clone().ok(), reference(fields, taken), "of {taken:?}");
        }
    }
    match whole {
        Ok(model) => {
            assert!(!model.name.is_empty() || method == GrpcMethod::ModelStatistics);
            assert!(model.name.len() <= MAX_NAME && model.version.as_deref() != Some(""));
            Taken
        }
        Err(_) => Refused,
    }
}

fn peek(
    fields: NameFields,
    coding: &Coding,
    body: &[u8],
    pieces: usize,
) -> Result<ModelName, PeekError> {
    let mut peek = Peek::new(fields, coding.clone(), LIMIT);
    for piece in body.chunks(pieces.max(1)) {
        if let Progress::Known(model) = peek.push(piece)? {
            return Ok(model);
        }
    }
    Err(PeekError::CutShort)
}

/// The same of a message that is here as a whole, written the plain way.
fn reference(fields: NameFields, mut rest: &[u8]) -> Option<ModelName> {
    let (mut name, mut version) = (&b""[..], &b""[..]);
    while !rest.is_empty() {
        let key = u32::try_from(varint(&mut rest)?).ok()?;
        let (number, wire) = (key >> 3, key & 7);
        let named = number == fields.name || Some(number) == fields.version;
        if number == 0 || named && wire != 2 {
            return None;
        }
        let length = match wire {
            0 => {
                varint(&mut rest)?;
                continue;
            }
            1 => 8,
            5 => 4,
            2 => usize::try_from(varint(&mut rest)?).ok()?,
            _ => return None,
        };
        let value;
        (value, rest) = rest.split_at_checked(length)?;
        if named && length > MAX_NAME {
            return None;
        }
        if number == fields.name {
            name = value;
        } else if named {
            version = value;
        }
    }
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let (name, version) = (text(name)?, text(version)?);
    let version = Some(version).filter(|version| !version.is_empty());
    (fields.optional || !name.is_empty()).then_some(ModelName { name, version })
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for place in 0..10 {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if *byte < 0x80 {
            return (place < 9 || *byte < 2).then_some(value);
        }
    }
    None
}
