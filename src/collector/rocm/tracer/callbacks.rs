//! What roctracer calls: on the program's threads around calls of HIP, and on a thread of its own with records. Nothing
//! here waits for anything slow, and no panic goes further.
#![allow(unsafe_code, reason = "foreign code calls, with pointers")]

use super::args::{Args, KernelArgument, MOST};
use super::functions::Function;
use super::hub::HUB;
use super::recording::{Called, Launching};
use super::start::{BUFFER_BYTES, Loaded};
use crate::collector::{attempt, rocm::ids};
use crate::os::thread;
use std::cell::RefCell;
use std::ffi::c_void;

/// The domain of HIP's functions.
const HIP_API: u32 = 3;
/// What the data of a call says of when it is.
const ENTER: u32 = 0;
const EXIT: u32 = 1;

/// No thread is in more calls of HIP at once.
const DEEPEST: usize = 64;

thread_local! {
    /// The calls that the thread is in: correlation id and beginning.
    static OPEN: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
}

/// A call of HIP begins or ends.
pub(super) extern "C" fn on_call(domain: u32, number: u32, data: *const c_void, _user_data: *mut c_void) {
    if domain == HIP_API && !data.is_null() {
        contained("a callback of a call", || told(number, CallData(data.cast())));
    }
}

/// roctracer hands records over.
pub(super) extern "C" fn on_records(begin: *const u8, end: *const u8, _user_data: *mut c_void) {
    let Some(length) = end.addr().checked_sub(begin.addr()).filter(|_| !begin.is_null()) else { return };
    // More than a buffer has is garbage: what can be believed of it is not known.
    let length = if length <= BUFFER_BYTES { length } else { 1 };
    // SAFETY: the library gives the ends of a part of its pool, which it does not write to until this returns.
    let bytes = unsafe { std::slice::from_raw_parts(begin, length) };
    contained("a callback of records", || HUB.with(|recording| recording.read(bytes)));
}

fn contained<R>(what: &str, act: impl FnOnce() -> R) {
    if let Err(reason) = attempt(what, act) {
        HUB.with(|recording| recording.sink.note(reason.message()));
    }
}

/// The data of a call, where it lies while a callback runs.
#[derive(Clone, Copy)]
struct CallData(*const u8);

impl CallData {
    fn correlation(self) -> u64 {
        // SAFETY: it begins with the correlation id, in every version.
        unsafe { self.0.cast::<u64>().read_unaligned() }
    }

    fn phase(self) -> u32 {
        // SAFETY: the phase is behind the correlation id, in every version.
        unsafe { self.0.wrapping_add(8).cast::<u32>().read_unaligned() }
    }

    /// Reads the arguments of a function, if it is known where they are.
    fn args(self, function: &Function) -> Option<Args> {
        let layout = function.layout?;
        let mut bytes = [0; MOST];
        let length = layout.length().min(MOST);
        // SAFETY: the function's arguments reach that far, in the versions of HIP of which the layout is known.
        unsafe { std::ptr::copy_nonoverlapping(self.0, bytes.as_mut_ptr(), length) };
        layout.read(&bytes)
    }
}

fn told(number: u32, data: CallData) {
    let Some(loaded) = HUB.loaded() else { return };
    let Some(function) = loaded.functions.get(number).filter(|function| !function.is_noise) else { return };
    match data.phase() {
        ENTER => enter(&loaded, function, data),
        EXIT => exit(&loaded, function, number, data),
        _ => {}
    }
}

fn enter(loaded: &Loaded, function: &Function, data: CallData) {
    let correlation = data.correlation();
    if function.does.launches() {
        let args = data.args(function);
        // HIP is asked before the recording is locked: it may wait for others that wait for that.
        let launching = Launching {
            function,
            correlation,
            kernel: kernel(loaded, args),
            device: loaded.hip.device_of_stream(args.and_then(Args::stream).unwrap_or(0)),
            args,
            thread: thread::id(),
        };
        HUB.with(|recording| recording.launching(launching));
    }
    let Some(start) = loaded.api.timestamp() else { return };
    let _ = OPEN.try_with(|open| {
        let Ok(mut open) = open.try_borrow_mut() else { return };
        // What is still open there will never end.
        if open.len() >= DEEPEST {
            open.remove(0);
        }
        open.push((correlation, start));
    });
}

fn exit(loaded: &Loaded, function: &Function, number: u32, data: CallData) {
    let (correlation, end) = (data.correlation(), loaded.api.timestamp());
    let start = OPEN.try_with(|open| begun(&mut *open.try_borrow_mut().ok()?, correlation));
    // It began before the recording.
    let (Ok(Some(start)), Some(end)) = (start, end) else { return };
    let args = data.args(function);
    let called = Called {
        function,
        number,
        correlation,
        start,
        end,
        args,
        allocated: args.map_or(0, allocated),
        external: ids::innermost(),
        thread: thread::id(),
    };
    HUB.with(|recording| recording.called(&called));
}

/// Takes a call out of those that a thread is in, and those within it, whose end was not seen.
fn begun(open: &mut Vec<(u64, u64)>, correlation: u64) -> Option<u64> {
    let place = open.iter().rposition(|(known, _)| *known == correlation)?;
    let start = open.get(place).map(|(_, start)| *start);
    open.truncate(place);
    start
}

fn kernel(loaded: &Loaded, args: Option<Args>) -> Option<Vec<u8>> {
    match args {
        Some(Args::Launch(launch)) => match launch.kernel {
            KernelArgument::Pointer(function) => loaded.hip.name_of_pointer(function, launch.stream),
            KernelArgument::Handle(handle) => loaded.hip.name_of_function(handle),
        },
        _ => None,
    }
}

/// Returns where what a call has allocated is, 0 if that is not known.
fn allocated(args: Args) -> u64 {
    let Args::Allocate { place, .. } = args else { return 0 };
    let place = usize::try_from(place).map_or(std::ptr::null(), std::ptr::with_exposed_provenance::<u64>);
    if place.is_null() || !place.is_aligned() {
        return 0;
    }
    // SAFETY: the program gave that place to HIP, which has just put the result there.
    unsafe { place.read() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_end_in_the_order_of_a_stack_whatever_is_missing() {
        let mut open = vec![(1, 10), (2, 20), (3, 30), (4, 40)];
        assert_eq!(begun(&mut open, 4), Some(40));
        assert_eq!(begun(&mut open, 9), None, "it began before");
        assert_eq!(begun(&mut open, 2), Some(20), "the end of 3 was not seen");
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
    fn what_was_allocated_is_read_where_the_program_wants_it() {
        let place = 0xD0D0_u64;
        let at = |place: u64| allocated(Args::Allocate { place, bytes: 1 });
        let address = (&raw const place).expose_provenance() as u64;
        assert_eq!([at(address), at(0), at(address + 1)], [0xD0D0, 0, 0]);
    }
}
