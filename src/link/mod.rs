//! Links device work to the calls that launched it, and to the spans that made the calls. Pure: works on ids and
//! times alone.
//!
//! Records stay in their source, identified by [`RecordHandle`]s. A [`RecordSource`] returns them, and [`Spans`]
//! describes the recording's spans. The links take about 4 bytes for each record and each correlation id.

mod annotations;
mod bits;
mod chains;
mod counts;
mod launches;
mod order;
mod origins;
mod sparse;
mod waits;

pub(crate) use annotations::DeviceAnnotation;
pub(crate) use counts::LinkCounts;
pub(crate) use waits::LinkedWait;

use annotations::AnnotationProjector;
use bits::Bits;
use launches::Launches;
use order::RecordOrder;
use origins::{Origins, SliceSearch};
use waits::Waits;

use crate::time::Timestamp;
use kineto_base::fallible::List;

/// Identifies a record of the source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RecordHandle(pub(crate) u32);

/// A call of a runtime or a driver on the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) at: RecordHandle,
    /// Shared with its device work; 0 for none.
    pub(crate) correlation: u64,
    /// The source's number of the thread.
    pub(crate) thread: u32,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    /// The slice around it, as pushed to the collector; 0 for none.
    pub(crate) external: u64,
    /// Whether it is known to put work on a device, and succeeded.
    pub(crate) launches: bool,
}

/// Device work: a kernel, a copy, a fill, a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Work {
    pub(crate) at: RecordHandle,
    /// Shared with the call that launched it; 0 for none.
    pub(crate) correlation: u64,
    pub(crate) device: i32,
    pub(crate) stream: u32,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    /// Its times are those of its launch as a whole, so it may begin before the record of that call.
    pub(crate) includes_launch: bool,
}

/// An external id that arrived in a record separate from its call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkedExternal {
    pub(crate) correlation: u64,
    pub(crate) id: u64,
}

/// An event recorded on a stream, for which others may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkedEventRecord {
    pub(crate) context: u32,
    pub(crate) event: u64,
    pub(crate) correlation: u64,
    pub(crate) stream: u32,
}

/// The records of a source with its own correlation ids. Handles may be resolved several times.
pub(crate) trait RecordSource {
    fn call_at(&self, at: RecordHandle) -> Call;
    fn work_at(&self, at: RecordHandle) -> Work;
    /// Returns when a call began, and its external id; called for each piece of work.
    fn launch_at(&self, at: RecordHandle) -> (Timestamp, u64) {
        let call = self.call_at(at);
        (call.start, call.external)
    }
}

/// The spans of the recording.
pub(crate) trait Spans {
    /// Returns the span of a slice, `None` for an id of another recording.
    fn span_of(&self, slice: u64) -> Option<u64>;
    /// Returns whether newer records may have replaced that slice.
    fn is_evicted(&self, _slice: u64) -> bool {
        false
    }
    /// Returns whether a slice of this recording may have been open at that time. Ids that threads pushed before a
    /// pause stay until their next hook.
    fn may_be_open(&self, slice: u64, _at: Timestamp) -> bool {
        self.span_of(slice).is_some()
    }
    /// Returns the parent of a span; 0 for none.
    fn parent_of(&self, span: u64) -> u64;
    /// Returns the id of the host activity of a span that is an annotation; 0 for others.
    fn annotation_of(&self, span: u64) -> u64;
    /// Returns the innermost slice that was open at each thread and time, 0 for none. Questions are ordered by thread
    /// and time.
    fn innermost_slices(&self, questions: &[(u32, Timestamp)]) -> List<u64>;
}

/// The links between records.
///
/// A launch is any call that shares the correlation id of device work, whatever the function. An arrow leads from it
/// to each device record. So there is an arrow end for each [work with a launch](Self::launch_of), and a start for each
/// [call that has work](Self::has_work).
#[derive(Debug)]
pub(crate) struct Links {
    launches: Launches,
    origins: Origins,
    streams: RecordOrder<(i32, u32)>,
    threads: RecordOrder<u32>,
    annotations: List<DeviceAnnotation>,
    waits: Waits,
    counts: LinkCounts,
}

/// Collects the calls of a source.
pub(crate) struct CallJoin<'a, R, S> {
    records: &'a R,
    spans: &'a S,
    launches: Launches,
    threads: RecordOrder<u32>,
    search: SliceSearch<'a, S>,
    counts: LinkCounts,
}

/// Collects the device work of a source, after all calls.
pub(crate) struct WorkJoin<'a, R, S> {
    records: &'a R,
    launches: Launches,
    threads: RecordOrder<u32>,
    streams: RecordOrder<(i32, u32)>,
    annotating: AnnotationProjector<'a, S>,
    search: SliceSearch<'a, S>,
    origins: Origins,
    /// The indices of launches whose slices are known only after all work.
    undecided: Bits,
    /// Their work, with the numbers of the streams.
    unlinked: List<(usize, RecordHandle)>,
    counts: LinkCounts,
}

impl<'a, R: RecordSource, S: Spans> CallJoin<'a, R, S> {
    pub(crate) fn new(records: &'a R, spans: &'a S) -> CallJoin<'a, R, S> {
        let (launches, threads, search) = (Launches::default(), RecordOrder::new(), SliceSearch::new(spans));
        CallJoin { records, spans, launches, threads, search, counts: LinkCounts::default() }
    }

    /// Adds a call. Calls arrive almost in order of time and correlation.
    #[inline]
    pub(crate) fn add_call(&mut self, call: &Call) {
        self.threads.push_record(call.thread, call.sort_key(), |at| self.records.call_at(at).sort_key());
        if call.correlation != 0 {
            self.launches.add_call(call);
        } else {
            self.counts.launches_without_work += u64::from(call.launches);
        }
        self.search.add_call(call, &mut self.counts);
    }

    /// Adds the external ids that were recorded apart from calls, after the last call.
    pub(crate) fn finish_calls(self, externals: impl Iterator<Item = LinkedExternal>) -> WorkJoin<'a, R, S> {
        let CallJoin { records, spans, mut launches, mut threads, mut search, mut counts } = self;
        threads.sort_lanes(|at| records.call_at(at).sort_key());
        search.add_separate_ids(externals, &mut counts);
        launches.move_sparse_calls();
        search.resolve_single(records, &launches);
        counts.correlations_reused =
            launches.group_shared(records, |launches, nest| search.resolve_nest(nest, launches));
        let (origins, undecided) = search.link_certain(&mut counts);
        let (streams, annotating, unlinked) = (RecordOrder::new(), AnnotationProjector::new(spans), List::new());
        WorkJoin { records, launches, threads, streams, annotating, search, origins, undecided, unlinked, counts }
    }
}

impl<R: RecordSource, S: Spans> WorkJoin<'_, R, S> {
    /// Returns whether a recorded call launched this work.
    pub(crate) fn is_launched(&self, work: &Work) -> bool {
        self.launches.find_launch(work.correlation, work.start).is_some()
    }

    /// Adds device work that no recorded call launched, in any order.
    #[inline]
    pub(crate) fn add_unlaunched(&mut self, work: &Work) -> usize {
        let place_of = |at| self.records.work_at(at).sort_key();
        self.streams.push_record((work.device, work.stream), work.sort_key(), place_of)
    }

    /// Adds device work, in any order.
    #[inline]
    pub(crate) fn add_work(&mut self, work: &Work) {
        let stream = self.add_unlaunched(work);
        let Some(launch) = self.launches.mark_worked(work.correlation, work.start) else {
            self.counts.work_without_launch += 1;
            return;
        };
        let (start, named) = self.records.launch_at(launch.at);
        self.counts.work_before_launch += u64::from(start > work.start && !work.includes_launch);
        if self.undecided.is_set(launch.place) {
            self.unlinked.push((stream, work.at));
        } else {
            self.annotating.add_work(stream, work, self.origins.slice_of(launch.at, named));
        }
    }

    /// Adds the events, after the last work. Never fails, whatever the records hold.
    pub(crate) fn finish_work(self, events: impl Iterator<Item = LinkedEventRecord>) -> Links {
        let WorkJoin { records, mut launches, threads, mut streams, mut annotating, search, .. } = self;
        let (mut origins, mut counts) = (self.origins, self.counts);
        counts.launches_without_work += launches.without_work();
        search.link_undecided(&launches, &mut origins, &mut counts);
        for (stream, at) in self.unlinked {
            let work = records.work_at(at);
            if let Some(launch) = launches.find_launch(work.correlation, work.start) {
                annotating.add_work(stream, &work, origins.slice_of(launch.at, records.launch_at(launch.at).1));
            }
        }
        streams.sort_lanes(|at| records.work_at(at).sort_key());
        let (annotations, waits) = (annotating.finish(), Waits::new(events));
        Links { launches, origins, streams, threads, annotations, waits, counts }
    }
}

impl Links {
    /// Returns the call that launched this work.
    ///
    /// Of several calls with its correlation id, that is the last call that starts no later than the work, otherwise
    /// the first.
    pub(crate) fn launch_of(&self, work: &Work) -> Option<RecordHandle> {
        self.launches.find_launch(work.correlation, work.start).map(|launch| launch.at)
    }

    /// Returns whether this call is the launch of device work, so that an arrow starts at its row.
    ///
    /// Of nested calls, such as a driver call in a runtime call, only the outermost is.
    pub(crate) fn has_work(&self, call: &Call) -> bool {
        self.launches.launch_index(call).is_some_and(|place| self.launches.has_worked(place))
    }

    /// Returns the slice that made the call; 0 for none.
    ///
    /// That is the slice named by a call of the same launch, otherwise by a separate external id. Otherwise, for
    /// launches only, it is the innermost slice that was open on the thread when the call began.
    pub(crate) fn slice_of(&self, call: &Call) -> u64 {
        self.origins.slice_of(call.at, call.external)
    }

    /// Returns the device work of each stream, in order of start, the longest first; streams are ordered by device
    /// and stream.
    pub(crate) fn work_by_stream(&self) -> impl Iterator<Item = (i32, u32, &[RecordHandle])> {
        self.streams.lanes().map(|((device, stream), work)| (device, stream, work))
    }

    /// Returns whether work of a stream may overlap.
    pub(crate) fn may_overlap(&self) -> bool {
        self.streams.may_overlap()
    }

    /// Returns the calls of each thread, in order of start, the longest first.
    pub(crate) fn calls_by_thread(&self) -> impl Iterator<Item = (u32, &[RecordHandle])> {
        self.threads.lanes()
    }

    /// Returns the calls of a thread, in the same order.
    pub(crate) fn calls_of(&self, thread: u32) -> Option<&[RecordHandle]> {
        self.threads.lane(thread)
    }

    /// Returns the extent of annotations on each stream, in order of device, stream and start, the longest first.
    pub(crate) fn annotations(&self) -> &[DeviceAnnotation] {
        &self.annotations
    }

    /// Returns the event record that a call waited for: the last record of the event at or before that call.
    pub(crate) fn wait_target(&self, context: u32, event: u64, correlation: u64) -> Option<LinkedWait> {
        self.waits.find_target(context, event, correlation)
    }

    /// Returns the counts of irregularities.
    pub(crate) fn counts(&self) -> &LinkCounts {
        &self.counts
    }

    #[cfg(test)]
    fn heap_bytes(&self) -> usize {
        let orders = self.streams.heap_bytes() + self.threads.heap_bytes();
        let annotations = self.annotations.capacity() * size_of::<DeviceAnnotation>();
        self.launches.heap_bytes() + self.origins.heap_bytes() + orders + annotations + self.waits.heap_bytes()
    }
}

#[cfg(test)]
mod tests;
