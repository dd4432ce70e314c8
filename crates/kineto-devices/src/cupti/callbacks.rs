//! Callbacks of CUPTI, which run on any thread, inside any CUDA call of the program. They do not panic, block, or
//! call CUDA, except where metrics are measured ([`range`](super::range)): then a launch waits for its turn, or for work. Enabling
//! activity kinds in a callback is allowed: NVIDIA's own tools do it.
#![allow(unsafe_code, reason = "foreign code calls these functions with pointers")]

use super::ffi::{DRIVER, RUNTIME};
use super::hub::HUB;
use super::range;
use super::shared::{BufferInfo, each_layout};
use super::start::SCRAPS;
use crate::library::contained::in_callback;
use std::ffi::{CStr, c_char, c_void};

/// A function by which a program begins or ends a range.
#[derive(Debug)]
pub(super) struct RangeFunction {
    pub(super) domain: u32,
    pub(super) function: u32,
    begins: bool,
}

/// cuProfilerStart, cuProfilerStop, cudaProfilerStart, cudaProfilerStop. The runtime's functions call the driver's;
/// since ranges do not nest, the second call has no effect.
pub(super) const MARKS: [RangeFunction; 4] = [
    RangeFunction { domain: DRIVER, function: 308, begins: true },
    RangeFunction { domain: DRIVER, function: 309, begins: false },
    RangeFunction { domain: RUNTIME, function: 171, begins: true },
    RangeFunction { domain: RUNTIME, function: 172, begins: false },
];

/// The driver functions that unload kernels. They are resolved by name, since newer versions have further numbers.
pub(super) const UNLOADS: [&str; 2] = ["cuModuleUnload", "cuLibraryUnload"];

/// CUPTI requests an empty buffer.
pub(super) extern "C" fn on_request(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    // SAFETY: CUPTI passes valid places for the buffer's address and size.
    let is_answered = unsafe { HUB.pool.answer_request(&HUB.owner, SCRAPS, (buffer, size)) };
    if is_answered && !most_records.is_null() {
        // No limit on the number of records.
        // SAFETY: CUPTI passes a valid place for the number of records.
        unsafe { most_records.write(0) };
    }
}

/// CUPTI returns a buffer.
pub(super) extern "C" fn on_complete(_context: *mut c_void, _stream: u32, buffer: *mut u8, _size: usize, valid: usize) {
    HUB.pool.accept_buffer(&HUB.owner, buffer, valid);
}

/// CUPTI requests an empty buffer of a subscriber that shares the library.
pub(super) extern "C" fn on_shared_request(
    buffer: *mut *mut u8,
    size: *mut usize,
    most_records: *mut usize,
    _info: *const c_void,
) {
    on_request(buffer, size, most_records);
}

/// CUPTI returns a buffer of a subscriber that shares the library.
pub(super) extern "C" fn on_shared_complete(buffer: *mut u8, _size: usize, valid: usize, info: *const BufferInfo) {
    if !HUB.owner.is_inherited() {
        // SAFETY: CUPTI passes it to this callback.
        unsafe { each_layout(info, |kind, bytes, fields| HUB.layouts.note(kind, bytes, fields)) };
    }
    HUB.pool.accept_buffer(&HUB.owner, buffer, valid);
}

/// `CUpti_CallbackData`.
#[derive(Debug)]
#[repr(C)]
struct CallData {
    /// Whether the call begins or returns.
    site: u32,
    function: *const c_char,
    params: *const c_void,
    result: *const u32,
    symbol: *const c_char,
    context: *const c_void,
    context_id: u32,
    own: *mut u64,
    correlation: u32,
}

/// The parameters of a call that begins, as its function declares them; null if they are not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallParams(*const c_void);

/// Where the parameters of a function have its stream, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamPlace {
    At(usize),
    /// In the configuration that the first parameter points to.
    InConfig(usize),
}

impl CallParams {
    /// Returns the handle of the call's stream; `None` without parameters.
    ///
    /// # Safety
    /// The call has not returned, and the place is that of its function.
    pub(super) unsafe fn stream(self, place: StreamPlace) -> Option<usize> {
        let (params, offset) = match place {
            StreamPlace::At(offset) => (self.0, offset),
            StreamPlace::InConfig(_) if self.0.is_null() => return None,
            // SAFETY: the first parameter of such a function is the address of its configuration.
            StreamPlace::InConfig(offset) => (unsafe { self.0.cast::<*const c_void>().read() }, offset),
        };
        // SAFETY: the caller promises a stream's handle there.
        (!params.is_null()).then(|| unsafe { params.wrapping_byte_add(offset).cast::<usize>().read() })
    }

    /// Returns the number of the call's device; `None` without parameters.
    ///
    /// # Safety
    /// The call has not returned, and its first parameter is such a number.
    pub(super) unsafe fn device(self) -> Option<i32> {
        // SAFETY: the caller promises a number there.
        (!self.0.is_null()).then(|| unsafe { self.0.cast::<i32>().read() })
    }
}

/// A call that begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct BegunCall {
    /// Its domain and number.
    pub(super) function: (u32, u32),
    /// The thread's current context; 0 for none.
    pub(super) context: usize,
    pub(super) params: CallParams,
    /// The same for a runtime call and the driver call inside it.
    pub(super) correlation: u32,
}

/// A call that returns.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedCall<'c> {
    /// Its domain and number.
    pub(super) function: (u32, u32),
    /// CUDA's error code; 0 for success.
    pub(super) error: u32,
    pub(super) correlation: u32,
    /// The kernel's name; empty if it is not known.
    pub(super) kernel: &'c str,
}

/// Passes a call that begins to the measuring of kernels or annotations.
fn measure_begun_call(function: (u32, u32), data: *const c_void) {
    // SAFETY: in these domains the data has this layout in all versions.
    let data = unsafe { &*data.cast::<CallData>() };
    let (context, params, correlation) = (data.context.addr(), CallParams(data.params), data.correlation);
    in_callback(|| HUB.measure_begun_call(&BegunCall { function, context, params, correlation }));
}

/// Ends the watched call that the calling thread is in.
fn end_call(function: (u32, u32), data: *const c_void) {
    // SAFETY: in these domains the data has this layout in all versions.
    let data = unsafe { &*data.cast::<CallData>() };
    // SAFETY: when a call returns, this is null or the address of its result.
    let error = if data.result.is_null() { 0 } else { unsafe { data.result.read() } };
    let kernel = if data.symbol.is_null() {
        String::new()
    } else {
        // SAFETY: of a launch, this is the kernel's name, a C string that lives as long as the kernel.
        unsafe { CStr::from_ptr(data.symbol) }.to_string_lossy().into_owned()
    };
    in_callback(|| range::end_call(&EndedCall { function, error, correlation: data.correlation, kernel: &kernel }));
}

/// The first field of the data when a call returns.
const EXIT: u32 = 1;

/// A CUDA call begins or returns. The subscription covers [`UNLOADS`], [`MARKS`] if ranges are recorded, calls
/// that submit work if metrics are measured, and all driver functions during teardown.
pub(super) extern "C" fn on_call(_user_data: *mut c_void, domain: u32, function: u32, data: *const c_void) {
    if !matches!(domain, DRIVER | RUNTIME) || data.is_null() {
        return;
    }
    // SAFETY: in these domains the data begins with a number: whether the call begins or returns.
    let site = unsafe { data.cast::<u32>().read() };
    if site == EXIT && HUB.take_detach_request() {
        super::worker::detach_in_callback();
    }
    if site != EXIT && domain == DRIVER && HUB.is_unload_function(function) {
        in_callback(|| HUB.before_unload());
    }
    if site == EXIT {
        // Also while the recording ends: CUPTI measures a launch until it returns.
        if range::is_in_call((domain, function)) {
            end_call((domain, function), data);
        }
    } else if HUB.measures_ranges() {
        measure_begun_call((domain, function), data);
    }
    // A range begins when its first call returns, and ends when its last call begins.
    let mark = MARKS.iter().find(|mark| (mark.domain, mark.function) == (domain, function));
    if let Some(mark) = mark.filter(|mark| mark.begins == (site == EXIT)) {
        in_callback(|| HUB.mark_range(mark.begins));
    }
}
