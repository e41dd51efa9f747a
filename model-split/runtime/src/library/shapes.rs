//! Whether an input or output of a model has a shape at all. `ort` gives no dimensions both for a scalar and
//! for a tensor whose number of dimensions is unknown; the library itself tells them apart.

use std::ptr;

use ort::{AsPointer, Error, session::Session};

/// One of a session's inputs or outputs.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Input(usize),
    Output(usize),
}

/// Whether an input or output has a known number of dimensions. False for what is no tensor.
///
/// # Errors
/// When the session has no such input or output.
pub(crate) fn has_shape(session: &Session, end: End) -> ort::Result<bool> {
    let api = ort::api();
    let mut described = ptr::null_mut();
    // SAFETY: the session is alive, and the library checks the index. The status is taken over
    // once.
    unsafe {
        Error::result_from_status(match end {
            End::Input(index) => {
                (api.SessionGetInputTypeInfo)(session.ptr(), index, &mut described)
            }
            End::Output(index) => {
                (api.SessionGetOutputTypeInfo)(session.ptr(), index, &mut described)
            }
        })?;
    }
    let mut tensor = ptr::null();
    // SAFETY: the description was given out above and is released once, after its last use; the
    // tensor's part of it, null for what is no tensor, belongs to it.
    unsafe {
        let cast =
            Error::result_from_status((api.CastTypeInfoToTensorInfo)(described, &mut tensor));
        let known = !tensor.is_null() && (api.TensorTypeAndShape_HasShape)(tensor);
        (api.ReleaseTypeInfo)(described);
        cast.map(|()| known)
    }
}
