//! Host threads as segments of time, and the arrows that connect them.

use crate::activity::{FlowEnd, FlowKind};
use crate::analysis::events::{Event, Events, TrackId};
use crate::analysis::relations::Threads;
use crate::hash::HashMap;
use crate::time::Timestamp;

/// What each host thread did.
pub(super) struct HostThreads<'e> {
    threads: Threads<'e>,
    /// By thread, in order of time: disjoint segments.
    segments: Vec<Vec<Segment>>,
    /// By thread: the set of threads that arrows connect with it.
    groups: Vec<u32>,
    /// Ends of operations on threads that arrows connect, by group and time.
    releases: Vec<Release>,
    /// Arrows from one thread to another, by target thread and time.
    arrows: Vec<ArrowToThread>,
}

/// A time range in which one slice is the innermost on its thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    /// The index of the slice.
    event: u32,
}

/// The end of an operation after which its thread is outside operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Release {
    group: u32,
    at: Timestamp,
    thread: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ArrowToThread {
    thread: usize,
    /// The start of the slice that the arrow ends at.
    at: Timestamp,
    /// The end of the slice that it begins at.
    source_end: Timestamp,
    source_thread: usize,
}

/// Returns whether a slice shows what a thread does: an operation, a call, or a function of an interpreter.
pub(super) fn is_host_slice(event: &Event<'_>) -> bool {
    event.is_slice() && (event.is_op() || event.is_python_function() || event.is_call())
}

/// Returns whether a slice only names a part of the program, such as a step; the thread may wait in it.
pub(super) fn is_container(event: &Event<'_>) -> bool {
    event.is_python_function() || event.kind() == Some(crate::activity::ActivityType::UserAnnotation)
}

/// The slices that a thread is in, while its segments are collected.
#[derive(Default)]
struct OpenSegments {
    open: Vec<(Timestamp, u32)>,
    at: Timestamp,
    done: Vec<Segment>,
}

impl OpenSegments {
    /// Adds the segments up to a time. The innermost open slice owns the time.
    fn advance(&mut self, to: Timestamp) {
        while let Some((end, event)) = self.open.last().copied() {
            let stop = end.min(to);
            if stop > self.at {
                match self.done.last_mut().filter(|last| last.event == event && last.end == self.at) {
                    Some(last) => last.end = stop,
                    None => self.done.push(Segment { start: self.at, end: stop, event }),
                }
                self.at = stop;
            }
            if end > to {
                return;
            }
            self.open.pop();
        }
        self.at = self.at.max(to);
    }
}

impl<'e> HostThreads<'e> {
    pub(super) fn new(events: &'e Events) -> HostThreads<'e> {
        let threads = Threads::new(events);
        let mut open: Vec<OpenSegments> = Vec::new();
        open.resize_with(events.tracks().len(), OpenSegments::default);
        for event in events.iter().filter(is_host_slice) {
            let Ok(number) = u32::try_from(event.index()) else { break };
            if let Some(thread) = open.get_mut(threads.thread_track(&event)) {
                thread.advance(event.start());
                thread.open.push((event.end(), number));
            }
        }
        let finish = |mut thread: OpenSegments| {
            thread.advance(Timestamp::from_nanos(u64::MAX));
            thread.done
        };
        let segments: Vec<_> = open.into_iter().map(finish).collect();
        let arrows = find_arrows(events, &threads);
        let groups = connect_threads(segments.len(), &arrows);
        let mut host = HostThreads { threads, segments, groups, releases: Vec::new(), arrows };
        host.releases = host.find_releases(events);
        host
    }

    /// Returns where operations end on threads that arrows connect.
    fn find_releases(&self, events: &Events) -> Vec<Release> {
        if self.arrows.is_empty() {
            return Vec::new();
        }
        let is_working = |segment: &Segment| segment.slice(events).is_some_and(|slice| !is_container(&slice));
        let mut releases = Vec::new();
        for (thread, (segments, group)) in (0..).zip(self.segments.iter().zip(&self.groups)) {
            for (number, segment) in segments.iter().enumerate().filter(|(_, segment)| is_working(segment)) {
                let next = segments.get(number + 1);
                if next.is_none_or(|next| next.start > segment.end || !is_working(next)) {
                    releases.push(Release { group: *group, at: segment.end, thread });
                }
            }
        }
        releases.sort_unstable();
        releases
    }

    pub(super) fn thread_of(&self, event: &Event<'_>) -> usize {
        self.threads.thread_track(event)
    }

    /// Returns the number of segments of each thread that begin before a time.
    pub(super) fn segment_counts(&self, before: Timestamp) -> Vec<usize> {
        self.segments.iter().map(|thread| thread.partition_point(|segment| segment.start < before)).collect()
    }

    /// Returns the number of segments of a thread.
    pub(super) fn segment_count(&self, thread: usize) -> usize {
        self.segments.get(thread).map_or(0, Vec::len)
    }

    /// Returns the last of the first `count` segments of a thread that begins before a time. Lowers `count` to it.
    pub(super) fn segment_before(&self, thread: usize, count: &mut usize, at: Timestamp) -> Option<Segment> {
        let segments = self.segments.get(thread)?.get(..*count)?;
        let behind = segments.iter().rev().take_while(|segment| segment.start >= at).count();
        *count -= behind;
        segments.get(count.checked_sub(1)?).copied()
    }

    /// Returns the end on another thread, after `since`, for which the thread may have waited at a time, and that thread.
    pub(super) fn find_waker(
        &self,
        thread: usize,
        since: Option<Timestamp>,
        at: Timestamp,
    ) -> Option<(Timestamp, usize)> {
        let is_later = |end: &Timestamp| since.is_none_or(|since| *end > since);
        let group = *self.groups.get(thread)?;
        let last = self.releases.partition_point(|release| (release.group, release.at) <= (group, at)).checked_sub(1);
        let release = last.and_then(|last| self.releases.get(last)).filter(|last| last.group == group);
        let release = release.map(|release| (release.at, release.thread as usize));
        let first = self.arrows.partition_point(|arrow| (arrow.thread, arrow.at) < (thread, at));
        let arrows = self.arrows.get(first..).unwrap_or_default().iter();
        let arrows = arrows.take_while(|arrow| (arrow.thread, arrow.at) == (thread, at));
        let sources = arrows.map(|arrow| (arrow.source_end.min(at), arrow.source_thread));
        release.into_iter().chain(sources).filter(|(end, other)| is_later(end) && *other != thread).max()
    }
}

impl Segment {
    pub(super) fn slice<'c>(&self, events: &'c Events) -> Option<Event<'c>> {
        events.get(self.event as usize)
    }
}

/// Returns the arrows between two threads, except those from launches to work.
fn find_arrows(events: &Events, threads: &Threads<'_>) -> Vec<ArrowToThread> {
    let ends = |end| {
        let flows =
            events.flows.iter().filter(move |(_, flow)| flow.end == end && flow.kind != FlowKind::AsyncCpuToGpu);
        flows.filter_map(|(event, flow)| {
            let event = events.get(*event as usize)?;
            Some(((&event.track().process, flow.kind, flow.id), event))
        })
    };
    let mut sources: HashMap<(&TrackId, FlowKind, u64), Event<'_>> = HashMap::default();
    ends(FlowEnd::Start).for_each(|(id, source)| {
        sources.entry(id).or_insert(source);
    });
    let arrow = |(id, target): (_, Event<'_>)| {
        let source = sources.get(&id)?;
        let (from, to) = (threads.thread_track(source), threads.thread_track(&target));
        // A source that has no duration, or begins later, explains nothing: the walk would not go back in time.
        let is_earlier = source.start() < target.start().min(source.end());
        (from != to && is_earlier).then(|| ArrowToThread {
            thread: to,
            at: target.start(),
            source_end: source.end(),
            source_thread: from,
        })
    };
    let mut arrows: Vec<_> = ends(FlowEnd::Finish).filter_map(arrow).collect();
    arrows.sort_unstable();
    arrows
}

/// Returns the group of each thread: threads that arrows connect are in one group.
fn connect_threads(threads: usize, arrows: &[ArrowToThread]) -> Vec<u32> {
    let mut parents: Vec<usize> = (0..threads).collect();
    for arrow in arrows {
        let (from, to) = (find_root(&mut parents, arrow.source_thread), find_root(&mut parents, arrow.thread));
        parents.get_mut(from.max(to)).into_iter().for_each(|parent| *parent = from.min(to));
    }
    (0..threads).map(|thread| u32::try_from(find_root(&mut parents, thread)).unwrap_or(u32::MAX)).collect()
}

/// Returns the root of a thread's set, and halves the way to it.
fn find_root(parents: &mut [usize], mut thread: usize) -> usize {
    while let Some(parent) = parents.get(thread).copied().filter(|parent| *parent != thread) {
        let above = parents.get(parent).copied().unwrap_or(parent);
        parents.get_mut(thread).into_iter().for_each(|slot| *slot = above);
        thread = above;
    }
    thread
}
