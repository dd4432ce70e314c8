//! The one coupling of the libraries: a profiler hands HIP a table, and HIP calls what is in it.

use super::counters::Counters;
use super::options::Options;
pub(crate) use sim_core::engine::NEVER;
use sim_core::ffi::{StaticText, slice};
use std::ffi::{c_char, c_void};

/// Changes with the shape of anything in this file.
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
    /// How often somebody has ended what is endless.
    pub(crate) finishes: extern "C" fn() -> u64,
    /// Adds a table, which must stay where it is.
    pub(crate) add_tracer: extern "C" fn(*const Tracer),
    /// The name of a kernel, null for none of that handle.
    pub(crate) kernel_name: extern "C" fn(u64) -> *const c_char,
}

// SAFETY: what it points to is there for good, and may be read by all threads.
unsafe impl Sync for Hip {}

/// A profiler's function `simHipStarts`: HIP is called for the first time; what it returns is of no use.
pub(crate) type HipStarts = extern "C" fn();

/// What HIP calls. None of these is called under a lock of HIP's.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Tracer {
    pub(crate) enter: extern "C" fn(*mut ApiCall),
    pub(crate) exit: extern "C" fn(*mut ApiCall),
    /// Work has been given to a device; several pieces for a graph.
    pub(crate) queued: extern "C" fn(*const Work, usize),
    /// Work whose times were not known now has them: its id, start and end as stamps, and its true end.
    pub(crate) retimed: extern "C" fn(u64, u64, u64, u64),
    /// A kernel is there from now on.
    pub(crate) kernel_loaded: extern "C" fn(*const Symbol),
    /// Names of kernels are gone from now on: their ids.
    pub(crate) kernels_unloaded: extern "C" fn(*const u64, usize),
    /// The names of counts that this profiler alone knows; `NEVER` for others.
    pub(crate) count: extern "C" fn(*const c_char) -> u64,
}

/// A call of the API under way, on the stack of its thread.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ApiCall {
    /// Index into the list of calls.
    pub(crate) call: usize,
    pub(crate) correlation: u64,
    pub(crate) arguments: *const Argument,
    pub(crate) count: usize,
    pub(crate) result: i32,
    /// Each tracer's own, from enter to exit.
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
    /// The size and alignment of what a pointer points to; zeros where nobody may look.
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

/// A piece of work for a device. What does not apply to its kind is zero.
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
    /// Which of the device's HSA queues it goes through.
    pub(crate) queue: u32,
    pub(crate) in_graph: bool,
    /// As stamps of the device.
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
