//! Steps over the records of a buffer.

use crate::client::Client;
use crate::code::{Code, Outcome, give};
use crate::layout;
use crate::link;

/// Returns the record after `*record`, or the first for null.
pub(crate) fn next(client: &Client, buffer: *mut u8, valid: usize, record: *mut *mut u8) -> Outcome {
    // SAFETY: the caller promises null or a valid place.
    let current = unsafe { record.as_ref() }.copied().ok_or(Code::INVALID_PARAMETER)?;
    if buffer.is_null() {
        return Err(Code::INVALID_PARAMETER);
    }
    let offset = if current.is_null() {
        0
    } else {
        let offset = (current as usize).checked_sub(buffer as usize).ok_or(Code::INVALID_PARAMETER)?;
        offset + length(client, buffer, valid, offset)?
    };
    length(client, buffer, valid, offset)?;
    give(record, buffer.wrapping_add(offset))
}

/// The length of the record at an offset.
fn length(client: &Client, buffer: *mut u8, valid: usize, offset: usize) -> Outcome<usize> {
    if offset + size_of::<u32>() > valid {
        return Err(Code::MAX_LIMIT_REACHED);
    }
    // SAFETY: the caller promises that many valid bytes.
    let kind = unsafe { buffer.add(offset).cast::<u32>().read_unaligned() };
    let own = client.selected_fields.length(kind);
    let length = own.or_else(|| layout::length(kind, link::options().cupti)).ok_or(Code::INVALID_KIND)?;
    if offset + length > valid { Err(Code::MAX_LIMIT_REACHED) } else { Ok(length) }
}
