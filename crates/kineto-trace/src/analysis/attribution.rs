//! Which call launched what a device did, and which operation of the host it is counted to.

use super::event::Event;
use super::events::Events;
use super::nesting::Nesting;
use super::timed::is_timed;
use std::collections::HashMap;
use std::fmt;

/// For each thing that a device did, the call that launched it and the operation that it belongs to.
///
/// torch goes by "External id" alone, which graph launches and calls of the driver lack, and which old versions of
/// Kineto filled with another number. Here the launch is found by its correlation id, and the operation is the one that
/// the "External id" names, if the launch happened inside it; else the innermost one around the launch.
#[derive(Clone)]
pub struct Attribution {
    /// By event: its launch and its operation.
    links: Vec<(Option<u32>, Option<u32>)>,
    counts: AttributionCounts,
}

impl fmt::Debug for Attribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attribution").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// How the operations were found, by number of device events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttributionCounts {
    /// The id names the innermost operation around the launch.
    pub same: u64,
    /// The id names another operation around the launch, which counts.
    pub external_id_differs: u64,
    /// There is an id, but no operation around the launch, or no launch.
    pub external_id_only: u64,
    /// There is no id that can be believed, but an operation around the launch.
    pub nesting_only: u64,
    /// There is neither.
    pub none: u64,
    /// Of all these: the id names an operation that was not going on at the launch, and was not believed.
    pub external_id_refused: u64,
}

impl Events {
    /// Finds out which call launched each thing that a device did, and which operation it is counted to.
    pub fn attribution(&self) -> Attribution {
        Attribution::new(self, &Nesting::new(self))
    }
}

impl Attribution {
    pub(super) fn new(events: &Events, nesting: &Nesting) -> Attribution {
        let calls = calls(events);
        let mut ops = HashMap::new();
        for op in nesting.iter(events).filter(Event::is_op) {
            if let Some(id) = op.id() {
                ops.entry(id).or_insert(op);
            }
        }
        let mut links = vec![(None, None); events.len()];
        let mut counts = AttributionCounts::default();
        let number = |event: Option<Event<'_>>| event.and_then(|event| u32::try_from(event.index()).ok());
        for event in events.iter().filter(|event| event.is_slice() && !event.is_call()) {
            let launch = event.correlation().and_then(|id| calls.get(&id)).copied();
            if let Some(link) = links.get_mut(event.index()) {
                link.0 = number(launch);
                if event.is_device_work() || is_timed(&event) {
                    let named = event.external_id().and_then(|id| ops.get(&id)).copied();
                    link.1 = number(counts.choose(launch, named, nesting));
                }
            }
        }
        Attribution { links, counts }
    }

    /// Returns the call that launched what a device did, or that made a wait; `None` if it is not in the trace.
    pub fn launch<'e>(&self, event: Event<'e>) -> Option<Event<'e>> {
        event.events.get(self.links.get(event.index())?.0? as usize)
    }

    /// Returns the operation or annotation of the host that a device's work is counted to; `None` if none is known.
    pub fn op<'e>(&self, event: Event<'e>) -> Option<Event<'e>> {
        event.events.get(self.links.get(event.index())?.1? as usize)
    }

    /// Returns how the operations were found.
    pub fn counts(&self) -> AttributionCounts {
        self.counts
    }
}

impl AttributionCounts {
    /// Returns the operation that counts: the named one if the launch happened inside it, else the innermost.
    fn choose<'e>(
        &mut self,
        launch: Option<Event<'e>>,
        named: Option<Event<'e>>,
        nesting: &Nesting,
    ) -> Option<Event<'e>> {
        let around = |event: &Event<'e>| nesting.parent(*event);
        let inner = std::iter::successors(launch.as_ref().and_then(around), around).find(Event::is_op);
        let is_around = |op: &Event<'e>| {
            launch.is_none_or(|launch| op.is_on_thread_of(&launch) && (op.start()..op.end()).contains(&launch.start()))
        };
        let believed = named.filter(is_around);
        self.external_id_refused += u64::from(named.is_some() && believed.is_none());
        let count = match (believed, inner) {
            (Some(named), Some(inner)) if named.index() == inner.index() => &mut self.same,
            (Some(_), Some(_)) => &mut self.external_id_differs,
            (Some(_), None) => &mut self.external_id_only,
            (None, Some(_)) => &mut self.nesting_only,
            (None, None) => &mut self.none,
        };
        *count += 1;
        believed.or(inner)
    }
}

/// The calls of runtimes and drivers by correlation id; of several with one id, the earliest.
fn calls(events: &Events) -> HashMap<u64, Event<'_>> {
    let mut calls = HashMap::new();
    for call in events.iter().filter(|event| event.is_slice() && event.is_call()) {
        if let Some(id) = call.correlation() {
            calls.entry(id).or_insert(call);
        }
    }
    calls
}
