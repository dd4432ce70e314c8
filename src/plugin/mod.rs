//! Plugins in Rust: a [`Plugin`] of one's own, and [`export_plugin!`](crate::export_plugin) for its library.
//!
//! A plugin is a shared library (`crate-type = ["cdylib"]`) by which an accelerator is recorded in programs that know
//! nothing of it: they are told the library's folder by `KINETO_PLUGIN_LIB_DIR_PATH` or
//! [`plugins`](crate::KinetoLayerBuilder::plugins). A program that knows its accelerator implements
//! [`Collector`](crate::integration::Collector) instead, and needs no library.
//!
//! What a plugin says goes through `include/kineto_plugin.h`, whatever compiler has made it and its host.

mod export;

pub use crate::collector::EventType;
#[doc(hidden)]
pub use export::__register;

use crate::time::Timestamp;
use export::Out;
use kineto_trace::activity::ArgValue;
use std::fmt;

/// Records an accelerator for the programs that load it: one value is one recording.
///
/// Methods may panic: the host is told that the call has failed, and nothing else happens.
pub trait Plugin: Send + Sync + 'static {
    /// What the collector is called, such as "mtia"; at most 31 bytes count.
    const NAME: &'static str;

    /// All that it can record.
    const TYPES: &'static [EventType];

    /// Begins a recording of those of [`TYPES`](Plugin::TYPES) that are asked for.
    ///
    /// # Errors
    /// Why it cannot; the host says so in its trace.
    fn start(types: &[EventType]) -> Result<Self, NotStarted>
    where
        Self: Sized;

    /// The calling thread goes into a span of that id. Threads come at any time, several at once.
    fn push(&self, _id: u64) {}

    /// The calling thread goes out of the span that it went into last, which may have been in the recording before.
    fn pop(&self) {}

    /// As [`push`](Plugin::push), of a span that is a user annotation; by default the same.
    fn push_annotation(&self, id: u64) {
        self.push(id);
    }

    /// As [`pop`](Plugin::pop), of a span that is a user annotation; by default the same.
    fn pop_annotation(&self) {
        self.pop();
    }

    /// Ends the recording: what begins from now on is not wanted.
    fn stop(&self);

    /// Hands over what was recorded, once, after the stop.
    fn hand_over(&self, out: &mut TraceBuilder<'_>);
}

/// A recording could not begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotStarted;

/// Takes what a plugin recorded.
pub struct TraceBuilder<'o>(Out<'o>);

impl fmt::Debug for TraceBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceBuilder").finish_non_exhaustive()
    }
}

/// Something that happened, on a device or on the host.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PluginEvent<'e> {
    /// What it is.
    pub kind: EventType,
    /// The kernel, the call, what is copied where. Of counters: what is counted.
    pub name: &'e str,
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// On a device: which one. On the host nothing.
    pub device: i32,
    /// On a device: which stream or other part. On the host: the thread, by the kernel's id.
    pub resource: i32,
    /// Of a call and of what it had a device do: the same number, which is not 0; 0 for none.
    pub correlation: u32,
    /// The span around it, as it was [pushed](Plugin::push); 0 if that is not known.
    pub span: u64,
}

impl<'e> PluginEvent<'e> {
    /// An event of no time, on the first part of the first device, that belongs to nothing.
    pub const fn new(kind: EventType, name: &'e str) -> PluginEvent<'e> {
        let at = Timestamp::from_nanos(0);
        PluginEvent { kind, name, start: at, end: at, device: 0, resource: 0, correlation: 0, span: 0 }
    }

    /// Sets when it began and ended; of counters, when they were read.
    pub const fn between(self, start: Timestamp, end: Timestamp) -> PluginEvent<'e> {
        PluginEvent { start, end, ..self }
    }

    /// Sets where it was: a device and a part of it, or of the host 0 and a thread.
    pub const fn at(self, device: i32, resource: i32) -> PluginEvent<'e> {
        PluginEvent { device, resource, ..self }
    }

    /// Sets what joins it to what it launched, or to what launched it.
    pub const fn correlated(self, correlation: u32) -> PluginEvent<'e> {
        PluginEvent { correlation, ..self }
    }

    /// Sets the span around it.
    pub const fn within(self, span: u64) -> PluginEvent<'e> {
        PluginEvent { span, ..self }
    }
}

impl TraceBuilder<'_> {
    /// Adds an event with its arguments; returns whether the host has taken it.
    ///
    /// A text, a number and a truth value come through as they are, everything else as JSON.
    pub fn event(&mut self, event: &PluginEvent<'_>, args: &[(&str, ArgValue<'_>)]) -> bool {
        self.0.event(event, args)
    }

    /// Says what a device is called, what stands beside its rows, and where those stand among all groups.
    pub fn device(&mut self, id: i32, name: &str, label: &str, order: i64) -> bool {
        self.0.device(id, name, label, order)
    }

    /// Says what a stream or another part of a device is called, and where its row stands among them.
    pub fn resource(&mut self, device: i32, resource: i32, name: &str, order: i32) -> bool {
        self.0.resource(device, resource, name, order)
    }
}
