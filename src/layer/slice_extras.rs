//! Hooks of slices that have stacks or counters.

use super::{Hook, KinetoLayer};
use crate::buffer::{Head, Tag};
use crate::clock;
use crate::os::backtrace;
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::recorder::{Busy, SliceExtras};

/// The innermost frames reserved for this crate and tracing, which are not shown. An optimized program needs three, and one
/// for some layers. With more, a truncated stack is shorter.
const OWN_FRAMES: usize = if cfg!(debug_assertions) { 20 } else { 6 };
/// The most frames that one unwind captures.
const FRAMES: usize = SliceExtras::FRAMES_MAX + OWN_FRAMES;

impl KinetoLayer {
    /// Enters a span: captures the stack, then the counters, then the clock.
    #[inline(never)]
    pub(super) fn enter_with_extras(&self, key: u64, hook: Hook<'_>) {
        if has_stacks(key, &hook) {
            let mut addresses = [0; FRAMES];
            self.enter_slowly(key, capture_stack(&hook, &mut addresses), hook);
        } else {
            self.enter_slowly(key, &[], hook);
        }
    }

    /// Exits a span: reads the clock, then the counters.
    #[inline(never)]
    pub(super) fn exit_counted_span(&self, key: u64, hook: Hook<'_>) {
        let end = clock::now();
        let counted = hook.with_lane(|lane| Ok(lane.read_counters(key))).flatten();
        self.exit_span_slowly(key, end, hook);
        if let Some((slice, reading)) = counted {
            hook.put_record(Head::new(Tag::Counts, 0, 0), [slice, 0, 0], reading.counter_words());
        }
    }
}

/// Returns whether slices of that span get a stack.
fn has_stacks(key: u64, hook: &Hook<'_>) -> bool {
    let site = || hook.spans.metadata_of(key).map(|metadata| hook.site_for(metadata));
    hook.recorder.slice_extras.frames > 0 && site().is_some_and(|site| site.has_stacks && site.is_recorded())
}

/// Captures the thread's stack; empty inside another hook.
fn capture_stack<'a>(hook: &Hook<'_>, addresses: &'a mut [u64; FRAMES]) -> &'a [u64] {
    // The unwinder's allocations are not the program's.
    let (Some(_busy), _own) = (Busy::begin(), InternalAllocGuard::begin()) else { return &[] };
    let addresses = addresses.get_mut(..hook.recorder.slice_extras.frames + OWN_FRAMES).unwrap_or_default();
    let count = backtrace::capture_addresses(addresses);
    addresses.get(..count).unwrap_or_default()
}
