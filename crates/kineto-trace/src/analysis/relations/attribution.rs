//! Attributes device work to the call that launched it and to an operation of the host.

use super::nesting::Nesting;
use crate::analysis::averages::is_timed;
use crate::analysis::events::{Event, Events, EventsById};
use crate::hash::HashSet;
use std::fmt;

/// Maps device work to the call that launched it and to the operation that it is attributed to.
///
/// torch uses "External id" alone. Graph launches and driver calls lack it, and old versions of Kineto filled it with
/// another number. This type finds the launch by its correlation id, among the calls whose process ids have the same prefix
/// as the work's. The operation is the one that the "External id" names, if the launch happened inside it; otherwise it is
/// the innermost one around the launch.
///
/// For events of another trace, all answers are `None`.
#[derive(Clone)]
pub struct Attribution<'e> {
    events: &'e Events,
    /// By event: indices of its launch and its operation.
    links: Vec<(Option<u32>, Option<u32>)>,
    /// The events whose launch may be another one.
    unsure: HashSet<usize>,
    calls: EventsById,
    counts: AttributionCounts,
}

impl fmt::Debug for Attribution<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attribution").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// Counts of device events by the way in which their operation was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttributionCounts {
    /// The id names the innermost operation around the launch.
    pub same: u64,
    /// The id names an outer operation around the launch; the work is attributed to it.
    pub external_id_differs: u64,
    /// There is an id, but no launch, or no operation around the launch.
    pub external_id_only: u64,
    /// There is no valid id, but an operation around the launch.
    pub nesting_only: u64,
    /// There is neither an id nor an operation.
    pub none: u64,
    /// Included in the counts above: the id named an operation that was not running at the launch, so it was ignored.
    pub external_id_refused: u64,
    /// Calls with a correlation id that a call of another process has too; the prefixes of their process ids tell them apart, as in
    /// traces merged from several ranks.
    pub repeated_ids: u64,
    /// Calls with a correlation id of device work that an earlier call has too, in the same process or in another one without a
    /// different prefix. The work counts for the last of them that began before it, one of its own process if there is any. It has no
    /// launch delay.
    pub ambiguous_ids: u64,
}

impl Events {
    /// Attributes device work to its launches and operations.
    pub fn attribution(&self) -> Attribution<'_> {
        Attribution::new(self, &Nesting::new(self))
    }
}

impl<'e> Attribution<'e> {
    pub(crate) fn new(events: &'e Events, nesting: &Nesting) -> Attribution<'e> {
        let ops = nesting.iter(events).filter(Event::is_op);
        let ops = EventsById::new(events, ops.filter_map(|op| Some((op.id()?.0, op))));
        let calls = events.iter().filter(|event| event.is_slice() && event.is_call());
        let calls = EventsById::new(events, calls.filter_map(|call| Some((call.correlation()?, call))));
        let (mut links, mut unsure) = (vec![(None, None); events.len()], HashSet::default());
        let (repeated_ids, ambiguous_ids) = calls.count_repeated(|| {
            let work = events.iter().filter(|event| event.is_slice() && event.is_device_work());
            work.filter_map(|work| work.correlation()).collect()
        });
        let mut counts = AttributionCounts { repeated_ids, ambiguous_ids, ..AttributionCounts::default() };
        let number = |event: Option<Event<'_>>| event.and_then(|event| u32::try_from(event.index()).ok());
        for event in events.iter().filter(|event| event.is_slice() && !event.is_call()) {
            let found = event.correlation().and_then(|id| calls.find(event, id));
            unsure.extend(found.filter(|(_, is_sure)| !is_sure).map(|_| event.index()));
            let launch = found.map(|(launch, _)| launch);
            if let Some(link) = links.get_mut(event.index()) {
                link.0 = number(launch);
                if event.is_device_work() || is_timed(&event) {
                    let named = event.external_id().and_then(|id| ops.get(launch.unwrap_or(event), id.0));
                    link.1 = number(counts.choose_op(launch, named, nesting));
                }
            }
        }
        Attribution { events, links, unsure, calls, counts }
    }

    /// Returns the call that launched device work or made a wait; `None` if the trace lacks it.
    pub fn launch(&self, event: Event<'_>) -> Option<Event<'e>> {
        self.events.get(self.links_of(event)?.0? as usize)
    }

    /// Returns whether no other call of its launch's number may be the launch.
    pub(crate) fn is_launch_sure(&self, event: Event<'_>) -> bool {
        !self.unsure.contains(&event.index())
    }

    /// Returns the operation or annotation that device work is attributed to; `None` if none is known.
    pub fn op(&self, event: Event<'_>) -> Option<Event<'e>> {
        self.events.get(self.links_of(event)?.1? as usize)
    }

    /// Returns the call that has a number in the scope of an event.
    pub(crate) fn call_by_id<'u>(&self, user: Event<'u>, id: u64) -> Option<Event<'u>> {
        self.calls.get(user, id)
    }

    fn links_of(&self, event: Event<'_>) -> Option<(Option<u32>, Option<u32>)> {
        self.links.get(event.index_in(self.events)?).copied()
    }

    /// Returns how the operations were found.
    pub fn counts(&self) -> AttributionCounts {
        self.counts
    }
}

impl AttributionCounts {
    /// Returns the operation to attribute work to: the named one if the launch happened inside it, else the innermost.
    fn choose_op<'e>(
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
        let confirmed = named.filter(is_around);
        self.external_id_refused += u64::from(named.is_some() && confirmed.is_none());
        let count = match (confirmed, inner) {
            (Some(named), Some(inner)) if named.index() == inner.index() => &mut self.same,
            (Some(_), Some(_)) => &mut self.external_id_differs,
            (Some(_), None) => &mut self.external_id_only,
            (None, Some(_)) => &mut self.nesting_only,
            (None, None) => &mut self.none,
        };
        *count += 1;
        confirmed.or(inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_of_another_trace_has_no_operation() {
        let text = r#"[{"ph":"X","cat":"cpu_op","name":"op","pid":1,"tid":1,"ts":0,"dur":9},
            {"ph":"X","cat":"cuda_runtime","name":"launch","pid":1,"tid":1,"ts":1,"dur":2,"args":{"correlation":8}},
            {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":4,"dur":2,"args":{"correlation":8}}]"#;
        let [own, other] = [(); 2].map(|()| Events::from_reader(text.as_bytes()).unwrap());
        let (attribution, tree) = (own.attribution(), own.tree());
        let found = |events: &Events| {
            let kernel = events.iter().last().unwrap();
            let parents = (attribution.launch(kernel), attribution.op(kernel), tree.parent(kernel));
            (parents.0.is_some(), parents.1.is_some(), parents.2.is_some(), tree.depth(kernel))
        };
        assert_eq!((found(&own), found(&other)), ((true, true, true, 2), (false, false, false, 0)));
        assert_eq!(tree.children(other.get(0).unwrap()).len(), 0);
    }
}
