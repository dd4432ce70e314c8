//! The layer: this crate's own, with names and categories from the program's functions.

use crate::layer::KinetoLayer;
use std::cell::Cell;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
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
    pub(super) layer: KinetoLayer,
    /// The functions that return the texts of spans and events.
    pub(super) functions: Vec<NameFn<S>>,
}

/// The number of spans of which a thread knows the texts. Those of another span are recorded again.
const KNOWN_SPANS: usize = 64;

/// A span whose texts a recording has: its id, the epoch, and a hash of the texts.
type KnownLabel = (u64, u64, u64);

thread_local! {
    static KNOWN: [Cell<KnownLabel>; KNOWN_SPANS] = const { [const { Cell::new((0, 0, 0)) }; KNOWN_SPANS] };
}

/// Calls `with` with the place of a recording's span. The epoch keeps two layers apart: their ids of a span differ by a multiple
/// of the number of places.
fn with_known<R>(span: u64, epoch: u64, with: impl FnOnce(&Cell<KnownLabel>) -> R) -> Option<R> {
    let place = usize::try_from(span.wrapping_add(epoch.wrapping_mul(31))).unwrap_or_default() % KNOWN_SPANS;
    KNOWN.with(|known| known.get(place).map(with))
}

impl<S> ChromeLayer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    /// Returns whether there is a recording that needs texts.
    fn needs_labels(&self) -> bool {
        !self.functions.is_empty() && self.layer.epoch() != 0
    }

    fn texts_for(&self, labelled: &EventOrSpan<'_, '_, S>) -> Vec<String> {
        self.functions.iter().map(|text_for| text_for(labelled)).collect()
    }

    /// Records the texts of a span, unless the recording has the same.
    ///
    /// It runs when the span is entered, because the functions may read what other layers store at its creation; and, with
    /// `if_unknown`, when it is exited, in case the recording has begun in between.
    fn label_span(&self, id: &Id, if_unknown: bool, ctx: &Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        let Some(known_as) = self.layer.recorded_span(id, span.metadata(), ctx) else { return };
        let epoch = self.layer.epoch();
        let before = with_known(known_as, epoch, Cell::get).filter(|known| (known.0, known.1) == (known_as, epoch));
        if if_unknown && before.is_some() {
            return;
        }
        let texts = self.texts_for(&EventOrSpan::Span(&span));
        let label = (known_as, epoch, hash_of(&texts));
        if before != Some(label) {
            self.layer.record_added(id, span.metadata(), &texts, ctx);
            with_known(known_as, epoch, |known| known.set(label));
        }
    }
}

fn hash_of(texts: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    hasher.finish()
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
        // `FlushGuard::start_new` may begin another trace while the span is open.
        if !attrs.fields().is_empty() {
            self.layer.keep_fields(attrs, id);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        if let Some(metadata) = ctx.metadata(id) {
            self.layer.keep_values(id, metadata, values);
        }
        self.layer.on_record(id, values, ctx);
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, ctx: Context<'_, S>) {
        self.layer.on_follows_from(id, follows, ctx);
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let texts = if self.needs_labels() { self.texts_for(&EventOrSpan::Event(event)) } else { Vec::new() };
        self.layer.record_event(event, &texts, &ctx);
    }

    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        if self.needs_labels() {
            self.label_span(id, false, &ctx);
        }
        self.layer.on_enter(id, ctx);
    }

    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        if self.needs_labels() {
            self.label_span(id, true, &ctx);
        }
        self.layer.on_exit(id, ctx);
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        let closed = id.clone();
        self.layer.on_close(id, ctx);
        self.layer.forget_fields(&closed);
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
