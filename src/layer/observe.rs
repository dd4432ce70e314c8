//! Tells observers of spans and events.

use super::Origin;
use super::home::Busy;
use crate::observer::ObservedSpan;
use crate::recorder::Recorder;
use std::sync::Arc;
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

/// What a span's extensions hold: how the observers of each layer see it.
#[derive(Default)]
struct Observed(Vec<(usize, Seen)>);

/// What there is to see of a span; nothing of one that is left out for its scope.
type Seen = Option<Arc<ObservedSpan>>;

/// Keeps how observers see a span.
fn keep<S>(span: &SpanRef<'_, S>, recorder: &Arc<Recorder>, observed: Seen)
where
    S: for<'a> LookupSpan<'a>,
{
    let address = Arc::as_ptr(recorder).addr();
    let mut extensions = span.extensions_mut();
    if extensions.get_mut::<Observed>().is_none() {
        extensions.insert(Observed::default());
    }
    if let Some(Observed(all)) = extensions.get_mut::<Observed>() {
        match all.iter_mut().find(|(layer, _)| *layer == address) {
            Some((_, known)) => *known = observed,
            None => all.push((address, observed)),
        }
    }
}

/// Returns how observers see a span; one that is older than the recording shows no fields.
fn of<S>(span: &SpanRef<'_, S>, recorder: &Arc<Recorder>) -> Option<Arc<ObservedSpan>>
where
    S: for<'a> LookupSpan<'a>,
{
    let address = Arc::as_ptr(recorder).addr();
    let known = |Observed(all): &Observed| all.iter().find(|(layer, _)| *layer == address).map(|(_, o)| o.clone());
    let known = span.extensions().get::<Observed>().and_then(known);
    known.unwrap_or_else(|| {
        let site = recorder.sites.site(span.metadata()).of_scope(None);
        let observed = site.is_recorded().then(|| Arc::new(ObservedSpan::new(site)))?;
        keep(span, recorder, Some(observed.clone()));
        Some(observed)
    })
}

/// A span is made.
#[cold]
pub(super) fn new_span<S>(recorder: &Arc<Recorder>, attrs: &Attributes<'_>, key: u64, ctx: &Context<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let site = recorder.sites.site(attrs.metadata());
    if !site.is_recorded() {
        return;
    }
    let observed = site.of_span(|fields| attrs.record(fields)).is_recorded().then(|| {
        let mut observed = ObservedSpan::new(site);
        attrs.record(&mut observed.capture(site, recorder.settings.field_bytes_max));
        Arc::new(observed)
    });
    if let (Some(_busy), Some(span)) = (Busy::begin(), ctx.span(&Id::from_u64(key))) {
        keep(&span, recorder, observed);
    }
}

/// Values come to a span: its next enters show them.
#[cold]
pub(super) fn record<S>(recorder: &Arc<Recorder>, id: &Id, values: &Record<'_>, ctx: &Context<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let Some(span) = ctx.span(id) else { return };
    let site = recorder.sites.site(Origin::of(values).unwrap_or(span.metadata()));
    let Some(observed) = of(&span, recorder) else { return };
    let mut observed = ObservedSpan::clone(&observed);
    values.record(&mut observed.capture(site, recorder.settings.field_bytes_max));
    if let Some(_busy) = Busy::begin() {
        keep(&span, recorder, Some(Arc::new(observed)));
    }
}

/// The thread enters a span.
#[cold]
pub(super) fn enter<S>(recorder: &Arc<Recorder>, key: u64, ctx: &Context<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    // What observers open themselves is not told to them.
    let Some(_busy) = Busy::begin() else { return };
    if let Some(observed) = ctx.span(&Id::from_u64(key)).and_then(|span| of(&span, recorder)) {
        recorder.observers.enter(key, &observed);
    }
}

/// The thread leaves a span.
#[cold]
pub(super) fn exit(recorder: &Arc<Recorder>, key: u64) {
    if let Some(_busy) = Busy::begin() {
        recorder.observers.exit(key);
    }
}

/// An event happens.
#[cold]
pub(super) fn event(recorder: &Arc<Recorder>, event: &Event<'_>) {
    let site = recorder.sites.site(event.metadata());
    if !matches!(site.event, crate::callsite::EventRole::Instant { .. }) {
        return;
    }
    let mut observed = ObservedSpan::new(site);
    event.record(&mut observed.capture(site, recorder.settings.field_bytes_max));
    if let Some(_busy) = Busy::begin() {
        recorder.observers.event(&observed);
    }
}
