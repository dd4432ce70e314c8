//! The registry's spans, for code that is compiled once and not for each subscriber.

use tracing_core::span::Id;
use tracing_core::{Metadata, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// The registry's live spans as a layer's filter shows them.
pub(crate) trait SpanLookup {
    /// Returns the callsite of a span.
    fn metadata_of(&self, key: u64) -> Option<&'static Metadata<'static>>;
    /// Returns the span around a span.
    fn parent_of(&self, key: u64) -> Option<u64>;
    /// Returns whether a span is live, also if the filter hides it.
    fn is_live(&self, key: u64) -> bool;
    /// Runs `work` unless the span has closed; returns whether it ran. Meanwhile no other span gets the key.
    fn while_live(&self, key: u64, work: &mut dyn FnMut()) -> bool;
}

impl<S> SpanLookup for Context<'_, S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn metadata_of(&self, key: u64) -> Option<&'static Metadata<'static>> {
        self.metadata(&Id::from_u64(key))
    }

    fn parent_of(&self, key: u64) -> Option<u64> {
        Some(self.span(&Id::from_u64(key))?.parent()?.id().into_u64())
    }

    fn is_live(&self, key: u64) -> bool {
        self.exists(&Id::from_u64(key))
    }

    fn while_live(&self, key: u64, work: &mut dyn FnMut()) -> bool {
        let held = self.span(&Id::from_u64(key));
        if held.is_some() {
            work();
        }
        held.is_some()
    }
}
