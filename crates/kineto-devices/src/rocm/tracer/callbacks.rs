//! Callbacks of roctracer: on the program's threads around HIP calls, and with records on the library's thread. They
//! do not block, and contain panics.
#![allow(unsafe_code, reason = "foreign code calls these functions with pointers")]

use super::args::{Layout, MOST};
use super::functions::TracedFunction;
use super::hub::HUB;
use super::recording::Launching;
use super::start::{BUFFER_BYTES, Loaded};
use crate::catch_panic;
use crate::rocm::arguments::Arguments;
use crate::rocm::hip::CallEffect;
use crate::rocm::ids;
use crate::rocm::rows::{HipCall, Return};
use kineto_base::os::thread;
use std::cell::RefCell;
use std::ffi::c_void;

/// The domain of HIP's functions.
const HIP_API: u32 = 3;
/// Phases in the data of a call.
const ENTER: u32 = 0;
const EXIT: u32 = 1;

/// The most HIP calls that a thread may be in at once.
const DEEPEST: usize = 64;

thread_local! {
    /// The calls that the thread is in: correlation id and start.
    static OPEN: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
}

/// A HIP call begins or returns.
pub(super) extern "C" fn on_call(domain: u32, number: u32, data: *const c_void, _user_data: *mut c_void) {
    if domain == HIP_API && !data.is_null() {
        run_contained("a callback of a call", || handle_call(number, CallData(data.cast())));
    }
}

/// roctracer delivers records.
pub(super) extern "C" fn on_records(begin: *const u8, end: *const u8, _user_data: *mut c_void) {
    let Some(length) = end.addr().checked_sub(begin.addr()).filter(|_| !begin.is_null()) else { return };
    // More than a buffer can only be corrupt, so the bytes cannot be trusted.
    let length = if length <= BUFFER_BYTES { length } else { 1 };
    // SAFETY: the library passes both ends of a part of its pool, which it does not write to until this returns.
    let bytes = unsafe { std::slice::from_raw_parts(begin, length) };
    run_contained("a callback of records", || HUB.with_recording(|recording| recording.read_buffer(bytes)));
}

fn run_contained<R>(what: &str, act: impl FnOnce() -> R) {
    if let Err(reason) = catch_panic(what, act) {
        HUB.with_recording(|recording| recording.rows.sink.note(reason.message()));
    }
}

/// The data of a call, valid during a callback.
#[derive(Clone, Copy)]
struct CallData(*const u8);

impl CallData {
    fn correlation(self) -> u64 {
        // SAFETY: it begins with the correlation id, in every version.
        unsafe { self.0.cast::<u64>().read_unaligned() }
    }

    fn phase(self) -> u32 {
        // SAFETY: the phase follows the correlation id, in every version.
        unsafe { self.0.wrapping_add(8).cast::<u32>().read_unaligned() }
    }

    /// Reads the arguments of a function, if its layout is known.
    fn read_args(self, function: &TracedFunction) -> Option<Arguments> {
        let layout = function.layout?;
        let mut bytes = [0; MOST];
        let length = layout.length().min(MOST);
        // SAFETY: the arguments are that long in all HIP versions whose layout is known.
        unsafe { std::ptr::copy_nonoverlapping(self.0, bytes.as_mut_ptr(), length) };
        layout.read_args(&bytes)
    }
}

fn handle_call(number: u32, data: CallData) {
    let Some(loaded) = HUB.loaded_libraries() else { return };
    let Some(function) = loaded.functions.get(number).filter(|function| !function.is_noise) else { return };
    match data.phase() {
        ENTER => enter_call(&loaded, function, data),
        EXIT => exit_call(&loaded, function, number, data),
        _ => {}
    }
}

fn enter_call(loaded: &Loaded, function: &TracedFunction, data: CallData) {
    let correlation = data.correlation();
    if function.hip.does.has_device_work() {
        let arguments = data.read_args(function);
        let kernel = arguments.as_ref().and_then(|arguments| kernel_name(loaded, function.layout, arguments));
        let stream = arguments.as_ref().and_then(|arguments| arguments.stream).unwrap_or(0);
        // Query HIP before locking the recording: HIP may wait for threads that wait for this lock.
        let launching = Launching {
            function: &function.hip,
            correlation,
            kernel,
            device: loaded.hip.device_of_stream(stream),
            arguments,
            thread: thread::id(),
        };
        HUB.with_recording(|recording| recording.begin_call(launching));
    }
    let Some(start) = loaded.api.timestamp() else { return };
    let _ = OPEN.try_with(|open| {
        let Ok(mut open) = open.try_borrow_mut() else { return };
        // Calls that are still open there never return.
        if open.len() >= DEEPEST {
            open.remove(0);
        }
        open.push((correlation, start));
    });
}

fn exit_call(loaded: &Loaded, function: &TracedFunction, number: u32, data: CallData) {
    let (correlation, end) = (data.correlation(), loaded.api.timestamp());
    let start = OPEN.try_with(|open| close_call(&mut *open.try_borrow_mut().ok()?, correlation));
    // It began before the recording.
    let (Ok(Some(start)), Some(end)) = (start, end) else { return };
    let mut arguments = data.read_args(function);
    if let Some(allocated) = arguments.as_mut().filter(|_| function.hip.does == CallEffect::Allocate) {
        allocated.ptr = address_at(allocated.ptr);
    }
    let call = HipCall { function: &function.hip, number, thread: thread::id(), correlation, start };
    // roctracer does not report failures.
    let returned = Return { end, failed: false, external: ids::innermost() };
    HUB.with_recording(|recording| recording.end_call(&call, returned, arguments.as_ref()));
}

/// Removes a call from those that a thread is in, with the calls within it whose return was not seen.
fn close_call(open: &mut Vec<(u64, u64)>, correlation: u64) -> Option<u64> {
    let place = open.iter().rposition(|(known, _)| *known == correlation)?;
    let start = open.get(place).map(|(_, start)| *start);
    open.truncate(place);
    start
}

fn kernel_name(loaded: &Loaded, layout: Option<Layout>, arguments: &Arguments) -> Option<Vec<u8>> {
    match layout? {
        Layout::Launch => loaded.hip.name_of_pointer(arguments.kernel, arguments.stream?),
        Layout::ModuleLaunch { .. } => loaded.hip.name_of_function(arguments.kernel),
        _ => None,
    }
}

/// Returns the address at a place of the program where HIP has stored it, 0 if unknown.
fn address_at(place: u64) -> u64 {
    let place = usize::try_from(place).map_or(std::ptr::null(), std::ptr::with_exposed_provenance::<u64>);
    if place.is_null() || !place.is_aligned() {
        return 0;
    }
    // SAFETY: the program passed that place to HIP, which has just stored the address there.
    unsafe { place.read() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_end_in_stack_order() {
        let mut open = vec![(1, 10), (2, 20), (3, 30), (4, 40)];
        assert_eq!(close_call(&mut open, 4), Some(40));
        assert_eq!(close_call(&mut open, 9), None, "it began before");
        assert_eq!(close_call(&mut open, 2), Some(20), "the end of 3 was not seen");
        assert_eq!(open, [(1, 10)]);
    }

    #[test]
    fn without_a_recording_callbacks_do_nothing() {
        let data = [0u64; 4];
        on_call(HIP_API, 107, data.as_ptr().cast(), std::ptr::null_mut());
        on_call(HIP_API, 107, std::ptr::null(), std::ptr::null_mut());
        let bytes = [0u8; 64];
        let end = bytes.as_ptr().wrapping_add(64);
        on_records(bytes.as_ptr(), end, std::ptr::null_mut());
        on_records(end, bytes.as_ptr(), std::ptr::null_mut());
        on_records(std::ptr::null(), std::ptr::null(), std::ptr::null_mut());
    }

    #[test]
    fn allocated_address_is_read_from_its_place() {
        let place = 0xD0D0_u64;
        let address = (&raw const place).expose_provenance() as u64;
        assert_eq!([address, 0, address + 1].map(address_at), [0xD0D0, 0, 0]);
    }
}
