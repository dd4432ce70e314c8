//! What CUPTI calls, on whatever thread, in the middle of whatever the program does: nothing here waits for anything
//! slow, makes a call of CUDA's, or can panic. NVIDIA's own tools, too, enable kinds of activity from within.
#![allow(unsafe_code, reason = "foreign code calls, with pointers")]

use super::ffi::{DRIVER, RUNTIME};
use super::hub::HUB;
use crate::collector::contained::in_callback;
use std::ffi::c_void;

/// A function by which a program begins or ends a range.
#[derive(Debug)]
pub(super) struct RangeFunction {
    pub(super) domain: u32,
    pub(super) function: u32,
    begins: bool,
}

/// cuProfilerStart, cuProfilerStop, cudaProfilerStart, cudaProfilerStop. Those of the runtime call those of the driver;
/// since ranges do not nest, that makes no difference.
pub(super) const MARKS: [RangeFunction; 4] = [
    RangeFunction { domain: DRIVER, function: 308, begins: true },
    RangeFunction { domain: DRIVER, function: 309, begins: false },
    RangeFunction { domain: RUNTIME, function: 171, begins: true },
    RangeFunction { domain: RUNTIME, function: 172, begins: false },
];

/// The functions of the driver that unload kernels. Their numbers are found by their names, as newer ones have been added.
pub(super) const UNLOADS: [&str; 2] = ["cuModuleUnload", "cuLibraryUnload"];

/// CUPTI wants an empty buffer.
pub(super) extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    if buffer.is_null() || size.is_null() {
        return;
    }
    let (start, length) = HUB.pool.request().map_or((std::ptr::null_mut(), 0), |(start, size)| (start.as_ptr(), size));
    // SAFETY: CUPTI gives a valid place for the result.
    unsafe { buffer.write(start) };
    // SAFETY: CUPTI gives a valid place for the result.
    unsafe { size.write(length) };
    if !most_records.is_null() {
        // As many as fit.
        // SAFETY: CUPTI gives a valid place for the result.
        unsafe { most_records.write(0) };
    }
}

/// CUPTI hands a buffer over.
pub(super) extern "C" fn completed(_context: *mut c_void, _stream: u32, buffer: *mut u8, _size: usize, valid: usize) {
    HUB.pool.complete(buffer, valid);
}

/// A call of CUDA begins or ends. The subscription asks for [`UNLOADS`], for [`MARKS`] where ranges are recorded, and for all
/// when the library is to be let go of.
pub(super) extern "C" fn on_call(_user_data: *mut c_void, domain: u32, function: u32, data: *const c_void) {
    /// What stands first in the data of a call that returns.
    const EXIT: u32 = 1;
    if !matches!(domain, DRIVER | RUNTIME) || data.is_null() {
        return;
    }
    // SAFETY: in these domains the data begins with a number that tells whether the call begins or returns.
    let site = unsafe { data.cast::<u32>().read() };
    if site == EXIT && HUB.is_to_let_go() {
        super::worker::let_go_now();
    }
    if site != EXIT && domain == DRIVER && HUB.unloads(function) {
        in_callback(|| HUB.before_unload());
    }
    // A range begins when the call that begins it returns, and ends when the one that ends it begins.
    let mark = MARKS.iter().find(|mark| (mark.domain, mark.function) == (domain, function));
    if let Some(mark) = mark.filter(|mark| mark.begins == (site == EXIT)) {
        in_callback(|| HUB.mark(mark.begins));
    }
}
