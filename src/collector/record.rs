//! What collectors hand over, before it is packed.

use super::names::Name;
use super::shape::RecordLayout;
use kineto_trace::activity::{ActivityType, DeviceType};

/// A call of a runtime or driver on a thread of the host.
#[derive(Clone, Copy, Debug)]
pub struct ApiCall<'r> {
    /// Its type, such as [`CudaRuntime`](ActivityType::CudaRuntime).
    pub kind: ActivityType,
    /// The function.
    pub name: Name,
    /// Who called.
    pub thread: Thread,
    /// When it began, in nanoseconds of the collector's clock.
    pub start: u64,
    /// When it returned; 0 if it has not.
    pub end: u64,
    /// What device work that it launched has too; 0 for none.
    pub correlation: u64,
    /// The slice that was pushed around it, if the vendor says so with the call; 0 if not.
    pub external: u64,
    /// Whether it is known to put work on a device, and did.
    pub launches: bool,
    /// What `words` mean.
    pub shape: &'static dyn RecordLayout,
    /// Everything else; at most 255, trailing zeros may be left out.
    pub words: &'r [u64],
}

/// Which thread of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Thread {
    /// The lower half of `pthread_self`, as CUPTI has it.
    Handle(u32),
    /// The kernel's id.
    Id(i64),
}

/// What a device did: a kernel, a copy, a fill.
#[derive(Clone, Copy, Debug)]
pub struct DeviceWork<'r> {
    /// Its type, such as [`ConcurrentKernel`](ActivityType::ConcurrentKernel).
    pub kind: ActivityType,
    /// The kernel, or what is copied where.
    pub name: Name,
    /// The device's number.
    pub device: i32,
    /// The stream's number.
    pub stream: u32,
    /// When it began, in nanoseconds of the collector's clock.
    pub start: u64,
    /// When it ended; 0 if it has not.
    pub end: u64,
    /// That of the call that launched it; 0 for none.
    pub correlation: u64,
    /// What `words` mean.
    pub shape: &'static dyn RecordLayout,
    /// Everything else; at most 255, trailing zeros may be left out.
    pub words: &'r [u64],
}

/// A wait: of the host for a device, or of a stream for another.
#[derive(Clone, Copy, Debug)]
pub struct Synchronization<'r> {
    /// Its type, such as [`CudaSync`](ActivityType::CudaSync).
    pub kind: ActivityType,
    /// What is waited for.
    pub name: Name,
    /// The context; its device is that of the [context](super::Batch::context).
    pub context: u32,
    /// The stream's number, `u32::MAX` if it is all of them.
    pub stream: u32,
    /// The event, 0 if none.
    pub event: u32,
    /// When it began, in nanoseconds of the collector's clock.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// That of the call that waits.
    pub correlation: u64,
    /// What `words` mean.
    pub shape: &'static dyn RecordLayout,
    /// Everything else; at most 255, trailing zeros may be left out.
    pub words: &'r [u64],
}

/// An event that was recorded into a stream.
#[derive(Clone, Copy, Debug)]
pub struct EventRecord<'r> {
    /// Its type, such as [`CudaEvent`](ActivityType::CudaEvent).
    pub kind: ActivityType,
    /// The row's name.
    pub name: Name,
    /// The context; its device is that of the [context](super::Batch::context).
    pub context: u32,
    /// The stream's number.
    pub stream: u32,
    /// The event.
    pub event: u32,
    /// When the device came to it, in nanoseconds of the collector's clock; 0 if not known, then it is no row.
    pub at: u64,
    /// That of the call that recorded it.
    pub correlation: u64,
    /// What `words` mean.
    pub shape: &'static dyn RecordLayout,
    /// Everything else; at most 255, trailing zeros may be left out.
    pub words: &'r [u64],
}

/// Values of a device's counters at one moment.
#[derive(Clone, Copy, Debug)]
pub struct CounterSample<'r> {
    /// Its type: one of those for which [`is_counter`](ActivityType::is_counter) holds.
    pub kind: ActivityType,
    /// What is counted. Values of [`HardwareCounters`](ActivityType::HardwareCounters) are shown one by one, under names of
    /// their own.
    pub name: Name,
    /// The device's number.
    pub device: i32,
    /// The stream's number, or that of another part of the device.
    pub stream: u32,
    /// When they were read, in nanoseconds of the collector's clock.
    pub at: u64,
    /// What `words` mean: it shows each value that is a number as a series.
    pub shape: &'static dyn RecordLayout,
    /// The values; at most 255, trailing zeros may be left out.
    pub words: &'r [u64],
}

/// Which slice a call belongs to, where the vendor says so apart from the call.
#[derive(Clone, Copy, Debug)]
pub struct External {
    /// The call's correlation id.
    pub correlation: u64,
    /// The slice.
    pub id: u64,
}

/// Memory of a device that was allocated or given back.
#[derive(Clone, Copy, Debug)]
pub struct DeviceMemory {
    /// The kind of device.
    pub kind: DeviceType,
    /// The device's number.
    pub device: i16,
    /// Where it is, which names it until it is given back.
    pub address: u64,
    /// How much, in bytes; negative where it is given back.
    pub bytes: i64,
    /// When, in nanoseconds of the collector's clock.
    pub at: u64,
    /// That of the call that did it; 0 for none.
    pub correlation: u64,
}

/// Time that the vendor's library took.
#[derive(Clone, Copy, Debug)]
pub struct Overhead {
    /// What for.
    pub name: Name,
    /// When it began, in nanoseconds of the collector's clock.
    pub start: u64,
    /// When it ended.
    pub end: u64,
}
