//! Steps over the records of a buffer.

use crate::code::{Code, Outcome, give};
use crate::layout;
use crate::link;

/// Returns the record after `*record`, or the first for null.
///
/// # Errors
/// The end of the buffer, or a record of no known kind. As the real library it knows the end only where a record ends
/// there: of a buffer that is cut, it gives a record that is not inside.
pub(crate) fn next(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> Outcome {
    // SAFETY: the caller promises null or a valid place.
    let current = unsafe { record.as_ref() }.copied().ok_or(Code::BAD_ARGUMENT)?;
    if buffer.is_null() || valid == 0 {
        return Err(Code::END_OF_BUFFER);
    }
    if current.is_null() {
        return give(record, buffer);
    }
    let offset = (current as usize).checked_sub(buffer as usize).ok_or(Code::BAD_ARGUMENT)?;
    if offset + size_of::<u32>() > valid {
        // The real library reads on, where nothing of the buffer is.
        return Err(Code::BAD_ARGUMENT);
    }
    // SAFETY: the range is inside the buffer.
    let kind = unsafe { current.cast::<u32>().read_unaligned() };
    let length = layout::length(kind, link::options()).ok_or(Code::BAD_ARGUMENT)?;
    if offset + length == valid {
        return Err(Code::END_OF_BUFFER);
    }
    give(record, buffer.wrapping_add(offset + length))
}
