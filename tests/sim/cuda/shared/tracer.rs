//! What the driver tells CUPTI.

use super::counters::Counters;
use super::options::Options;
pub(crate) use sim_core::engine::NEVER;
use sim_core::ffi::StaticText;
use sim_core::machine::{self, Vendor};
use std::ffi::{c_char, c_void};

/// Domains of API calls, by CUPTI's numbers.
pub(crate) const DRIVER_API: u32 = 1;
pub(crate) const RUNTIME_API: u32 = 2;

/// The types of these libraries.
#[derive(Debug)]
pub(crate) struct Cuda;

impl Vendor for Cuda {
    type Options = Options;
    type Counters = Counters;
    type Call = ApiCall;
    type Work = Work;
    type Report = Report;

    const SIMULATOR: &'static str = "sim-cuda";
    const VARIABLE: &'static str = "SIM_CUDA";
}

pub(crate) type Event<'a> = machine::Event<'a, Cuda>;

/// What the driver tells, besides calls and work.
#[derive(Debug)]
#[repr(C)]
pub(crate) enum Report {
    Synchronized(Synchronization),
    EventRecorded(EventRecord),
    /// Memory was allocated or freed.
    MemoryChanged(Memory),
    /// The driver's overhead, by CUPTI's number of its kind.
    Overhead {
        kind: u32,
        correlation: u32,
        start: u64,
        end: u64,
    },
}

/// A running call of the API, on the stack of its thread.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ApiCall {
    pub(crate) domain: u32,
    pub(crate) cbid: u32,
    pub(crate) name: *const c_char,
    /// The kernel of a launch, else null.
    pub(crate) symbol: *const c_char,
    /// Its parameters, as CUDA declares them; null where the simulator does not pass them.
    pub(crate) params: *const c_void,
    pub(crate) correlation: u32,
    pub(crate) result: i32,
    /// The context of the thread, 0 without, and its id.
    pub(crate) context: u64,
    pub(crate) context_id: u32,
    /// The tracer's value, from enter to exit.
    pub(crate) start: u64,
    pub(crate) data: u64,
}

/// Kinds of work, by CUPTI's numbers of the records.
pub(crate) const MEMCPY: u32 = 1;
pub(crate) const MEMSET: u32 = 2;
pub(crate) const KERNEL: u32 = 10;
pub(crate) const MEMCPY_PEER: u32 = 22;

/// Work for a device. Fields that do not apply to its kind are zero.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Work {
    pub(crate) kind: u32,
    pub(crate) correlation: u32,
    /// Unique in the process.
    pub(crate) id: u64,
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) priority: i32,
    /// As timestamps of the device.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// By the true clock: when it starts and when it is complete, or [`NEVER`].
    pub(crate) begun_at: u64,
    pub(crate) done_at: u64,
    pub(crate) graph: u32,
    pub(crate) channel: u32,
    pub(crate) channel_type: u32,
    pub(crate) graph_node: u64,
    // Kernels.
    pub(crate) name: StaticText,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) cluster: [u32; 3],
    pub(crate) static_shared: u32,
    pub(crate) dynamic_shared: u32,
    pub(crate) shared_executed: u32,
    pub(crate) registers: u32,
    pub(crate) launch_type: u32,
    // Copies and fills.
    pub(crate) bytes: u64,
    pub(crate) value: u32,
    pub(crate) copy_kind: u32,
    pub(crate) source_kind: u32,
    pub(crate) target_kind: u32,
    pub(crate) is_async: u32,
    pub(crate) source_device: u32,
    pub(crate) source_context: u32,
    pub(crate) target_device: u32,
    pub(crate) target_context: u32,
}

/// What a thread or a stream waited for.
pub(crate) const EVENT_SYNCHRONIZE: u32 = 1;
pub(crate) const STREAM_WAIT_EVENT: u32 = 2;
pub(crate) const STREAM_SYNCHRONIZE: u32 = 3;
pub(crate) const CONTEXT_SYNCHRONIZE: u32 = 4;

/// "Does not apply" in streams and events of synchronizations.
const NOT_APPLICABLE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Synchronization {
    pub(crate) kind: u32,
    pub(crate) correlation: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) event: u32,
    pub(crate) result: i32,
    pub(crate) event_record: u64,
    /// By the true clock.
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Synchronization {
    /// A wait from `start` on, for neither a stream nor an event.
    pub(crate) fn new(kind: u32, correlation: u32, context: u32, start: u64) -> Synchronization {
        let (stream, event, event_record) = (NOT_APPLICABLE, NOT_APPLICABLE, u64::from(NOT_APPLICABLE));
        Synchronization { kind, correlation, context, stream, event, result: 0, event_record, start, end: 0 }
    }
}

/// Memory that is allocated or freed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Memory {
    pub(crate) is_release: bool,
    pub(crate) is_async: bool,
    /// The memory kind, by CUPTI's numbers.
    pub(crate) place: u32,
    pub(crate) correlation: u32,
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// An event put into a stream.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct EventRecord {
    pub(crate) correlation: u32,
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) event: u32,
    /// Unique for each record of an event.
    pub(crate) record: u64,
    /// When the device reaches it, as its timestamp and by the true clock.
    pub(crate) stamp: u64,
    pub(crate) done_at: u64,
}
