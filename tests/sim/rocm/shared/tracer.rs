//! What HIP tells the profilers.

use super::counters::Counters;
use super::options::Options;
pub(crate) use sim_core::engine::NEVER;
use sim_core::ffi::{StaticText, slice};
use sim_core::machine::{self, Vendor};
use std::ffi::{c_char, c_void};

/// The types of these libraries.
#[derive(Debug)]
pub(crate) struct Rocm;

impl Vendor for Rocm {
    type Options = Options;
    type Counters = Counters;
    type Call = ApiCall;
    type Work = Work;
    type Report = Report;

    const SIMULATOR: &'static str = "sim-rocm";
    const VARIABLE: &'static str = "SIM_ROCM";
}

pub(crate) type Event<'a> = machine::Event<'a, Rocm>;

/// What HIP tells, besides calls and work.
#[derive(Debug)]
#[repr(C)]
pub(crate) enum Report {
    KernelLoaded(Symbol),
    /// The name of the kernel with this id is no longer valid.
    KernelUnloaded(u64),
}

/// A profiler's function `simHipStarts`, which HIP's first call invokes; its result is ignored.
pub(crate) type HipStarts = extern "C" fn();

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

    /// Copies the values to their [`offsets`] among these words.
    pub(crate) fn pack(&self, words: &mut [u64], has_targets: bool) {
        let (first, room) = (words.as_mut_ptr().cast::<u8>(), size_of_val(words));
        let all = self.arguments();
        for (argument, offset) in all.iter().zip(offsets(all, has_targets)) {
            let (source, size) = (argument.value.cast::<u8>(), argument.shape.size);
            assert!(offset + size <= room, "a call has more arguments than there is room for");
            // SAFETY: the value has that size, and there is room.
            unsafe { std::ptr::copy_nonoverlapping(source, first.add(offset), size) };
        }
    }
}

/// Returns where each argument is, as C lays out a struct of them. With targets, what a pointer leads to follows it, if
/// that is of a known type.
pub(crate) fn offsets(arguments: &[Argument], has_targets: bool) -> impl Iterator<Item = usize> {
    let mut end = 0_usize;
    arguments.iter().map(move |argument| {
        let shape = &argument.shape;
        let offset = end.next_multiple_of(shape.alignment);
        end = offset + shape.size;
        let [size, alignment] = shape.target;
        if has_targets && size > 0 {
            end = end.next_multiple_of(alignment) + size;
        }
        offset
    })
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
