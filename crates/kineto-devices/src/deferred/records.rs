//! The submissions and resolved work of a recording.

use super::Submission;
use super::clock::{AlignedBy, Alignment, ClockObservations};
use crate::registry::layouts;
use crate::{DeviceWork, Name, RecordLayout, RecordSink, RecordView};
use kineto_model::activity::{ActivityType, ActivityTypes, ArgValue};
use std::collections::BTreeMap;

/// The records of a recording so far.
#[derive(Debug, Default)]
pub(super) struct DeferredRecords {
    /// The number of the recording; 0 without one.
    pub(super) recording: u64,
    pub(super) sink: Option<RecordSink>,
    types: ActivityTypes,
    /// Unresolved submissions, by correlation id.
    pub(super) open: BTreeMap<u64, Submission>,
    work: Vec<(Resolved, Name)>,
    submitted: usize,
    submissions_over_limit: u64,
    work_over_limit: u64,
    backwards: u64,
}

/// Resolved device work, in device ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resolved {
    pub(super) submission: Submission,
    pub(super) kind: ActivityType,
    pub(super) start: u64,
    pub(super) end: u64,
}

layouts! {
    /// The layouts of all records.
    DeferredLayout
    /// A submission, which has no words.
    SUBMISSION = Submission: 1, "deferred.submission";
    /// Device work: the basis of the alignment, and the error of its times.
    WORK = Work: 2, "deferred.work";
}

impl RecordLayout for DeferredLayout {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        match self {
            DeferredLayout::Submission => each("correlation", ArgValue::U64(record.correlation)),
            DeferredLayout::Work => write_work_args(record, each),
        }
    }
}

fn write_work_args(record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
    const SOURCES: [AlignedBy; 3] = [AlignedBy::Calibrations, AlignedBy::Statement, AlignedBy::Brackets];
    each("device", ArgValue::I64(record.device_id.into()));
    each("stream", ArgValue::U64(record.stream.into()));
    each("correlation", ArgValue::U64(record.correlation));
    let source = SOURCES.into_iter().find(|source| *source as u64 == record.word(0));
    each("timing_source", ArgValue::Str(source.map_or("", |source| source.as_str())));
    each("clock_error_ns", ArgValue::U64(record.word(1)));
}

impl DeferredRecords {
    pub(super) fn new(recording: u64, types: ActivityTypes, sink: RecordSink) -> DeferredRecords {
        DeferredRecords { recording, types, sink: Some(sink), ..DeferredRecords::default() }
    }

    /// Adds a submission, unless the limit is reached.
    pub(super) fn add_submission(&mut self, submission: Submission, most: usize) -> bool {
        let fits = self.submitted < most;
        self.submissions_over_limit += u64::from(!fits);
        if fits {
            self.submitted += 1;
            self.open.insert(submission.id, submission);
        }
        fits
    }

    /// Adds the resolved work of a submission.
    pub(super) fn add_resolved_work(&mut self, resolved: &Resolved, name: &str, most: usize) {
        self.open.remove(&resolved.submission.id);
        let Some(sink) = self.sink.as_ref().filter(|_| self.types.contains(resolved.kind)) else { return };
        if resolved.end < resolved.start {
            self.backwards += 1;
        } else if self.work.len() >= most {
            self.work_over_limit += 1;
        } else {
            self.work.push((*resolved, sink.record(|batch| batch.name(name))));
        }
    }

    /// Returns the unresolved submissions, in order.
    pub(super) fn open_submissions(&self) -> Vec<Submission> {
        self.open.values().copied().collect()
    }

    /// Converts times to the host's clock and delivers all rows; returns the alignment, if there are rows.
    pub(super) fn deliver_rows(self, sink: &RecordSink, device: i32, known: &ClockObservations) -> Option<Alignment> {
        let mut aligned = known.compute_alignment();
        let (source, mut lost) = (aligned.report.source, 0_u64);
        sink.record(|batch| {
            for (Resolved { submission, kind, start, end }, name) in self.work.iter().copied() {
                let Some((start, end)) = aligned.convert_ticks(start).zip(aligned.convert_ticks(end)) else {
                    lost += 1;
                    continue;
                };
                let words = &[source as u64, start.1.max(end.1)];
                let (start, end, stream, correlation) = (start.0, end.0.max(start.0), submission.stream, submission.id);
                let shape = &WORK;
                batch.work(&DeviceWork { kind, name, device, stream, start, end, correlation, shape, words });
            }
        });
        let note = |count: u64, what: &str| {
            if count > 0 {
                sink.note(format!("{count} {what}"));
            }
        };
        note(self.open.len() as u64, "submissions were never resolved; their device rows are missing");
        note(self.submissions_over_limit, "submissions were dropped: limit reached");
        note(self.work_over_limit, "device rows were dropped: limit reached");
        note(self.backwards, "device rows were dropped: they end before they begin");
        note(lost, "device rows were dropped: the device's clock is unknown");
        let alignment = aligned.report;
        let any = self.work.len() as u64 > lost;
        if any {
            sink.note(alignment.to_string());
            sink.clock_error(alignment.error_ns);
        }
        any.then_some(alignment)
    }
}
