//! Idle time of streams and devices: gaps by cause, and the longest gaps.

use super::intervals::{Intervals, find_gaps};
use super::work::{Devices, StreamId, Work};
use crate::analysis::events::{Event, Events};
use crate::analysis::relations::{Forest, Threads};
use crate::hash::HashMap;
use crate::time::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Idle time of streams between two pieces of work, by cause, in nanoseconds.
///
/// The causes are HTA's. A gap is `host_wait` if the next work was launched during the gap, else `kernel_wait` if it is
/// shorter than 30 µs, else `other`. The fields from `before_launch_ns` on divide the same gaps at the launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdleTime {
    /// Gaps in which the next work was launched: the host was late.
    pub host_wait_ns: u64,
    /// Gaps below 30 µs before work that was launched earlier.
    pub kernel_wait_ns: u64,
    /// All other gaps.
    pub other_ns: u64,
    /// The number of gaps of each cause, in the order of the fields above.
    pub gaps: [u64; 3],
    /// Time in gaps before the launch of the next work.
    pub before_launch_ns: u64,
    /// Time in gaps after the launch of the next work.
    pub after_launch_ns: u64,
    /// Time in gaps before work whose launch is unknown.
    pub unlinked_ns: u64,
}

/// The idle time of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamIdle {
    /// The stream.
    pub stream: StreamId,
    /// Its idle time by cause.
    pub idle: IdleTime,
}

impl IdleTime {
    /// Returns the idle time of a stream, whose work must be sorted.
    pub(super) fn of_stream(work: &[Work<'_>]) -> IdleTime {
        /// HTA's `consecutive_kernel_delay`.
        const KERNEL_WAIT_NS: u64 = 30_000;

        let mut idle = IdleTime::default();
        for (before, next) in find_gaps(work, |work| work.interval()) {
            let (end, gap) = (before.end(), next.start().since(before.end()));
            let (ns, number) = match next.sure_launch() {
                Some(launch) if launch.start() > end => (&mut idle.host_wait_ns, 0),
                _ if gap < KERNEL_WAIT_NS => (&mut idle.kernel_wait_ns, 1),
                _ => (&mut idle.other_ns, 2),
            };
            *ns += gap;
            idle.gaps.iter_mut().skip(number).take(1).for_each(|count| *count += 1);
            match next.sure_launch() {
                Some(launch) => {
                    let before = launch.start().min(next.start()).max(end).since(end);
                    idle.before_launch_ns += before;
                    idle.after_launch_ns += gap - before;
                }
                None => idle.unlinked_ns += gap,
            }
        }
        idle
    }

    /// Returns the idle time of all causes.
    pub fn total_ns(&self) -> u64 {
        self.host_wait_ns + self.kernel_wait_ns + self.other_ns
    }
}

impl AddAssign for IdleTime {
    fn add_assign(&mut self, other: IdleTime) {
        self.host_wait_ns += other.host_wait_ns;
        self.kernel_wait_ns += other.kernel_wait_ns;
        self.other_ns += other.other_ns;
        self.gaps.iter_mut().zip(other.gaps).for_each(|(count, more)| *count += more);
        self.before_launch_ns += other.before_launch_ns;
        self.after_launch_ns += other.after_launch_ns;
        self.unlinked_ns += other.unlinked_ns;
    }
}

/// A period in which no device worked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The start.
    pub start: Timestamp,
    /// The duration, in nanoseconds.
    pub ns: u64,
    /// The name of the work that ended last before it.
    pub before: String,
    /// The name of the work that ended it.
    pub after: String,
    /// The time at which that work was launched; `None` if the launch is unknown.
    pub launch: Option<Timestamp>,
    /// The host operation during the gap, on the thread of that launch; `None` if unknown.
    pub host: Option<GapHost>,
}

/// The operation in which a thread spent most of a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GapHost {
    /// Its name.
    pub name: String,
    /// Its category.
    pub category: String,
    /// Its self time in the gap, in nanoseconds.
    pub self_ns: u64,
}

/// Returns the longest gaps during which all devices were idle, longest first.
pub(super) fn longest_gaps(events: &Events, devices: &Devices<'_>, forest: &Forest, limit: usize) -> Vec<Gap> {
    let mut work: Vec<_> = devices.busy_work().collect();
    work.sort_by_key(|work| work.interval());
    let key = |(before, after): &(&Work<'_>, &Work<'_>)| (Reverse(after.start().since(before.end())), before.end());
    // Only the longest of possibly millions of gaps are kept.
    let mut found: Vec<(&Work<'_>, &Work<'_>)> = Vec::with_capacity(limit + 1);
    for gap in find_gaps(work, |work| work.interval()) {
        let at = found.partition_point(|longer| key(longer) <= key(&gap));
        if at < limit {
            found.insert(at, gap);
            found.truncate(limit);
        }
    }
    let hosts = HostTime::new(events, forest, &found);
    let gap = |(before, after): &(&Work<'_>, &Work<'_>)| Gap {
        start: before.end(),
        ns: after.start().since(before.end()),
        before: before.event.name().to_owned(),
        after: after.event.name().to_owned(),
        launch: after.sure_launch().map(|launch| launch.start()),
        host: after.sure_launch().and_then(|launch| hosts.longest_op(launch, before.end(), after.start())),
    };
    found.iter().map(gap).collect()
}

/// The operations on threads whose launches end gaps.
struct HostTime<'e> {
    threads: Threads<'e>,
    /// By thread: operations with their children.
    ops: HashMap<usize, Vec<(Event<'e>, Vec<Event<'e>>)>>,
}

impl<'e> HostTime<'e> {
    /// Collects the operations during these gaps on the threads that ended them.
    fn new(events: &'e Events, forest: &Forest, gaps: &[(&Work<'e>, &Work<'e>)]) -> HostTime<'e> {
        let threads = Threads::new(events);
        let launches = gaps.iter().filter_map(|(_, after)| after.sure_launch());
        let mut ops: HashMap<usize, Vec<_>> =
            launches.map(|launch| (threads.thread_track(&launch), Vec::new())).collect();
        let overlaps_gap = |event: &Event<'_>| {
            gaps.iter().any(|(before, after)| event.start() < after.start() && event.end() > before.end())
        };
        // By node: the index of its operation.
        let mut places = HashMap::default();
        for node in forest.unmerged_nodes() {
            let Some(event) = forest.node_event(events, node).filter(overlaps_gap) else { continue };
            let thread = threads.thread_track(&event);
            let Some(on_thread) = ops.get_mut(&thread) else { continue };
            places.insert(node, on_thread.len());
            on_thread.push((event, Vec::new()));
            let parent = forest.parent(node).and_then(|parent| places.get(&parent));
            if let Some((_, children)) = parent.and_then(|place| on_thread.get_mut(*place)) {
                children.push(event);
            }
        }
        HostTime { threads, ops }
    }

    /// Returns the operation with the most self time between two times, on the thread of a launch. At equal times,
    /// returns the first by name.
    fn longest_op(&self, launch: Event<'e>, start: Timestamp, end: Timestamp) -> Option<GapHost> {
        let is_inside = |event: &Event<'_>| event.start() < end && event.end() > start;
        let mut times: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for (op, children) in self.ops.get(&self.threads.thread_track(&launch))? {
            if is_inside(op) {
                let (from, to) = (op.start().max(start), op.end().min(end));
                let children = children.iter().filter(|child| is_inside(child));
                let inside = Intervals::union(children.map(|child| (child.start(), child.end())));
                let own = to.since(from) - inside.ns_within(from, to);
                *times.entry((op.name(), op.category())).or_default() += own;
            }
        }
        // The first of equal maxima.
        let ((name, category), self_ns) = times.into_iter().rev().max_by_key(|(_, ns)| *ns)?;
        Some(GapHost { name: name.to_owned(), category: category.to_owned(), self_ns })
    }
}
