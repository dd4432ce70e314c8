//! What PTI calls, on threads of the program's and on its own: nothing here waits for anything slow, makes a call of
//! Level Zero's, or can panic.
#![allow(unsafe_code, reason = "foreign code calls, with pointers")]

use super::hub::HUB;
use crate::collector::pool::{self, ScrapLimits};

/// PTI is refused nothing: up to 0.17, it writes into whatever it is given, even if that is nothing. It writes under one
/// lock, so that those who get the same scrap do not meet in it.
pub(super) const SCRAPS: ScrapLimits = ScrapLimits { bytes: 16 << 10, most: 256 };

/// PTI wants an empty buffer.
pub(super) extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize) {
    if buffer.is_null() || size.is_null() {
        return;
    }
    let place = if HUB.owner.is_inherited() { pool::leak_buffer(SCRAPS.bytes) } else { HUB.pool.request() };
    let (start, length) = place.map_or((std::ptr::null_mut(), 0), |(start, size)| (start.as_ptr(), size));
    // SAFETY: PTI gives a valid place for the result.
    unsafe { buffer.write(start) };
    // SAFETY: PTI gives a valid place for the result.
    unsafe { size.write(length) };
}

/// PTI hands a buffer over.
pub(super) extern "C" fn completed(buffer: *mut u8, _size: usize, valid: usize) {
    // Nobody reads in a forked child, and who had the pool's lock may not be there.
    if !HUB.owner.is_inherited() {
        HUB.pool.complete(buffer, valid);
    }
}
