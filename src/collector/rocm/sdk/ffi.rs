//! The functions of librocprofiler-sdk that are used, with safe ways to call them.
#![allow(unsafe_code, reason = "rocprofiler-sdk is foreign code")]

use super::arguments::Arguments;
use super::records::{Callback, LONGEST};
use crate::collector::library::{Library, functions};
use crate::collector::text;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

/// What the library says of a call: 0 if all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SdkStatus(u32);

impl SdkStatus {
    /// A context of another tool stands in the way.
    pub(super) const CONFLICT: SdkStatus = SdkStatus(12);
    /// A kind is not known.
    pub(super) const NO_KIND: SdkStatus = SdkStatus(4);
    /// A context cannot be used.
    pub(super) const INVALID: SdkStatus = SdkStatus(10);
    /// It is too late to register.
    pub(super) const LOCKED: SdkStatus = SdkStatus(16);
}

/// Is asked what is to be recorded: version, version as text, how many asked before, who this is.
pub(super) type Configure = extern "C" fn(u32, *const c_char, u32, *mut c_void) -> *const Tool;
/// Is told of a call or a kernel: what, a word of this tool's own, data.
pub(super) type OnCallback = extern "C" fn(Callback, *mut u64, *mut c_void);
/// Is given records: context, buffer, headers, how many, data, how many were dropped.
pub(super) type OnBuffer = extern "C" fn(u64, u64, *const *const c_void, usize, *mut c_void, u64);

/// How this tool begins and ends.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Tool {
    pub(super) size: usize,
    /// Is called with a function that ends the tool, and data; 0 if all is well.
    pub(super) initialize: extern "C" fn(*const c_void, *mut c_void) -> c_int,
    pub(super) finalize: extern "C" fn(*mut c_void),
    pub(super) data: usize,
}

type OnOperation = extern "C" fn(u32, i32, *mut c_void) -> c_int;
type OnArgument = extern "C" fn(
    u32,
    i32,
    u32,
    *const c_void,
    i32,
    *const c_char,
    *const c_char,
    *const c_char,
    i32,
    *mut c_void,
) -> c_int;
type OnAgents = extern "C" fn(u32, *const *const c_void, usize, *mut c_void) -> u32;

functions! {
    /// librocprofiler-sdk, with its functions.
    Api
    required {
    force_configure = c"rocprofiler_force_configure": unsafe extern "C" fn(Configure) -> u32;
    get_timestamp = c"rocprofiler_get_timestamp": unsafe extern "C" fn(*mut u64) -> u32;
    create_context = c"rocprofiler_create_context": unsafe extern "C" fn(*mut u64) -> u32;
    start_context = c"rocprofiler_start_context": unsafe extern "C" fn(u64) -> u32;
    stop_context = c"rocprofiler_stop_context": unsafe extern "C" fn(u64) -> u32;
    context_is_valid = c"rocprofiler_context_is_valid": unsafe extern "C" fn(u64, *mut c_int) -> u32;
    create_buffer = c"rocprofiler_create_buffer":
        unsafe extern "C" fn(u64, usize, usize, u32, OnBuffer, *mut c_void, *mut u64) -> u32;
    flush_buffer = c"rocprofiler_flush_buffer": unsafe extern "C" fn(u64) -> u32;
    configure_callbacks = c"rocprofiler_configure_callback_tracing_service":
        unsafe extern "C" fn(u64, u32, *const u32, usize, OnCallback, *mut c_void) -> u32;
    configure_buffer = c"rocprofiler_configure_buffer_tracing_service":
        unsafe extern "C" fn(u64, u32, *const u32, usize, u64) -> u32;
    query_agents = c"rocprofiler_query_available_agents": unsafe extern "C" fn(u32, OnAgents, usize, *mut c_void) -> u32;
    iterate_operations = c"rocprofiler_iterate_callback_tracing_kind_operations":
        unsafe extern "C" fn(u32, OnOperation, *mut c_void) -> u32;
    operation_name = c"rocprofiler_query_callback_tracing_kind_operation_name":
        unsafe extern "C" fn(u32, i32, *mut *const c_char, *mut u64) -> u32;
    iterate_arguments = c"rocprofiler_iterate_callback_tracing_kind_operation_args":
        unsafe extern "C" fn(Callback, OnArgument, i32, *mut c_void) -> u32;
    }
    optional {
    get_status_string = c"rocprofiler_get_status_string": unsafe extern "C" fn(u32) -> *const c_char;
    }
}

/// Asks a library that may be too old for everything else which version it is: major, minor, patch.
pub(super) fn version(library: Library) -> Option<[u32; 3]> {
    type GetVersion = unsafe extern "C" fn(*mut u32, *mut u32, *mut u32) -> u32;
    // SAFETY: that is the type that AMD documents.
    let get_version = unsafe { library.function::<GetVersion>(c"rocprofiler_get_version") }?;
    let [mut major, mut minor, mut patch] = [0; 3];
    // SAFETY: the pointers are valid places for the results.
    let status = unsafe { get_version(&raw mut major, &raw mut minor, &raw mut patch) };
    (status == 0).then_some([major, minor, patch])
}

fn checked(status: u32) -> Result<(), SdkStatus> {
    if status == 0 { Ok(()) } else { Err(SdkStatus(status)) }
}

/// The policy of a buffer that loses nothing: who writes waits.
const LOSSLESS: u32 = 2;

impl Api {
    /// Has the library ask what is to be recorded, now.
    pub(super) fn force_configure(&self, configure: Configure) -> Result<(), SdkStatus> {
        // SAFETY: the function is never unloaded, and keeps its promises.
        checked(unsafe { (self.force_configure)(configure) })
    }

    /// Returns the time by the clock of the records, in nanoseconds; `None` if the library does not know it.
    #[inline]
    pub(super) fn timestamp(&self) -> Option<u64> {
        let mut time = 0;
        // SAFETY: the pointer is a valid place for the result.
        let status = unsafe { (self.get_timestamp)(&raw mut time) };
        (status == 0 && time != 0).then_some(time)
    }

    pub(super) fn create_context(&self) -> Result<u64, SdkStatus> {
        let mut context = 0;
        // SAFETY: the pointer is a valid place for the result.
        checked(unsafe { (self.create_context)(&raw mut context) }).map(|()| context)
    }

    pub(super) fn start_context(&self, context: u64) -> Result<(), SdkStatus> {
        // SAFETY: any number may be passed.
        checked(unsafe { (self.start_context)(context) })
    }

    pub(super) fn stop_context(&self, context: u64) -> Result<(), SdkStatus> {
        // SAFETY: any number may be passed.
        checked(unsafe { (self.stop_context)(context) })
    }

    pub(super) fn is_valid(&self, context: u64) -> bool {
        let mut is_valid = 0;
        // SAFETY: the pointer is a valid place for the result.
        let status = unsafe { (self.context_is_valid)(context, &raw mut is_valid) };
        status == 0 && is_valid != 0
    }

    /// Makes a buffer of that many bytes, which is handed over when it is half full.
    pub(super) fn create_buffer(&self, context: u64, bytes: usize, on_buffer: OnBuffer) -> Result<u64, SdkStatus> {
        let (mut buffer, none) = (0, null_mut());
        // SAFETY: the callback is never unloaded, and the pointer is a valid place for the result.
        let status =
            unsafe { (self.create_buffer)(context, bytes, bytes / 2, LOSSLESS, on_buffer, none, &raw mut buffer) };
        checked(status).map(|()| buffer)
    }

    /// Has what is in a buffer handed over.
    pub(super) fn flush(&self, buffer: u64) -> Result<(), SdkStatus> {
        // SAFETY: any number may be passed.
        checked(unsafe { (self.flush_buffer)(buffer) })
    }

    /// Has a context tell of those operations of a kind; of all if none is named.
    pub(super) fn tell_of(&self, context: u64, kind: u32, which: &[u32], tell: OnCallback) -> Result<(), SdkStatus> {
        let first = if which.is_empty() { null() } else { which.as_ptr() };
        // SAFETY: there are as many operations as is said, and the callback is never unloaded.
        checked(unsafe { (self.configure_callbacks)(context, kind, first, which.len(), tell, null_mut()) })
    }

    /// Has a context put records of a kind into a buffer.
    pub(super) fn record(&self, context: u64, kind: u32, buffer: u64) -> Result<(), SdkStatus> {
        // SAFETY: no operation is named, and any numbers may be passed.
        checked(unsafe { (self.configure_buffer)(context, kind, null(), 0, buffer) })
    }

    /// Calls `each` with the record of every agent.
    pub(super) fn agents(&self, each: &mut dyn FnMut(&[u8])) -> Result<(), SdkStatus> {
        /// The version of the records, and the size of the oldest that is known.
        const VERSION: u32 = 1;
        const BYTES: usize = 312;
        extern "C" fn on_agents(_version: u32, agents: *const *const c_void, count: usize, data: *mut c_void) -> u32 {
            // SAFETY: the data is what is passed below, on the same thread.
            let each = unsafe { &mut *data.cast::<&mut dyn FnMut(&[u8])>() };
            for at in 0..if agents.is_null() { 0 } else { count } {
                // SAFETY: the library says that there are so many pointers.
                let agent = unsafe { agents.wrapping_add(at).read() };
                super::callbacks::contained(|| sized(agent).into_iter().for_each(&mut *each));
            }
            0
        }
        let mut each = each;
        // SAFETY: the callback gets the data that it expects, which outlives the call.
        checked(unsafe { (self.query_agents)(VERSION, on_agents, BYTES, (&raw mut each).cast()) })
    }

    /// Calls `each` with the number and name of every operation of a kind.
    pub(super) fn operations(&self, kind: u32, each: &mut dyn FnMut(u32, &str)) -> Result<(), SdkStatus> {
        /// No kind has more.
        const MOST: usize = 1 << 16;
        extern "C" fn on_operation(_kind: u32, operation: i32, data: *mut c_void) -> c_int {
            // SAFETY: the data is what is passed below, on the same thread.
            let all = unsafe { &mut *data.cast::<Vec<i32>>() };
            if all.len() < MOST {
                all.push(operation);
            }
            0
        }
        let mut all = Vec::<i32>::new();
        // SAFETY: the callback gets the data that it expects, which outlives the call.
        checked(unsafe { (self.iterate_operations)(kind, on_operation, (&raw mut all).cast()) })?;
        for operation in all {
            let (mut name, mut length) = (null(), 0);
            // SAFETY: the pointers are valid places for the results.
            let status = unsafe { (self.operation_name)(kind, operation, &raw mut name, &raw mut length) };
            if let (0, Some(name), Ok(number)) = (status, c_text(name), u32::try_from(operation)) {
                each(number, &name);
            }
        }
        Ok(())
    }

    /// Returns the arguments of the call that is told of.
    pub(super) fn arguments(&self, call: Callback) -> Arguments {
        /// How often pointers are followed: that of an allocation leads to what was allocated.
        const DEEP: i32 = 1;
        extern "C" fn on_argument(
            _kind: u32,
            _operation: i32,
            _number: u32,
            _address: *const c_void,
            _levels: i32,
            _type: *const c_char,
            name: *const c_char,
            value: *const c_char,
            _followed: i32,
            data: *mut c_void,
        ) -> c_int {
            // SAFETY: the data is what is passed below, on the same thread.
            let all = unsafe { &mut *data.cast::<Arguments>() };
            super::callbacks::contained(|| {
                if let (Some(name), Some(value)) = (c_text(name), c_text(value)) {
                    all.take(&name, &value);
                }
            });
            0
        }
        let mut all = Arguments::default();
        // SAFETY: the call is the one that the library tells of now; the callback gets the data that it expects.
        unsafe { (self.iterate_arguments)(call, on_argument, DEEP, (&raw mut all).cast()) };
        all
    }

    /// Returns what a status means, in the library's words.
    pub(super) fn words(&self, status: SdkStatus) -> String {
        let get_words = self.get_status_string;
        // SAFETY: any number may be passed.
        let words = get_words.and_then(|get_words| c_text(unsafe { get_words(status.0) }));
        format!("{} ({})", words.unwrap_or_else(|| "an unknown status".to_owned()), status.0)
    }
}

/// Copies a C string of the library's.
fn c_text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the library gives a C string, which stays at least until the callback returns.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Copies a C string whose address stands in a record.
pub(super) fn text_at(address: u64) -> Option<String> {
    let mut text = Vec::new();
    text::copy(address, &mut text).then(|| String::from_utf8_lossy(&text).into_owned())
}

/// Returns a record that begins with its size: as many bytes as it says, if that can be.
pub(super) fn sized<'b>(record: *const c_void) -> Option<&'b [u8]> {
    const WORD: usize = size_of::<u64>();
    if record.is_null() {
        return None;
    }
    // SAFETY: the library says that there is a record, which begins with 8 bytes for its size.
    let size = unsafe { record.cast::<u64>().read_unaligned() };
    let size = usize::try_from(size).ok().filter(|size| (WORD..=LONGEST).contains(size))?;
    // SAFETY: the record is as long as it says, and stays until the callback returns, which is as long as it is used.
    Some(unsafe { std::slice::from_raw_parts(record.cast(), size) })
}
