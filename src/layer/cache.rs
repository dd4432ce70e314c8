//! Per-thread caches: callsites, and long-lived spans that are entered repeatedly.

use crate::callsite::Site;
use crate::recorder::{CLOSINGS, Recorder, SpanState, span_bucket};
use std::cell::Cell;
use std::sync::atomic::Ordering;
use tracing_core::Metadata;

/// A lane's caches, and the span state that the slow path passes to the retried hook.
pub(super) struct Cache {
    /// The addresses of callsites, with the state of their plain spans ([`Site::plain_state`]).
    plain: [Cell<(usize, u64)>; SITES],
    sites: [Cell<Option<&'static Site>>; SITES],
    spans: [Cell<Cached>; CLOSINGS],
    /// The index of the frame of each cached span's outermost open slice, if it has one.
    frames: [Cell<usize>; CLOSINGS],
    found: Cell<(u64, SpanState)>,
}

#[derive(Clone, Copy)]
struct Cached {
    key: u64,
    closings: u32,
    state: SpanState,
}

const SITES: usize = 64;
/// Marks the address of a callsite whose spans are not plain; addresses are even.
const NOT_PLAIN: usize = 1;
const NO_STATE: SpanState = SpanState { span: 0, meta: 0, parent: 0 };

impl Cached {
    const NONE: Cached = Cached { key: 0, closings: 0, state: NO_STATE };
}

/// The address of a callsite, and its index in a lane's cache.
#[inline(always)]
fn site_entry(metadata: &'static Metadata<'static>) -> (usize, usize) {
    let address = std::ptr::from_ref(metadata).addr();
    // Callsites are statics of some hundred bytes.
    (address, (address >> 5) % SITES)
}

impl Cache {
    pub(super) const fn new() -> Cache {
        Cache {
            plain: [const { Cell::new((0, 0)) }; SITES],
            sites: [const { Cell::new(None) }; SITES],
            spans: [const { Cell::new(Cached::NONE) }; CLOSINGS],
            frames: [const { Cell::new(0) }; CLOSINGS],
            found: Cell::new((0, NO_STATE)),
        }
    }

    pub(super) fn clear(&self) {
        self.plain.iter().for_each(|entry| entry.set((0, 0)));
        self.spans.iter().for_each(|entry| entry.set(Cached::NONE));
    }

    /// Returns the cached [`Site`] of a callsite.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "bounded by `site_entry`")]
    pub(super) fn cached_site(&self, metadata: &'static Metadata<'static>) -> Option<&'static Site> {
        let (address, entry) = site_entry(metadata);
        if self.plain[entry].get().0 & !NOT_PLAIN == address { self.sites[entry].get() } else { None }
    }

    /// Returns the state that a new span of the callsite has, if its spans are plain.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "bounded by `site_entry`")]
    pub(super) fn plain_state(&self, metadata: &'static Metadata<'static>) -> Option<u64> {
        let (address, entry) = site_entry(metadata);
        let (known, state) = self.plain[entry].get();
        (known == address).then_some(state)
    }

    /// Caches a callsite.
    #[expect(clippy::indexing_slicing, reason = "bounded by `site_entry`")]
    pub(super) fn keep_site(&self, site: &'static Site) {
        let (address, entry) = site_entry(site.metadata);
        let mark = if site.plain_state() == 0 { NOT_PLAIN } else { 0 };
        self.plain[entry].set((address | mark, site.plain_state()));
        self.sites[entry].set(Some(site));
    }

    /// Returns the state of a cached span, unless one with that key has closed since, or of the span handed to this hook.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "bucket() is smaller than CLOSINGS")]
    pub(super) fn span_state(&self, key: u64, recorder: &Recorder) -> Option<SpanState> {
        let cached = self.spans[span_bucket(key)].get();
        // Relaxed: a thread that passes this one a span with a reused key did so after the close.
        if cached.key == key && cached.closings == recorder.close_counter(key).load(Ordering::Relaxed) {
            return Some(cached.state);
        }
        let (found, state) = self.found.get();
        (found == key).then_some(state)
    }

    /// Caches the state of a span whose entry in the recorder's table says that threads may cache it.
    pub(super) fn keep_span(&self, key: u64, state: SpanState, closings: u32) {
        if let Some(entry) = self.spans.get(span_bucket(key)) {
            entry.set(Cached { key, closings, state });
        }
    }

    /// Returns the index of the frame of a cached span's outermost open slice.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "bucket() is smaller than CLOSINGS")]
    pub(super) fn frame_index(&self, key: u64) -> usize {
        self.frames[span_bucket(key)].get()
    }

    /// Sets the index of the frame of a span's outermost open slice.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "bucket() is smaller than CLOSINGS")]
    pub(super) fn set_frame_index(&self, key: u64, index: usize) {
        self.frames[span_bucket(key)].set(index);
    }

    /// Does the same if the span is cached.
    pub(super) fn set_frame_index_if_cached(&self, key: u64, index: usize) {
        if self.spans.get(span_bucket(key)).is_some_and(|cached| cached.get().key == key) {
            self.set_frame_index(key, index);
        }
    }

    /// Hands that span to the hook being retried.
    pub(super) fn hand_span(&self, key: u64, state: SpanState) {
        self.found.set((key, state));
    }

    /// Drops the span that was handed to a hook, when the hook is done.
    pub(super) fn drop_handed_span(&self) {
        self.found.set((0, NO_STATE));
    }
}
