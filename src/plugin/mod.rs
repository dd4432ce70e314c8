//! Plugins in Rust: the trait [`Plugin`], and [`export_plugin!`](crate::export_plugin) for the library.
//!
//! A plugin is a shared library (`crate-type = ["cdylib"]`) that records an accelerator in programs that do not know it.
//! `KINETO_PLUGIN_LIB_DIR_PATH` or [`Devices::plugins`](crate::Devices::plugins) names the library's folder. A program that
//! knows its accelerator implements [`Collector`](crate::integration::Collector) instead, and needs no library.
//!
//! The plugin and the program that loads it communicate through the C interface `include/kineto_plugin.h`, so their compilers may differ.

mod export;

#[doc(hidden)]
pub use export::__register;
pub use kineto_devices::EventType;

use crate::time::Timestamp;
use kineto_devices::abi::Builder;
use std::fmt;

/// Records an accelerator for the programs that load it: one value is one recording.
///
/// If a method panics, the call returns an error to the loading program.
pub trait Plugin: Send + Sync + 'static {
    /// The collector's name, such as "mtia"; at most 31 bytes are used.
    const NAME: &'static str;

    /// The types that it can record.
    const TYPES: &'static [EventType];

    /// Begins a recording of `types`, a subset of [`TYPES`](Plugin::TYPES).
    ///
    /// # Errors
    /// [`NotStarted`], which the loading program reports in its trace.
    fn start(types: &[EventType]) -> Result<Self, NotStarted>
    where
        Self: Sized;

    /// Reports that the calling thread enters a span of that id. Several threads may call at once.
    fn push(&self, _id: u64) {}

    /// Reports that the calling thread exits its innermost span, which it may have entered in an earlier recording.
    fn pop(&self) {}

    /// Does the same as [`push`](Plugin::push) for a user annotation. Calls `push` by default.
    fn push_annotation(&self, id: u64) {
        self.push(id);
    }

    /// Does the same as [`pop`](Plugin::pop) for a user annotation. Calls `pop` by default.
    fn pop_annotation(&self) {
        self.pop();
    }

    /// Ends the recording; later work must not be recorded.
    fn stop(&self);

    /// Delivers the records, once, after the stop.
    fn deliver(&self, out: &mut TraceBuilder<'_>);
}

/// A recording could not begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotStarted;

/// Receives the records of a plugin.
pub struct TraceBuilder<'o>(&'o Builder);

impl fmt::Debug for TraceBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceBuilder").finish_non_exhaustive()
    }
}

/// An event on a device or on the host.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PluginEvent<'e> {
    /// The type of the event.
    pub kind: EventType,
    /// The name of the kernel, call, copy or counter.
    pub name: &'e str,
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// The device's number; 0 on the host.
    pub device: i32,
    /// The stream or other part of the device. On the host: the thread, by the operating system's id.
    pub resource: i32,
    /// The number that a call and its device work share; 0 for none.
    pub correlation: u32,
    /// The [pushed](Plugin::push) id of the span around it; 0 if unknown.
    pub span: u64,
}

impl<'e> PluginEvent<'e> {
    /// Creates an event at time 0, on part 0 of device 0, without correlation and span.
    pub const fn new(kind: EventType, name: &'e str) -> PluginEvent<'e> {
        let at = Timestamp::from_nanos(0);
        PluginEvent { kind, name, start: at, end: at, device: 0, resource: 0, correlation: 0, span: 0 }
    }

    /// Sets its start and end; for counters, the time of the reading.
    pub const fn between(self, start: Timestamp, end: Timestamp) -> PluginEvent<'e> {
        PluginEvent { start, end, ..self }
    }

    /// Sets its device and part; on the host 0 and the thread.
    pub const fn at(self, device: i32, resource: i32) -> PluginEvent<'e> {
        PluginEvent { device, resource, ..self }
    }

    /// Sets the number that joins a launch and its work.
    pub const fn correlated(self, correlation: u32) -> PluginEvent<'e> {
        PluginEvent { correlation, ..self }
    }

    /// Sets the span around it.
    pub const fn within(self, span: u64) -> PluginEvent<'e> {
        PluginEvent { span, ..self }
    }
}
