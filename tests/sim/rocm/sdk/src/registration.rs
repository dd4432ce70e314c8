//! Registration of the only tool, and the time in which it may configure services.

use crate::layout;
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::link;
use crate::status::{Outcome, Status, code_of, give, give_if_wanted};
use crate::{context, work};
use sim_core::exports;
use sim_core::handles::lock;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// `rocprofiler_tool_configure_result_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Tool {
    size: usize,
    initialize: Option<extern "C" fn(extern "C" fn(Client), *mut c_void) -> c_int>,
    finalize: Option<extern "C" fn(*mut c_void)>,
    data: *mut c_void,
}

// SAFETY: the client promises that its data may be used by any thread.
unsafe impl Send for Tool {}

/// `rocprofiler_client_id_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Client {
    size: usize,
    name: *const c_char,
    handle: u32,
}

/// What a tool hands in: version, the version's text, priority, the client's id.
pub(crate) type Configure = extern "C" fn(u32, *const c_char, u32, *mut c_void) -> *mut Tool;

/// 0 before, -1 while a tool sets itself up, 1 after that or after HIP's first call without one.
static PROGRESS: AtomicI32 = AtomicI32::new(0);
static FINALIZED: AtomicI32 = AtomicI32::new(0);
/// HIP was called before a tool existed, and will make no callbacks.
static TOO_LATE: AtomicBool = AtomicBool::new(false);
static TOOL: Mutex<Option<Tool>> = Mutex::new(None);

/// Checks that services may be configured.
///
/// # Errors
/// Configuration is closed.
pub(crate) fn open() -> Outcome {
    if PROGRESS.load(Ordering::Acquire) == -1 { Ok(()) } else { Err(Status::CONFIGURATION_LOCKED) }
}

fn configure(function: Option<Configure>) -> Outcome {
    let options = link::options();
    let is_late = link::hip().is_some_and(|hip| hip.has_started.load(Ordering::Acquire));
    if options.locked || options.busy || is_late && !options.silent_late {
        return Err(Status::CONFIGURATION_LOCKED);
    }
    let function = function.ok_or(Status::INVALID_ARGUMENT)?;
    if PROGRESS.compare_exchange(0, -1, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return Err(Status::CONFIGURATION_LOCKED);
    }
    TOO_LATE.store(is_late, Ordering::Release);
    count(&link::counters().configures);
    initialize(function);
    PROGRESS.store(1, Ordering::Release);
    Ok(())
}

/// Lets the tool set itself up.
fn initialize(function: Configure) {
    let version = layout::version();
    let text = CString::new(format!("{}.{}.0", version.major, version.minor)).unwrap_or_default();
    let mut client = Client { size: size_of::<Client>(), name: std::ptr::null(), handle: 7 };
    let tool = function(version.major * 10_000 + version.minor * 100, text.as_ptr(), 0, (&raw mut client).cast());
    // SAFETY: null, or a result that the client keeps.
    let Some(tool) = (unsafe { tool.as_ref() }).copied() else { return };
    if tool.size < size_of::<Tool>() {
        return;
    }
    // SAFETY: a function that may be called at the end.
    unsafe { libc::atexit(at_exit) };
    *lock(&TOOL) = Some(tool);
    if let Some(initialize) = tool.initialize {
        initialize(finalize, tool.data);
    }
}

/// A function by which a tool can detach itself.
extern "C" fn finalize(_client: Client) {
    at_exit();
}

/// Ends all contexts, and lets the tool know of that.
extern "C" fn at_exit() {
    if FINALIZED.compare_exchange(0, -1, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    context::stop_all();
    let tool = lock(&TOOL).take();
    if let Some((finalize, data)) = tool.and_then(|tool| Some((tool.finalize?, tool.data))) {
        finalize(data);
    }
    FINALIZED.store(1, Ordering::Release);
}

exports! {
    code_of as i32;

    /// Runs at HIP's first call.
    fn simHipStarts() -> () {
        let has_tool = PROGRESS.swap(1, Ordering::AcqRel) != 0;
        if let (true, Some(hip)) = (has_tool && !TOO_LATE.load(Ordering::Acquire), link::hip()) {
            hip.attach(work::hear);
        }
    }

    /// Sets a tool up, at once.
    fn rocprofiler_force_configure(function: Option<Configure>) {
        configure(function)
    }

    /// Returns the version of this library; unneeded places may be null.
    fn rocprofiler_get_version(major: *mut u32, minor: *mut u32, patch: *mut u32) {
        let version = layout::version();
        let parts = [(major, version.major), (minor, version.minor), (patch, 0)];
        parts.into_iter().try_for_each(|(place, value)| give_if_wanted(place, value))
    }

    /// The time now, by the clock of the records.
    fn rocprofiler_get_timestamp(timestamp: *mut u64) {
        give(timestamp, link::options().reported(now()))
    }
}
