//! The spans that a thread knows best: those it is inside, and the one it touched last.
//!
//! Only the owner writes; other threads may read, to find a span that was made or entered here and is entered there.
//! All of it are atomics: fields are written between two stores of the key, and a reader that sees the same key before
//! and after has read what belongs to it.

use crossbeam_queue::SegQueue;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Spans that a thread can be inside with all of them visible to others; deeper ones are stored with their spans.
pub(crate) const DEPTH: usize = 63;

/// What is known of a live span; everything but the flags never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct SpanState {
    /// Our own id of the span.
    pub(crate) span: u64,
    /// Flags, the lending count at its making, and the callsite: see [`state`].
    pub(crate) meta: u64,
    /// The parent's span id, until it is recorded ([`state::DEFINED`]).
    pub(crate) parent: u64,
}

/// The layout of [`SpanState::meta`]: 8 bits of flags, 24 bits of lending count, 32 bits of callsite.
pub(crate) mod state {
    /// It was entered and exited at least once. The same bit as a slice's `flag::FIRST`, of which it is the opposite.
    pub(crate) const ENTERED: u64 = 1;
    /// ... more than once. Twice `ENTERED`, so that an exit is a shift and an or.
    pub(crate) const AGAIN: u64 = 2;
    /// Its parent is recorded, or it has none.
    pub(crate) const DEFINED: u64 = 4;
    /// Other threads find it in the span's extensions.
    pub(crate) const STORED: u64 = 8;
    /// It is not recorded: its callsite is not selected.
    pub(crate) const IGNORED: u64 = 16;
    /// The pending slot's copy of a span that the thread is inside.
    pub(crate) const ON_STACK: u64 = 32;

    /// The pending slot's state may be overwritten: others find it elsewhere, or it is nobody's.
    pub(crate) const FREE: u64 = STORED | ON_STACK | IGNORED;

    const LENT_MASK: u64 = 0xFFFF_FF00;

    /// `lent` as [`Frames::lent`](super::Frames::lent) gives it.
    #[inline(always)]
    pub(crate) const fn new(site: u32, lent: u64, flags: u64) -> u64 {
        (site as u64) << 32 | lent | flags
    }
    #[inline(always)]
    pub(crate) const fn site(meta: u64) -> u32 {
        (meta >> 32) as u32
    }
    /// Whether nobody has borrowed from the thread since the state was made.
    #[inline(always)]
    pub(crate) const fn is_private(meta: u64, lent: u64) -> bool {
        (meta ^ lent) & LENT_MASK == 0
    }
    /// The lending count after one more lending.
    pub(crate) const fn lent_once_more(lent: u64) -> u64 {
        lent.wrapping_add(0x100) & LENT_MASK
    }
}

/// An open slice.
#[derive(Debug)]
pub(crate) struct Frame {
    key: AtomicU64,
    span: AtomicU64,
    meta: AtomicU64,
    slice: AtomicU64,
}

/// The span that the thread made or left last; what its next enter most often asks for.
#[derive(Debug)]
pub(crate) struct Pending {
    key: AtomicU64,
    span: AtomicU64,
    meta: AtomicU64,
    parent: AtomicU64,
}

/// The open slices of a thread and its pending span.
#[derive(Debug)]
pub(crate) struct Frames {
    pub(crate) pending: Pending,
    /// How often another thread has found something here, as the middle bits of a [`SpanState::meta`].
    lent: AtomicU64,
    depth: AtomicU64,
    /// The frame at 0 stands for no span; the innermost one is at `depth`.
    stack: [Frame; DEPTH + 1],
}

impl Frame {
    #[inline(always)]
    pub(crate) fn set(&self, key: u64, span: u64, meta: u64, slice: u64) {
        self.key.store(0, Ordering::Relaxed);
        // Release: a reader that sees a field of the new span sees that the key was taken away.
        fence(Ordering::Release);
        self.span.store(span, Ordering::Relaxed);
        self.meta.store(meta, Ordering::Relaxed);
        self.slice.store(slice, Ordering::Relaxed);
        // Release: a reader that sees the key sees the fields.
        self.key.store(key, Ordering::Release);
    }
    #[inline(always)]
    pub(crate) fn key(&self) -> u64 {
        self.key.load(Ordering::Relaxed)
    }
    #[inline(always)]
    pub(crate) fn span(&self) -> u64 {
        self.span.load(Ordering::Relaxed)
    }
    #[inline(always)]
    pub(crate) fn meta(&self) -> u64 {
        self.meta.load(Ordering::Relaxed)
    }
    #[inline(always)]
    pub(crate) fn slice(&self) -> u64 {
        self.slice.load(Ordering::Relaxed)
    }
    /// Copies another frame over this one, which is then found under that one's key.
    pub(crate) fn copy(&self, from: &Frame) {
        self.set(from.key(), from.span(), from.meta(), from.slice());
    }
}

impl Pending {
    #[inline(always)]
    pub(crate) fn set(&self, key: u64, state: SpanState) {
        self.key.store(0, Ordering::Relaxed);
        // Release, twice: as in `Frame::set`.
        fence(Ordering::Release);
        self.span.store(state.span, Ordering::Relaxed);
        self.meta.store(state.meta, Ordering::Relaxed);
        self.parent.store(state.parent, Ordering::Relaxed);
        self.key.store(key, Ordering::Release);
    }
    #[inline(always)]
    pub(crate) fn clear(&self) {
        self.key.store(0, Ordering::Relaxed);
        // Nobody's, so that one look at the flags tells that another may take its place.
        self.set_meta(state::ON_STACK);
    }
    #[inline(always)]
    pub(crate) fn key(&self) -> u64 {
        self.key.load(Ordering::Relaxed)
    }
    #[inline(always)]
    pub(crate) fn meta(&self) -> u64 {
        self.meta.load(Ordering::Relaxed)
    }
    #[inline(always)]
    pub(crate) fn set_meta(&self, meta: u64) {
        self.meta.store(meta, Ordering::Relaxed);
    }
    #[inline(always)]
    pub(crate) fn state(&self) -> SpanState {
        SpanState {
            span: self.span.load(Ordering::Relaxed),
            meta: self.meta(),
            parent: self.parent.load(Ordering::Relaxed),
        }
    }
}

/// Frames of ended threads, to be used again: a thread keeps a plain reference, so they are never freed.
static SPARE: SegQueue<&'static Frames> = SegQueue::new();

impl Frames {
    /// Stands where there are none; never written.
    pub(crate) const NONE: &'static Frames = {
        static NONE: Frames = Frames::new();
        &NONE
    };

    const fn new() -> Frames {
        const FRAME: Frame = Frame {
            key: AtomicU64::new(0),
            span: AtomicU64::new(0),
            meta: AtomicU64::new(0),
            slice: AtomicU64::new(0),
        };
        Frames {
            pending: Pending {
                key: AtomicU64::new(0),
                span: AtomicU64::new(0),
                meta: AtomicU64::new(state::ON_STACK),
                parent: AtomicU64::new(0),
            },
            lent: AtomicU64::new(0),
            depth: AtomicU64::new(0),
            stack: [const { FRAME }; DEPTH + 1],
        }
    }

    /// Returns empty frames for a thread.
    pub(crate) fn take() -> &'static Frames {
        let frames = SPARE.pop().unwrap_or_else(|| Box::leak(Box::new(Frames::new())));
        frames.pending.clear();
        frames.set_depth(0);
        frames
    }

    /// Takes back the frames of a thread that has ended.
    pub(crate) fn give_back(&'static self) {
        self.pending.clear();
        self.set_depth(0);
        SPARE.push(self);
    }

    /// Returns the frame at `depth`, at most [`DEPTH`].
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "DEPTH + 1 is a power of two, so the mask keeps the index inside")]
    pub(crate) fn frame(&self, depth: usize) -> &Frame {
        const { assert!((DEPTH + 1).is_power_of_two()) };
        &self.stack[depth & DEPTH]
    }

    /// Tells readers how many frames are in use.
    #[inline(always)]
    pub(crate) fn set_depth(&self, depth: usize) {
        // Release: a reader that sees the depth sees the frames up to it.
        self.depth.store(depth as u64, Ordering::Release);
    }

    /// Returns how often something was lent, for [`state::new`].
    #[inline(always)]
    pub(crate) fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    fn note_lending(&self) {
        // Release: before the borrower lets go of the span, and so before the owner can see it close.
        let _ = self.lent.fetch_update(Ordering::Release, Ordering::Relaxed, |lent| Some(state::lent_once_more(lent)));
    }

    fn open(&self) -> impl DoubleEndedIterator<Item = &Frame> {
        let depth = usize::try_from(self.depth.load(Ordering::Acquire)).unwrap_or(DEPTH);
        self.stack.get(1..=depth.min(DEPTH)).unwrap_or_default().iter()
    }

    /// Looks for a span from another thread; `None` also if the owner moved it meanwhile, so look again.
    ///
    /// The owner moves a state from the stack to the pending slot to the extensions, so looking in that order finds it
    /// unless it moves twice.
    pub(crate) fn lend(&self, key: u64) -> Option<SpanState> {
        let frame = self.open().find_map(|frame| {
            let read = || SpanState { span: frame.span(), meta: frame.meta() | state::DEFINED, parent: 0 };
            seqlock(&frame.key, key, read)
        });
        let found = frame.or_else(|| seqlock(&self.pending.key, key, || self.pending.state()))?;
        self.note_lending();
        Some(SpanState { meta: found.meta & !state::ON_STACK, ..found })
    }

    /// Takes the innermost open slice of a span away from its thread, to be ended by the calling one; returns its id.
    pub(crate) fn exit_from_elsewhere(&self, key: u64) -> Option<u64> {
        let take = |frame: &&Frame| frame.key.compare_exchange(key, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let frame = self.open().rev().find(take)?;
        self.note_lending();
        Some(frame.slice())
    }
}

fn seqlock<T>(cell: &AtomicU64, key: u64, read: impl FnOnce() -> T) -> Option<T> {
    // Acquire: sees the fields that were stored before the key.
    (cell.load(Ordering::Acquire) == key).then(read).filter(|_| {
        // Acquire: if a field was a newer one, the key is seen to be gone.
        fence(Ordering::Acquire);
        cell.load(Ordering::Relaxed) == key
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_lent_from_the_stack_and_from_the_pending_slot() {
        let frames = Frames::new();
        assert_eq!(frames.lend(5), None);
        let made = SpanState { span: 50, meta: state::new(3, frames.lent(), 0), parent: 40 };
        frames.pending.set(5, made);
        assert_eq!(frames.lend(5), Some(made));
        assert!(!state::is_private(made.meta, frames.lent()), "the owner can tell that it was lent");
        assert_eq!(state::site(made.meta), 3);
        frames.frame(1).set(5, 50, state::new(3, 0, 0), 99);
        frames.set_depth(1);
        frames.pending.clear();
        assert_eq!(frames.lend(5).unwrap().meta, state::new(3, 0, state::DEFINED));
        assert_eq!(frames.lend(6), None);
    }

    #[test]
    fn the_lending_count_never_runs_into_the_callsite() {
        let mut lent = 0;
        for _ in 0..(1 << 24) + 5 {
            lent = state::lent_once_more(lent);
        }
        assert_eq!(lent, 5 << 8);
    }

    #[test]
    fn a_slice_is_exited_from_elsewhere_once() {
        let frames = Frames::new();
        frames.frame(1).set(5, 50, 0, 99);
        frames.frame(2).set(5, 50, 0, 100);
        frames.set_depth(2);
        assert_eq!(frames.exit_from_elsewhere(5), Some(100));
        assert_eq!(frames.exit_from_elsewhere(5), Some(99));
        assert_eq!(frames.exit_from_elsewhere(5), None);
    }

    #[test]
    fn readers_never_see_a_mixed_state() {
        const ROUNDS: u64 = if cfg!(miri) { 300 } else { 20_000 };
        let frames: &'static Frames = Frames::take();
        let reader = std::thread::Builder::new().spawn(move || {
            for _ in 0..ROUNDS {
                for key in 1..4 {
                    if let Some(state) = frames.lend(key) {
                        assert_eq!((state.span, state.parent), (key * 10, key * 100));
                    }
                }
            }
        });
        for i in 0..ROUNDS * 3 {
            let key = i % 3 + 1;
            frames.pending.set(key, SpanState { span: key * 10, meta: 0, parent: key * 100 });
        }
        reader.unwrap().join().unwrap();
        frames.give_back();
    }
}
