//! One event of a trace, as a view.

use super::events::{EventTrack, Events, Phase, Row};
use crate::activity::{ActivityType, ArgValue, Args, CorrelationId, Flow};
use crate::time::Timestamp;

/// One event of a trace: a view, as small as a reference and a number.
///
/// The accessors are those of torch's `KinetoEvent` and `FunctionEvent`, with an `Option` where those have -1 or 0.
#[derive(Clone, Copy)]
pub struct Event<'e> {
    pub(super) events: &'e Events,
    pub(super) index: usize,
}

impl<'e> Event<'e> {
    fn row(&self) -> &'e Row {
        #[expect(clippy::indexing_slicing, reason = "made by Events alone, with an index of its own")]
        &self.events.rows[self.index]
    }

    /// Returns its place among the trace's events, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns its name.
    pub fn name(&self) -> &'e str {
        self.events.strings.get(self.row().name)
    }

    /// Returns its type; `None` if it is of none that Kineto knows.
    pub fn kind(&self) -> Option<ActivityType> {
        self.row().kind
    }

    /// Returns its category as it stands in a trace file.
    pub fn category(&self) -> &'e str {
        self.events.strings.get(self.row().category)
    }

    /// Returns whether it lasts: it is neither an instant nor a set of counter values.
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

    /// Returns when it began.
    pub fn start(&self) -> Timestamp {
        self.row().start
    }

    /// Returns when it ended; the start again for what does not last.
    pub fn end(&self) -> Timestamp {
        self.row().end
    }

    /// Returns how many nanoseconds it lasted.
    pub fn duration_ns(&self) -> u64 {
        self.end().since(self.start())
    }

    /// Returns the row of the viewer on which it is drawn.
    pub fn track(&self) -> &'e EventTrack {
        #[expect(clippy::indexing_slicing, reason = "made by Events' builder, which makes the track first")]
        &self.events.tracks[self.row().track as usize]
    }

    /// Returns the number of that row among [`Events::tracks`].
    pub fn track_index(&self) -> usize {
        self.row().track as usize
    }

    /// Returns its own id; `None` if it has none.
    pub fn id(&self) -> Option<CorrelationId> {
        Some(CorrelationId(self.row().id)).filter(|id| id.0 != 0)
    }

    /// Returns the id of the host event that it was launched in; `None` if that is not known.
    pub fn linked(&self) -> Option<CorrelationId> {
        Some(CorrelationId(self.row().linked)).filter(|id| id.0 != 0)
    }

    /// Returns its end of an arrow, if it has one; the first of [`flows`](Event::flows).
    pub fn flow(&self) -> Option<Flow> {
        self.flows().next()
    }

    /// Returns its ends of arrows.
    pub fn flows(&self) -> impl Iterator<Item = Flow> + use<'e> {
        let (flows, index) = (&self.events.flows, self.index);
        let first = flows.partition_point(|(of, _)| (*of as usize) < index);
        let own = flows.get(first..).unwrap_or_default().iter().take_while(move |(of, _)| *of as usize == index);
        own.map(|(_, flow)| *flow)
    }

    /// Returns the id that a launch and what it launched have in common; `None` if it has none.
    pub fn correlation(&self) -> Option<u64> {
        self.arg("correlation").and_then(super::values::unsigned).filter(|id| *id != 0)
    }

    /// Returns one argument, by its key in the trace file.
    pub fn arg(&self, key: &str) -> Option<ArgValue<'e>> {
        let events = self.events;
        events.arguments.get(self.row().arguments, events.strings.find(key)?)
    }
}

impl Args for Event<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        self.events.arguments.visit(self.row().arguments, &self.events.strings, each);
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
