//! The interface of the libraries: a profiler passes HIP a table of functions to call.

use super::counters::Counters;
use super::options::Options;
pub(crate) use sim_core::engine::NEVER;
use sim_core::ffi::{StaticText, slice};
use std::ffi::{c_char, c_void};

/// The version of the types in this file.
pub(crate) const VERSION: u32 = 1;

/// What HIP's function `simHip` returns.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Hip {
    pub(crate) version: u32,
    pub(crate) counters: *const Counters,
    /// The options in force.
    pub(crate) options: extern "C" fn() -> *const Options,
    /// Whether the program has called HIP.
    pub(crate) has_started: extern "C" fn() -> bool,
    /// The number of times a test has ended endless work.
    pub(crate) finishes: extern "C" fn() -> u64,
    /// Adds a table, which must stay where it is.
    pub(crate) add_tracer: extern "C" fn(*const Tracer),
    /// Returns the name of a kernel, or null for an unknown handle.
    pub(crate) kernel_name: extern "C" fn(u64) -> *const c_char,
}

// SAFETY: the pointers lead to statics that all threads may read.
unsafe impl Sync for Hip {}

/// A profiler's function `simHipStarts`, which HIP's first call invokes; its result is ignored.
pub(crate) type HipStarts = extern "C" fn();

/// The functions that HIP calls, never under its locks.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Tracer {
    pub(crate) enter: extern "C" fn(*mut ApiCall),
    pub(crate) exit: extern "C" fn(*mut ApiCall),
    /// Reports work that was submitted to a device; several items for a graph.
    pub(crate) queued: extern "C" fn(*const Work, usize),
    /// Reports work whose times have become known: its id, start and end as timestamps, and its true end.
    pub(crate) retimed: extern "C" fn(u64, u64, u64, u64),
    /// Reports a loaded kernel.
    pub(crate) kernel_loaded: extern "C" fn(*const Symbol),
    /// Reports the ids of kernels whose names are no longer valid.
    pub(crate) kernels_unloaded: extern "C" fn(*const u64, usize),
    /// Returns a counter that only this profiler has; `NEVER` for other names.
    pub(crate) count: extern "C" fn(*const c_char) -> u64,
}

/// A running call of the API, on the stack of its thread.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ApiCall {
    /// Index into the list of calls.
    pub(crate) call: usize,
    pub(crate) correlation: u64,
    pub(crate) arguments: *const Argument,
    pub(crate) count: usize,
    pub(crate) result: i32,
    /// Each tracer's value, from enter to exit.
    pub(crate) data: [[u64; 2]; 2],
}

impl ApiCall {
    pub(crate) fn arguments<'a>(&self) -> &'a [Argument] {
        slice(self.arguments, self.count)
    }
}

/// An argument of a call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Argument {
    pub(crate) name: *const c_char,
    pub(crate) shape: Shape,
    /// Where the value is.
    pub(crate) value: *const c_void,
}

/// What type an argument is of.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Shape {
    /// The type's name as C++ mangles it.
    pub(crate) type_name: *const c_char,
    pub(crate) size: usize,
    pub(crate) alignment: usize,
    /// How the value is written out.
    pub(crate) style: Style,
    /// How many pointers lead to it.
    pub(crate) indirection: i32,
    /// The size and alignment of a pointer's target; zeros if unreadable.
    pub(crate) target: [usize; 2],
}

/// How a value is written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Style {
    Signed,
    Unsigned,
    Pointer,
    Text,
    CopyKind,
    Dimensions,
}

/// A kernel that has been loaded.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Symbol {
    pub(crate) id: u64,
    pub(crate) code_object: u64,
    /// As in the code object, with `.kd` behind it.
    pub(crate) name: StaticText,
    pub(crate) group: u32,
    pub(crate) private: u32,
}

/// Kinds of work.
pub(crate) const KERNEL: u32 = 0;
pub(crate) const COPY: u32 = 1;
pub(crate) const FILL: u32 = 2;

/// Ways of copies, by HIP's numbers of `hipMemcpyKind`.
pub(crate) const HOST_TO_HOST: u32 = 0;
pub(crate) const HOST_TO_DEVICE: u32 = 1;
pub(crate) const DEVICE_TO_HOST: u32 = 2;
pub(crate) const DEVICE_TO_DEVICE: u32 = 3;

/// The device of memory of the host.
pub(crate) const HOST: i32 = -1;

/// Work for a device. Fields that do not apply to its kind are zero.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Work {
    pub(crate) kind: u32,
    /// HIP's number of the device.
    pub(crate) device: u32,
    pub(crate) correlation: u64,
    /// Unique in the process.
    pub(crate) id: u64,
    pub(crate) thread: u64,
    /// The HSA queue of the device that runs it.
    pub(crate) queue: u32,
    pub(crate) in_graph: bool,
    /// As timestamps of the device.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// By the true clock: when it is complete, or [`NEVER`].
    pub(crate) done_at: u64,
    // Kernels and fills.
    pub(crate) kernel: u64,
    pub(crate) name: StaticText,
    /// In blocks, and in threads.
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) group: u32,
    pub(crate) private: u32,
    // Copies and fills.
    pub(crate) bytes: u64,
    pub(crate) direction: u32,
    pub(crate) source: u64,
    pub(crate) target: u64,
    pub(crate) source_device: i32,
    pub(crate) target_device: i32,
}
