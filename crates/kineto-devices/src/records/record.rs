//! The records that collectors deliver, before they are packed.

use super::layout::RecordLayout;
use super::names::Name;
use kineto_base::encoding::encoded_as;
use kineto_model::activity::{ActivityType, DeviceType};

/// A call of a runtime or driver by a thread of the host.
#[derive(Clone, Copy, Debug)]
pub struct ApiCall<'r> {
    /// Its type, such as [`CudaRuntime`](ActivityType::CudaRuntime).
    pub kind: ActivityType,
    /// The function.
    pub name: Name,
    /// The thread that made the call.
    pub thread: Thread,
    /// When it began, in nanoseconds of the collector's clock.
    pub start: u64,
    /// When it returned; 0 if it has not.
    pub end: u64,
    /// The correlation id that it shares with the device work it launched; 0 for none.
    pub correlation: u64,
    /// The slice that was pushed around it, if the vendor reports it with the call; 0 if not.
    pub external: u64,
    /// Whether it is known to have put work on a device.
    pub launches: bool,
    /// The layout of `words`.
    pub shape: &'static dyn RecordLayout,
    /// Further values; at most 255, trailing zeros may be left out.
    pub words: &'r [u64],
}

impl ApiCall<'_> {
    /// Creates a call from its start and end, without a correlation id, a slice, work on a device and further values.
    ///
    /// Set the rest by `ApiCall { correlation, ..ApiCall::new(…) }`, so that a new field breaks nothing.
    pub const fn new(
        kind: ActivityType,
        name: Name,
        thread: Thread,
        (start, end): (u64, u64),
        shape: &'static dyn RecordLayout,
    ) -> Self {
        ApiCall { kind, name, thread, start, end, correlation: 0, external: 0, launches: false, shape, words: &[] }
    }
}

/// A thread of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Thread {
    /// The lower half of `pthread_self`, as CUPTI reports it.
    Handle(u32),
    /// The kernel's thread id.
    Id(i64),
}

encoded_as! {
    Thread as Result<i64, u32>: |thread| match *thread {
        Thread::Id(id) => Ok(id),
        Thread::Handle(handle) => Err(handle),
    }, |thread| Some(thread.map_or_else(Thread::Handle, Thread::Id));
}

/// Work of a device: a kernel, a copy, a fill.
#[derive(Clone, Copy, Debug)]
pub struct DeviceWork<'r> {
    /// Its type, such as [`ConcurrentKernel`](ActivityType::ConcurrentKernel).
    pub kind: ActivityType,
    /// The kernel, or the kind of copy or fill.
    pub name: Name,
    /// The device's number.
    pub device: i32,
    /// The stream's number.
    pub stream: u32,
    /// When it began, in nanoseconds of the collector's clock.
    pub start: u64,
    /// When it ended; 0 if it has not.
    pub end: u64,
    /// The correlation id of the call that launched it; 0 for none.
    pub correlation: u64,
    /// The layout of `words`.
    pub shape: &'static dyn RecordLayout,
    /// Further values; at most 255, trailing zeros may be left out.
    pub words: &'r [u64],
}

impl DeviceWork<'_> {
    /// Creates work from the device's and the stream's number, and its start and end, without a correlation id and further
    /// values.
    ///
    /// Set the rest by `DeviceWork { correlation, ..DeviceWork::new(…) }`, so that a new field breaks nothing.
    pub const fn new(
        kind: ActivityType,
        name: Name,
        (device, stream): (i32, u32),
        (start, end): (u64, u64),
        shape: &'static dyn RecordLayout,
    ) -> Self {
        DeviceWork { kind, name, device, stream, start, end, correlation: 0, shape, words: &[] }
    }
}

/// A wait: of the host for a device, or of a stream for another.
#[derive(Clone, Copy, Debug)]
pub struct Synchronization<'r> {
    /// Its type, such as [`CudaSync`](ActivityType::CudaSync).
    pub kind: ActivityType,
    /// The kind of wait.
    pub name: Name,
    /// The context; its device is that of [`Batch::context`](super::super::Batch::context).
    pub context: u32,
    /// The stream's number, `u32::MAX` for all streams.
    pub stream: u32,
    /// The event, 0 for none.
    pub event: u32,
    /// When it began, in nanoseconds of the collector's clock.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// The correlation id of the call that waits.
    pub correlation: u64,
    /// The layout of `words`.
    pub shape: &'static dyn RecordLayout,
    /// Further values; at most 255, trailing zeros may be left out.
    pub words: &'r [u64],
}

impl Synchronization<'_> {
    /// Creates a wait from the context's and the stream's number, and its start and end, without an event, a correlation id
    /// and further values.
    ///
    /// Set the rest by `Synchronization { event, ..Synchronization::new(…) }`, so that a new field breaks nothing.
    pub const fn new(
        kind: ActivityType,
        name: Name,
        (context, stream): (u32, u32),
        (start, end): (u64, u64),
        shape: &'static dyn RecordLayout,
    ) -> Self {
        Synchronization { kind, name, context, stream, event: 0, start, end, correlation: 0, shape, words: &[] }
    }
}

/// An event that was recorded into a stream.
#[derive(Clone, Copy, Debug)]
pub struct EventRecord<'r> {
    /// Its type, such as [`CudaEvent`](ActivityType::CudaEvent).
    pub kind: ActivityType,
    /// The row's name.
    pub name: Name,
    /// The context; its device is that of [`Batch::context`](super::super::Batch::context).
    pub context: u32,
    /// The stream's number.
    pub stream: u32,
    /// The event.
    pub event: u32,
    /// When the device reached it, in nanoseconds of the collector's clock; 0 if not known, and then it gets no row.
    pub at: u64,
    /// The correlation id of the call that recorded it.
    pub correlation: u64,
    /// The layout of `words`.
    pub shape: &'static dyn RecordLayout,
    /// Further values; at most 255, trailing zeros may be left out.
    pub words: &'r [u64],
}

impl EventRecord<'_> {
    /// Creates a record of an event from the numbers of context, stream and event, and its time, without a correlation id and
    /// further values.
    ///
    /// Set the rest by `EventRecord { correlation, ..EventRecord::new(…) }`, so that a new field breaks nothing.
    pub const fn new(
        kind: ActivityType,
        name: Name,
        (context, stream, event): (u32, u32, u32),
        at: u64,
        shape: &'static dyn RecordLayout,
    ) -> Self {
        EventRecord { kind, name, context, stream, event, at, correlation: 0, shape, words: &[] }
    }
}

/// Values of a device's counters at a point in time.
#[derive(Clone, Copy, Debug)]
pub struct CounterSample<'r> {
    /// Its type, for which [`is_counter`](ActivityType::is_counter) holds.
    pub kind: ActivityType,
    /// The counter. Each value of [`HardwareCounters`](ActivityType::HardwareCounters) is shown under its own name.
    pub name: Name,
    /// The device's number.
    pub device: i32,
    /// The stream's number, or that of another part of the device.
    pub stream: u32,
    /// When they were read, in nanoseconds of the collector's clock.
    pub at: u64,
    /// The layout of `words`: each numeric value becomes a series.
    pub shape: &'static dyn RecordLayout,
    /// The values; at most 255, trailing zeros may be left out.
    pub words: &'r [u64],
}

impl<'r> CounterSample<'r> {
    /// Creates a sample from the device's and the stream's number, its time and its values.
    pub const fn new(
        kind: ActivityType,
        name: Name,
        (device, stream): (i32, u32),
        at: u64,
        shape: &'static dyn RecordLayout,
        words: &'r [u64],
    ) -> Self {
        CounterSample { kind, name, device, stream, at, shape, words }
    }
}

/// Links a call to its slice, where the vendor reports that apart from the call.
#[derive(Clone, Copy, Debug)]
pub struct External {
    /// The call's correlation id.
    pub correlation: u64,
    /// The slice.
    pub id: u64,
}

/// A device allocation or free.
#[derive(Clone, Copy, Debug)]
pub struct DeviceMemory {
    /// The kind of device.
    pub kind: DeviceType,
    /// The device's number.
    pub device: i16,
    /// The address, which identifies the allocation until it is freed.
    pub address: u64,
    /// Bytes; negative for a free.
    pub bytes: i64,
    /// When it happened, in nanoseconds of the collector's clock.
    pub at: u64,
    /// The correlation id of the call that did it; 0 for none.
    pub correlation: u64,
}

impl DeviceMemory {
    /// Creates an allocation, or a free if `bytes` is negative, without a correlation id.
    ///
    /// Set it by `DeviceMemory { correlation, ..DeviceMemory::new(…) }`, so that a new field breaks nothing.
    pub const fn new(kind: DeviceType, device: i16, address: u64, bytes: i64, at: u64) -> Self {
        DeviceMemory { kind, device, address, bytes, at, correlation: 0 }
    }
}

/// Time that the vendor's library spent.
#[derive(Clone, Copy, Debug)]
pub struct Overhead {
    /// The reason.
    pub name: Name,
    /// When it began, in nanoseconds of the collector's clock.
    pub start: u64,
    /// When it ended.
    pub end: u64,
}

impl Overhead {
    /// Creates overhead from its reason, start and end.
    pub const fn new(name: Name, (start, end): (u64, u64)) -> Self {
        Overhead { name, start, end }
    }
}
