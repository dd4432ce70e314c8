//! The spans that a thread knows best: those it is inside, and at each depth the one it made or left last.
//!
//! Only the owner writes, but for the keys: another thread that meets a span which was made or entered here reads the
//! frame, and marks the key. All of it are atomics: fields are written while the key is 0, and a reader that can still
//! mark the key it saw has read what belongs to it.

#[cfg(not(all(test, loom)))]
use crate::os::fork::PerProcess;
#[cfg(not(all(test, loom)))]
use crossbeam_queue::SegQueue;
#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Frames of a thread; two of them are the ends, so that it can be inside `FRAMES - 2` spans with all of them visible to
/// others. Deeper ones are stored with their spans.
#[cfg(not(all(test, loom)))]
const FRAMES: usize = 256;
/// Small enough for loom to walk through (`tests/loom.rs`).
#[cfg(all(test, loom))]
const FRAMES: usize = 4;

/// What is known of a live span; everything but the flags never changes once the span is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct SpanState {
    /// Our own id of the span; 0 while it is [`UNDEFINED`](state::UNDEFINED).
    pub(crate) span: u64,
    /// Flags and the callsite: see [`state`].
    pub(crate) meta: u64,
    /// The parent's span id, until it is recorded.
    pub(crate) parent: u64,
}

impl SpanState {
    /// Returns the span's id, 0 if it is left out: its own stands for the one around it.
    pub(crate) fn recorded(&self) -> u64 {
        if self.meta & state::IGNORED == 0 { self.span } else { 0 }
    }
}

/// The layout of [`SpanState::meta`]: that of the head of the span's next slice, so that one mask makes it.
///
/// Tag 8 bits, flags 8 bits, 16 bits unused, callsite 32 bits. The flags that a slice has too stand where they stand
/// there ([`flag`](crate::buffer::flag)).
pub(crate) mod state {
    use crate::buffer::{Head, Tag, flag};

    const fn bit(flag: u8) -> u64 {
        Head::new(Tag::Slice, flag, 0).word() & !Head::new(Tag::Slice, 0, 0).word()
    }

    /// It was never entered.
    pub(crate) const FIRST: u64 = bit(flag::FIRST);
    /// Neither it nor its parent is recorded yet: its first slice will do that, and give it its id. It has no flags but
    /// [`FIRST`] and [`ANNOTATES`], so it is the head of that slice as it is.
    pub(crate) const UNDEFINED: u64 = bit(flag::DEFINES);
    /// It is a user annotation; collectors are told which slices are of those.
    pub(crate) const ANNOTATES: u64 = bit(flag::ANNOTATES);
    /// It was entered more than once.
    pub(crate) const AGAIN: u64 = FIRST << 4;
    /// Other threads find it in the recorder's table of spans.
    pub(crate) const STORED: u64 = FIRST << 5;
    /// It is not recorded: its callsite or its scope is not selected.
    pub(crate) const IGNORED: u64 = FIRST << 6;

    /// That it is not recorded is its own, not its callsite's.
    pub(crate) const OWN: u64 = FIRST << 7;

    /// Whether the recorder's table of spans says the same, or its callsite.
    #[inline(always)]
    pub(crate) const fn is_known_elsewhere(meta: u64) -> bool {
        meta & STORED != 0 || meta & (IGNORED | OWN) == IGNORED
    }
    /// Whether the span is recorded, and found by all threads.
    #[inline(always)]
    pub(crate) const fn is_shared(meta: u64) -> bool {
        meta & (STORED | IGNORED) == STORED
    }
    /// The state of a span of that callsite that was never entered and is not recorded yet.
    pub(crate) const fn new(site: u32) -> u64 {
        Head::new(Tag::Slice, flag::FIRST | flag::DEFINES, site).word()
    }
    #[inline(always)]
    pub(crate) const fn annotates(meta: u64) -> bool {
        meta & ANNOTATES != 0
    }
    /// The state of a span of that callsite that is not recorded.
    pub(crate) const fn ignored(site: u32) -> u64 {
        Head::new(Tag::Slice, 0, site).word() | IGNORED
    }
    /// The head of the slice that an enter in this state opens.
    #[inline(always)]
    pub(crate) const fn slice(meta: u64) -> u64 {
        meta & Head::new(Tag::Slice, flag::FIRST | flag::DEFINES | flag::ANNOTATES, u32::MAX).word()
    }
    /// The state after an enter.
    #[inline(always)]
    pub(crate) const fn entered(meta: u64) -> u64 {
        if meta & FIRST != 0 { meta & !(FIRST | UNDEFINED) } else { meta | AGAIN }
    }
    /// The state after the first slice of a span that was [`UNDEFINED`].
    #[inline(always)]
    pub(crate) const fn defined(meta: u64) -> u64 {
        meta ^ (FIRST | UNDEFINED)
    }
    #[inline(always)]
    pub(crate) const fn site(meta: u64) -> u32 {
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
/// Those up to the top one are the open slices. The frame above is the span that the thread made or left last at this
/// depth: what its next enter most often asks for. Frames further up keep what was left there, up to the first that was
/// never used, whose key is [`UNUSED`].
///
/// The span of a frame is lent when another thread takes over its state, to be stored where every thread finds it: the
/// key is complemented then, so the owner does not find it here any more and looks there.
#[derive(Debug)]
pub(crate) struct Frames {
    /// How often another thread has exited a slice of this one.
    exits: AtomicU64,
    /// The innermost open slice; [`BASE`] if the thread is inside none, [`BEYOND`] if it is inside more than there are
    /// frames.
    top: AtomicU64,
    stack: [Frame; FRAMES],
}

/// Stands for no span: the thread is outside all of them. Frame 0 stands for whatever is too deep to have a frame. No key
/// is ever found in either.
const BASE: usize = 1;
/// The top while the innermost slice has no frame; it is frame 0, and the one above is [`BASE`].
pub(crate) const BEYOND: usize = FRAMES;

/// The key of a frame that was never used; readers stop there.
const UNUSED: u64 = u64::MAX;

/// How often to look whether the owner of a span that was lent has defined or entered it meanwhile: for about half a
/// microsecond.
const LOOKS: usize = if cfg!(all(test, loom)) { 1 } else { 16 };

/// The key of a frame whose span was lent. It is no span's: the registry's keys begin at 1 and do not come that far.
pub(super) const fn lent(key: u64) -> u64 {
    !key
}

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
    pub(crate) fn parent(&self) -> u64 {
        self.parent.load(Ordering::Relaxed)
    }
    /// Gives a span its id, before the flag that says so is taken away.
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
        SpanState { span: self.span(), meta, parent: self.parent() }
    }

    /// Whether the frame holds that span, lent or not.
    pub(crate) fn holds(&self, key: u64) -> bool {
        let found = self.key();
        found == key || found == lent(key)
    }

    /// Whether the frame holds that span, which is not recorded and not stored either.
    #[inline(always)]
    pub(crate) fn is_unrecorded(&self, key: u64) -> bool {
        self.key() == key && self.meta() & (state::IGNORED | state::STORED) == state::IGNORED
    }

    /// Whether another span may take the frame: nobody's, or one that is found elsewhere too.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.key(), 0 | UNUSED) || state::is_known_elsewhere(self.meta())
    }

    /// Returns the state of a span that was lent just now, once its owner has had time to finish what it had begun.
    ///
    /// The owner looks at the key, enters and gives the span its id with plain stores: the key may have been marked
    /// between the one and the other, and then the id counts. It is a matter of nanoseconds. Only an owner that is put to
    /// sleep just there is not waited for: such a span has two ids.
    fn settled(&self, key: u64, state: SpanState) -> SpanState {
        // SeqCst: either `Lane::span` sees the mark, or what it has stored is seen here.
        fence(Ordering::SeqCst);
        for _ in 0..if state.meta & state::FIRST == 0 { 0 } else { LOOKS } {
            let now = self.state();
            if now.meta != state.meta {
                // Release: if the key is not gone, the owner puts nothing else here before this was read.
                let kept = self.key.compare_exchange(lent(key), lent(key), Ordering::AcqRel, Ordering::Relaxed);
                return if kept.is_ok() { now } else { state };
            }
            std::hint::spin_loop();
        }
        state
    }

    /// Takes the key away, and returns it with its mark if the span was lent.
    pub(crate) fn take(&self) -> u64 {
        // Acquire and Release: a reader either has marked the key, or looks in vain from here on.
        self.key.swap(0, Ordering::AcqRel)
    }

    /// Moves what the frame holds into a free one.
    pub(crate) fn move_to(&self, other: &Frame) {
        let key = self.take();
        other.set(key, self.state(), self.slice());
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
static SPARE: PerProcess<SegQueue<&'static Frames>> = PerProcess::of_first(SegQueue::new());

impl Frames {
    /// Empty frames on loom's atomics, which no constant can hold.
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Frames {
        let zero = || AtomicU64::new(0);
        let frame =
            |_| Frame { key: AtomicU64::new(UNUSED), span: zero(), meta: zero(), parent: zero(), slice: zero() };
        Frames { exits: zero(), top: AtomicU64::new(BASE as u64), stack: std::array::from_fn(frame) }
    }

    #[cfg(not(all(test, loom)))]
    const fn new() -> Frames {
        let (exits, top) = (AtomicU64::new(0), AtomicU64::new(BASE as u64));
        Frames { exits, top, stack: [const { Frame::new() }; FRAMES] }
    }

    /// Returns empty frames for a thread.
    #[cfg(not(all(test, loom)))]
    pub(crate) fn take() -> &'static Frames {
        SPARE.get(|_| SegQueue::new()).pop().unwrap_or_else(|| Box::leak(Box::new(Frames::new())))
    }

    /// Takes back the frames of a thread that has ended.
    #[cfg(not(all(test, loom)))]
    pub(crate) fn give_back(&'static self) {
        self.stack.iter().for_each(|frame| frame.key.store(UNUSED, Ordering::Relaxed));
        self.set_top(BASE);
        SPARE.get(|_| SegQueue::new()).push(self);
    }

    /// Returns the frame at `at`; beyond the last, they begin again at 0.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "FRAMES is a power of two, so the mask keeps the index inside")]
    pub(crate) fn frame(&self, at: usize) -> &Frame {
        const { assert!(FRAMES.is_power_of_two()) };
        &self.stack[at & (FRAMES - 1)]
    }

    /// Returns the open slices that have frames, and where, from the innermost to the outermost.
    pub(crate) fn open(&self) -> impl DoubleEndedIterator<Item = (usize, &Frame)> {
        // Acquire: pairs with `set_top`.
        let top = usize::try_from(self.top.load(Ordering::Acquire)).unwrap_or(BASE);
        (BASE + 1..=top.min(FRAMES - 1)).rev().map(|at| (at, self.frame(at)))
    }

    /// Returns all frames that were ever used, and where.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &Frame)> {
        self.stack.iter().enumerate().skip(BASE + 1).take_while(|(_, frame)| frame.key() != UNUSED)
    }

    /// Returns the spans that are found nowhere else, for an owner that ends.
    pub(crate) fn only_here(&self) -> impl Iterator<Item = (u64, SpanState)> {
        self.all().filter(|(_, frame)| !frame.is_free()).map(|(_, frame)| (frame.key(), frame.state()))
    }

    /// Returns what the owner knows of a span, unless it was lent.
    pub(crate) fn known(&self, key: u64) -> Option<SpanState> {
        self.all().find(|(_, frame)| frame.key() == key).map(|(_, frame)| frame.state())
    }

    /// Takes a closed span out of the frames; also from another thread.
    pub(crate) fn forget(&self, key: u64) {
        for (_, frame) in self.all() {
            for found in [key, lent(key)] {
                // Release, as in `Frame::clear`; if the key has changed meanwhile, it was forgotten already.
                let _ = frame.key.compare_exchange(found, 0, Ordering::Release, Ordering::Relaxed);
            }
        }
    }

    /// Returns where the innermost open slice is, or [`BASE`] or [`BEYOND`].
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "set from a usize")]
    pub(crate) fn top(&self) -> usize {
        self.top.load(Ordering::Relaxed) as usize
    }

    /// Tells readers which frames are open.
    #[inline(always)]
    pub(crate) fn set_top(&self, top: usize) {
        // Release: a reader that sees the top sees the frames up to it.
        self.top.store(top as u64, Ordering::Release);
    }

    /// Returns how often another thread has exited a slice of this one.
    pub(crate) fn exits(&self) -> u64 {
        // Acquire: whoever sees the count sees that the keys are gone.
        self.exits.load(Ordering::Acquire)
    }

    /// Takes over the state of a span from another thread, to be stored where every thread finds it; `None` also if the
    /// owner moved it meanwhile, so look again. A thread that looks before it is stored gets the same.
    pub(crate) fn lend(&self, key: u64) -> Option<SpanState> {
        // A span that was entered again inside itself stands in several frames.
        self.all().fold(None, |found, (_, frame)| {
            // Acquire: sees the fields that were stored before the key.
            let before = frame.key.load(Ordering::Acquire);
            if before != key && before != lent(key) {
                return found;
            }
            let state = frame.state();
            // Acquire: if a field was a newer one, the key is seen to be gone.
            fence(Ordering::Acquire);
            // Release: before the borrower lets go of the span, and so before the owner can see it close.
            let taken = frame.key.compare_exchange(before, lent(key), Ordering::AcqRel, Ordering::Relaxed);
            taken.ok().map(|_| frame.settled(key, state)).or(found)
        })
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
        let take = |(_, frame): (usize, &Frame)| {
            // Acquire: sees the fields that were stored before the key.
            let before = frame.key.load(Ordering::Acquire);
            (before == key || before == lent(key)).then_some(())?;
            // Read first: once the key is gone, the owner may put another span into the frame. Release keeps it so.
            let found = (frame.slice(), frame.state());
            fence(Ordering::Acquire);
            frame.key.compare_exchange(before, 0, Ordering::Release, Ordering::Relaxed).is_ok().then_some(found)
        };
        let found = self.open().find_map(take)?;
        // Release: after the key is gone.
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
    fn a_span_is_lent_wherever_it_stands_and_then_the_owner_does_not_find_it() {
        let frames = Frames::new();
        assert_eq!(frames.lend(5), None);
        (BASE + 1..FRAMES - 1).for_each(|at| frames.frame(at).set(7, state_of(70), 0));
        frames.frame(FRAMES - 1).set(5, state_of(50), 0);
        assert_eq!(frames.known(5), Some(state_of(50)));
        assert_eq!((frames.lend(5), frames.lend(5)), (Some(state_of(50)), Some(state_of(50))));
        assert_eq!(frames.known(5), None, "the owner can tell that it was lent");
        assert!(frames.frame(FRAMES - 1).holds(5));
        frames.lend(7);
        assert!(frames.all().all(|(_, frame)| frame.key() != 7), "in all its frames");
        frames.frame(FRAMES - 1).move_to(frames.frame(9));
        assert!(frames.frame(9).holds(5) && frames.frame(9).key() != 5, "wherever it goes");
        frames.forget(5);
        assert_eq!((frames.lend(5), frames.lend(6)), (None, None));
    }

    #[test]
    fn the_ends_hold_nothing() {
        let frames = Frames::new();
        for top in [BASE, BEYOND] {
            frames.set_top(top);
            assert_eq!(frames.frame(frames.top()).key(), UNUSED);
        }
        assert_eq!((frames.frame(BEYOND + 1).key(), frames.open().count()), (UNUSED, FRAMES - 2));
        frames.set_top(FRAMES - 1);
        assert_eq!(frames.frame(frames.top() + 1).key(), UNUSED, "above the last one nothing is made");
    }

    #[test]
    fn a_state_is_the_head_of_its_next_slice() {
        let new = state::new(7);
        assert_eq!(state::slice(new), Head::new(Tag::Slice, flag::FIRST | flag::DEFINES, 7).word());
        assert_eq!(state::slice(new), new);
        let once = state::entered(new);
        assert_eq!(state::defined(new), once);
        assert_eq!(once & (state::FIRST | state::UNDEFINED | state::AGAIN), 0);
        assert_eq!(state::slice(once), Head::new(Tag::Slice, 0, 7).word());
        let twice = state::entered(once);
        assert_eq!(twice & (state::FIRST | state::AGAIN), state::AGAIN);
        assert_eq!(state::entered(twice), twice);
    }

    #[test]
    fn a_slice_is_exited_from_elsewhere_once() {
        let frames = Frames::new();
        frames.frame(2).set(5, state_of(50), 99);
        frames.frame(3).set(5, state_of(50), 100);
        frames.frame(4).set(5, state_of(50), 101);
        frames.set_top(3);
        assert_eq!(frames.exit_from_elsewhere(5), Some((100, state_of(50))));
        frames.lend(5);
        assert_eq!(frames.exit_from_elsewhere(5), Some((99, state_of(50))));
        assert_eq!((frames.exit_from_elsewhere(5), frames.exits()), (None, 2));
    }

    #[test]
    fn readers_never_see_a_mixed_state() {
        const ROUNDS: u64 = if cfg!(miri) { 300 } else { 20_000 };
        let frames: &'static Frames = Frames::take();
        let frame = frames.frame(2);
        let reader = std::thread::Builder::new().spawn(move || {
            for _ in 0..ROUNDS {
                let key = Some(frame.key()).filter(|key| (1..lent(ROUNDS * 3)).contains(key));
                if let Some((key, state)) = key.and_then(|key| Some((key, frames.lend(key)?))) {
                    assert_eq!((state.span, state.parent), (key * 10, key * 100));
                }
            }
        });
        for key in 1..ROUNDS * 3 {
            frame.take();
            frame.fill(key, SpanState { span: key * 10, meta: 0, parent: key * 100 });
        }
        reader.unwrap().join().unwrap();
        frames.give_back();
    }
}
