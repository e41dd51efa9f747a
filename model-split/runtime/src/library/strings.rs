//! String tensors of any bytes. `ort` takes strings that end at a NUL and gives out UTF-8 only;
//! ONNX Runtime itself keeps a length and looks at nothing. The functions here are safe to call
//! with anything: each status is checked, and every length that comes back before it is used.

use std::{ffi::c_char, iter, ptr};

use ort::memory::Allocator;
use ort::value::{DynTensor, DynValue, Shape, TensorElementType, ValueType};
use ort::{AsPointer, Error, ErrorCode};

/// A string tensor of this shape with a copy of these elements.
///
/// # Errors
/// When the number of elements is not the product of the shape, or memory is short.
pub(crate) fn tensor<'a>(
    shape: &[usize],
    elements: impl Iterator<Item = &'a [u8]>,
) -> ort::Result<DynTensor> {
    let mut tensor = DynTensor::new(&Allocator::default(), TensorElementType::String, shape)?;
    let count = crate::tensor::element_count(shape)
        .ok_or_else(|| refuse(format!("shape {shape:?} has more elements than can be counted")))?;
    let mut filled = 0;
    for element in elements {
        if filled == count {
            return Err(refuse(format!("more strings than the {count} of shape {shape:?}")));
        }
        fill(&mut tensor, filled, element)?;
        filled += 1;
    }
    if filled == count {
        return Ok(tensor);
    }
    Err(refuse(format!("{filled} strings where shape {shape:?} has {count}")))
}

fn refuse(reason: String) -> Error {
    Error::new_with_code(ErrorCode::InvalidArgument, reason)
}

/// Sets the element at `index`, which is empty in a new tensor.
fn fill(tensor: &mut DynTensor, index: usize, element: &[u8]) -> ort::Result<()> {
    if element.is_empty() {
        return Ok(());
    }
    let mut buffer: *mut c_char = ptr::null_mut();
    let resize = ort::api().GetResizedStringTensorElementBuffer;
    // SAFETY: the tensor is alive and lent to this call alone; the library checks the index and
    // that these are strings. The status is taken over once.
    unsafe {
        Error::result_from_status(resize(tensor.ptr_mut(), index, element.len(), &mut buffer))?;
    }
    if buffer.is_null() {
        return Err(Error::new("ONNX Runtime gave no memory for a string"));
    }
    // SAFETY: the buffer is that of the element, resized to this length, and belongs to the tensor,
    // which nobody else can reach during this call; it cannot overlap a borrowed slice.
    unsafe { ptr::copy_nonoverlapping(element.as_ptr(), buffer.cast::<u8>(), element.len()) };
    Ok(())
}

/// The shape of a string tensor and its elements, each with a u32 little-endian length before it.
///
/// # Errors
/// When the value is no string tensor, or an element is 4 GiB or longer.
pub(crate) fn extract(value: &DynValue) -> ort::Result<(Vec<i64>, Vec<u8>)> {
    let ValueType::Tensor { ty: TensorElementType::String, shape, .. } = value.dtype() else {
        return Err(refuse(format!("expected a string tensor, got {}", value.dtype())));
    };
    let count = count(shape)?;
    if count == 0 {
        return Ok((shape.to_vec(), Vec::new()));
    }
    let mut total = 0;
    let length_of = ort::api().GetStringTensorDataLength;
    // SAFETY: the value is alive; the library checks that it holds strings.
    unsafe { Error::result_from_status(length_of(value.ptr(), &mut total))? };
    let prefixes = count.checked_mul(4).ok_or_else(|| Error::new("too many strings"))?;
    let whole =
        prefixes.checked_add(total).ok_or_else(|| Error::new("the strings are too long"))?;
    // The strings go behind the room for all prefixes and then move forward, each behind its own:
    // one buffer is enough.
    let mut bytes = vec![0; whole];
    let mut starts = vec![0; count];
    let content_of = ort::api().GetStringTensorContent;
    let content = &mut bytes[prefixes..];
    // SAFETY: both buffers are as long as is said, and the library checks that this is enough.
    unsafe {
        Error::result_from_status(content_of(
            value.ptr(),
            content.as_mut_ptr().cast(),
            content.len(),
            starts.as_mut_ptr(),
            starts.len(),
        ))?;
    }
    prefix(&mut bytes, prefixes, &starts)?;
    Ok((shape.to_vec(), bytes))
}

fn count(shape: &Shape) -> ort::Result<usize> {
    let dims = shape.iter().map(|dim| usize::try_from(*dim).ok()).collect::<Option<Vec<_>>>();
    dims.and_then(|dims| crate::tensor::element_count(&dims))
        .ok_or_else(|| Error::new(format!("shape {shape} of strings cannot be counted")))
}

/// Puts the length before every string. They lie one behind the other from `from` on, and begin
/// `starts` bytes after it; `from` is the room that all prefixes together need.
fn prefix(bytes: &mut [u8], from: usize, starts: &[usize]) -> ort::Result<()> {
    let total = bytes.len() - from;
    let ends = starts.iter().skip(1).copied().chain(iter::once(total));
    let mut at = 0;
    for (start, end) in starts.iter().copied().zip(ends) {
        if start > end || end > total {
            return Err(Error::new("ONNX Runtime gave strings that are out of order"));
        }
        let length = u32::try_from(end - start)
            .map_err(|_| Error::new("a string is 4 GiB or longer"))?
            .to_le_bytes();
        // The prefix ends before the string starts: this one's share of the room is still there,
        // because no more than `start` bytes and the prefixes before this one are in front of it.
        bytes[at..at + 4].copy_from_slice(&length);
        bytes.copy_within(from + start..from + end, at + 4);
        at += 4 + (end - start);
    }
    if at == bytes.len() {
        return Ok(());
    }
    Err(Error::new("ONNX Runtime gave strings that begin with a gap"))
}

#[cfg(test)]
mod tests;
