//! What was submitted and resolved in a recording.

use super::Submission;
use super::clock::{AlignedBy, Alignment, Knowledge};
use crate::collector::{DeviceWork, Name, RecordLayout, RecordSink, RecordView};
use kineto_trace::activity::{ActivityType, ActivityTypes, ArgValue};
use std::collections::BTreeMap;

/// What a recording has so far.
#[derive(Debug, Default)]
pub(super) struct DeferredRecords {
    /// Its number; 0 while there is none.
    pub(super) recording: u64,
    pub(super) sink: Option<RecordSink>,
    types: ActivityTypes,
    /// What has no times yet, by correlation id.
    pub(super) open: BTreeMap<u64, Submission>,
    work: Vec<(Resolved, Name)>,
    submitted: usize,
    submissions_over_limit: u64,
    work_over_limit: u64,
    backwards: u64,
}

/// What a device did, in its ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resolved {
    pub(super) submission: Submission,
    pub(super) kind: ActivityType,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The shape of a device's work: by what its clock is known, and how far the times may be wrong.
#[derive(Debug)]
struct Deferred;

impl RecordLayout for Deferred {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        const SOURCES: [AlignedBy; 3] = [AlignedBy::Calibrations, AlignedBy::Statement, AlignedBy::Brackets];
        each("device", ArgValue::I64(record.device_id.into()));
        each("stream", ArgValue::U64(record.stream.into()));
        each("correlation", ArgValue::U64(record.correlation));
        let source = SOURCES.into_iter().find(|source| *source as u64 == record.word(0));
        each("timing_source", ArgValue::Str(source.map_or("", |source| source.as_str())));
        each("clock_error_ns", ArgValue::U64(record.word(1)));
    }
}

impl DeferredRecords {
    pub(super) fn new(recording: u64, types: ActivityTypes, sink: RecordSink) -> DeferredRecords {
        DeferredRecords { recording, types, sink: Some(sink), ..DeferredRecords::default() }
    }

    /// Takes a submission, if there may be one more.
    pub(super) fn admit(&mut self, submission: Submission, most: usize) -> bool {
        let fits = self.submitted < most;
        self.submissions_over_limit += u64::from(!fits);
        if fits {
            self.submitted += 1;
            self.open.insert(submission.id, submission);
        }
        fits
    }

    /// Takes what became of one.
    pub(super) fn resolve(&mut self, resolved: &Resolved, name: &str, most: usize) {
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

    /// Returns what has no times yet, in the order in which it was submitted.
    pub(super) fn open(&self) -> Vec<Submission> {
        self.open.values().copied().collect()
    }

    /// Turns times into the host's and hands all over; returns how times were turned, if any were.
    pub(super) fn hand_over(self, sink: &RecordSink, device: i32, known: &Knowledge) -> Option<Alignment> {
        let mut aligned = known.aligned();
        let (source, mut lost) = (aligned.report.source, 0_u64);
        sink.record(|batch| {
            for (Resolved { submission, kind, start, end }, name) in self.work.iter().copied() {
                let Some((start, end)) = aligned.at(start).zip(aligned.at(end)) else {
                    lost += 1;
                    continue;
                };
                let words = &[source as u64, start.1.max(end.1)];
                let (start, end, stream, correlation) = (start.0, end.0.max(start.0), submission.stream, submission.id);
                let shape = &Deferred;
                batch.work(&DeviceWork { kind, name, device, stream, start, end, correlation, shape, words });
            }
        });
        let note = |count: u64, what: &str| {
            if count > 0 {
                sink.note(format!("{count} {what}"));
            }
        };
        note(self.open.len() as u64, "submissions were never resolved: no row shows what the device did");
        note(self.submissions_over_limit, "submissions were not recorded: there were as many as there may be");
        note(self.work_over_limit, "rows of the device are missing: there were as many as there may be");
        note(self.backwards, "rows of the device are missing: they were said to end before they began");
        note(lost, "rows of the device are missing: nothing is known of its clock");
        let alignment = aligned.report;
        let any = self.work.len() as u64 > lost;
        if any {
            sink.note(alignment.to_string());
            sink.clock_error(alignment.error_ns);
        }
        any.then_some(alignment)
    }
}
