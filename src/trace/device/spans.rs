//! The link's view of the host's spans.

use super::threads::DeviceThreads;
use crate::buffer::{CommittedRecord, Tag};
use crate::clock::Converter;
use crate::link;
use crate::time::Timestamp;
use crate::trace::index::Index;
use crate::trace::recorded::Recorded;
use crate::trace::thread::in_order;
use kineto_base::fallible::List;
use kineto_devices::NEVER;
use kineto_model::activity::ActivityType;
use std::cell::Cell;

/// The spans and slices that the host recorded.
pub(super) struct HostSpans<'t> {
    pub(super) recorded: &'t Recorded,
    pub(super) index: &'t Index,
    pub(super) converter: &'t Converter,
    pub(super) threads: &'t DeviceThreads,
    /// The largest error between the times of calls and slices.
    pub(super) slack_ns: u64,
    /// The slice of the last query, and until when it may have been open.
    pub(super) last: Cell<(u64, Option<Timestamp>)>,
}

impl link::Spans for HostSpans<'_> {
    fn span_of(&self, slice: u64) -> Option<u64> {
        self.recorded.find_record(slice).filter(|record| record.head.tag == Tag::Slice).map(|record| record.span_id())
    }

    fn is_evicted(&self, slice: u64) -> bool {
        let (first, last) = self.recorded.evicted.ids;
        first != 0 && (first..=last).contains(&slice)
    }

    fn may_be_open(&self, slice: u64, at: Timestamp) -> bool {
        let (last, mut until) = self.last.get();
        if last != slice {
            until = self.open_until(slice);
            self.last.set((slice, until));
        }
        until.is_some_and(|until| at <= until)
    }

    fn parent_of(&self, span: u64) -> u64 {
        self.recorded.find_record(span).and_then(|record| record.parent_id()).unwrap_or(0)
    }

    fn annotation_of(&self, span: u64) -> u64 {
        let Some(definition) = self.recorded.find_record(span) else { return 0 };
        let site = self.recorded.sites.get(definition.head.site as usize);
        if site.is_none_or(|site| site.class != ActivityType::UserAnnotation) {
            return 0;
        }
        // On the host, its first slice represents it; that is usually the next record.
        let first = first_slice(&definition).filter(|slice| self.recorded.find_record(*slice).is_some());
        first.unwrap_or(span)
    }

    fn innermost_slices(&self, questions: &[(u32, Timestamp)]) -> List<u64> {
        let mut answers = List::with_capacity(questions.len());
        for asked in questions.chunk_by(|a, b| a.0 == b.0) {
            let thread = asked.first().map_or(0, |(number, _)| self.threads.thread_id(*number));
            self.innermost_of(thread, asked.iter().map(|(_, at)| *at), &mut answers);
        }
        answers
    }
}

impl<'t> HostSpans<'t> {
    /// Returns until when a slice may have been open; `None` if the recording does not contain it.
    fn open_until(&self, slice: u64) -> Option<Timestamp> {
        let HostSpans { recorded, index, converter, .. } = self;
        let record = recorded.find_record(slice).filter(|record| record.head.tag == Tag::Slice)?;
        if recorded.is_without_pause() && !recorded.disorder {
            return Some(NEVER);
        }
        Some(recorded.window_around(&record).map_or(NEVER, |window| {
            let (start, end, _) = index.slice_times(window, &record);
            if recorded.disorder {
                // Its thread may not have noticed yet that another thread exited it.
                let end = converter.time_range(start, end).1.as_nanos();
                Timestamp::from_nanos(end.saturating_add(self.slack_ns))
            } else {
                // Slices that are open during a pause are pushed again after it.
                converter.time_range(start, window.end.max(start)).1
            }
        }))
    }

    fn innermost_of(&self, thread: i64, mut times: impl Iterator<Item = Timestamp>, answers: &mut List<u64>) {
        let HostSpans { recorded, index, converter, .. } = self;
        let mut open: List<(Timestamp, u64)> = List::new();
        let mut next = times.next();
        // The callback never fails.
        let _ = in_order(recorded, index, converter, index.runs_of(thread), |window, record| {
            if record.head.tag != Tag::Slice {
                return Ok(());
            }
            let (start, end, _) = index.slice_times(window, record);
            let (start, end) = converter.slice_times(start, end);
            while let Some(at) = next.filter(|at| *at < start) {
                answers.push(innermost_slice(&mut open, at));
                next = times.next();
            }
            while open.pop_if(|(end, _)| *end <= start).is_some() {}
            open.push((end, record.id()));
            Ok(())
        });
        answers.extend(next.into_iter().chain(times).map(|at| innermost_slice(&mut open, at)));
    }
}

impl Recorded {
    /// Returns whether the host was recorded without a pause.
    pub(crate) fn is_without_pause(&self) -> bool {
        self.gaps.is_empty() && matches!(self.windows[..], [only] if (only.start, only.end) == self.whole)
    }
}

/// Returns the innermost open slice at a time, 0 if there is none. Times must not decrease between calls.
fn innermost_slice(open: &mut List<(Timestamp, u64)>, at: Timestamp) -> u64 {
    while open.pop_if(|(end, _)| *end <= at).is_some() {}
    open.last().map_or(0, |(_, slice)| *slice)
}

/// Returns the first slice of a span, if it is the span's definition or directly follows it in the chunk.
fn first_slice(definition: &CommittedRecord<'_>) -> Option<u64> {
    if definition.head.tag == Tag::Slice {
        return Some(definition.id());
    }
    let is_its = |record: &CommittedRecord<'_>| record.head.tag == Tag::Slice && record.span_id() == definition.id();
    definition.all.records_from(definition.next_slot()).find(is_its).map(|record| record.id())
}
