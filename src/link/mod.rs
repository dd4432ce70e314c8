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

use annotations::AnnotationProjector;
use bits::Bits;
use launches::Launches;
use order::RecordOrder;
use origins::{Origins, SliceSearch};
use waits::Waits;

use crate::time::Timestamp;
use kineto_base::fallible::List;

/// Identifies a record of the source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct RecordHandle(pub(crate) u32);

/// A call of a runtime or a driver on the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
#[derive(Debug, Default)]
pub(crate) struct Links {
    launches: Launches,
    origins: Origins,
    /// The device work of each stream; streams are ordered by device and number.
    pub(crate) streams: RecordOrder<(i32, u32)>,
    /// The calls of each thread.
    pub(crate) threads: RecordOrder<u32>,
    /// The extent of annotations on each stream, in order of device, stream and start, the longest first.
    pub(crate) annotations: List<DeviceAnnotation>,
    pub(crate) waits: Waits,
    /// The counts of irregularities.
    pub(crate) counts: LinkCounts,
}

/// Collects the calls of a source, and then its device work.
pub(crate) struct Linker<'a, R, S> {
    records: &'a R,
    search: SliceSearch<'a, S>,
    annotating: AnnotationProjector<'a, S>,
    /// The indices of launches whose slices are known only after all work.
    undecided: Bits,
    /// Their work.
    unlinked: List<RecordHandle>,
    links: Links,
}

impl<'a, R: RecordSource, S: Spans> Linker<'a, R, S> {
    pub(crate) fn new(records: &'a R, spans: &'a S) -> Linker<'a, R, S> {
        let (search, annotating) = (SliceSearch::new(spans), AnnotationProjector::new(spans));
        let (undecided, unlinked, links) = Default::default();
        Linker { records, search, annotating, undecided, unlinked, links }
    }

    /// Adds a call. Calls arrive almost in order of time and correlation.
    #[inline]
    pub(crate) fn add_call(&mut self, call: &Call) {
        let Links { threads, launches, counts, .. } = &mut self.links;
        threads.push_record(call.thread, call.sort_key(), |at| self.records.call_at(at).sort_key());
        if call.correlation != 0 {
            launches.add_call(call);
        } else {
            counts.launches_without_work += u64::from(call.launches);
        }
        self.search.add_call(call, counts);
    }

    /// Adds the external ids that were recorded apart from calls, after the last call and before the first work.
    pub(crate) fn finish_calls(&mut self, externals: impl Iterator<Item = LinkedExternal>) {
        let Linker { records, search, links, .. } = self;
        links.threads.sort_lanes(|at| records.call_at(at).sort_key());
        search.add_separate_ids(externals, &mut links.counts);
        links.launches.move_sparse_calls();
        search.resolve_single(*records, &links.launches);
        links.counts.correlations_reused =
            links.launches.group_shared(*records, |launches, nest| search.resolve_nest(nest, launches));
        (links.origins, self.undecided) = search.link_certain(&mut links.counts);
    }

    /// Returns whether a recorded call launched this work.
    pub(crate) fn is_launched(&self, work: &Work) -> bool {
        self.links.launch_of(work).is_some()
    }

    /// Adds device work that no recorded call launched, in any order.
    #[inline]
    pub(crate) fn add_unlaunched(&mut self, work: &Work) {
        let place_of = |at| self.records.work_at(at).sort_key();
        self.links.streams.push_record((work.device, work.stream), work.sort_key(), place_of);
    }

    /// Adds device work, in any order.
    #[inline]
    pub(crate) fn add_work(&mut self, work: &Work) {
        self.add_unlaunched(work);
        let Links { launches, origins, counts, .. } = &mut self.links;
        let Some(launch) = launches.mark_worked(work.correlation, work.start) else {
            counts.work_without_launch += 1;
            return;
        };
        let (start, named) = self.records.launch_at(launch.at);
        counts.work_before_launch += u64::from(start > work.start && !work.includes_launch);
        if self.undecided.is_set(launch.place) {
            self.unlinked.push(work.at);
        } else {
            self.annotating.add_work(work, origins.slice_of(launch.at, named));
        }
    }

    /// Adds the events, after the last work. Never fails, whatever the records hold.
    pub(crate) fn finish_work(self, events: impl Iterator<Item = LinkedEventRecord>) -> Links {
        let Linker { records, search, mut annotating, unlinked, mut links, .. } = self;
        links.counts.launches_without_work += links.launches.without_work();
        search.link_undecided(&links.launches, &mut links.origins, &mut links.counts);
        for at in unlinked {
            let work = records.work_at(at);
            if let Some(launch) = links.launch_of(&work) {
                annotating.add_work(&work, links.origins.slice_of(launch, records.launch_at(launch).1));
            }
        }
        links.streams.sort_lanes(|at| records.work_at(at).sort_key());
        (links.annotations, links.waits) = (annotating.finish(), Waits::new(events));
        links
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

    #[cfg(test)]
    fn heap_bytes(&self) -> usize {
        let orders = self.streams.heap_bytes() + self.threads.heap_bytes();
        let annotations = self.annotations.capacity() * size_of::<DeviceAnnotation>();
        self.launches.heap_bytes() + self.origins.heap_bytes() + orders + annotations + self.waits.heap_bytes()
    }
}

#[cfg(test)]
mod tests;
