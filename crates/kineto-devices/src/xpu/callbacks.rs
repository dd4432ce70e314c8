//! Callbacks of PTI, on the program's threads and its own. They do not block, call Level Zero, or panic.
#![allow(unsafe_code, reason = "foreign code calls these functions with pointers")]

use super::hub::HUB;
use crate::buffered::pool::{self, ScrapLimits};

/// No request of PTI's is refused: up to 0.17, it writes into the buffer even if that is null. It writes under a
/// lock, so requests may share a scrap buffer.
pub(super) const SCRAPS: ScrapLimits = ScrapLimits { bytes: 16 << 10, most: 256 };

/// PTI requests an empty buffer.
pub(super) extern "C" fn on_request(buffer: *mut *mut u8, size: *mut usize) {
    if buffer.is_null() || size.is_null() {
        return;
    }
    let place = if HUB.owner.is_inherited() { pool::leak_buffer(SCRAPS.bytes) } else { HUB.pool.request_buffer() };
    let (start, length) = place.map_or((std::ptr::null_mut(), 0), |(start, size)| (start.as_ptr(), size));
    // SAFETY: PTI passes a valid place for the buffer's address.
    unsafe { buffer.write(start) };
    // SAFETY: PTI passes a valid place for the buffer's size.
    unsafe { size.write(length) };
}

/// PTI returns a buffer.
pub(super) extern "C" fn on_complete(buffer: *mut u8, _size: usize, valid: usize) {
    // A forked child has no reader, and the thread that holds the pool's lock may not exist there.
    if !HUB.owner.is_inherited() {
        HUB.pool.complete_buffer(buffer, valid);
    }
}
