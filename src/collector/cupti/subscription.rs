//! What a recording holds of CUPTI, which is given up whatever ends the recording.

use super::ffi::{Api, Subscriber};
use super::hub::{HUB, Lease};
use super::kinds::Kinds;
use std::sync::Arc;

/// CUPTI's one subscription with the kinds that it has enabled; given up when it is dropped, also by a panic.
#[derive(Debug)]
pub(super) struct Subscription {
    api: &'static Api,
    pub(super) subscriber: Subscriber,
    kinds: Option<Arc<Kinds>>,
    /// The library has been let go of as a whole, and the subscription with it.
    is_let_go: bool,
    /// Dropped last: another recording may begin.
    _lease: Lease,
}

impl Subscription {
    pub(super) fn new(api: &'static Api, subscriber: Subscriber, lease: Lease) -> Subscription {
        Subscription { api, subscriber, kinds: None, is_let_go: false, _lease: lease }
    }

    /// Says which kinds are to be disabled in the end.
    pub(super) fn enabled(&mut self, kinds: Arc<Kinds>) {
        self.kinds = Some(kinds);
    }

    /// Says that nothing is subscribed any more.
    pub(super) fn let_go(&mut self) {
        self.is_let_go = true;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(kinds) = &self.kinds {
            kinds.end();
        }
        HUB.pool.close();
        if !self.is_let_go {
            let _ = self.api.unsubscribe(self.subscriber);
        }
    }
}
