//! The CUPTI resources of a recording, released on drop.

use super::ffi::{Api, Subscriber};
use super::hub::{HUB, Lease};
use crate::collector::buffered::kinds::PausableKinds;
use std::sync::Arc;

/// CUPTI's only subscription and the kinds that it enabled; released on drop, also after a panic.
#[derive(Debug)]
pub(super) struct Subscription {
    api: &'static Api,
    pub(super) subscriber: Subscriber,
    kinds: Option<Arc<PausableKinds<&'static Api>>>,
    /// The library was detached as a whole, including the subscription.
    is_detached: bool,
    /// Dropped last: then another recording may start.
    _lease: Lease,
}

impl Subscription {
    pub(super) fn new(api: &'static Api, subscriber: Subscriber, lease: Lease) -> Subscription {
        Subscription { api, subscriber, kinds: None, is_detached: false, _lease: lease }
    }

    /// Sets the kinds to disable at the end.
    pub(super) fn set_kinds(&mut self, kinds: Arc<PausableKinds<&'static Api>>) {
        self.kinds = Some(kinds);
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
        if !self.is_detached {
            let _ = self.api.unsubscribe(self.subscriber);
        }
    }
}
