//! Events: instants, counters, and errors that mark the slice around them.

use super::Hook;
use super::lane::Lane;
use crate::buffer::{Head, Tag};
use crate::callsite::EventRole;
use crate::clock;
use crate::fields::encode_fields;
use crate::recorder::TriggerCause;
use tracing_core::Event;

/// Records an event as the kind that its callsite defines; `added` are the texts of the fields that the layer adds.
pub(super) fn record_event(event: &Event<'_>, added: &[String], hook: Hook<'_>) {
    let at = clock::now();
    let site = hook.site_for(event.metadata());
    if site.triggers_dump {
        hook.recorder.post_trigger(TriggerCause::Event(site.metadata));
    }
    if site.event == EventRole::Nothing {
        return;
    }
    let words = encode_fields(hook.recorder, site, |encoder| {
        event.record(encoder);
        if site.event != EventRole::Counter {
            encoder.put_added(added);
        }
    });
    let payload = words.as_slice();
    let (slice, span) = slice_and_span_around(event, &hook);
    match site.event {
        EventRole::Counter => {
            hook.put_fields(Head::new(Tag::Counter, 0, site.index), [at.0, 0, 0], payload);
        }
        EventRole::Instant { .. } => {
            hook.put_fields(Head::new(Tag::Instant, 0, site.index), [at.0, span, 0], payload);
        }
        EventRole::Error | EventRole::Nothing => {}
    }
    if matches!(site.event, EventRole::Error | EventRole::Instant { error: true }) && slice != 0 {
        hook.put_fields(Head::new(Tag::Error, 0, site.index), [slice, 0, 0], payload);
    }
}

/// Returns the slice and the span of the event: those of its explicit parent, else the thread's innermost.
fn slice_and_span_around(event: &Event<'_>, hook: &Hook<'_>) -> (u64, u64) {
    if event.is_contextual() {
        return hook.with_lane(Lane::innermost_slice).unwrap_or_default();
    }
    let Some(parent) = event.parent() else { return (0, 0) };
    let key = parent.into_u64();
    let inside = hook.with_lane(|lane| Ok(lane.open_slice_of(key))).flatten();
    inside.unwrap_or_else(|| (0, super::find::nearest_span_id(hook, key)))
}
