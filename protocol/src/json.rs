//! JSON of messages: one strict pass over the text, tensor data straight into element bytes.
//!
//! Stricter than a general parser where the protocol gives a value one meaning: an object names a
//! member once, integers are never rounded, arrays follow their shape. Laxer in one place: float
//! data may hold the bare tokens `NaN`, `Infinity` and `-Infinity`, which real clients send.
//!
//! Nothing here allocates by what a shape or a length promises, only by what the text can hold.

mod data;
mod fault;
mod number;
mod reader;
mod tensor;
mod write;

pub(crate) use fault::Fault;
pub(crate) use reader::{Bare, Reader};
pub(crate) use tensor::{read_tensor, write_tensor};

/// Members that one object may have, and inputs or outputs that one message may have.
pub(crate) const MAX_MEMBERS: usize = 1024;

/// The JSON part of `body`, of `length` bytes.
///
/// # Errors
/// A length beyond the body, or text that is not UTF-8.
pub(crate) fn text_of(body: &[u8], length: Option<usize>) -> Result<&str, crate::ProtocolError> {
    let length = length.unwrap_or(body.len());
    let json = body.get(..length).ok_or_else(|| {
        crate::ProtocolError::Binary(format!(
            "inference-header-content-length is {length} but the body has {} bytes",
            body.len()
        ))
    })?;
    std::str::from_utf8(json)
        .map_err(|error| crate::ProtocolError::Json(format!("not UTF-8: {error}")))
}

/// An array of inputs or outputs.
pub(crate) fn read_list<T>(
    reader: &mut Reader<'_>,
    mut read: impl FnMut(&mut Reader<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut list = Vec::new();
    reader.array(|reader, index| {
        if index == MAX_MEMBERS {
            return Err(Fault::form(format!("at most {MAX_MEMBERS} are accepted")));
        }
        list.push(read(reader)?);
        Ok(())
    })?;
    Ok(list)
}

/// Appends `key` and `value` as JSON; strings, numbers and maps of them cannot fail to serialise.
pub(crate) fn put<T: serde::Serialize + ?Sized>(json: &mut Vec<u8>, key: &str, value: &T) {
    json.extend_from_slice(key.as_bytes());
    let written = serde_json::to_writer(&mut *json, value);
    debug_assert!(written.is_ok());
}

#[cfg(test)]
mod tests;
