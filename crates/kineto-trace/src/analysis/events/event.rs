//! One event of a trace, as a view.

use super::builder::is_call;
use super::strings::StringId;
use super::values::{as_signed, as_unsigned};
use super::{EventRow, EventTrack, Events, Phase, TrackId};
use crate::activity::{ActivityType, ArgValue, Args, CorrelationId, DeviceType, Flow, OVERHEAD_GROUP, field_names};
use crate::time::Timestamp;
use crate::write::json_text;

/// One event of a trace, as a view of the size of a reference and a number.
///
/// The accessors are those of torch's `KinetoEvent` and `FunctionEvent`; they return `None` instead of -1 or 0.
#[derive(Clone, Copy)]
pub struct Event<'e> {
    pub(crate) events: &'e Events,
    pub(crate) index: usize,
}

impl<'e> Event<'e> {
    fn row(&self) -> &'e EventRow {
        #[expect(clippy::indexing_slicing, reason = "made by Events alone, with an index of its own")]
        &self.events.rows[self.index]
    }

    /// Returns its index among the trace's events, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns its index if it is an event of these events.
    pub(crate) fn index_in(&self, events: &Events) -> Option<usize> {
        std::ptr::eq(self.events, events).then_some(self.index)
    }

    /// Returns its name.
    pub fn name(&self) -> &'e str {
        self.events.strings.get(self.row().name)
    }

    /// Returns the id of its name.
    pub(crate) fn name_id(&self) -> StringId {
        self.row().name
    }

    /// Returns its type; `None` if Kineto does not know it.
    ///
    /// If a file has no slice of a type that Kineto knows, as one of tracing-chrome, its slices are operations.
    pub fn kind(&self) -> Option<ActivityType> {
        self.row().kind
    }

    /// Returns its category as written in a trace file.
    pub fn category(&self) -> &'e str {
        self.events.strings.get(self.row().category)
    }

    /// Returns the id of its category.
    pub(crate) fn category_id(&self) -> StringId {
        self.row().category
    }

    /// Returns whether it has a duration, unlike an instant or a counter.
    pub fn is_slice(&self) -> bool {
        self.row().phase == Phase::Slice
    }

    /// Returns whether it is a point in time.
    pub fn is_instant(&self) -> bool {
        self.row().phase == Phase::Instant
    }

    /// Returns whether it is a set of counter values; they are its arguments.
    pub fn is_counter(&self) -> bool {
        self.row().phase == Phase::Counter
    }

    /// Returns the start time.
    pub fn start(&self) -> Timestamp {
        self.row().start
    }

    /// Returns the end time; the start if it has no duration.
    pub fn end(&self) -> Timestamp {
        self.row().end
    }

    /// Returns the duration in nanoseconds.
    pub fn duration_ns(&self) -> u64 {
        self.end().since(self.start())
    }

    /// Returns the track on which a viewer draws it.
    pub fn track(&self) -> &'e EventTrack {
        #[expect(clippy::indexing_slicing, reason = "made by Events' builder, which makes the track first")]
        &self.events.tracks[self.row().track as usize]
    }

    /// Returns the index of its track in [`Events::tracks`].
    pub fn track_index(&self) -> usize {
        self.row().track as usize
    }

    /// Returns the id by which device work names the slice that launched it; `None` if it has none.
    pub fn id(&self) -> Option<CorrelationId> {
        Some(CorrelationId(self.row().id)).filter(|id| id.0 != 0)
    }

    /// Returns the id of the host slice that launched it or, for an instant, in which it happened; `None` if unknown.
    pub fn linked(&self) -> Option<CorrelationId> {
        Some(CorrelationId(self.row().linked)).filter(|id| id.0 != 0)
    }

    /// Returns [`linked`](Event::linked), else [`id`](Event::id): torch's `externalId`.
    pub fn external_id(&self) -> Option<CorrelationId> {
        self.linked().or(self.id())
    }

    /// Returns the first of its [`flows`](Event::flows), if any.
    pub fn flow(&self) -> Option<Flow> {
        self.flows().next()
    }

    /// Returns the ends of arrows that are bound to it.
    pub fn flows(&self) -> impl Iterator<Item = Flow> + use<'e> {
        let (flows, index) = (&self.events.flows, self.index);
        let first = flows.partition_point(|(of, _)| (*of as usize) < index);
        let own = flows.get(first..).unwrap_or_default().iter().take_while(move |(of, _)| *of as usize == index);
        own.map(|(_, flow)| *flow)
    }

    /// Returns the id that a call of the runtime shares with the work that it launched, in the vendor's numbering.
    pub fn correlation(&self) -> Option<u64> {
        self.arg_by_id(StringId::CORRELATION).and_then(as_unsigned).filter(|id| *id != 0)
    }

    /// Returns whether it is a call of a runtime or a driver.
    pub fn is_call(&self) -> bool {
        is_call(self.category())
    }

    /// Returns whether it is device work: a kernel, a copy, a fill, a command of MTIA.
    ///
    /// The category alone decides. Annotations on devices and waits are not work. Neither are host operations with a
    /// stream among their arguments, as Triton writes them.
    pub fn is_device_work(&self) -> bool {
        self.kind().is_some_and(ActivityType::is_device_work)
    }

    /// Returns the type of the device that it ran on, or of an allocation's memory; `None` if its type is unknown.
    pub fn device_type(&self) -> Option<DeviceType> {
        if let Some(number) = self.arg_by_id(StringId::DEVICE_TYPE).filter(|_| self.is_instant()) {
            let number = as_unsigned(number)?;
            return DeviceType::ALL.iter().copied().find(|device| u64::from(device.number()) == number);
        }
        self.kind().map(|kind| kind.device(self.events.accelerator))
    }

    /// Returns the index of the device that it ran on, or of an allocation's memory. `None` on the host, where torch
    /// returns the process id.
    pub fn device_index(&self) -> Option<u32> {
        let index = match self.arg_by_id(StringId::DEVICE_ID).filter(|_| self.is_instant()) {
            Some(index) => as_signed(index),
            None if self.is_on_device() => {
                self.arg_by_id(StringId::DEVICE).and_then(as_signed).or(id_number(&self.track().process))
            }
            None => None,
        };
        index.and_then(|index| index.try_into().ok())
    }

    /// Returns the stream; `None` on the host, and for device events without a stream.
    pub fn stream(&self) -> Option<u64> {
        let stream = match self.arg_by_id(StringId::STREAM) {
            _ if !self.is_on_device() => None,
            Some(stream) => as_signed(stream),
            None => id_number(&self.track().thread),
        };
        stream.and_then(|stream| stream.try_into().ok())
    }

    /// Returns the process id; `None` on a device.
    pub fn process(&self) -> Option<i64> {
        id_number(&self.track().process).filter(|id| !self.is_on_device() && *id >= 0 && *id != OVERHEAD_GROUP)
    }

    /// Returns the operating system's thread id; `None` on a device.
    pub fn thread(&self) -> Option<i64> {
        self.process()?;
        // A slice that overlaps another of its thread is drawn on a separate row, whose id is not a thread id.
        self.arg_by_id(StringId::THREAD).and_then(as_signed).or(id_number(&self.track().thread))
    }

    /// Returns whether its span has an async track, because the span's thread did other work before it ended.
    pub fn is_async(&self) -> bool {
        let span = self.span();
        span.is_some_and(|span| self.events.async_spans.binary_search(&span).is_ok())
    }

    /// Returns the id of the span that a slice belongs to, or in which an instant happened.
    pub fn span(&self) -> Option<u64> {
        self.arg_by_id(StringId::SPAN).and_then(as_unsigned)
    }

    /// Returns the id of the span's parent: the explicit `parent`, else the span that its thread had entered last.
    ///
    /// If a thread has entered span A, then B, then A again, the parent is A. The registry of `tracing-subscriber`
    /// ignores the second enter of A and returns B.
    pub fn parent_span(&self) -> Option<u64> {
        self.arg_by_id(StringId::PARENT).and_then(as_unsigned)
    }

    /// Returns whether tables leave it out, because it is a program's own bookkeeping.
    pub fn is_hidden(&self) -> bool {
        if !self.events.arguments.has_key(StringId::HIDDEN) {
            return false;
        }
        match self.arg_by_id(StringId::HIDDEN) {
            Some(ArgValue::Bool(hidden)) => hidden,
            Some(hidden) => as_unsigned(hidden) == Some(1),
            None => false,
        }
    }

    /// Returns whether it was still running when the recording stopped; its end is then the recording's.
    pub fn is_unfinished(&self) -> bool {
        // torch also marks instants this way.
        self.is_slice() && matches!(self.arg_by_id(StringId::FINISHED), Some(ArgValue::Bool(false)))
    }

    /// Returns all arguments as a JSON object.
    pub fn metadata_json(&self) -> String {
        json_text(&ArgValue::Dict(self))
    }

    pub(crate) fn is_on_device(&self) -> bool {
        self.kind().is_some_and(|kind| kind.device(self.events.accelerator) != DeviceType::Cpu)
    }

    /// Returns one argument, by its key in the trace file.
    ///
    /// A field that the file calls `stream (field)`, to distinguish it from an argument of that name, is found as
    /// `stream`.
    pub fn arg(&self, key: &str) -> Option<ArgValue<'e>> {
        self.exact_arg(key).or_else(|| {
            let shown = format!("{key}{}", field_names::SUFFIX);
            self.exact_arg(&shown).filter(|_| field_names::original_name(&shown).is_some())
        })
    }

    /// Returns the argument with exactly this key in the trace file.
    pub(crate) fn exact_arg(&self, key: &str) -> Option<ArgValue<'e>> {
        self.arg_by_id(self.events.strings.find(key.as_bytes())?)
    }

    /// Returns the argument with this key.
    pub(crate) fn arg_by_id(&self, key: StringId) -> Option<ArgValue<'e>> {
        self.events.arguments.get(self.row().arguments, key)
    }

    /// Returns whether both are on the same host thread or on the same track.
    pub(crate) fn is_on_thread_of(&self, other: &Event<'_>) -> bool {
        let thread = |event: &Event<'_>| Some((event.process()?, event.thread()?));
        self.track_index() == other.track_index() || thread(self).is_some_and(|own| Some(own) == thread(other))
    }
}

pub(crate) fn id_number(id: &TrackId) -> Option<i64> {
    match id {
        TrackId::Id(id) => Some(*id),
        TrackId::Name(_) => None,
    }
}

impl Args for Event<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        self.events.arguments.visit(self.row().arguments, &self.events.strings, &mut |key, value| {
            let own = field_names::original_name(key).filter(|own| self.exact_arg(own).is_none());
            each(own.unwrap_or(key), value);
        });
    }
}

impl std::fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event")
            .field("name", &self.name())
            .field("category", &self.category())
            .field("start", &self.start())
            .field("duration_ns", &self.duration_ns())
            .finish_non_exhaustive()
    }
}
