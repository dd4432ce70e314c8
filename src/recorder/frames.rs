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

/// The layout of [`SpanState::meta`]: that of the head of the span's next slice, so that one mask makes it.
///
/// Tag 8 bits, flags 8 bits, lending count 16 bits, callsite 32 bits. The flags that a slice has too stand where they
/// stand there ([`flag`](crate::buffer::flag)).
pub(crate) mod state {
    use crate::buffer::{Head, Tag, flag};

    const fn bit(flag: u8) -> u64 {
        Head::new(Tag::Slice, flag, 0).word() & !Head::new(Tag::Slice, 0, 0).word()
    }

    /// It was never entered.
    pub(crate) const FIRST: u64 = bit(flag::FIRST);
    /// Its parent is not recorded yet; a slice right inside the parent's says it.
    pub(crate) const UNDEFINED: u64 = bit(flag::NESTED);
    /// It was entered more than once. Four bits above `FIRST`, of whose absence it is made.
    pub(crate) const AGAIN: u64 = FIRST << 4;
    /// Other threads find it in the span's extensions.
    pub(crate) const STORED: u64 = FIRST << 5;
    /// It is not recorded: its callsite is not selected.
    pub(crate) const IGNORED: u64 = FIRST << 6;
    /// The pending slot's copy of a span that the thread is inside.
    pub(crate) const ON_STACK: u64 = FIRST << 7;
    /// The pending slot's state may be overwritten: others find it elsewhere, or it is nobody's.
    pub(crate) const FREE: u64 = STORED | ON_STACK | IGNORED;

    const LENT: u64 = 0xFFFF << 16;

    /// The state of a span of that callsite that was never entered and whose parent is not recorded.
    pub(crate) const fn new(site: u32) -> u64 {
        Head::new(Tag::Slice, flag::FIRST | flag::NESTED, site).word()
    }
    /// The state of a span of that callsite that is not recorded.
    pub(crate) const fn ignored(site: u32) -> u64 {
        Head::new(Tag::Slice, 0, site).word() | IGNORED
    }
    /// The head of the slice that an enter in this state opens.
    #[inline(always)]
    pub(crate) const fn slice(meta: u64) -> u64 {
        meta & Head::new(Tag::Slice, flag::FIRST | flag::NESTED, u32::MAX).word()
    }
    /// The state after an enter, as the pending slot keeps it.
    #[inline(always)]
    pub(crate) const fn entered(meta: u64) -> u64 {
        const { assert!(AGAIN == FIRST << 4) };
        meta & !FIRST | ON_STACK | (!meta & FIRST) << 4
    }
    #[inline(always)]
    pub(crate) const fn site(meta: u64) -> u32 {
        (meta >> 32) as u32
    }
    /// Whether nobody has borrowed from the thread since the state was made.
    #[inline(always)]
    pub(crate) const fn is_private(meta: u64, lent: u64) -> bool {
        (meta ^ lent) & LENT == 0
    }
    /// The lending count after one more lending.
    pub(crate) const fn lent_once_more(lent: u64) -> u64 {
        lent.wrapping_add(1 << 16) & LENT
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

    /// Returns how often something was lent, to be or-ed to a new state.
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
            let read = || SpanState { span: frame.span(), meta: frame.meta() & !state::UNDEFINED, parent: 0 };
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
    use crate::buffer::{Head, Tag, flag};

    #[test]
    fn a_span_is_lent_from_the_stack_and_from_the_pending_slot() {
        let frames = Frames::new();
        assert_eq!(frames.lend(5), None);
        let made = SpanState { span: 50, meta: state::new(3) | frames.lent(), parent: 40 };
        frames.pending.set(5, made);
        assert_eq!(frames.lend(5), Some(made));
        assert!(!state::is_private(made.meta, frames.lent()), "the owner can tell that it was lent");
        assert_eq!(state::site(made.meta), 3);
        frames.frame(1).set(5, 50, state::new(3), 99);
        frames.set_depth(1);
        frames.pending.clear();
        assert_eq!(frames.lend(5).unwrap().meta, state::new(3) & !state::UNDEFINED);
        assert_eq!(frames.lend(6), None);
    }

    #[test]
    fn a_state_is_the_head_of_its_next_slice() {
        let new = state::new(7) | state::lent_once_more(0);
        assert_eq!(state::slice(new), Head::new(Tag::Slice, flag::FIRST | flag::NESTED, 7).word());
        let once = state::entered(new);
        assert_eq!(once & (state::FIRST | state::AGAIN | state::ON_STACK), state::ON_STACK);
        assert_eq!(state::slice(once & !state::UNDEFINED), Head::new(Tag::Slice, 0, 7).word());
        let twice = state::entered(once);
        assert_eq!(twice & (state::FIRST | state::AGAIN), state::AGAIN);
        assert_eq!(state::entered(twice), twice);
    }

    #[test]
    fn the_lending_count_never_runs_into_the_callsite() {
        let lent = (0..(1 << 16) + 5).fold(0, |lent, _| state::lent_once_more(lent));
        assert_eq!(lent, 5 << 16);
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
