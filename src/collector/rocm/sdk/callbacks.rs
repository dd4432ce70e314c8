//! What rocprofiler-sdk calls, on whatever thread, in the middle of whatever the program does: nothing here waits for
//! anything slow, makes a call of HIP's, or can panic.
#![allow(unsafe_code, reason = "foreign code calls, with pointers")]

use super::ffi::{Tool, sized, text_at};
use super::hub::{HUB, Hub};
use super::names::{CODE_OBJECT, HIP_RUNTIME};
use super::reader::{HipCall, Return};
use super::records::{self, Callback, Kind, Phase};
use crate::buffer::Loss;
use crate::collector::rocm::hip::Does;
use crate::collector::rocm::ids;
use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls what must not unwind into foreign code.
pub(super) fn contained(act: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(act)).is_err()
        && let Some(hub) = HUB.get()
    {
        hub.lost(Loss::DeviceRecordsUnread, 1);
    }
}

/// What the library is told of this tool.
static TOOL: Tool = Tool { size: size_of::<Tool>(), initialize, finalize, data: 0 };

/// The library asks what is to be recorded.
pub(super) extern "C" fn configure(_: u32, _: *const c_char, _: u32, client: *mut c_void) -> *const Tool {
    /// Who this is: `{size, name, number}`.
    const LEAST: u64 = 24;
    const NAME: usize = 1;
    if !client.is_null() {
        // SAFETY: the struct begins with its size.
        let size = unsafe { client.cast::<u64>().read_unaligned() };
        if size >= LEAST {
            let name = client.cast::<*const c_char>().wrapping_add(NAME);
            // SAFETY: the struct is long enough to have the place for a name, which tools write.
            unsafe { name.write_unaligned(c"tracing-kineto".as_ptr()) };
        }
    }
    &raw const TOOL
}

/// The library wants its contexts made: the one time at which they can be.
extern "C" fn initialize(_end: *const c_void, _data: *mut c_void) -> c_int {
    let Some(hub) = HUB.get() else { return -1 };
    contained(|| hub.configure());
    if hub.contexts().is_some() { 0 } else { -1 }
}

/// The library ends, mostly with the process.
extern "C" fn finalize(_data: *mut c_void) {
    if let Some(hub) = HUB.get() {
        hub.finalize();
    }
}

/// A kernel was loaded.
pub(super) extern "C" fn on_code(record: Callback, _own: *mut u64, _data: *mut c_void) {
    contained(|| {
        let Some(hub) = HUB.get() else { return };
        let is_symbol = record.kind() == CODE_OBJECT && hub.known().operations.is_kernel_symbol(record.operation());
        if !is_symbol || record.phase() != Phase::Enter {
            return;
        }
        let payload = std::ptr::with_exposed_provenance::<c_void>(address(record.payload()));
        match sized(payload).and_then(records::symbol) {
            Some((kernel, name)) => hub.loaded(kernel, text_at(name)),
            None => hub.lost(Loss::DeviceRecordsUnread, 1),
        }
    });
}

fn address(word: u64) -> usize {
    usize::try_from(word).unwrap_or(0)
}

/// A call of HIP begins or ends.
pub(super) extern "C" fn on_call(record: Callback, own: *mut u64, _data: *mut c_void) {
    if own.is_null() || record.kind() != HIP_RUNTIME {
        return;
    }
    contained(|| {
        let Some(hub) = HUB.get() else { return };
        hub.saw_call();
        if !hub.records() {
            return;
        }
        match record.phase() {
            Phase::Enter => {
                enters(hub, record);
                // As late as can be, so that what is done here is not in the row.
                let now = hub.api.timestamp().unwrap_or(0);
                // SAFETY: the library gives a place for a word of ours.
                unsafe { own.write(now) };
            }
            Phase::Exit => {
                let end = hub.api.timestamp().unwrap_or(0);
                // SAFETY: the library gives the place that it gave before.
                let start = unsafe { own.read() };
                exits(hub, record, start, end);
            }
            Phase::Other => {}
        }
    });
}

fn enters(hub: &Hub, record: Callback) {
    let number = record.operation();
    let Some(function) = hub.known().operations.function(number).filter(|function| function.does.launches()) else {
        return;
    };
    let arguments = hub.api.arguments(record);
    let start = hub.api.timestamp().unwrap_or(0);
    let (thread, correlation) = (record.thread(), record.correlation());
    hub.read(|reader| reader.enter(&HipCall { function, number, thread, correlation, start }, arguments));
}

fn exits(hub: &Hub, record: Callback, start: u64, end: u64) {
    let number = record.operation();
    let Some(function) = hub.known().operations.function(number) else {
        return hub.lost(Loss::DeviceRecordsUnread, 1);
    };
    if start == 0 || end < start {
        // It began before the recording.
        return hub.lost(Loss::OutOfWindow, 1);
    }
    let payload = std::ptr::with_exposed_provenance::<c_void>(address(record.payload()));
    let failed = sized(payload).is_some_and(records::has_failed);
    // What was allocated is known only now.
    let has_arguments = matches!(function.does, Does::Allocate | Does::Release) || function.captures.is_some();
    let arguments = has_arguments.then(|| hub.api.arguments(record));
    let (thread, correlation) = (record.thread(), record.correlation());
    let returned = Return { end, failed, external: ids::innermost(), arguments };
    hub.read(|reader| reader.exit(&HipCall { function, number, thread, correlation, start }, &returned));
}

/// Records are handed over: each by a header, which says what it is and where.
pub(super) extern "C" fn on_buffer(
    _context: u64,
    _buffer: u64,
    headers: *const *const c_void,
    count: usize,
    _data: *mut c_void,
    dropped: u64,
) {
    contained(|| {
        let Some(hub) = HUB.get() else { return };
        hub.dropped(dropped);
        for at in 0..if headers.is_null() { 0 } else { count } {
            // SAFETY: the library says that there are so many pointers.
            let header = unsafe { headers.wrapping_add(at).read() };
            read(hub, header);
        }
    });
}

fn read(hub: &Hub, header: *const c_void) {
    if header.is_null() {
        return hub.read(|reader| reader.missing(Loss::DeviceRecordsUnread, 1));
    }
    // SAFETY: a header is two numbers and an address, 16 bytes.
    let [category, kind] = unsafe { header.cast::<[u32; 2]>().read_unaligned() };
    // SAFETY: a header is two numbers and an address, 16 bytes.
    let record = unsafe { header.cast::<[*const c_void; 2]>().read_unaligned() }[1];
    let bytes = sized(record).unwrap_or_default();
    hub.read(|reader| reader.record(Kind { category, kind }, bytes));
}
