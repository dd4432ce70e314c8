//! A thread's frames: the spans it is inside, and at each depth the one it created or left last.
//!
//! Only the owner writes fields. Another thread that meets a span which was created or entered here reads the frame, and
//! marks its key. Fields are written while the key is 0, so a reader that can still mark the key it saw has read fields that
//! belong to that key.

#[cfg(not(all(test, loom)))]
use crate::os::fork::PerProcess;
#[cfg(not(all(test, loom)))]
use crossbeam_queue::SegQueue;
#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Frames of a thread. Two are sentinels, so up to `FRAMES - 2` open spans are visible to other threads. Deeper spans are
/// stored in the span table.
#[cfg(not(all(test, loom)))]
const FRAMES: usize = 256;
/// Small enough for loom to explore (`tests/loom.rs`).
#[cfg(all(test, loom))]
const FRAMES: usize = 4;

/// The state of a live span. Only the flags change once the span is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct SpanState {
    /// The span's record id; 0 while it is [`UNDEFINED`](state::UNDEFINED).
    pub(crate) span: u64,
    /// Flags and the callsite: see [`state`].
    pub(crate) meta: u64,
    /// The parent's span id, until it is recorded.
    pub(crate) parent: u64,
}

impl SpanState {
    /// Returns the span's id, 0 if the span is not recorded; `span` is then the id of the span around it.
    pub(crate) fn recorded_id(&self) -> u64 {
        if self.meta & state::IGNORED == 0 { self.span } else { 0 }
    }
}

/// [`SpanState::meta`] has the bit layout of a slice's head word: masking it gives the head of the span's next slice.
///
/// Tag 8 bits, flags 8 bits, 16 bits for flags that a slice does not have, callsite 32 bits. Flags that a slice has too are at
/// the same position as there ([`flag`](crate::buffer::flag)).
pub(crate) mod state {
    use crate::buffer::{Head, Tag, flag};

    const fn flag_bit(flag: u8) -> u64 {
        Head::new(Tag::Slice, flag, 0).to_word() & !Head::new(Tag::Slice, 0, 0).to_word()
    }

    /// The span was never entered.
    pub(crate) const FIRST: u64 = flag_bit(flag::FIRST);
    /// The span has no record yet: its first slice records it and its parent, and gives it its id. It has no flags but
    /// [`FIRST`], [`DIRECT`] and [`ANNOTATES`], so the state equals the head of that slice.
    pub(crate) const UNDEFINED: u64 = flag_bit(flag::DEFINES);
    /// The span is a user annotation, which is pushed to collectors as such.
    pub(crate) const ANNOTATES: u64 = flag_bit(flag::ANNOTATES);
    /// The span's first enter directly followed its creation, or may still do so; see [`flag::DIRECT`].
    pub(crate) const DIRECT: u64 = flag_bit(flag::DIRECT);
    /// The span was entered more than once.
    pub(crate) const REENTERED: u64 = 1 << 16;
    /// The state is in the recorder's span table, where other threads find it.
    pub(crate) const STORED: u64 = 1 << 17;
    /// The span is not recorded, because its callsite or its scope is not selected.
    pub(crate) const IGNORED: u64 = 1 << 18;
    /// The span's scope, not its callsite, is why it is not recorded.
    pub(crate) const EXCLUDED_BY_SCOPE: u64 = 1 << 19;

    /// In a frame: the slice is inside another slice of its span. The registry does not make the span current again. So the
    /// frame's `span` is the span around it, and its `parent` holds the id of its own span.
    pub(crate) const DUPLICATE: u64 = 1 << 20;

    /// Whether the state is also in the recorder's span table, or follows from the callsite.
    #[inline(always)]
    pub(crate) const fn is_known_elsewhere(meta: u64) -> bool {
        meta & STORED != 0 || meta & (IGNORED | EXCLUDED_BY_SCOPE) == IGNORED
    }
    /// Whether the span is recorded, and in the span table.
    #[inline(always)]
    pub(crate) const fn is_shared(meta: u64) -> bool {
        meta & (STORED | IGNORED) == STORED
    }
    /// The state of a span of that callsite that was never entered and is not recorded yet.
    pub(crate) const fn new(site: u32) -> u64 {
        Head::new(Tag::Slice, flag::FIRST | flag::DEFINES | flag::DIRECT, site).to_word()
    }
    /// Whether the span was never entered.
    #[inline(always)]
    pub(crate) const fn is_new(meta: u64) -> bool {
        meta & FIRST != 0
    }
    #[inline(always)]
    pub(crate) const fn is_annotation(meta: u64) -> bool {
        meta & ANNOTATES != 0
    }
    /// The state of a span of that callsite that is not recorded.
    pub(crate) const fn new_ignored(site: u32) -> u64 {
        Head::new(Tag::Slice, flag::FIRST, site).to_word() | IGNORED
    }
    /// The head of the slice that an enter in this state opens.
    #[inline(always)]
    pub(crate) const fn slice_head(meta: u64) -> u64 {
        const FLAGS: u8 = flag::FIRST | flag::DEFINES | flag::DIRECT | flag::ANNOTATES;
        meta & Head::new(Tag::Slice, FLAGS, u32::MAX).to_word()
    }
    /// The state after an enter.
    #[inline(always)]
    pub(crate) const fn after_enter(meta: u64) -> u64 {
        if meta & FIRST != 0 { meta & !(FIRST | UNDEFINED) } else { meta | REENTERED }
    }
    /// The state after the first slice of a span that was [`UNDEFINED`].
    #[inline(always)]
    pub(crate) const fn after_first_slice(meta: u64) -> u64 {
        meta ^ (FIRST | UNDEFINED)
    }
    #[inline(always)]
    pub(crate) const fn site_index(meta: u64) -> u32 {
        (meta >> 32) as u32
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
/// Frames up to the top are the open slices. The frame above is the pending span, which the thread created or left last at
/// this depth; the next enter is usually of that span. Frames further up keep older pending spans, up to the first that was never
/// used, whose key is [`UNUSED`].
///
/// A frame's span is *lent* when another thread moves its state into the span table. The key is complemented then, so the
/// owner no longer finds the span here and searches the table.
#[derive(Debug)]
pub(crate) struct Frames {
    /// How often other threads have exited a slice of this thread.
    exits: AtomicU64,
    /// The index of the innermost open slice; [`BASE`] if there is none, [`TOO_DEEP`] if there are more than frames.
    top: AtomicU64,
    stack: [Frame; FRAMES],
}

/// The top while the thread is outside all spans. Frame 0 represents slices too deep for a frame. Neither ever has a key.
const BASE: usize = 1;
/// The top while the innermost slice is too deep for a frame. Indices wrap: this is sentinel frame 0, and the frame above it is
/// sentinel [`BASE`].
pub(crate) const TOO_DEEP: usize = FRAMES;

/// The key of a frame that was never used; readers stop there.
const UNUSED: u64 = u64::MAX;

/// How often to check whether the owner of a lent span has defined or entered it meanwhile: about half a microsecond.
const SETTLE_SPINS: usize = if cfg!(all(test, loom)) { 1 } else { 16 };

/// Returns the key of a frame whose span was lent.
///
/// No span has it: the low 38 bits of the registry's keys are an index, plus 1, which stays far below 2^36.
pub(crate) const fn lent_key(key: u64) -> u64 {
    !key
}

/// The position of the top two bits of a key's index. Both bits are 0 in keys of spans, and 1 in keys of lent spans.
const INDEX_TOP: u32 = 36;

/// Returns the key of a free frame that notes the creation of a span whose state is only elsewhere. No span has it.
const fn creation_mark(key: u64) -> u64 {
    key | 0b10 << INDEX_TOP
}

const fn is_creation_mark(key: u64) -> bool {
    key >> INDEX_TOP & 0b11 == 0b10
}

impl Frame {
    /// Fills a frame whose key is 0.
    #[inline(always)]
    pub(crate) fn fill(&self, key: u64, state: SpanState) {
        self.span.store(state.span, Ordering::Relaxed);
        self.meta.store(state.meta, Ordering::Relaxed);
        self.parent.store(state.parent, Ordering::Relaxed);
        // Release: a reader that sees the key sees the fields.
        self.key.store(key, Ordering::Release);
    }

    /// Removes the key.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        self.key.store(0, Ordering::Relaxed);
        // Release: a reader that sees a field of the next span sees that the key was removed.
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
    pub(crate) fn parent(&self) -> u64 {
        self.parent.load(Ordering::Relaxed)
    }
    /// Sets the span's id, before `UNDEFINED` is cleared.
    #[inline(always)]
    pub(crate) fn set_span(&self, span: u64) {
        self.span.store(span, Ordering::Relaxed);
    }
    #[inline(always)]
    pub(crate) fn set_meta(&self, meta: u64) {
        // Release: a reader that sees the span defined sees its id.
        self.meta.store(meta, Ordering::Release);
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
        // Acquire: pairs with `set_meta`.
        let meta = self.meta.load(Ordering::Acquire);
        if meta & state::DUPLICATE != 0 {
            return SpanState { span: self.parent(), meta: meta & !state::DUPLICATE, parent: 0 };
        }
        SpanState { span: self.span(), meta, parent: self.parent() }
    }

    /// Returns the id of the span whose slice this is; spans created in it may belong to another one.
    pub(crate) fn own_span(&self) -> u64 {
        if self.meta() & state::DUPLICATE != 0 { self.parent() } else { self.span() }
    }

    /// Puts a slice into a free frame that is inside another one of its span; `around` is the span that is current there.
    pub(crate) fn put_duplicate(&self, key: u64, state: SpanState, around: u64, slice: u64) {
        let state = SpanState { span: around, meta: state.meta | state::DUPLICATE, parent: state.span };
        self.put_span(key, state, slice);
    }

    /// Returns whether the frame holds that span, lent or not.
    pub(crate) fn holds_span(&self, key: u64) -> bool {
        let found = self.key();
        found == key || found == lent_key(key)
    }

    /// Returns whether the frame holds that span, and it is neither recorded nor stored.
    #[inline(always)]
    pub(crate) fn is_unrecorded(&self, key: u64) -> bool {
        self.key() == key && self.meta() & (state::IGNORED | state::STORED) == state::IGNORED
    }

    /// Returns the key and state of a span that is known only here, so that no other span may use the frame.
    pub(crate) fn occupant(&self) -> Option<(u64, SpanState)> {
        // Read once: another thread may remove the key meanwhile.
        let key = self.key();
        let is_free = matches!(key, 0 | UNUSED) || is_creation_mark(key) || state::is_known_elsewhere(self.meta());
        (!is_free).then(|| (key, self.state()))
    }

    /// Returns whether another span may use the frame: it is empty, or its span is known elsewhere too.
    pub(crate) fn is_free(&self) -> bool {
        self.occupant().is_none()
    }

    /// Notes in a free frame that the thread created that span.
    pub(crate) fn mark_creation(&self, key: u64, state: SpanState) {
        self.put_span(creation_mark(key), state, 0);
    }

    /// Returns whether the thread created a span here last, and has not entered it.
    pub(crate) fn is_new(&self) -> bool {
        !matches!(self.key(), 0 | UNUSED) && state::is_new(self.meta())
    }

    /// Returns whether the thread exited a recorded span here last, and nothing that leaves no record has happened since.
    pub(crate) fn is_exited(&self) -> bool {
        let is_recorded = self.meta() & (state::IGNORED | state::FIRST) == 0;
        self.key() != UNUSED && is_recorded && self.span() != 0 && self.slice() != 0
    }

    /// Returns whether the thread created that span here last, has not entered it, and its state is elsewhere.
    pub(crate) fn is_new_elsewhere(&self, key: u64) -> bool {
        (self.key() == lent_key(key) || self.key() == creation_mark(key)) && state::is_new(self.meta())
    }

    /// Returns the state of a span that was lent just now, after giving its owner time to finish an enter.
    ///
    /// The owner reads the key and then sets the span's id with plain stores. If the key was marked in between, that id
    /// counts. This takes nanoseconds, but an owner that is descheduled at that point is not waited for: its span has two ids.
    fn settle_lent_state(&self, key: u64, state: SpanState) -> SpanState {
        // SeqCst: either `Lane::span_id` sees the mark, or its stores are seen here.
        fence(Ordering::SeqCst);
        for _ in 0..if state.meta & state::FIRST == 0 { 0 } else { SETTLE_SPINS } {
            let now = self.state();
            if now.meta != state.meta {
                // Release: while the key is present, the owner stores no other span before this read.
                let kept = self.key.compare_exchange(lent_key(key), lent_key(key), Ordering::AcqRel, Ordering::Relaxed);
                return if kept.is_ok() { now } else { state };
            }
            std::hint::spin_loop();
        }
        state
    }

    /// Removes the key and returns it, complemented if the span was lent.
    pub(crate) fn take_key(&self) -> u64 {
        // Acquire and Release: a reader has marked the key before, or no longer finds it.
        self.key.swap(0, Ordering::AcqRel)
    }

    /// Moves the frame's span into a free frame, above the frame `below`.
    pub(crate) fn move_to(&self, other: &Frame, below: &Frame) {
        let key = self.take_key();
        if self.meta() & state::DUPLICATE != 0 {
            return other.put_duplicate(key, self.state(), below.span(), self.slice());
        }
        other.put_span(key, self.state(), self.slice());
    }

    /// Puts a span into a free frame.
    pub(crate) fn put_span(&self, key: u64, state: SpanState, slice: u64) {
        self.clear();
        self.set_slice(slice);
        self.fill(key, state);
    }
}

/// Frames of ended threads, for reuse. Threads keep plain references, so frames are never freed.
#[cfg(not(all(test, loom)))]
static SPARE: PerProcess<SegQueue<&'static Frames>> = PerProcess::of_first(SegQueue::new());

impl Frames {
    /// Creates empty frames.
    pub(crate) fn new() -> Frames {
        let zero = || AtomicU64::new(0);
        let frame =
            |_| Frame { key: AtomicU64::new(UNUSED), span: zero(), meta: zero(), parent: zero(), slice: zero() };
        Frames { exits: zero(), top: AtomicU64::new(BASE as u64), stack: std::array::from_fn(frame) }
    }

    /// Returns empty frames for a thread: reused ones, or new ones that are leaked.
    #[cfg(not(all(test, loom)))]
    pub(crate) fn take_empty() -> &'static Frames {
        SPARE.get(|_| SegQueue::new()).pop().unwrap_or_else(|| Box::leak(Box::new(Frames::new())))
    }

    /// Takes back the frames of a thread that has ended.
    #[cfg(not(all(test, loom)))]
    pub(crate) fn give_back(&'static self) {
        self.stack.iter().for_each(|frame| frame.key.store(UNUSED, Ordering::Relaxed));
        self.set_top(BASE);
        SPARE.get(|_| SegQueue::new()).push(self);
    }

    /// Returns the frame at `at`, modulo the number of frames.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "FRAMES is a power of two, so the mask keeps the index inside")]
    pub(crate) fn frame(&self, at: usize) -> &Frame {
        const { assert!(FRAMES.is_power_of_two()) };
        &self.stack[at & (FRAMES - 1)]
    }

    /// Returns the open slices that have frames, with their indices, from the innermost to the outermost.
    pub(crate) fn open_frames(&self) -> impl DoubleEndedIterator<Item = (usize, &Frame)> {
        // Acquire: pairs with `set_top`.
        let top = usize::try_from(self.top.load(Ordering::Acquire)).unwrap_or(BASE);
        (BASE + 1..=top.min(FRAMES - 1)).rev().map(|at| (at, self.frame(at)))
    }

    /// Returns the index of the outermost open slice of a span.
    pub(crate) fn index_of_open(&self, key: u64) -> Option<usize> {
        self.open_frames().rfind(|(_, frame)| frame.holds_span(key)).map(|(at, _)| at)
    }

    /// Returns all frames that were ever used, with their indices.
    pub(crate) fn used_frames(&self) -> impl Iterator<Item = (usize, &Frame)> {
        self.stack.iter().enumerate().skip(BASE + 1).take_while(|(_, frame)| frame.key() != UNUSED)
    }

    /// Returns the spans whose state only these frames hold; their thread is ending.
    pub(crate) fn only_here(&self) -> impl Iterator<Item = (u64, SpanState)> {
        self.used_frames().filter(|(_, frame)| !frame.is_free()).map(|(_, frame)| (frame.key(), frame.state()))
    }

    /// Returns the state of a span in these frames, unless it was lent.
    pub(crate) fn known_state(&self, key: u64) -> Option<SpanState> {
        self.used_frames().find(|(_, frame)| frame.key() == key).map(|(_, frame)| frame.state())
    }

    /// Removes a closed span from the frames. Any thread may call this.
    pub(crate) fn forget_span(&self, key: u64) {
        for (_, frame) in self.used_frames() {
            // That a lent span was created here stays known, so that it does not matter when another thread closes it.
            for (found, left) in [(key, 0), (lent_key(key), creation_mark(key))] {
                // Release, as in `Frame::clear`; if the key has changed meanwhile, it was forgotten already.
                let _ = frame.key.compare_exchange(found, left, Ordering::Release, Ordering::Relaxed);
            }
        }
    }

    /// Forgets that the owner created a span that it closes.
    pub(crate) fn forget_creation(&self, key: u64) {
        self.used_frames().filter(|(_, frame)| frame.key() == creation_mark(key)).for_each(|(_, frame)| frame.clear());
    }

    /// Returns the index of the innermost open slice, or [`BASE`] or [`TOO_DEEP`].
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "set from a usize")]
    pub(crate) fn top(&self) -> usize {
        self.top.load(Ordering::Relaxed) as usize
    }

    /// Publishes which frames are open.
    #[inline(always)]
    pub(crate) fn set_top(&self, top: usize) {
        // Release: a reader that sees the top sees the frames up to it.
        self.top.store(top as u64, Ordering::Release);
    }

    /// Returns how often another thread has exited a slice of this one.
    pub(crate) fn foreign_exits(&self) -> u64 {
        // Acquire: a reader that sees the count sees that the keys are removed.
        self.exits.load(Ordering::Acquire)
    }

    /// Marks a span as lent and returns its state, for the caller to store in the span table.
    ///
    /// `None` also if the owner moved the span meanwhile, so search again. A thread that searches before the state is stored
    /// gets the same state.
    pub(crate) fn lend_span(&self, key: u64) -> Option<SpanState> {
        // A span that was entered again inside itself is in several frames.
        self.used_frames().fold(None, |found, (_, frame)| {
            // Acquire: sees the fields that were stored before the key.
            let before = frame.key.load(Ordering::Acquire);
            if before != key && before != lent_key(key) {
                return found;
            }
            let state = frame.state();
            // Acquire: if a field belongs to a newer span, the removal of the key is seen.
            fence(Ordering::Acquire);
            // Release: before the borrower drops the span, and so before the owner can see it close.
            let taken = frame.key.compare_exchange(before, lent_key(key), Ordering::AcqRel, Ordering::Relaxed);
            taken.ok().map(|_| frame.settle_lent_state(key, state)).or(found)
        })
    }

    /// Removes a closed span from the frames and returns its state.
    pub(crate) fn take_out(&self, key: u64) -> Option<SpanState> {
        let found = self.lend_span(key)?;
        self.forget_span(key);
        Some(found)
    }

    /// Removes the innermost open slice of a span from its thread, so that the caller can end it.
    ///
    /// Returns the slice's id and the span's state.
    pub(crate) fn exit_from_other_thread(&self, key: u64) -> Option<(u64, SpanState)> {
        let take = |(_, frame): (usize, &Frame)| {
            // Acquire: sees the fields that were stored before the key.
            let before = frame.key.load(Ordering::Acquire);
            (before == key || before == lent_key(key)).then_some(())?;
            // Read first: once the key is removed, the owner may store another span in the frame. Release keeps this order.
            let found = (frame.slice(), frame.state());
            fence(Ordering::Acquire);
            frame.key.compare_exchange(before, 0, Ordering::Release, Ordering::Relaxed).is_ok().then_some(found)
        };
        let found = self.open_frames().find_map(take)?;
        // Release: after the key is removed.
        self.exits.fetch_add(1, Ordering::Release);
        Some(found)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::buffer::{Head, Tag, flag};

    fn state_of(span: u64) -> SpanState {
        SpanState { span, meta: state::new(3), parent: span + 1 }
    }

    #[test]
    fn lent_span_is_hidden_from_its_owner() {
        let frames = Frames::new();
        assert_eq!(frames.lend_span(5), None);
        (BASE + 1..FRAMES - 1).for_each(|at| frames.frame(at).put_span(7, state_of(70), 0));
        frames.frame(FRAMES - 1).put_span(5, state_of(50), 0);
        assert_eq!(frames.known_state(5), Some(state_of(50)));
        assert_eq!((frames.lend_span(5), frames.lend_span(5)), (Some(state_of(50)), Some(state_of(50))));
        assert_eq!(frames.known_state(5), None, "the owner can tell that it was lent");
        assert!(frames.frame(FRAMES - 1).holds_span(5));
        frames.lend_span(7);
        assert!(frames.used_frames().all(|(_, frame)| frame.key() != 7), "in all its frames");
        frames.frame(FRAMES - 1).move_to(frames.frame(9), frames.frame(8));
        assert!(frames.frame(9).holds_span(5) && frames.frame(9).key() != 5, "wherever it goes");
        assert!(!frames.frame(9).holds_span(6));
        frames.forget_span(5);
        assert_eq!((frames.lend_span(5), frames.lend_span(6)), (None, None));
    }

    #[test]
    fn sentinel_frames_hold_no_key() {
        let frames = Frames::new();
        for top in [BASE, TOO_DEEP] {
            frames.set_top(top);
            assert_eq!(frames.frame(frames.top()).key(), UNUSED);
        }
        assert_eq!((frames.frame(TOO_DEEP + 1).key(), frames.open_frames().count()), (UNUSED, FRAMES - 2));
        frames.set_top(FRAMES - 1);
        assert_eq!(frames.frame(frames.top() + 1).key(), UNUSED, "no span is created above the last frame");
    }

    #[test]
    fn state_is_the_head_of_its_next_slice() {
        let new = state::new(7);
        let flags = flag::FIRST | flag::DEFINES | flag::DIRECT;
        assert_eq!(state::slice_head(new), Head::new(Tag::Slice, flags, 7).to_word());
        assert_eq!(state::slice_head(new), new);
        let once = state::after_enter(new);
        assert_eq!(state::after_first_slice(new), once);
        assert_eq!(once & (state::FIRST | state::UNDEFINED | state::REENTERED), 0);
        assert_eq!(state::slice_head(once), Head::new(Tag::Slice, flag::DIRECT, 7).to_word());
        let twice = state::after_enter(once);
        assert_eq!(twice & (state::FIRST | state::REENTERED), state::REENTERED);
        assert_eq!(state::after_enter(twice), twice);
    }

    #[test]
    fn ignored_span_has_no_id_and_is_known_by_its_callsite() {
        let ignored = SpanState { span: 50, meta: state::new_ignored(3), parent: 0 };
        assert_eq!((ignored.recorded_id(), state_of(50).recorded_id()), (0, 50));
        assert!(state::is_known_elsewhere(ignored.meta) && !state::is_shared(ignored.meta));
        assert!(
            !state::is_known_elsewhere(ignored.meta | state::EXCLUDED_BY_SCOPE),
            "its scope does not follow from the callsite"
        );
        assert!(!state::is_known_elsewhere(state::new(3)));
        let stored = state::new(3) | state::STORED;
        assert!(state::is_known_elsewhere(stored) && state::is_shared(stored));
        assert!(!state::is_annotation(stored) && state::is_annotation(stored | state::ANNOTATES));
        assert_eq!((state::site_index(stored), state::site_index(ignored.meta)), (3, 3));
    }

    #[test]
    fn ending_owner_leaves_the_spans_that_only_it_knows() {
        let frames = Frames::new();
        frames.frame(2).put_span(5, state_of(50), 99);
        frames.frame(3).put_span(6, SpanState { span: 60, meta: state::new(3) | state::STORED, parent: 0 }, 0);
        frames.frame(4).put_span(7, state_of(70), 0);
        frames.frame(4).take_key();
        frames.frame(5).put_span(8, state_of(80), 0);
        frames.lend_span(8);
        let left: Vec<_> = frames.only_here().collect();
        assert_eq!(left, [(5, state_of(50)), (lent_key(8), state_of(80))]);
    }

    #[test]
    fn slice_is_exited_once_from_another_thread() {
        let frames = Frames::new();
        frames.frame(2).put_span(5, state_of(50), 99);
        frames.frame(3).put_span(5, state_of(50), 100);
        frames.frame(4).put_span(5, state_of(50), 101);
        frames.set_top(3);
        assert_eq!(frames.exit_from_other_thread(5), Some((100, state_of(50))));
        frames.lend_span(5);
        assert_eq!(frames.exit_from_other_thread(5), Some((99, state_of(50))));
        assert_eq!((frames.exit_from_other_thread(5), frames.foreign_exits()), (None, 2));
    }

    #[test]
    fn readers_never_see_a_mixed_state() {
        const ROUNDS: u64 = if cfg!(miri) { 300 } else { 20_000 };
        let frames: &'static Frames = Frames::take_empty();
        let frame = frames.frame(2);
        let reader = std::thread::Builder::new().spawn(move || {
            for _ in 0..ROUNDS {
                let key = Some(frame.key()).filter(|key| (1..lent_key(ROUNDS * 3)).contains(key));
                if let Some((key, state)) = key.and_then(|key| Some((key, frames.lend_span(key)?))) {
                    assert_eq!((state.span, state.parent), (key * 10, key * 100));
                }
            }
        });
        for key in 1..ROUNDS * 3 {
            frame.take_key();
            frame.fill(key, SpanState { span: key * 10, meta: 0, parent: key * 100 });
        }
        reader.unwrap().join().unwrap();
        frames.give_back();
    }
}
