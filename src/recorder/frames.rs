//! The spans that a thread knows best: those it is inside, and at each depth the one it made or left last.
//!
//! Only the owner writes; other threads may read, to find a span that was made or entered here and is entered there.
//! All of it are atomics: fields are written while the key is 0, and a reader that sees the same key before and after
//! has read what belongs to it.

#[cfg(not(all(test, loom)))]
use crossbeam_queue::SegQueue;
#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Spans that a thread can be inside with all of them visible to others; deeper ones are stored with their spans.
#[cfg(not(all(test, loom)))]
pub(crate) const DEPTH: usize = 62;
/// Small enough for loom to walk through (`tests/loom.rs`).
#[cfg(all(test, loom))]
pub(crate) const DEPTH: usize = 2;

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
    /// It was entered more than once.
    pub(crate) const AGAIN: u64 = FIRST << 4;
    /// Other threads find it in the span's extensions.
    pub(crate) const STORED: u64 = FIRST << 5;
    /// It is not recorded: its callsite is not selected.
    pub(crate) const IGNORED: u64 = FIRST << 6;

    const LENT: u64 = 0xFFFF << 16;

    /// The state of a span of that callsite that was never entered and whose parent is not recorded.
    pub(crate) const fn new(site: u32) -> u64 {
        Head::new(Tag::Slice, flag::FIRST | flag::NESTED, site).word()
    }
    /// The state of a span of that callsite that is not recorded: [`UNDEFINED`], with [`NO_PARENT`], so that one look
    /// at the parent finds what is unusual.
    pub(crate) const fn ignored(site: u32) -> u64 {
        Head::new(Tag::Slice, 0, site).word() | IGNORED | UNDEFINED
    }
    /// The parent of a span that is not recorded.
    pub(crate) const NO_PARENT: u64 = u64::MAX;
    /// The head of the slice that an enter in this state opens.
    #[inline(always)]
    pub(crate) const fn slice(meta: u64) -> u64 {
        meta & Head::new(Tag::Slice, flag::FIRST | flag::NESTED, u32::MAX).word()
    }
    /// The state after an enter.
    #[inline(always)]
    pub(crate) const fn entered(meta: u64) -> u64 {
        if meta & FIRST != 0 { meta ^ FIRST } else { meta | AGAIN }
    }
    /// The state once others find it in the span's extensions, its parent recorded.
    pub(crate) const fn stored(meta: u64) -> u64 {
        if meta & IGNORED != 0 { meta | STORED } else { meta & !UNDEFINED | STORED }
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

/// A span that the thread is inside, or is about to enter.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Frame {
    key: AtomicU64,
    span: AtomicU64,
    meta: AtomicU64,
    parent: AtomicU64,
    slice: AtomicU64,
}

/// The frames of a thread.
///
/// Frame 0 stands for no span. Frames 1 to the depth are the open slices. The frame above is the span that the thread
/// made or left last at this depth: what its next enter most often asks for. Frames further up keep what was left there,
/// up to the first that was never used, whose key is [`UNUSED`].
#[derive(Debug)]
pub(crate) struct Frames {
    /// How often another thread has found something here, as the middle bits of a [`SpanState::meta`].
    lent: AtomicU64,
    /// Spans that the thread is inside; those beyond [`DEPTH`] have no frame.
    depth: AtomicU64,
    stack: [Frame; DEPTH + 2],
}

/// The key of a frame that was never used; readers stop there.
const UNUSED: u64 = u64::MAX;

impl Frame {
    #[cfg(not(all(test, loom)))]
    const fn new() -> Frame {
        Frame {
            key: AtomicU64::new(UNUSED),
            span: AtomicU64::new(0),
            meta: AtomicU64::new(0),
            parent: AtomicU64::new(0),
            slice: AtomicU64::new(0),
        }
    }

    /// Fills a frame whose key is 0.
    #[inline(always)]
    pub(crate) fn fill(&self, key: u64, state: SpanState) {
        self.span.store(state.span, Ordering::Relaxed);
        self.meta.store(state.meta, Ordering::Relaxed);
        self.parent.store(state.parent, Ordering::Relaxed);
        // Release: a reader that sees the key sees the fields.
        self.key.store(key, Ordering::Release);
    }

    /// Takes the key away.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        self.key.store(0, Ordering::Relaxed);
        // Release: a reader that sees a field of the next span sees that the key was taken away.
        fence(Ordering::Release);
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
    pub(crate) fn set_meta(&self, meta: u64) {
        self.meta.store(meta, Ordering::Relaxed);
    }
    #[inline(always)]
    pub(crate) fn slice(&self) -> u64 {
        self.slice.load(Ordering::Relaxed)
    }
    #[inline(always)]
    pub(crate) fn set_slice(&self, slice: u64) {
        self.slice.store(slice, Ordering::Relaxed);
    }
    #[inline(always)]
    pub(crate) fn state(&self) -> SpanState {
        SpanState { span: self.span(), meta: self.meta(), parent: self.parent.load(Ordering::Relaxed) }
    }

    /// Whether another span may take the frame: nobody's, or one that is found elsewhere too.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.key(), 0 | UNUSED) || self.meta() & (state::STORED | state::IGNORED) != 0
    }

    /// Puts a span into a free frame.
    pub(crate) fn set(&self, key: u64, state: SpanState, slice: u64) {
        self.clear();
        self.set_slice(slice);
        self.fill(key, state);
    }
}

/// Frames of ended threads, to be used again: a thread keeps a plain reference, so they are never freed.
#[cfg(not(all(test, loom)))]
static SPARE: SegQueue<&'static Frames> = SegQueue::new();

impl Frames {
    /// Stands where there are none; never written.
    #[cfg(not(all(test, loom)))]
    pub(crate) fn none() -> &'static Frames {
        static NONE: Frames = Frames::new();
        &NONE
    }

    /// Empty frames on loom's atomics, which no constant can hold.
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Frames {
        let zero = || AtomicU64::new(0);
        let frame =
            |_| Frame { key: AtomicU64::new(UNUSED), span: zero(), meta: zero(), parent: zero(), slice: zero() };
        Frames { lent: zero(), depth: zero(), stack: std::array::from_fn(frame) }
    }

    #[cfg(not(all(test, loom)))]
    const fn new() -> Frames {
        Frames { lent: AtomicU64::new(0), depth: AtomicU64::new(0), stack: [const { Frame::new() }; DEPTH + 2] }
    }

    /// Returns empty frames for a thread.
    #[cfg(not(all(test, loom)))]
    pub(crate) fn take() -> &'static Frames {
        SPARE.pop().unwrap_or_else(|| Box::leak(Box::new(Frames::new())))
    }

    /// Takes back the frames of a thread that has ended.
    #[cfg(not(all(test, loom)))]
    pub(crate) fn give_back(&'static self) {
        self.stack.iter().for_each(|frame| frame.key.store(UNUSED, Ordering::Relaxed));
        self.set_depth(0);
        SPARE.push(self);
    }

    /// Returns the frame at `depth`, at most `DEPTH + 1`.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "DEPTH + 2 is a power of two, so the mask keeps the index inside")]
    pub(crate) fn frame(&self, depth: usize) -> &Frame {
        const { assert!((DEPTH + 2).is_power_of_two()) };
        &self.stack[depth & (DEPTH + 1)]
    }

    /// Returns all frames that were ever used, with their depths.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &Frame)> {
        self.stack.iter().enumerate().skip(1).take_while(|(_, frame)| frame.key() != UNUSED)
    }

    /// Returns the spans that are found nowhere else, for an owner that ends.
    pub(crate) fn only_here(&self) -> impl Iterator<Item = (u64, SpanState)> {
        self.all().filter(|(_, frame)| !frame.is_free()).map(|(_, frame)| (frame.key(), frame.state()))
    }

    /// Returns what the owner knows of a span.
    pub(crate) fn known(&self, key: u64) -> Option<SpanState> {
        self.all().find(|(_, frame)| frame.key() == key).map(|(_, frame)| frame.state())
    }

    /// Takes a closed span out of the frames; also from another thread.
    pub(crate) fn forget(&self, key: u64) {
        for (_, frame) in self.all() {
            // Release, as in `Frame::clear`; if the key has changed meanwhile, it was forgotten already.
            let _ = frame.key.compare_exchange(key, 0, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Tells readers how many frames are in use.
    #[inline(always)]
    pub(crate) fn set_depth(&self, depth: usize) {
        // Release: a reader that sees the depth sees the frames up to it.
        self.depth.store(depth as u64, Ordering::Release);
    }

    /// Returns how many spans the thread is inside; those beyond [`DEPTH`] have no frame here.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "set from a usize")]
    pub(crate) fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed) as usize
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

    /// Looks for a span from another thread; `None` also if the owner moved it meanwhile, so look again.
    pub(crate) fn lend(&self, key: u64) -> Option<SpanState> {
        let found = self.all().find_map(|(_, frame)| seqlock(&frame.key, key, || frame.state()))?;
        self.note_lending();
        Some(found)
    }

    /// Looks for a span that is gone, and takes it out of the frames.
    pub(crate) fn take_out(&self, key: u64) -> Option<SpanState> {
        let found = self.lend(key)?;
        self.forget(key);
        Some(found)
    }

    /// Takes the innermost open slice of a span away from its thread, to be ended by the calling one; returns its id,
    /// and what was known of the span.
    pub(crate) fn exit_from_elsewhere(&self, key: u64) -> Option<(u64, SpanState)> {
        let depth = usize::try_from(self.depth.load(Ordering::Acquire)).unwrap_or(DEPTH).min(DEPTH);
        let take = |frame: &Frame| {
            // Acquire: sees the fields that were stored before the key.
            (frame.key.load(Ordering::Acquire) == key).then_some(())?;
            // Read first: once the key is gone, the owner may put another span into the frame. Release keeps it so.
            let found = (frame.slice(), frame.state());
            frame.key.compare_exchange(key, 0, Ordering::Release, Ordering::Relaxed).is_ok().then_some(found)
        };
        let found = self.stack.get(1..=depth).unwrap_or_default().iter().rev().find_map(take)?;
        self.note_lending();
        Some(found)
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::buffer::{Head, Tag, flag};

    fn state_of(span: u64) -> SpanState {
        SpanState { span, meta: state::new(3), parent: span + 1 }
    }

    #[test]
    fn a_span_is_lent_wherever_it_stands() {
        let frames = Frames::new();
        assert_eq!(frames.lend(5), None);
        (1..=DEPTH).for_each(|depth| frames.frame(depth).set(7, state_of(70), 0));
        frames.frame(DEPTH + 1).set(5, state_of(50), 0);
        let before = frames.lent();
        assert_eq!(frames.lend(5), Some(state_of(50)));
        assert!(!state::is_private(state::new(3) | before, frames.lent()), "the owner can tell that it was lent");
        frames.forget(5);
        assert_eq!((frames.lend(5), frames.lend(6)), (None, None));
    }

    #[test]
    fn a_state_is_the_head_of_its_next_slice() {
        let new = state::new(7) | state::lent_once_more(0);
        assert_eq!(state::slice(new), Head::new(Tag::Slice, flag::FIRST | flag::NESTED, 7).word());
        let once = state::entered(new);
        assert_eq!(once & (state::FIRST | state::AGAIN), 0);
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
        frames.frame(1).set(5, state_of(50), 99);
        frames.frame(2).set(5, state_of(50), 100);
        frames.frame(3).set(5, state_of(50), 101);
        frames.set_depth(2);
        assert_eq!(frames.exit_from_elsewhere(5), Some((100, state_of(50))));
        assert_eq!(frames.exit_from_elsewhere(5), Some((99, state_of(50))));
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
            frames.frame(1).clear();
            frames.frame(1).fill(key, SpanState { span: key * 10, meta: 0, parent: key * 100 });
        }
        reader.unwrap().join().unwrap();
        frames.give_back();
    }
}
