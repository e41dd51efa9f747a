//! A tensor object of a message: read from JSON and the binary part, or written to them.

use bytes::Bytes;

use super::{Fault, Reader, data::read_data, put, reader::Bare, write::write_data};
use crate::{
    Datatype, Parameters, ProtocolError, Tensor,
    error::clip,
    parameters::{NO_SHARED_MEMORY, SHARED_MEMORY},
    tensor::{MAX_RANK, element_count},
};

/// Reads an input of a request or an output of a response; binary elements are cut from `rest`.
pub(crate) fn read_tensor(reader: &mut Reader<'_>, rest: &mut Bytes) -> Result<Tensor, Fault> {
    let mut name: Option<String> = None;
    let mut shape: Option<(Vec<u64>, usize)> = None;
    let mut datatype = None;
    let mut parameters = None;
    let mut data = None;
    reader.object(|reader, member| {
        let named = |fault: Fault| fault.of_tensor(name.as_deref());
        match member {
            "name" => name = Some(reader.string()?.into_owned()),
            "shape" => shape = Some(read_shape(reader).map_err(named)?),
            "datatype" => datatype = Some(read_datatype(reader).map_err(named)?),
            "parameters" => parameters = reader.optional(Parameters::read)?,
            "data" => {
                let read = reader.optional(|reader| match (&shape, datatype) {
                    (Some((shape, count)), Some(datatype)) => {
                        read_data(reader, datatype, shape, *count).map(Data::Read)
                    }
                    _ => {
                        let start = *reader;
                        reader.skip(Bare::Passed).map(|()| Data::Unread(start))
                    }
                });
                data = read.map_err(named)?;
            }
            _ => reader.skip(Bare::Refused)?,
        }
        Ok(())
    })?;
    let name = name.ok_or_else(|| Fault::missing("name"))?;
    let (shape, count) = shape.ok_or_else(|| Fault::missing("shape"))?;
    let datatype = datatype.ok_or_else(|| Fault::missing("datatype"))?;
    let finish = || {
        let size = parameters.as_ref().and_then(|all: &Parameters| all.get("binary_data_size"));
        if parameters.as_ref().is_some_and(|all| all.get(SHARED_MEMORY).is_some()) {
            return Err(Fault::data(NO_SHARED_MEMORY));
        }
        let data = match (data, size) {
            (Some(_), Some(_)) => return Err(Fault::data("has both data and binary_data_size")),
            (None, None) => return Err(Fault::data("has neither data nor binary_data_size")),
            (Some(Data::Read(data)), None) => data,
            (Some(Data::Unread(mut start)), None) => read_data(&mut start, datatype, &shape, count)
                .map_err(|fault| fault.in_member("data"))?,
            (None, Some(size)) => cut(rest, size.as_u64())?,
        };
        Ok((shape, data))
    };
    let (shape, data) = finish().map_err(|fault| fault.of_tensor(Some(&name)))?;
    Tensor::new(name, datatype, shape, data).map_err(|error| match error {
        ProtocolError::Tensor { name, problem, .. } => Fault::data(problem).of_tensor(Some(&name)),
        other => Fault::data(other.to_string()),
    })
}

/// Data as the reader met it.
enum Data<'a> {
    /// Shape and datatype came before it.
    Read(Bytes),
    /// They did not; it starts here.
    Unread(Reader<'a>),
}

fn read_shape(reader: &mut Reader<'_>) -> Result<(Vec<u64>, usize), Fault> {
    let mut shape = Vec::new();
    reader.array(|reader, index| {
        if index == MAX_RANK {
            return Err(Fault::form(format!("at most {MAX_RANK} dimensions are accepted")));
        }
        shape.push(reader.u64()?);
        Ok(())
    })?;
    let count = element_count(&shape).map_err(Fault::data)?;
    Ok((shape, count))
}

fn read_datatype(reader: &mut Reader<'_>) -> Result<Datatype, Fault> {
    let name = reader.string()?;
    Datatype::parse(&name).ok_or_else(|| Fault::data(format!("unknown datatype '{}'", clip(&name))))
}

/// The next `size` bytes of the binary part.
fn cut(rest: &mut Bytes, size: Option<u64>) -> Result<Bytes, Fault> {
    let size = size
        .and_then(|size| usize::try_from(size).ok())
        .ok_or_else(|| Fault::data("binary_data_size is not a non-negative integer"))?;
    if size > rest.len() {
        return Err(Fault::data(format!(
            "binary_data_size is {size} but {} bytes are left in the body",
            rest.len()
        )));
    }
    Ok(rest.split_to(size))
}

/// Writes one tensor object, its elements inline or appended to `blobs`.
pub(crate) fn write_tensor(
    tensor: &Tensor,
    binary: bool,
    json: &mut Vec<u8>,
    blobs: &mut Vec<Bytes>,
) -> Result<(), String> {
    put(json, "{\"name\":", &tensor.name);
    put(json, ",\"shape\":", &tensor.shape);
    put(json, ",\"datatype\":", tensor.datatype.as_str());
    if binary {
        put(json, ",\"parameters\":{\"binary_data_size\":", &tensor.data.len());
        json.push(b'}');
        blobs.push(tensor.data.clone());
    } else {
        json.extend_from_slice(b",\"data\":");
        write_data(tensor, json)?;
    }
    json.push(b'}');
    Ok(())
}
