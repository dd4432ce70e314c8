//! The CUPTI resources of a recording, released on drop.

use super::hub::{HUB, Lease};
use super::range::RangeMetrics;
use super::subscriber::Subscriber;
use crate::buffered::kinds::PausableKinds;
use kineto_base::wait::steady;
use kineto_model::activity::ActivityTypes;
use std::sync::Arc;
use std::time::Instant;

/// The subscriber and the kinds that it enabled; released on drop, also after a panic.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) subscriber: Subscriber,
    kinds: Option<Arc<PausableKinds>>,
    ranges: Option<RangeMetrics>,
    /// The library was detached as a whole, including the subscription.
    is_detached: bool,
    /// Dropped last: then another recording may start.
    _lease: Lease,
}

impl Subscription {
    pub(super) fn new(subscriber: Subscriber, lease: Lease) -> Subscription {
        Subscription { subscriber, kinds: None, ranges: None, is_detached: false, _lease: lease }
    }

    /// Sets the kinds to disable at the end.
    pub(super) fn set_kinds(&mut self, kinds: Arc<PausableKinds>) {
        self.kinds = Some(kinds);
    }

    /// Measures kernels or annotations until the end.
    pub(super) fn set_ranges(&mut self, ranges: RangeMetrics) {
        HUB.set_range_metrics(Some(ranges.clone()));
        self.ranges = Some(ranges);
    }

    /// Returns the type of the rows with metrics.
    pub(super) fn measured_types(&self) -> ActivityTypes {
        self.ranges.as_ref().map_or(ActivityTypes::EMPTY, |ranges| ranges.row_type().into())
    }

    /// Ends the measuring. A launch that is measured has until then to return.
    pub(super) fn finish_ranges(&self, deadline: Instant) {
        if let Some(ranges) = &self.ranges {
            ranges.finish(deadline);
        }
    }

    /// Notes that the library was detached.
    pub(super) fn set_detached(&mut self) {
        self.is_detached = true;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(kinds) = &self.kinds {
            kinds.disable_all();
        }
        HUB.pool.close();
        HUB.set_range_metrics(None);
        self.finish_ranges(steady());
        // The callback at its return, which releases the counters, needs the subscription.
        if let Some(ranges) = &self.ranges {
            ranges.wait_for_launches();
        }
        // Nothing returns the buffers of a subscriber that no longer exists.
        if self.subscriber.is_shared() && HUB.pool.has_buffers_out() {
            let _ = self.subscriber.api.flush_buffers(true);
        }
        if !self.is_detached {
            let _ = self.subscriber.unsubscribe();
        }
        if self.subscriber.is_shared() {
            HUB.pool.abandon_buffers();
        }
    }
}
