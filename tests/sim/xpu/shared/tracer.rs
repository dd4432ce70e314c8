//! What Level Zero tells PTI.

use super::counters::Counters;
use super::options::Options;
use sim_core::ffi::StaticText;
use sim_core::machine::{self, Vendor};

/// The id of the SYCL queue of work that came without one, by PTI's number.
pub(crate) const NO_SYCL_QUEUE: u64 = u64::MAX - 1;

/// The types of these libraries.
#[derive(Debug)]
pub(crate) struct Xpu;

impl Vendor for Xpu {
    type Options = Options;
    type Counters = Counters;
    type Call = Call;
    type Work = Work;
    type Report = Report;

    const SIMULATOR: &'static str = "sim-xpu";
    const VARIABLE: &'static str = "SIM_XPU";
}

/// Ended work is reported when the program waits; calls are reported when they end.
pub(crate) type Event<'a> = machine::Event<'a, Xpu>;

/// What Level Zero tells, besides calls and work.
#[derive(Debug)]
#[repr(C)]
pub(crate) enum Report {
    Synchronized(Synchronization),
    Communicated(Communication),
}

/// A call of Level Zero or of the SYCL runtime. Times here and below are of the machine's clock.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Call {
    pub(crate) group: u32,
    pub(crate) id: u32,
    /// A call of the SYCL runtime and what it calls to give work to a device share one.
    pub(crate) correlation: u32,
    pub(crate) result: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Kinds of work, by PTI's numbers of the views.
pub(crate) const KERNEL: u32 = 1;
pub(crate) const MEMCPY: u32 = 8;
pub(crate) const MEMSET: u32 = 9;
pub(crate) const MEMCPY_PEER: u32 = 10;
/// A barrier in a queue, which has a record of its synchronization.
pub(crate) const BARRIER: u32 = 11;

/// Work of a device. Fields that do not apply to its kind are zero.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Work {
    pub(crate) kind: u32,
    pub(crate) correlation: u32,
    /// Unique in the process: of a kernel or a memory operation.
    pub(crate) id: u64,
    /// The thread that gave it to the device, by the system's number.
    pub(crate) thread: u32,
    /// Indices of the device that runs it, and of the one that a copy goes to.
    pub(crate) device: u32,
    pub(crate) target: u32,
    pub(crate) queue: u64,
    pub(crate) context: u64,
    /// [`NO_SYCL_QUEUE`] without SYCL.
    pub(crate) sycl_queue: u64,
    pub(crate) name: StaticText,
    pub(crate) file: StaticText,
    pub(crate) line: u64,
    pub(crate) task_begin: u64,
    pub(crate) enqueue_begin: u64,
    pub(crate) append: u64,
    pub(crate) submit: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) node: u64,
    pub(crate) invocation: u32,
    pub(crate) copy_type: u32,
    pub(crate) source_type: u32,
    pub(crate) target_type: u32,
    pub(crate) bytes: u64,
    pub(crate) value: u64,
    pub(crate) engine_ordinal: u32,
    pub(crate) engine_index: u32,
}

/// What a thread waited for, by PTI's numbers.
pub(crate) const GPU_BARRIER_EXECUTION: u32 = 1;
pub(crate) const HOST_FENCE: u32 = 3;
pub(crate) const HOST_EVENT: u32 = 4;
pub(crate) const HOST_COMMAND_LIST: u32 = 5;
pub(crate) const HOST_COMMAND_QUEUE: u32 = 6;
pub(crate) const HOST_DEVICE: u32 = 7;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Synchronization {
    pub(crate) kind: u32,
    pub(crate) correlation: u32,
    pub(crate) context: u64,
    pub(crate) queue: u64,
    pub(crate) event: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) thread: u32,
    pub(crate) api: u32,
    pub(crate) wait_events: u32,
    pub(crate) result: u32,
}

/// A collective operation, as seen from the host.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Communication {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) thread: u32,
    pub(crate) send: u64,
    pub(crate) receive: u64,
    pub(crate) communicator: u64,
    pub(crate) name: StaticText,
}
