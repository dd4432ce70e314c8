//! The tree by time: an event lies in the slice that it began in.

use super::{EventTree, Violation};
use crate::activity::{FlowEnd, FlowKind};
use crate::analysis::events::{Event, Events, EventsById, TrackId};
use crate::analysis::relations::{OpenSlices, Threads};
use crate::hash::HashMap;

impl Events {
    /// Returns the events as a tree by time, as torch's `experimental_event_tree` where slices nest.
    ///
    /// An event lies in the slice that began last among those of its thread that contain it. An event that outlives the
    /// slice it began in becomes that slice's sibling. An event that begins when a slice ends comes after it.
    ///
    /// A backward operation on an otherwise idle thread lies in the slice that its forward thread is in: the call of
    /// `backward`. Device work lies in the call that launched it, else in the operation that its id names; otherwise it
    /// is a root. Functions of an interpreter and operations nest in one another.
    pub fn tree(&self) -> EventTree<'_> {
        let (parents, violations) = find_parents(self);
        EventTree::new(self, parents, violations)
    }
}

/// Returns the parents of all events, and the violations found.
pub(super) fn find_parents(events: &Events) -> (Vec<Option<u32>>, Vec<Violation>) {
    let mut violations = Vec::new();
    let mut parents: Vec<Option<u32>> = vec![None; events.len()];
    let mut open = OpenSlices::new(events);
    let (forward, device_parents) = (ForwardThreads::new(events, open.threads()), DeviceParents::new(events));
    for event in events.iter() {
        let index = event.index();
        let parent = if event.is_on_device() {
            let found = device_parents.find_parent(event);
            if let Some(launch) = found.filter(|launch| launch.is_call() && event.start() < launch.start()) {
                violations.push(Violation::BeginsBeforeLaunch { event: index, launch: launch.index() });
            }
            found.map(|found| found.index())
        } else {
            let own = open.innermost_slice(&event);
            let overlapped = open.overlapped_slices().first();
            violations.extend(overlapped.map(|parent| Violation::OutlivesParent { event: index, parent: *parent }));
            open.push(&event, index);
            match (own, event.forward_thread()) {
                (None, Some(thread)) => match forward.resolve_track(event, thread) {
                    Some(thread) => open.innermost_of(thread, event.start(), event.start()),
                    None => {
                        violations.push(Violation::UnknownForwardThread { event: index });
                        None
                    }
                },
                (own, _) => own,
            }
        };
        if let Some(slot) = parents.get_mut(index) {
            *slot = parent.filter(|parent| *parent != index).and_then(|parent| u32::try_from(parent).ok());
        }
    }
    (parents, violations)
}

/// Finds the parents of device events.
struct DeviceParents {
    calls: EventsById,
    by_id: EventsById,
}

impl DeviceParents {
    fn new(events: &Events) -> DeviceParents {
        let host = || events.iter().filter(|event| event.is_slice() && !event.is_on_device());
        let calls = host().filter(Event::is_call).filter_map(|call| Some((call.correlation()?, call)));
        let by_id = host().filter_map(|event| Some((event.id()?.0, event)));
        DeviceParents { calls: EventsById::new(events, calls), by_id: EventsById::new(events, by_id) }
    }

    fn find_parent<'e>(&self, event: Event<'e>) -> Option<Event<'e>> {
        let call = event.correlation().and_then(|id| self.calls.get(event, id));
        call.or_else(|| event.linked().and_then(|id| self.by_id.get(event, id.0)))
    }
}

/// Finds the thread of a backward operation's forward operation.
struct ForwardThreads<'e> {
    threads: Threads<'e>,
    /// By process and id of the arrow.
    arrows: HashMap<(&'e TrackId, u64), usize>,
    /// By process and sequence number: the thread of the forward operation that began last.
    sequences: HashMap<(&'e TrackId, u64), usize>,
}

impl<'e> ForwardThreads<'e> {
    fn new(events: &'e Events, threads: &Threads<'e>) -> ForwardThreads<'e> {
        let (mut arrows, mut sequences) = (HashMap::default(), HashMap::default());
        for event in events.iter().filter(|event| event.forward_thread().is_none()) {
            let starts =
                |flow: &crate::activity::Flow| (flow.kind, flow.end) == (FlowKind::ForwardBackward, FlowEnd::Start);
            let process = &event.track().process;
            arrows.extend(event.flows().filter(starts).map(|flow| ((process, flow.id), threads.thread_track(&event))));
            let number = event.sequence_number();
            sequences.extend(number.map(|number| ((process, number), threads.thread_track(&event))));
        }
        ForwardThreads { threads: threads.clone(), arrows, sequences }
    }

    /// Resolves the arrow, else the operating system's thread id, else the sequence number.
    fn resolve_track(&self, backward: Event<'_>, thread: u64) -> Option<usize> {
        let mut flows = backward.flows().filter(|flow| flow.kind == FlowKind::ForwardBackward);
        let process = &backward.track().process;
        let mut by_arrow = || flows.find_map(|flow| self.arrows.get(&(process, flow.id))).copied();
        let by_thread = || self.threads.find_track(&backward, i64::try_from(thread).ok()?);
        let by_number = || self.sequences.get(&(process, backward.sequence_number()?)).copied();
        by_arrow().or_else(by_thread).or_else(by_number)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{events, shown};
    use super::*;

    fn check(lines: &str, expected: &str, violations: &[Violation]) {
        let events = events(lines);
        let tree = events.tree();
        assert_eq!((shown(&tree).as_str(), tree.violations()), (expected, violations), "{lines}");
    }

    #[test]
    fn equal_times_nest_and_empty_slices_are_no_parents() {
        check("a 0 9 1\nb 0 9 1\nc 5 9 1\nd 9 9 1\ne 9 9 1", "a(b(c)) d e", &[]);
        check("a 0 9 1\nz 3 3 1\nb 3 4 1", "a(b(z))", &[]);
        check("a 0 0 1\nb 0 0 1", "a b", &[]);
        check("a 0 4 1\nb 5 9 1\nc 6 7 2", "a b c", &[]);
    }

    #[test]
    fn event_outliving_its_parent_is_a_sibling() {
        let outlives = Violation::OutlivesParent { event: 1, parent: 0 };
        check("a 0 10 1\nb 8 20 1\nc 12 14 1", "a b(c)", &[outlives]);
        check("a 0 10 1\nb 8 20 10000001 thread_id=1\nc 12 14 1", "a b(c)", &[outlives]);
        check("a 0 10 1\nb 10 20 1\nc 15 16 1", "a b(c)", &[]);
    }

    #[test]
    fn backward_operation_lies_in_the_call_of_backward() {
        let forward = "mm 0 5 1 Sequence_number=7\nbackward 10 30 1\n";
        let number = "MmBackward 12 20 2 Sequence_number=7 Fwd_thread_id=3\nmm2 13 15 2";
        check(&format!("{forward}{number}"), "mm backward(MmBackward(mm2))", &[]);
        let thread = "MmBackward 12 20 2 Sequence_number=9 Fwd_thread_id=1";
        check(&format!("{forward}{thread}"), "mm backward(MmBackward)", &[]);
        let unknown = Violation::UnknownForwardThread { event: 2 };
        check(&format!("{forward}{}", thread.replace("id=1", "id=5")), "mm backward MmBackward", &[unknown]);
        let busy = "loop 11 25 2\nMmBackward 12 20 2 Sequence_number=7 Fwd_thread_id=3";
        check(&format!("{forward}{busy}"), "mm backward loop(MmBackward)", &[]);
    }

    #[test]
    fn device_work_lies_in_its_launch_or_named_op() {
        let host = "op 0 9 1 External_id=5\nlaunch 2 3 1 cat=cuda_runtime correlation=8\n";
        let device =
            "k 4 6 7 cat=kernel pid=0 correlation=8\ng 4 6 8 cat=kernel pid=0 External_id=5\nn 4 6 9 cat=kernel pid=0";
        check(&format!("{host}{device}"), "op(launch(k) g) n", &[]);
        let early = Violation::BeginsBeforeLaunch { event: 1, launch: 2 };
        check(&format!("{host}k 1 6 7 cat=kernel pid=0 correlation=8"), "op(launch(k))", &[early]);
    }
}
