//! Callbacks of PTI, on the program's threads and its own. They do not block, call Level Zero, or panic.
#![allow(unsafe_code, reason = "foreign code calls these functions with pointers")]

use super::hub::HUB;
use crate::buffered::pool::ScrapLimits;

/// No request of PTI's is refused: up to 0.17, it writes into the buffer even if that is null. It writes under a
/// lock, so requests may share a scrap buffer.
pub(super) const SCRAPS: ScrapLimits = ScrapLimits { bytes: 16 << 10, most: 256 };

/// PTI requests an empty buffer.
pub(super) extern "C" fn on_request(buffer: *mut *mut u8, size: *mut usize) {
    // SAFETY: PTI passes valid places for the buffer's address and size.
    unsafe { HUB.pool.answer_request(&HUB.owner, SCRAPS, (buffer, size)) };
}

/// PTI returns a buffer.
pub(super) extern "C" fn on_complete(buffer: *mut u8, _size: usize, valid: usize) {
    HUB.pool.accept_buffer(&HUB.owner, buffer, valid);
}
