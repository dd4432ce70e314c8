//! The spans that a thread knows best: those it is inside, and the one it touched last.
//!
//! Only the owner writes; other threads may read, to find a span that was made or entered here and is entered there.
//! All of it are atomics: fields are written between two stores of the key, and a reader that sees the same key before
//! and after has read what belongs to it.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Spans that a thread can be inside with all of them visible to others; deeper ones are stored with their spans.
pub(crate) const DEPTH: usize = 64;

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
    /// Other threads find it in the span's extensions.
    pub(crate) const STORED: u64 = 1;
    /// It was entered and exited at least once.
    pub(crate) const ENTERED: u64 = 2;
    /// ... more than once. Twice `ENTERED`, so that an exit is a shift and an or.
    pub(crate) const AGAIN: u64 = 4;
    /// Its parent is recorded, or it has none.
    pub(crate) const DEFINED: u64 = 8;
    /// It is not recorded: its callsite is not selected.
    pub(crate) const IGNORED: u64 = 16;
    /// The pending slot's copy of a span that the thread is inside.
    pub(crate) const ON_STACK: u64 = 32;
    /// Another thread has exited it.
    pub(crate) const ELSEWHERE: u64 = 64;

    const LENT_SHIFT: u32 = 8;
    const LENT_MASK: u64 = 0xFF_FFFF << LENT_SHIFT;

    #[inline(always)]
    pub(crate) const fn new(site: u32, lent: u64, flags: u64) -> u64 {
        (site as u64) << 32 | (lent << LENT_SHIFT) & LENT_MASK | flags
    }
    #[inline(always)]
    pub(crate) const fn site(meta: u64) -> u32 {
        (meta >> 32) as u32
    }
    /// Whether nobody has borrowed from the thread since the state was made.
    #[inline(always)]
    pub(crate) const fn is_private(meta: u64, lent: u64) -> bool {
        meta & LENT_MASK == (lent << LENT_SHIFT) & LENT_MASK
    }
}

/// An open slice.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    key: AtomicU64,
    span: AtomicU64,
    meta: AtomicU64,
    slice: AtomicU64,
}

/// The span that the thread made or left last; what its next enter most often asks for.
#[derive(Debug, Default)]
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
    depth: AtomicU64,
    stack: [Frame; DEPTH],
    /// How often another thread has found something here.
    lent: AtomicU64,
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

impl Default for Frames {
    fn default() -> Frames {
        Frames {
            pending: Pending::default(),
            depth: AtomicU64::new(0),
            stack: std::array::from_fn(|_| Frame::default()),
            lent: AtomicU64::new(0),
        }
    }
}

impl Frames {
    /// Returns the frame at `depth` below [`DEPTH`].
    #[inline(always)]
    pub(crate) fn frame(&self, depth: usize) -> Option<&Frame> {
        self.stack.get(depth)
    }

    /// Tells readers how many frames are in use.
    #[inline(always)]
    pub(crate) fn set_depth(&self, depth: usize) {
        // Release: a reader that sees the depth sees the frames below it.
        self.depth.store(depth as u64, Ordering::Release);
    }

    /// Returns how often something was lent.
    #[inline(always)]
    pub(crate) fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    fn open(&self) -> impl Iterator<Item = &Frame> {
        let depth = usize::try_from(self.depth.load(Ordering::Acquire)).unwrap_or(DEPTH);
        self.stack.iter().take(depth)
    }

    /// Looks for a span from another thread; `None` also if the owner moved it meanwhile, so look again.
    ///
    /// The owner moves a state from the stack to the pending slot to the extensions, so looking in that order finds it
    /// unless it moves twice.
    pub(crate) fn lend(&self, key: u64) -> Option<SpanState> {
        let frame = self.open().find_map(|frame| seqlock(&frame.key, key, || (frame.span(), frame.meta(), 0)));
        let pending = || {
            seqlock(&self.pending.key, key, || {
                let state = self.pending.state();
                (state.span, state.meta, state.parent)
            })
        };
        let (span, meta, parent) = frame.or_else(pending)?;
        // Before the borrower lets go of the span, and so before the owner can see it close.
        self.lent.fetch_add(1, Ordering::Release);
        let defined = if frame.is_some() { state::DEFINED } else { 0 };
        Some(SpanState { span, meta: meta & !state::ON_STACK | defined, parent })
    }

    /// Marks the innermost open slice of a span as exited by the calling thread; returns the slice's id.
    pub(crate) fn exit_from_elsewhere(&self, key: u64) -> Option<u64> {
        let frame = self.open().filter(|frame| frame.key() == key && frame.meta() & state::ELSEWHERE == 0).last()?;
        frame.meta.fetch_or(state::ELSEWHERE, Ordering::Relaxed);
        self.lent.fetch_add(1, Ordering::Release);
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
        let frames = Frames::default();
        assert_eq!(frames.lend(5), None);
        frames.pending.set(5, SpanState { span: 50, meta: state::new(3, 0, 0), parent: 40 });
        assert_eq!(frames.lend(5), Some(SpanState { span: 50, meta: state::new(3, 0, 0), parent: 40 }));
        frames.frame(0).unwrap().set(5, 50, state::new(3, 0, 0), 99);
        assert_eq!(frames.lent(), 1);
        frames.set_depth(1);
        frames.pending.clear();
        assert_eq!(frames.lend(5).unwrap().meta, state::new(3, 0, state::DEFINED));
        assert_eq!((frames.lent(), frames.lend(6)), (2, None));
        assert!(!state::is_private(state::new(3, 0, 0), frames.lent()));
    }

    #[test]
    fn a_slice_is_exited_from_elsewhere_once() {
        let frames = Frames::default();
        frames.frame(0).unwrap().set(5, 50, 0, 99);
        frames.frame(1).unwrap().set(5, 50, 0, 100);
        frames.set_depth(2);
        assert_eq!(frames.exit_from_elsewhere(5), Some(100));
        assert_eq!(frames.exit_from_elsewhere(5), Some(99));
        assert_eq!(frames.exit_from_elsewhere(5), None);
    }

    #[test]
    fn readers_never_see_a_mixed_state() {
        let frames = std::sync::Arc::new(Frames::default());
        let reader = {
            let frames = frames.clone();
            std::thread::Builder::new().spawn(move || {
                for _ in 0..20_000 {
                    for key in 1..4 {
                        if let Some(state) = frames.lend(key) {
                            assert_eq!((state.span, state.parent), (key * 10, key * 100));
                        }
                    }
                }
            })
        };
        for i in 0..60_000u64 {
            let key = i % 3 + 1;
            frames.pending.set(key, SpanState { span: key * 10, meta: 0, parent: key * 100 });
        }
        reader.unwrap().join().unwrap();
    }
}
