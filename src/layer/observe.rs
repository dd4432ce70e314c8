//! Reports spans and events to observers.
//!
//! Observers receive spans with their fields, also in recordings that write no records and so have no lanes. Collectors receive
//! the ids of slices, which only a lane has. So `observer::stack` and `pushed_slices` each keep what a thread has entered.

use super::callsite_of;
use super::span_lookup::SpanLookup;
use crate::observer::ObservedSpan;
use crate::recorder::{Busy, Recorder};
use std::sync::Arc;
use tracing_core::Event;
use tracing_core::span::{Attributes, Record};

/// Keeps the observers' view of a span; `None` if its scope is not recorded.
fn keep_observed(recorder: &Arc<Recorder>, key: u64, observed: Option<Arc<ObservedSpan>>) {
    let before = recorder.keep_span(key, |entry| entry.observed.replace(observed));
    drop(before);
}

/// Returns the observers' view of a span; a span older than the recording has no fields in it.
fn observed_span(key: u64, recorder: &Arc<Recorder>, spans: &dyn SpanLookup) -> Option<Arc<ObservedSpan>> {
    if let Some(known) = recorder.span_table().with_entry(key, |entry| entry.observed.clone()).flatten() {
        return known;
    }
    let site = recorder.sites.site_for(spans.metadata_of(key)?).of_scope(None, None);
    let observed = site.is_recorded().then(|| Arc::new(ObservedSpan::new(site)))?;
    keep_observed(recorder, key, Some(observed.clone()));
    Some(observed)
}

/// Handles a new span.
#[cold]
pub(super) fn new_span(recorder: &Arc<Recorder>, attrs: &Attributes<'_>, key: u64) {
    let site = recorder.sites.site_for(attrs.metadata());
    if !site.is_recorded() {
        return;
    }
    let observed = site.of_span(|fields| attrs.record(fields)).is_recorded().then(|| {
        let mut observed = ObservedSpan::new(site);
        attrs.record(&mut observed.capture_fields(site, recorder.settings.field_bytes_max));
        Arc::new(observed)
    });
    if let Some(_busy) = Busy::begin() {
        keep_observed(recorder, key, observed);
    }
}

/// Adds values to a span; its next enters show them.
#[cold]
pub(super) fn record_values(recorder: &Arc<Recorder>, key: u64, values: &Record<'_>, spans: &dyn SpanLookup) {
    let Some(metadata) = spans.metadata_of(key) else { return };
    let site = recorder.sites.site_for(callsite_of(values).unwrap_or(metadata));
    let Some(observed) = observed_span(key, recorder, spans) else { return };
    let mut observed = ObservedSpan::clone(&observed);
    values.record(&mut observed.capture_fields(site, recorder.settings.field_bytes_max));
    if let Some(_busy) = Busy::begin() {
        keep_observed(recorder, key, Some(Arc::new(observed)));
    }
}

/// Reports that the thread enters a span.
#[cold]
pub(super) fn report_enter(recorder: &Arc<Recorder>, key: u64, spans: &dyn SpanLookup) {
    // Spans that observers open themselves are not reported.
    let Some(_busy) = Busy::begin() else { return };
    if let Some(observed) = observed_span(key, recorder, spans) {
        recorder.observers.report_enter(key, &observed);
    }
}

/// Reports that the thread exits a span.
#[cold]
pub(super) fn report_exit(recorder: &Arc<Recorder>, key: u64) {
    if let Some(_busy) = Busy::begin() {
        recorder.observers.report_exit(key);
    }
}

/// Reports an event.
#[cold]
pub(super) fn report_event(recorder: &Arc<Recorder>, event: &Event<'_>) {
    let site = recorder.sites.site_for(event.metadata());
    if !matches!(site.event, crate::callsite::EventRole::Instant { .. }) {
        return;
    }
    let mut observed = ObservedSpan::new(site);
    event.record(&mut observed.capture_fields(site, recorder.settings.field_bytes_max));
    if let Some(_busy) = Busy::begin() {
        recorder.observers.report_event(&observed);
    }
}
