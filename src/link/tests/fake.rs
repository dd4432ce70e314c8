//! Records and spans in plain vectors, for tests.

use crate::link::{Call, LinkedEventRecord, LinkedExternal, Linker, Links, RecordHandle, RecordSource, Spans, Work};
use crate::time::Timestamp;
use kineto_base::fallible::List;

pub(super) fn ns(ns: u64) -> Timestamp {
    Timestamp::from_nanos(ns)
}

/// The records of a source; handles count from `base`.
#[derive(Clone, Debug, Default)]
pub(super) struct FakeRecords {
    pub(super) base: u32,
    pub(super) calls: Vec<Call>,
    pub(super) work: Vec<Work>,
    pub(super) externals: Vec<LinkedExternal>,
    pub(super) events: Vec<LinkedEventRecord>,
}

impl FakeRecords {
    /// Adds a call, from (start, end), and returns its handle.
    pub(super) fn add_call(
        &mut self,
        correlation: u64,
        thread: u32,
        (start, end): (u64, u64),
        external: u64,
    ) -> RecordHandle {
        let at = RecordHandle(self.base + u32::try_from(self.calls.len()).unwrap());
        let (start, end) = (ns(start), ns(end));
        self.calls.push(Call { at, correlation, thread, start, end, external, launches: false });
        at
    }

    /// Adds work on a device and stream, from (start, end), and returns its handle.
    pub(super) fn add_work(
        &mut self,
        correlation: u64,
        (device, stream): (i32, u32),
        (start, end): (u64, u64),
    ) -> RecordHandle {
        let at = RecordHandle(self.base + u32::try_from(self.work.len()).unwrap());
        let (start, end) = (ns(start), ns(end));
        self.work.push(Work { at, correlation, device, stream, start, end, includes_launch: false });
        at
    }
}

impl FakeRecords {
    pub(super) fn calls(&self) -> impl Iterator<Item = Call> {
        self.calls.iter().copied()
    }

    pub(super) fn work(&self) -> impl Iterator<Item = Work> {
        self.work.iter().copied()
    }
}

impl Links {
    /// Links all records.
    pub(super) fn new(records: &FakeRecords, spans: &impl Spans) -> Links {
        let mut linker = Linker::new(records, spans);
        records.calls.iter().for_each(|call| linker.add_call(call));
        linker.finish_calls(records.externals.iter().copied());
        records.work.iter().for_each(|work| linker.add_work(work));
        linker.finish_work(records.events.iter().copied())
    }
}

impl RecordSource for FakeRecords {
    fn call_at(&self, at: RecordHandle) -> Call {
        self.calls[(at.0 - self.base) as usize]
    }
    fn work_at(&self, at: RecordHandle) -> Work {
        self.work[(at.0 - self.base) as usize]
    }
}

/// The slices and spans of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct FakeSpans {
    /// Slice, span, thread, start, end.
    pub(super) slices: Vec<(u64, u64, u32, u64, u64)>,
    /// Span, parent, annotation.
    pub(super) spans: Vec<(u64, u64, u64)>,
    /// The greatest id of slices that are not here any more.
    pub(super) evicted: u64,
}

impl FakeSpans {
    /// Returns the innermost slice at a time: the slice that starts last.
    pub(super) fn innermost_at(&self, thread: u32, time: Timestamp) -> u64 {
        let time = time.as_nanos();
        let open = self.slices.iter().filter(|slice| slice.2 == thread && slice.3 <= time && time < slice.4);
        open.max_by_key(|slice| slice.3).map_or(0, |slice| slice.0)
    }
}

impl Spans for FakeSpans {
    fn span_of(&self, slice: u64) -> Option<u64> {
        self.slices.iter().find(|known| known.0 == slice).map(|known| known.1)
    }
    fn is_evicted(&self, slice: u64) -> bool {
        slice <= self.evicted
    }
    fn parent_of(&self, span: u64) -> u64 {
        self.spans.iter().find(|known| known.0 == span).map_or(0, |known| known.1)
    }
    fn annotation_of(&self, span: u64) -> u64 {
        self.spans.iter().find(|known| known.0 == span).map_or(0, |known| known.2)
    }
    fn innermost_slices(&self, questions: &[(u32, Timestamp)]) -> List<u64> {
        assert!(questions.is_sorted());
        questions.iter().map(|(thread, time)| self.innermost_at(*thread, *time)).collect()
    }
}
