//! Stub of moving records to disk, for builds without the feature `segments`: all records of a recording stay in memory.

use super::Session;
use crate::config::Split;
use crate::error::Error;
use crate::recorder::Recorder;
use crate::trace::Trace;
use kineto_devices::CollectorSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Moves no records.
#[derive(Debug, Default)]
pub(crate) struct SpillControl(());

/// The parts of a recording that are not in the session's memory any more.
#[derive(Debug)]
pub(crate) enum SpilledRecording {}

impl SpillControl {
    pub(super) fn new(_split: Option<Split>) -> SpillControl {
        SpillControl(())
    }

    pub(super) fn begin_recording(&self, _moves: bool) {}

    pub(super) fn current(&self) -> Option<Arc<SpilledRecording>> {
        None
    }

    pub(super) fn end_recording(&self) {}

    pub(crate) fn take_ended(&self, _session: &Session, _deadline: Instant) -> Option<Arc<SpilledRecording>> {
        None
    }

    pub(crate) fn take_last(&self, _session: &Session) -> Option<Arc<SpilledRecording>> {
        None
    }

    pub(crate) fn leave_ended(&self, _session: &Session, _rest: Option<Trace>) {}

    pub(super) fn end_step(&self, _recorder: &Recorder) {}

    pub(super) fn take_cuts(&self, _session: &Session) {}

    pub(super) fn join_cuts(&self) {}
}

impl SpilledRecording {
    pub(crate) fn when_written(self: Arc<Self>, _deadline: Instant) -> Option<Arc<SpilledRecording>> {
        match *self {}
    }

    pub(crate) fn leave_on_disk(&self, _session: &Session, _rest: Option<Trace>, _deadline: Option<Instant>) -> bool {
        match *self {}
    }
}

impl Session {
    pub(super) fn spill_if_due(&self, _collectors: &CollectorSet) -> Option<Instant> {
        None
    }

    pub(crate) fn write_parts(
        &self,
        parts: &SpilledRecording,
        _rest: Option<Trace>,
        _output: Option<&Path>,
    ) -> Result<(), Error> {
        match *parts {}
    }

    pub(super) fn leave_parts_at_exit(&self, parts: &SpilledRecording, _deadline: Instant) -> bool {
        match *parts {}
    }
}
