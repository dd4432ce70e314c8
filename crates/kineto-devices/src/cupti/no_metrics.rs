//! Stub of range metrics for builds without the feature `metrics`; the reason names the feature.

use super::callbacks::{BegunCall, EndedCall};
use super::start::Loaded;
use super::subscriber::Subscriber;
use crate::{Capabilities, RecordSink, Selection, Unavailable};
use kineto_model::activity::{ActivityType, ActivityTypes};
use std::time::Instant;

/// The functions of libcupti, which this build does not resolve.
#[derive(Debug)]
pub(super) enum RangeLibrary {}

/// The metrics of a recording that is about to start, which this build does not measure.
#[derive(Debug)]
pub(super) enum RangePlan {}

/// The metrics of a recording that runs; this build makes none.
#[derive(Clone, Debug)]
pub(super) struct RangeMetrics;

/// The waits of annotations that are measured: none.
#[derive(Debug)]
pub(super) struct OwnWaits;

/// Returns whether the calling thread is in a watched call of that function: it is not.
pub(super) fn is_in_call(_function: (u32, u32)) -> bool {
    false
}

/// Does nothing: no call is watched.
pub(super) fn end_call(_call: &EndedCall<'_>) {}

/// Does nothing: no annotation is measured.
pub(super) fn end_annotation() {}

impl RangePlan {
    /// Fails.
    ///
    /// # Errors
    /// Always: the feature is off.
    pub(super) fn new(_loaded: &Loaded, _selection: &Selection) -> Result<RangePlan, Unavailable> {
        Err(Unavailable::not_built("metrics"))
    }

    pub(super) fn allowed_types(types: ActivityTypes) -> ActivityTypes {
        types
    }

    pub(super) fn start(self, _: &Loaded, _: Subscriber, _: &RecordSink, _: &mut Capabilities) -> RangeMetrics {
        match self {}
    }
}

impl RangeMetrics {
    pub(super) fn describe(&self, _capabilities: &mut Capabilities) {}

    pub(super) fn row_type(&self) -> ActivityType {
        ActivityType::GpuUserAnnotation
    }

    pub(super) fn on_begun_call(&self, _call: &BegunCall) {}

    pub(super) fn begin_annotation(&self, _slice: u64) {}

    pub(super) fn finish(&self, _deadline: Instant) {}

    pub(super) fn wait_for_launches(&self) {}
}

impl OwnWaits {
    pub(super) const fn new() -> OwnWaits {
        OwnWaits
    }

    pub(super) fn clear(&self) {}

    pub(super) fn take(&self, _function: u32, _correlation: u32) -> bool {
        false
    }
}
