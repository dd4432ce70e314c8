//! Safe wrappers of the librocprofiler-sdk functions in use.
#![allow(unsafe_code, reason = "rocprofiler-sdk is foreign code")]

use super::records::{Callback, LONGEST};
use crate::library::text;
use crate::library::{Library, functions};
use crate::rocm::arguments::Arguments;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

/// A status of the library; 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SdkStatus(u32);

impl SdkStatus {
    /// It conflicts with another tool's context.
    pub(super) const CONFLICT: SdkStatus = SdkStatus(12);
    /// The kind is unknown.
    pub(super) const NO_KIND: SdkStatus = SdkStatus(4);
    /// The context is not valid.
    pub(super) const INVALID: SdkStatus = SdkStatus(10);
    /// It is too late to register.
    pub(super) const LOCKED: SdkStatus = SdkStatus(16);
}

/// Returns the tool's description. Arguments: version, version as text, priority, and the tool's identity.
pub(super) type Configure = extern "C" fn(u32, *const c_char, u32, *mut c_void) -> *const Tool;
/// Receives calls and loaded kernels. Arguments: a record, a word of this tool, and data.
pub(super) type OnCallback = extern "C" fn(Callback, *mut u64, *mut c_void);
/// Receives records. Arguments: context, buffer, headers, their number, data, and how many were dropped.
pub(super) type OnBuffer = extern "C" fn(u64, u64, *const *const c_void, usize, *mut c_void, u64);

/// The description of this tool.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Tool {
    pub(super) size: usize,
    /// Called with a function that ends the tool, and data; returns 0 on success.
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
    force_configure = c"rocprofiler_force_configure": fn(Configure) -> u32;
    get_timestamp = c"rocprofiler_get_timestamp": fn(*mut u64) -> u32;
    create_context = c"rocprofiler_create_context": fn(*mut u64) -> u32;
    start_context = c"rocprofiler_start_context": fn(u64) -> u32;
    stop_context = c"rocprofiler_stop_context": fn(u64) -> u32;
    context_is_valid = c"rocprofiler_context_is_valid": fn(u64, *mut c_int) -> u32;
    create_buffer = c"rocprofiler_create_buffer": fn(u64, usize, usize, u32, OnBuffer, *mut c_void, *mut u64) -> u32;
    flush_buffer = c"rocprofiler_flush_buffer": fn(u64) -> u32;
    configure_callbacks = c"rocprofiler_configure_callback_tracing_service":
        fn(u64, u32, *const u32, usize, OnCallback, *mut c_void) -> u32;
    configure_buffer = c"rocprofiler_configure_buffer_tracing_service": fn(u64, u32, *const u32, usize, u64) -> u32;
    query_agents = c"rocprofiler_query_available_agents": fn(u32, OnAgents, usize, *mut c_void) -> u32;
    iterate_operations = c"rocprofiler_iterate_callback_tracing_kind_operations":
        fn(u32, OnOperation, *mut c_void) -> u32;
    operation_name = c"rocprofiler_query_callback_tracing_kind_operation_name":
        fn(u32, i32, *mut *const c_char, *mut u64) -> u32;
    iterate_arguments = c"rocprofiler_iterate_callback_tracing_kind_operation_args":
        fn(Callback, OnArgument, i32, *mut c_void) -> u32;
    }
    optional {
    get_status_string = c"rocprofiler_get_status_string": fn(u32) -> *const c_char;
    }
}

functions! {
    /// The function of a library that may lack all others.
    VersionApi
    required {
    get_version = c"rocprofiler_get_version": fn(*mut u32, *mut u32, *mut u32) -> u32;
    }
}

/// Returns the version (major, minor, patch) of a library that may lack all other functions.
pub(super) fn library_version(library: Library) -> Option<[u32; 3]> {
    let VersionApi { get_version } = VersionApi::new(library).ok()?;
    let [mut major, mut minor, mut patch] = [0; 3];
    // SAFETY: the pointers are valid places for numbers.
    let status = unsafe { get_version(&raw mut major, &raw mut minor, &raw mut patch) };
    (status == 0).then_some([major, minor, patch])
}

fn check_result(status: u32) -> Result<(), SdkStatus> {
    if status == 0 { Ok(()) } else { Err(SdkStatus(status)) }
}

/// The policy of a buffer that drops nothing: writers wait.
const LOSSLESS: u32 = 2;

impl Api {
    /// Makes the library call `configure` now.
    pub(super) fn force_configure(&self, configure: Configure) -> Result<(), SdkStatus> {
        // SAFETY: the function is static and has the documented type.
        check_result(unsafe { (self.force_configure)(configure) })
    }

    /// Returns the time on the clock of the records, in nanoseconds; `None` if the library cannot read it.
    #[inline]
    pub(super) fn timestamp(&self) -> Option<u64> {
        let mut time = 0;
        // SAFETY: the pointer is a valid place for a timestamp.
        let status = unsafe { (self.get_timestamp)(&raw mut time) };
        (status == 0 && time != 0).then_some(time)
    }

    pub(super) fn create_context(&self) -> Result<u64, SdkStatus> {
        let mut context = 0;
        // SAFETY: the pointer is a valid place for a handle.
        check_result(unsafe { (self.create_context)(&raw mut context) }).map(|()| context)
    }

    pub(super) fn start_context(&self, context: u64) -> Result<(), SdkStatus> {
        // SAFETY: the library checks the handle.
        check_result(unsafe { (self.start_context)(context) })
    }

    pub(super) fn stop_context(&self, context: u64) -> Result<(), SdkStatus> {
        // SAFETY: the library checks the handle.
        check_result(unsafe { (self.stop_context)(context) })
    }

    pub(super) fn is_valid(&self, context: u64) -> bool {
        let mut is_valid = 0;
        // SAFETY: the library checks the handle, and the pointer is a valid place for a flag.
        let status = unsafe { (self.context_is_valid)(context, &raw mut is_valid) };
        status == 0 && is_valid != 0
    }

    /// Makes a buffer of that many bytes, which is delivered when it is half full.
    pub(super) fn create_buffer(&self, context: u64, bytes: usize, on_buffer: OnBuffer) -> Result<u64, SdkStatus> {
        let (mut buffer, none) = (0, null_mut());
        // SAFETY: the callback is static, and the pointer is a valid place for a handle.
        let status =
            unsafe { (self.create_buffer)(context, bytes, bytes / 2, LOSSLESS, on_buffer, none, &raw mut buffer) };
        check_result(status).map(|()| buffer)
    }

    /// Makes the library deliver the records in a buffer.
    pub(super) fn flush_buffer(&self, buffer: u64) -> Result<(), SdkStatus> {
        // SAFETY: the library checks the handle.
        check_result(unsafe { (self.flush_buffer)(buffer) })
    }

    /// Enables callbacks of a context for these operations of a kind; for all if `which` is empty.
    pub(super) fn enable_callbacks(
        &self,
        context: u64,
        kind: u32,
        which: &[u32],
        tell: OnCallback,
    ) -> Result<(), SdkStatus> {
        let first = if which.is_empty() { null() } else { which.as_ptr() };
        // SAFETY: the length is that of the list, and the callback is static.
        check_result(unsafe { (self.configure_callbacks)(context, kind, first, which.len(), tell, null_mut()) })
    }

    /// Makes a context write records of a kind into a buffer.
    pub(super) fn enable_records(&self, context: u64, kind: u32, buffer: u64) -> Result<(), SdkStatus> {
        // SAFETY: the list of operations is empty, and the library checks the handles.
        check_result(unsafe { (self.configure_buffer)(context, kind, null(), 0, buffer) })
    }

    /// Calls `each` with the record of every agent.
    pub(super) fn for_each_agent(&self, each: &mut dyn FnMut(&[u8])) -> Result<(), SdkStatus> {
        /// The version of the records, and the size of the oldest known record.
        const VERSION: u32 = 1;
        const BYTES: usize = 312;
        extern "C" fn on_agents(_version: u32, agents: *const *const c_void, count: usize, data: *mut c_void) -> u32 {
            // SAFETY: the data is the closure passed below, on the same thread.
            let each = unsafe { &mut *data.cast::<&mut dyn FnMut(&[u8])>() };
            for at in 0..if agents.is_null() { 0 } else { count } {
                // SAFETY: the library passes an array of `count` pointers.
                let agent = unsafe { agents.wrapping_add(at).read() };
                super::callbacks::run_contained(|| sized_record(agent).into_iter().for_each(&mut *each));
            }
            0
        }
        let mut each = each;
        // SAFETY: the callback gets the closure that it expects, which outlives the call.
        check_result(unsafe { (self.query_agents)(VERSION, on_agents, BYTES, (&raw mut each).cast()) })
    }

    /// Calls `each` with the number and name of every operation of a kind.
    pub(super) fn for_each_operation(&self, kind: u32, each: &mut dyn FnMut(u32, &str)) -> Result<(), SdkStatus> {
        /// The most operations of a kind.
        const MOST: usize = 1 << 16;
        extern "C" fn on_operation(_kind: u32, operation: i32, data: *mut c_void) -> c_int {
            // SAFETY: the data is the closure passed below, on the same thread.
            let all = unsafe { &mut *data.cast::<Vec<i32>>() };
            if all.len() < MOST {
                all.push(operation);
            }
            0
        }
        let mut all = Vec::<i32>::new();
        // SAFETY: the callback gets the closure that it expects, which outlives the call.
        check_result(unsafe { (self.iterate_operations)(kind, on_operation, (&raw mut all).cast()) })?;
        for operation in all {
            let (mut name, mut length) = (null(), 0);
            // SAFETY: the pointers are valid places for a name and its length.
            let status = unsafe { (self.operation_name)(kind, operation, &raw mut name, &raw mut length) };
            if let (0, Some(name), Ok(number)) = (status, c_text(name), u32::try_from(operation)) {
                each(number, &name);
            }
        }
        Ok(())
    }

    /// Returns the arguments of the current callback's call.
    pub(super) fn call_arguments(&self, call: Callback) -> Arguments {
        /// How often pointers are dereferenced: an allocation's leads to its address.
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
            // SAFETY: the data is the arguments passed below, on the same thread.
            let all = unsafe { &mut *data.cast::<Arguments>() };
            super::callbacks::run_contained(|| {
                if let (Some(name), Some(value)) = (c_text(name), c_text(value)) {
                    all.add_argument(&name, &value);
                }
            });
            0
        }
        let mut all = Arguments::default();
        // SAFETY: the record is that of the current callback; `on_argument` gets the arguments that it expects.
        unsafe { (self.iterate_arguments)(call, on_argument, DEEP, (&raw mut all).cast()) };
        all
    }

    /// Returns the library's text for a status.
    pub(super) fn status_text(&self, status: SdkStatus) -> String {
        let get_words = self.get_status_string;
        // SAFETY: the library accepts any number.
        let status_text = get_words.and_then(|get_words| c_text(unsafe { get_words(status.0) }));
        format!("{} ({})", status_text.unwrap_or_else(|| "an unknown status".to_owned()), status.0)
    }
}

/// Copies a C string of the library.
fn c_text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the library passes a C string, which lives at least until the callback returns.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Copies a C string whose address is in a record.
pub(super) fn text_at(address: u64) -> Option<String> {
    let mut text = Vec::new();
    text::copy_c_string(address, &mut text).then(|| String::from_utf8_lossy(&text).into_owned())
}

/// Returns the bytes of a record that begins with its size, if that size is plausible.
pub(super) fn sized_record<'b>(record: *const c_void) -> Option<&'b [u8]> {
    const WORD: usize = size_of::<u64>();
    if record.is_null() {
        return None;
    }
    // SAFETY: the library passes a record, which begins with its 8-byte size.
    let size = unsafe { record.cast::<u64>().read_unaligned() };
    let size = usize::try_from(size).ok().filter(|size| (WORD..=LONGEST).contains(size))?;
    // SAFETY: the record has the size that it names, and lives until the callback returns, as long as it is used.
    Some(unsafe { std::slice::from_raw_parts(record.cast(), size) })
}
