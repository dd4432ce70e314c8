//! The layer: this crate's own, with names and categories from the program's functions.

use crate::layer::KinetoLayer;
use std::fmt;
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Dispatch, Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

/// Returns a text for a span or an event.
pub(super) type NameFn<S> = Box<dyn Fn(&EventOrSpan<'_, '_, S>) -> String + Send + Sync>;

/// What a function that names things receives: an event, or a span that is about to be entered.
pub enum EventOrSpan<'a, 'b, S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    /// An event.
    Event(&'a Event<'b>),
    /// A span, with the extensions that all layers have added at its creation.
    Span(&'a SpanRef<'b, S>),
}

/// Records spans and events for a Kineto trace; [`ChromeLayerBuilder::build`](super::ChromeLayerBuilder::build) creates it.
pub struct ChromeLayer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    layer: KinetoLayer,
    labels: Labels<S>,
}

/// The functions whose texts are fields of every span and event, in the order of these fields.
pub(super) struct Labels<S>(pub(super) Vec<NameFn<S>>)
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync;

impl<S> Labels<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    fn texts_for(&self, labelled: &EventOrSpan<'_, '_, S>) -> Vec<String> {
        self.0.iter().map(|label| label(labelled)).collect()
    }
}

impl<S> ChromeLayer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    pub(super) fn new(layer: KinetoLayer, labels: Labels<S>) -> ChromeLayer<S> {
        ChromeLayer { layer, labels }
    }

    /// Returns whether there is a recording that needs texts.
    fn needs_labels(&self) -> bool {
        !self.labels.0.is_empty() && self.layer.is_recording()
    }

    /// Records the texts of a span that is entered: not at its creation, because the functions may read what other layers
    /// store then.
    fn label_span(&self, id: &Id, ctx: &Context<'_, S>) {
        if let Some(span) = ctx.span(id) {
            self.layer.record_added(&span, &self.labels.texts_for(&EventOrSpan::Span(&span)), ctx);
        }
    }
}

impl<S> Layer<S> for ChromeLayer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    fn on_register_dispatch(&self, subscriber: &Dispatch) {
        Layer::<S>::on_register_dispatch(&self.layer, subscriber);
    }

    fn on_new_span(&self, attrs: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        self.layer.on_new_span(attrs, id, ctx);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        self.layer.on_record(id, values, ctx);
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, ctx: Context<'_, S>) {
        self.layer.on_follows_from(id, follows, ctx);
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let texts = if self.needs_labels() { self.labels.texts_for(&EventOrSpan::Event(event)) } else { Vec::new() };
        self.layer.record_event(event, &texts, &ctx);
    }

    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        if self.needs_labels() {
            self.label_span(id, &ctx);
        }
        self.layer.on_enter(id, ctx);
    }

    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        self.layer.on_exit(id, ctx);
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        self.layer.on_close(id, ctx);
    }
}

impl<S> fmt::Debug for ChromeLayer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChromeLayer").field(&self.layer).finish()
    }
}

impl<S> fmt::Debug for EventOrSpan<'_, '_, S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventOrSpan::Event(event) => f.debug_tuple("Event").field(event).finish(),
            EventOrSpan::Span(span) => f.debug_tuple("Span").field(&span.name()).finish(),
        }
    }
}
