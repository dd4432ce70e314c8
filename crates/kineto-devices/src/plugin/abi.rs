//! The C ABI between a plugin and the program that loads it: the structs and numbers of `include/kineto_plugin.h`.
//!
//! They are those of a proposal for kineto (pull request 1148), with further event types appended. Every struct
//! begins with its size as known to the side that filled it in: the offset plus the size of its last field, without
//! padding. Fields and types are only ever appended.
#![allow(missing_docs, missing_debug_implementations, reason = "as in the header")]

use std::ffi::{c_char, c_int, c_void};

/// The longest name of a profiler, without the final NUL.
pub const NAME_MAX: usize = 31;
/// An opaque pointer that only its maker dereferences.
pub type Handle = *mut c_void;

/// Receives the profilers of a plugin.
#[repr(C)]
pub struct Registry {
    pub size: usize,
    pub handle: Handle,
    pub register: unsafe extern "C" fn(Handle, *const Interface) -> c_int,
}

/// The functions of a profiler. Each returns 0 on success.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    pub size: usize,
    pub create: Option<unsafe extern "C" fn(*mut Create) -> c_int>,
    pub destroy: Option<unsafe extern "C" fn(*mut OnProfiler) -> c_int>,
    pub query: Option<unsafe extern "C" fn(*mut Query) -> c_int>,
    pub start: Option<unsafe extern "C" fn(*mut OnProfiler) -> c_int>,
    pub stop: Option<unsafe extern "C" fn(*mut OnProfiler) -> c_int>,
    pub push: Option<unsafe extern "C" fn(*mut Push) -> c_int>,
    pub pop: Option<unsafe extern "C" fn(*mut OnProfiler) -> c_int>,
    pub push_user: Option<unsafe extern "C" fn(*mut Push) -> c_int>,
    pub pop_user: Option<unsafe extern "C" fn(*mut OnProfiler) -> c_int>,
    pub process: Option<unsafe extern "C" fn(*mut Process) -> c_int>,
}

/// Makes a profiler for those types.
#[repr(C)]
pub struct Create {
    pub size: usize,
    /// Filled in by the plugin.
    pub profiler: Handle,
    pub types: *const u32,
    pub types_len: usize,
}

/// The arguments of operations on a profiler: destroy, start, stop, pop.
#[repr(C)]
pub struct OnProfiler {
    pub size: usize,
    pub profiler: Handle,
}

/// Returns the name, and the types that can be recorded.
#[repr(C)]
pub struct Query {
    pub size: usize,
    /// Null.
    pub profiler: Handle,
    pub name: *mut c_char,
    pub name_max: usize,
    pub types: *mut u32,
    pub types_max: usize,
}

/// The calling thread enters a slice of that id.
#[repr(C)]
pub struct Push {
    pub size: usize,
    pub id: u64,
    pub profiler: Handle,
}

/// Delivers the records.
#[repr(C)]
pub struct Process {
    pub size: usize,
    pub profiler: Handle,
    pub builder: *const Builder,
}

/// Receives the records: each event, then its further data.
#[repr(C)]
pub struct Builder {
    pub size: usize,
    pub handle: Handle,
    pub add_event: unsafe extern "C" fn(Handle, *const Event) -> c_int,
    pub set_name: unsafe extern "C" fn(Handle, *const c_char) -> c_int,
    pub set_flow: unsafe extern "C" fn(Handle, *const EventFlow) -> c_int,
    pub add_metadata: unsafe extern "C" fn(Handle, *const c_char, *const c_char) -> c_int,
    pub add_device: unsafe extern "C" fn(Handle, *const DeviceInfo) -> c_int,
    pub add_resource: unsafe extern "C" fn(Handle, *const ResourceInfo) -> c_int,
}

/// An event; times are nanoseconds since the Unix epoch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub size: usize,
    pub kind: u32,
    pub start: i64,
    pub end: i64,
    pub id: i64,
    /// A device, or a process.
    pub device: i32,
    /// A stream or another part of a device, or a thread.
    pub resource: i32,
}

/// An end of an arrow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventFlow {
    pub size: usize,
    pub kind: u32,
    pub id: u32,
    /// Nonzero at the start of an arrow; a byte, since C's `bool` may contain any value.
    pub is_start: u8,
}

/// The names of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceInfo {
    pub size: usize,
    pub id: i64,
    pub order: i64,
    pub name: *const c_char,
    pub label: *const c_char,
}

/// The name of a part of a device, or of a thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ResourceInfo {
    pub size: usize,
    pub device: i32,
    pub resource: i32,
    pub order: i32,
    pub name: *const c_char,
}

/// A struct that begins with the number of bytes that are filled in.
pub trait Versioned {
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
