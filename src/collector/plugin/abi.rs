//! The C ABI between a plugin and the program that loads it: the structs and numbers of `include/kineto_plugin.h`.
//!
//! They are those of a proposal for kineto (pull request 1148), with further event types appended. Every struct
//! begins with its size as known to the side that filled it in: the offset plus the size of its last field, without
//! padding. Fields and types are only ever appended.

use std::ffi::{c_char, c_int, c_void};

/// The function that a plugin exports.
pub(crate) const ENTRY: &std::ffi::CStr = c"KinetoPlugin_register";
/// The longest name of a profiler, without the final NUL.
pub(crate) const NAME_MAX: usize = 31;
/// An opaque pointer that only its maker dereferences.
pub(crate) type Handle = *mut c_void;

/// Receives the profilers of a plugin.
#[repr(C)]
pub(crate) struct Registry {
    pub(crate) size: usize,
    pub(crate) handle: Handle,
    pub(crate) register: unsafe extern "C" fn(Handle, *const Interface) -> c_int,
}

/// The functions of a profiler. Each returns 0 on success.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interface {
    pub(crate) size: usize,
    pub(crate) create: Option<unsafe extern "C" fn(*mut Create) -> c_int>,
    pub(crate) destroy: Option<unsafe extern "C" fn(*mut OnProfiler) -> c_int>,
    pub(crate) query: Option<unsafe extern "C" fn(*mut Query) -> c_int>,
    pub(crate) start: Option<unsafe extern "C" fn(*mut OnProfiler) -> c_int>,
    pub(crate) stop: Option<unsafe extern "C" fn(*mut OnProfiler) -> c_int>,
    pub(crate) push: Option<unsafe extern "C" fn(*mut Push) -> c_int>,
    pub(crate) pop: Option<unsafe extern "C" fn(*mut OnProfiler) -> c_int>,
    pub(crate) push_user: Option<unsafe extern "C" fn(*mut Push) -> c_int>,
    pub(crate) pop_user: Option<unsafe extern "C" fn(*mut OnProfiler) -> c_int>,
    pub(crate) process: Option<unsafe extern "C" fn(*mut Process) -> c_int>,
}

/// Makes a profiler for those types.
#[repr(C)]
pub(crate) struct Create {
    pub(crate) size: usize,
    /// Filled in by the plugin.
    pub(crate) profiler: Handle,
    pub(crate) types: *const u32,
    pub(crate) types_len: usize,
}

/// The arguments of operations on a profiler: destroy, start, stop, pop.
#[repr(C)]
pub(crate) struct OnProfiler {
    pub(crate) size: usize,
    pub(crate) profiler: Handle,
}

/// Returns the name, and the types that can be recorded.
#[repr(C)]
pub(crate) struct Query {
    pub(crate) size: usize,
    /// Null.
    pub(crate) profiler: Handle,
    pub(crate) name: *mut c_char,
    pub(crate) name_max: usize,
    pub(crate) types: *mut u32,
    pub(crate) types_max: usize,
}

/// The calling thread enters a slice of that id.
#[repr(C)]
pub(crate) struct Push {
    pub(crate) size: usize,
    pub(crate) id: u64,
    pub(crate) profiler: Handle,
}

/// Delivers the records.
#[repr(C)]
pub(crate) struct Process {
    pub(crate) size: usize,
    pub(crate) profiler: Handle,
    pub(crate) builder: *const Builder,
}

/// Receives the records: each event, then its further data.
#[repr(C)]
pub(crate) struct Builder {
    pub(crate) size: usize,
    pub(crate) handle: Handle,
    pub(crate) add_event: unsafe extern "C" fn(Handle, *const Event) -> c_int,
    pub(crate) set_name: unsafe extern "C" fn(Handle, *const c_char) -> c_int,
    pub(crate) set_flow: unsafe extern "C" fn(Handle, *const EventFlow) -> c_int,
    pub(crate) add_metadata: unsafe extern "C" fn(Handle, *const c_char, *const c_char) -> c_int,
    pub(crate) add_device: unsafe extern "C" fn(Handle, *const DeviceInfo) -> c_int,
    pub(crate) add_resource: unsafe extern "C" fn(Handle, *const ResourceInfo) -> c_int,
}

/// An event; times are nanoseconds since the Unix epoch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) size: usize,
    pub(crate) kind: u32,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) id: i64,
    /// A device, or a process.
    pub(crate) device: i32,
    /// A stream or another part of a device, or a thread.
    pub(crate) resource: i32,
}

/// An end of an arrow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventFlow {
    pub(crate) size: usize,
    pub(crate) kind: u32,
    pub(crate) id: u32,
    /// Nonzero at the start of an arrow; a byte, since C's `bool` may contain any value.
    pub(crate) is_start: u8,
}

/// The names of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceInfo {
    pub(crate) size: usize,
    pub(crate) id: i64,
    pub(crate) order: i64,
    pub(crate) name: *const c_char,
    pub(crate) label: *const c_char,
}

/// The name of a part of a device, or of a thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceInfo {
    pub(crate) size: usize,
    pub(crate) device: i32,
    pub(crate) resource: i32,
    pub(crate) order: i32,
    pub(crate) name: *const c_char,
}

/// A struct that begins with the number of bytes that are filled in.
pub(crate) trait Versioned {
    /// The size of the fields known here.
    const KNOWN: usize;
}

macro_rules! known {
    ($($name:ident up to $last:ident: $type:ty = $bytes:literal),* $(,)?) => {$(
        impl Versioned for $name {
            const KNOWN: usize = std::mem::offset_of!($name, $last) + size_of::<$type>();
        }
        #[cfg(target_pointer_width = "64")]
        const _: () = assert!(<$name as Versioned>::KNOWN == $bytes);
    )*};
}

known! {
    Registry up to register: usize = 24,
    Interface up to process: usize = 88,
    Create up to types_len: usize = 32,
    OnProfiler up to profiler: Handle = 16,
    Query up to types_max: usize = 48,
    Push up to profiler: Handle = 24,
    Process up to builder: usize = 24,
    Builder up to add_resource: usize = 64,
    Event up to resource: i32 = 48,
    EventFlow up to is_start: u8 = 17,
    DeviceInfo up to label: usize = 40,
    ResourceInfo up to name: usize = 32,
}
