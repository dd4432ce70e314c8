//! Stubs of the collectors for builds without the feature `devices`: nothing is recorded, and the reason names the feature.

use crate::correlation::CorrelationSink;
use crate::{CollectorReport, Selection, Unavailable};
use kineto_base::budget::Budget;
use kineto_base::live::LiveFile;
use kineto_base::time::{Ticks, Timestamp};
use kineto_model::activity::ActivityTypes;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long records may be delivered after a window of their collector.
pub const DELIVERY_WAIT: Duration = Duration::ZERO;

/// The collectors of a session: none.
#[derive(Debug, Default)]
pub struct CollectorSet(());

/// The records of a collector, which this build cannot have.
#[derive(Debug)]
pub enum Collection {}

/// The pause state of a collector, which this build cannot have.
#[derive(Debug)]
pub enum Switch {}

/// Returns the report that this build has no collectors.
pub fn missing_report() -> CollectorReport {
    CollectorReport::new("devices", Err(Unavailable::not_built("devices")))
}

impl CollectorSet {
    /// Returns the reason that there are no collectors.
    pub fn probe(&self, _selection: &Selection) -> Vec<CollectorReport> {
        vec![missing_report()]
    }

    /// Starts nothing.
    pub fn start(&self, _selection: &Selection, _budget: &Arc<dyn Budget>) -> Vec<CollectorReport> {
        Vec::new()
    }

    /// Returns no reports.
    pub fn reports(&self) -> Vec<CollectorReport> {
        Vec::new()
    }

    /// Does nothing.
    pub fn begin_recording(&self, _live: Option<&Arc<LiveFile>>) {}

    /// Does nothing.
    pub fn note_all(&self, _live: &LiveFile) {}

    /// Returns no switches.
    pub fn create_switches(&self) -> Vec<Switch> {
        Vec::new()
    }

    /// Returns `false`.
    pub fn sees_ranges(&self) -> bool {
        false
    }

    /// Does nothing.
    pub fn read_clocks(&self) {}

    /// Returns `None`.
    pub fn oldest_free_block(&self) -> Option<Ticks> {
        None
    }

    /// Returns 0.
    pub fn full_bytes(&self) -> u64 {
        0
    }

    /// Does nothing.
    pub fn drop_blocks(&self, _until: Ticks) {}

    /// Returns `None`.
    pub fn early_stop_reason(&self) -> Option<String> {
        None
    }

    /// Returns `None`: slices are pushed to no collector.
    pub fn slice_sink(&self, _selection: &Selection) -> Option<Arc<dyn CorrelationSink>> {
        None
    }

    /// Returns no records.
    pub fn stop(&self, _end: Timestamp, _deadline: Instant) -> Vec<Collection> {
        Vec::new()
    }

    /// Waits for nothing.
    pub fn await_ended_work(&self) {}

    /// Returns no records.
    pub fn snapshot(&self) -> Vec<Collection> {
        Vec::new()
    }

    /// Returns no records.
    pub fn take_records(&self) -> Vec<Collection> {
        Vec::new()
    }
}

impl Switch {
    /// Is never called, like all methods of a switch.
    pub fn is_among(&self, _types: ActivityTypes) -> bool {
        match *self {}
    }

    /// Is never called.
    pub fn request_state(&self, _on: bool) {
        match *self {}
    }

    /// Is never called.
    pub fn apply_request(&self) {
        match *self {}
    }

    /// Is never called.
    pub fn read_clock(&self) -> u64 {
        match *self {}
    }

    /// Is never called.
    pub fn set_window_open(&self, _keep: bool, _at: u64) {
        match *self {}
    }

    /// Is never called.
    pub fn forget_pauses(&self, _before: u64) {
        match *self {}
    }

    /// Is never called.
    pub fn end_switching(&self) {
        match *self {}
    }
}
