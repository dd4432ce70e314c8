//! Callbacks of rocprofiler-sdk, which run on any thread, inside any HIP call of the program. They do not block, call
//! HIP, or panic.
#![allow(unsafe_code, reason = "foreign code calls these functions with pointers")]

use super::ffi::{Tool, sized_record, text_at};
use super::hub::{HUB, Hub};
use super::names::{CODE_OBJECT, HIP_RUNTIME};
use super::records::{self, Callback, Kind, Phase};
use crate::rocm::hip::CallEffect;
use crate::rocm::ids;
use crate::rocm::rows::{HipCall, Return};
use kineto_model::Loss;
use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a callback's body, which must not unwind into foreign code.
pub(super) fn run_contained(act: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(act)).is_err()
        && let Some(hub) = HUB.get()
    {
        hub.add_loss(Loss::DeviceRecordsUnread, 1);
    }
}

/// The description of this tool for the library.
static TOOL: Tool = Tool { size: size_of::<Tool>(), initialize, finalize, data: 0 };

/// The library asks for the tool's description.
pub(super) extern "C" fn configure(_: u32, _: *const c_char, _: u32, client: *mut c_void) -> *const Tool {
    /// The client's struct: `{size, name, number}`.
    const LEAST: u64 = 24;
    const NAME: usize = 1;
    if !client.is_null() {
        // SAFETY: the struct begins with its size.
        let size = unsafe { client.cast::<u64>().read_unaligned() };
        if size >= LEAST {
            let name = client.cast::<*const c_char>().wrapping_add(NAME);
            // SAFETY: the struct is long enough to contain the name, which tools may write.
            unsafe { name.write_unaligned(c"tracing-kineto".as_ptr()) };
        }
    }
    &raw const TOOL
}

/// The library is ready to make contexts, which is only possible now.
extern "C" fn initialize(_end: *const c_void, _data: *mut c_void) -> c_int {
    let Some(hub) = HUB.get() else { return -1 };
    run_contained(|| hub.set_up_contexts());
    if hub.contexts().is_some() { 0 } else { -1 }
}

/// The library ends, usually when the process exits.
extern "C" fn finalize(_data: *mut c_void) {
    if let Some(hub) = HUB.get() {
        hub.mark_final();
    }
}

/// A kernel was loaded.
pub(super) extern "C" fn on_code(record: Callback, _own: *mut u64, _data: *mut c_void) {
    run_contained(|| {
        let Some(hub) = HUB.get() else { return };
        let is_symbol =
            record.kind() == CODE_OBJECT && hub.process_names().operations.is_kernel_symbol(record.operation());
        if !is_symbol || record.phase() != Phase::Enter {
            return;
        }
        let payload = std::ptr::with_exposed_provenance::<c_void>(to_address(record.payload_address()));
        match sized_record(payload).and_then(records::kernel_symbol) {
            Some((kernel, name)) => hub.add_loaded_kernel(kernel, text_at(name)),
            None => hub.add_loss(Loss::DeviceRecordsUnread, 1),
        }
    });
}

fn to_address(word: u64) -> usize {
    usize::try_from(word).unwrap_or(0)
}

/// A HIP call begins or returns.
pub(super) extern "C" fn on_call(record: Callback, own: *mut u64, _data: *mut c_void) {
    if own.is_null() || record.kind() != HIP_RUNTIME {
        return;
    }
    run_contained(|| {
        let Some(hub) = HUB.get() else { return };
        hub.count_call();
        if !hub.is_recording() {
            return;
        }
        match record.phase() {
            Phase::Enter => {
                enter_call(hub, record);
                // As late as possible, so that the row excludes the time of this callback.
                let now = hub.api.timestamp().unwrap_or(0);
                // SAFETY: the library passes a place for a word of this tool.
                unsafe { own.write(now) };
            }
            Phase::Exit => {
                let end = hub.api.timestamp().unwrap_or(0);
                // SAFETY: the library passes the same place as at the entry.
                let start = unsafe { own.read() };
                exit_call(hub, record, start, end);
            }
            Phase::Other => {}
        }
    });
}

fn enter_call(hub: &Hub, record: Callback) {
    let number = record.operation();
    let Some(function) =
        hub.process_names().operations.function(number).filter(|function| function.does.has_device_work())
    else {
        return;
    };
    let arguments = hub.api.call_arguments(record);
    let start = hub.api.timestamp().unwrap_or(0);
    let (thread, correlation) = (record.thread_id(), record.correlation());
    hub.with_reader(|reader| reader.begin_call(&HipCall { function, number, thread, correlation, start }, arguments));
}

fn exit_call(hub: &Hub, record: Callback, start: u64, end: u64) {
    let number = record.operation();
    let Some(function) = hub.process_names().operations.function(number) else {
        return hub.add_loss(Loss::DeviceRecordsUnread, 1);
    };
    if start == 0 || end < start {
        // It began before the recording.
        return hub.add_loss(Loss::OutOfWindow, 1);
    }
    let payload = std::ptr::with_exposed_provenance::<c_void>(to_address(record.payload_address()));
    let failed = sized_record(payload).is_some_and(records::has_failed);
    // The address of an allocation is known only now.
    let has_arguments =
        matches!(function.does, CallEffect::Allocate | CallEffect::Release) || function.captures.is_some();
    let arguments = has_arguments.then(|| hub.api.call_arguments(record));
    let (thread, correlation) = (record.thread_id(), record.correlation());
    let (call, external) = (HipCall { function, number, thread, correlation, start }, ids::innermost());
    hub.with_reader(|reader| reader.end_call(&call, Return { end, failed, external }, arguments));
}

/// The library delivers records: each by a header with its kind and address.
pub(super) extern "C" fn on_buffer(
    _context: u64,
    _buffer: u64,
    headers: *const *const c_void,
    count: usize,
    _data: *mut c_void,
    dropped: u64,
) {
    run_contained(|| {
        let Some(hub) = HUB.get() else { return };
        hub.set_dropped_total(dropped);
        for at in 0..if headers.is_null() { 0 } else { count } {
            // SAFETY: the library passes an array of `count` pointers.
            let header = unsafe { headers.wrapping_add(at).read() };
            read_record(hub, header);
        }
    });
}

fn read_record(hub: &Hub, header: *const c_void) {
    if header.is_null() {
        return hub.with_reader(|reader| reader.count_lost(Loss::DeviceRecordsUnread, 1));
    }
    // SAFETY: a header is 16 bytes: two 32-bit numbers and an address.
    let [category, kind] = unsafe { header.cast::<[u32; 2]>().read_unaligned() };
    // SAFETY: a header is 16 bytes: two 32-bit numbers and an address.
    let record = unsafe { header.cast::<[*const c_void; 2]>().read_unaligned() }[1];
    let bytes = sized_record(record).unwrap_or_default();
    hub.with_reader(|reader| reader.add_record(Kind { category, kind }, bytes));
}
