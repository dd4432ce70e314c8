//! What a thread keeps for the layer, and everything that the hooks do with it in the usual case.
//!
//! A span's state is found, in this order, in the thread's pending slot (the span it made or left last), in its cache,
//! and in the span's extensions ([`find`](super::find)). A state is a copy of values that never change, so copies need
//! no care; only before the last copy that others can find is overwritten, it is stored in the extensions.
//!
//! No user code runs while a lane is borrowed. What needs the allocator, a lock or the registry is returned as a
//! [`Need`], done outside, and the hook tried again.

use crate::buffer::{Chunk, Full, Head, Tag, Writer, flag};
use crate::callsite::Site;
use crate::clock;
use crate::recorder::{DEPTH, Frame, Frames, Recorder, SpanState, bucket, ids, state};
use crate::time::Ticks;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tracing_core::Metadata;

thread_local! {
    static HOME: Home = const { Home { lane: RefCell::new(Lane::NONE), others: RefCell::new(Vec::new()), scratch: Cell::new(Vec::new()) } };
}

/// A thread's lanes: one inline for the first layer, a list for others, and a buffer for field values.
struct Home {
    lane: RefCell<Lane>,
    others: RefCell<Vec<Lane>>,
    scratch: Cell<Vec<u8>>,
}

/// What a thread keeps for one epoch of one layer.
pub(crate) struct Lane {
    /// 0 is none; epochs are unique in the process, so this also tells layers apart.
    epoch: u64,
    recorder: Option<Arc<Recorder>>,
    frames: Option<Arc<Frames>>,
    /// Number of its row.
    row: u64,
    writer: Writer,
    depth: usize,
    /// Frames deeper than others can see; their spans are stored in their extensions.
    deep: Vec<Open>,
    next_span: u64,
    last_span: u64,
    /// The span exited last, if nothing was entered since.
    last_exit: u64,
    /// The frames' lending count when they were last looked through for slices that others have exited.
    seen_lent: u64,
    /// A span found for the hook that is being tried again.
    found: Option<(u64, SpanState)>,
    caches: Option<Box<Caches>>,
}

/// A frame outside the visible stack.
#[derive(Clone, Copy)]
struct Open {
    key: u64,
    span: u64,
    meta: u64,
    slice: u64,
}

struct Caches {
    sites: [(usize, Option<&'static Site>); SITES],
    spans: [Cached; crate::recorder::CLOSINGS],
}

#[derive(Clone, Copy)]
struct Cached {
    key: u64,
    closings: u32,
    state: SpanState,
}

const SITES: usize = 64;

/// What a hook needs before it can be done; see [`super::settle`].
#[derive(Debug)]
pub(crate) enum Need {
    /// The thread has no lane for this epoch yet.
    Lane,
    /// The chunk is full.
    Chunk,
    /// The thread does not know the span.
    Find,
    /// The thread does not know that the span was entered.
    ExitElsewhere,
    /// The pending span has to be stored in its extensions first.
    Evict(u64, SpanState),
    /// The state of the span itself has to be stored in its extensions first.
    Store(SpanState),
    /// The span may be known to others, who have to hear that it closes.
    CloseElsewhere,
    /// The thread is inside another hook, or ending.
    Nothing,
}

impl From<Full> for Need {
    fn from(Full: Full) -> Need {
        Need::Chunk
    }
}

/// The parent of a new span.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parent {
    /// The innermost span that the thread is inside.
    Current,
    /// A known one, 0 for none.
    Span(u64),
}

/// Calls `hook` with the thread's lane for `epoch`.
#[inline(always)]
pub(crate) fn with<R>(epoch: u64, hook: impl FnOnce(&mut Lane) -> Result<R, Need>) -> Result<R, Need> {
    let visit = |home: &Home| match home.lane.try_borrow_mut() {
        Ok(mut lane) if lane.epoch == epoch => hook(&mut lane),
        Ok(_) => with_other(home, epoch, hook),
        Err(_) => Err(Need::Nothing),
    };
    HOME.try_with(visit).unwrap_or(Err(Need::Nothing))
}

#[cold]
#[inline(never)]
fn with_other<R>(home: &Home, epoch: u64, hook: impl FnOnce(&mut Lane) -> Result<R, Need>) -> Result<R, Need> {
    let Ok(mut others) = home.others.try_borrow_mut() else { return Err(Need::Nothing) };
    match others.iter_mut().find(|lane| lane.epoch == epoch) {
        Some(lane) => hook(lane),
        None => Err(Need::Lane),
    }
}

/// Gives the thread a lane for `epoch`; `false` if the thread is ending.
pub(crate) fn enroll(recorder: &Arc<Recorder>, epoch: u64) -> bool {
    let frames = Arc::new(Frames::default());
    let mut lane = Lane::NONE;
    lane.epoch = epoch;
    lane.recorder = Some(recorder.clone());
    lane.frames = Some(frames.clone());
    lane.caches =
        Some(Box::new(Caches { sites: [(0, None); SITES], spans: [Cached::NONE; crate::recorder::CLOSINGS] }));
    lane.row = recorder.lanes().enter(frames);
    lane.install(recorder.chunk_for_new_thread(epoch));
    let gone = HOME.try_with(|home| {
        let mut first = home.lane.try_borrow_mut().ok()?;
        if first.is_over() {
            return Some(vec![std::mem::replace(&mut *first, lane)]);
        }
        drop(first);
        let mut others = home.others.try_borrow_mut().ok()?;
        let over = others.extract_if(.., |lane| lane.is_over()).collect();
        others.push(lane);
        Some(over)
    });
    // Lanes that are over are dropped here, outside the borrow.
    matches!(gone, Ok(Some(_)))
}

/// Forgets the forking thread's lane, so that its next hook in the child finds out where it is.
pub(crate) fn forget_lane() {
    let _ = HOME.try_with(|home| {
        if let Ok(mut lane) = home.lane.try_borrow_mut() {
            lane.epoch = 0;
        }
        if let Ok(mut others) = home.others.try_borrow_mut() {
            others.iter_mut().for_each(|lane| lane.epoch = 0);
        }
    });
}

/// Takes the thread's buffer for field values; user code may run while it is out.
#[inline(always)]
pub(crate) fn take_scratch() -> Vec<u8> {
    HOME.try_with(|home| home.scratch.take()).unwrap_or_default()
}

/// Puts the buffer back for the next span.
#[inline(always)]
pub(crate) fn put_scratch(mut scratch: Vec<u8>) {
    const KEPT_BYTES_MAX: usize = 64 * 1024;
    scratch.clear();
    if scratch.capacity() <= KEPT_BYTES_MAX {
        let _ = HOME.try_with(|home| home.scratch.set(scratch));
    }
}

impl Cached {
    const NONE: Cached = Cached { key: 0, closings: 0, state: SpanState { span: 0, meta: 0, parent: 0 } };
}

impl Lane {
    const NONE: Lane = Lane {
        epoch: 0,
        recorder: None,
        frames: None,
        row: 0,
        writer: Writer::empty(),
        depth: 0,
        deep: Vec::new(),
        next_span: 0,
        last_span: 0,
        last_exit: 0,
        seen_lent: 0,
        found: None,
        caches: None,
    };

    /// Whether the epoch has ended or its layer is gone.
    fn is_over(&self) -> bool {
        self.epoch == 0 || self.recorder.as_ref().is_none_or(|recorder| recorder.epoch() != self.epoch)
    }

    /// Goes on in `chunk`; without one, what does not fit is lost from here on.
    pub(crate) fn install(&mut self, chunk: Option<Chunk>) {
        let Some(chunk) = chunk else { return self.writer.exhaust() };
        self.writer.install(chunk);
        let at = self.writer.reserve(1).unwrap_or(Writer::NOWHERE);
        self.writer.put(at, Head::new(Tag::Lane, 0, 0), [self.row, 0, 0], &[]);
    }

    #[inline(always)]
    fn frames(&self) -> Result<&Frames, Need> {
        self.frames.as_deref().ok_or(Need::Nothing)
    }

    /// Returns the judgement on a callsite from the thread's cache.
    #[inline(always)]
    pub(crate) fn site(&mut self, metadata: &'static Metadata<'static>) -> Option<&'static Site> {
        let address = std::ptr::from_ref(metadata).addr();
        match self.caches.as_ref()?.sites.get(slot_of(address))? {
            (known, site) if *known == address => *site,
            _ => None,
        }
    }

    /// Keeps a judgement for [`site`](Lane::site).
    pub(crate) fn cache_site(&mut self, site: &'static Site) {
        let address = std::ptr::from_ref(site.metadata).addr();
        if let Some(entry) = self.caches.as_mut().and_then(|caches| caches.sites.get_mut(slot_of(address))) {
            *entry = (address, Some(site));
        }
    }

    /// Keeps the state of a span whose extensions know that threads may have cached it.
    pub(crate) fn cache_span(&mut self, key: u64, state: SpanState, closings: u32) {
        if let Some(entry) = self.caches.as_mut().and_then(|caches| caches.spans.get_mut(bucket(key))) {
            *entry = Cached { key, closings, state };
        }
    }

    /// Has the hook that is tried again know that span.
    pub(crate) fn hand(&mut self, key: u64, state: SpanState) {
        self.found = Some((key, state));
    }

    /// Makes a span: gives it an id, records its fields if it has any, and makes it the pending one.
    #[inline(always)]
    pub(crate) fn new_span(
        &mut self,
        key: u64,
        site: &Site,
        parent: Parent,
        fields: Option<(&[u8], u8)>,
    ) -> Result<(), Need> {
        let frames = self.frames()?;
        let before = frames.pending.key();
        if before != 0
            && frames.pending.meta() & (state::STORED | state::ON_STACK | state::IGNORED) == 0
            && before != key
        {
            return Err(Need::Evict(before, frames.pending.state()));
        }
        let lent = frames.lent();
        if lent != self.seen_lent {
            self.repair();
        }
        let frames = self.frames()?;
        let parent = match parent {
            Parent::Current => self.current(frames),
            Parent::Span(parent) => parent,
        };
        if !site.is_recorded() {
            frames
                .pending
                .set(key, SpanState { span: 0, meta: state::new(site.index, lent, state::IGNORED), parent: 0 });
            return Ok(());
        }
        let (mut span, mut flags) = (0, 0);
        if let Some((payload, head_flags)) = fields {
            span =
                put_payload(&mut self.writer, Head::new(Tag::Span, head_flags, site.index), [parent, 0, 0], payload)?;
            flags = if span == 0 { 0 } else { state::DEFINED };
        }
        if span == 0 {
            span = self.next_span;
            if span == self.last_span {
                span = self.refill_ids();
            }
            self.next_span = span + 1;
        }
        let Some(frames) = &self.frames else { return Err(Need::Nothing) };
        frames.pending.set(key, SpanState { span, meta: state::new(site.index, lent, flags), parent });
        Ok(())
    }

    #[cold]
    fn refill_ids(&mut self) -> u64 {
        const BLOCK: u64 = 4096;
        let first = ids(BLOCK);
        self.last_span = first + BLOCK;
        first
    }

    /// The span id of the innermost frame, 0 if there is none.
    #[inline(always)]
    fn current(&self, frames: &Frames) -> u64 {
        match self.depth.checked_sub(1).and_then(|top| frames.frame(top)) {
            Some(frame) => frame.span(),
            None => self.deep.last().map_or(0, |open| open.span),
        }
    }

    /// Returns the id of the innermost open slice and of its span.
    pub(crate) fn innermost(&self) -> (u64, u64) {
        if let Some(open) = self.deep.last() {
            return (open.slice, open.span);
        }
        let top = self.depth.checked_sub(1).zip(self.frames.as_deref()).and_then(|(top, frames)| frames.frame(top));
        top.map_or((0, 0), |frame| (frame.slice(), frame.span()))
    }

    /// Returns the ids of the innermost open slice of that span, and of the span, if the thread is inside it.
    pub(crate) fn inside(&self, key: u64) -> Option<(u64, u64)> {
        let deep = self.deep.iter().rev().find(|open| open.key == key).map(|open| (open.slice, open.span));
        let frames = self.frames.as_deref()?;
        let visible = || {
            let mut stack = (0..self.depth.min(DEPTH)).rev().filter_map(|depth| frames.frame(depth));
            stack.find(|frame| frame.key() == key).map(|frame| (frame.slice(), frame.span()))
        };
        deep.or_else(visible)
    }

    /// Returns what the thread itself knows of a span.
    #[inline(always)]
    pub(crate) fn known(&mut self, key: u64, recorder: &Recorder) -> Option<SpanState> {
        let frames = self.frames.as_deref()?;
        if frames.pending.key() == key {
            return Some(frames.pending.state());
        }
        let cached = self.caches.as_ref()?.spans.get(bucket(key))?;
        // Acquire is not needed: whoever hands this thread a span of a reused key did so after the closing.
        if cached.key == key && cached.closings == recorder.closings(key).load(Ordering::Relaxed) {
            return Some(cached.state);
        }
        self.found.take().filter(|(found, _)| *found == key).map(|(_, state)| state)
    }

    /// Opens a slice.
    #[inline(always)]
    pub(crate) fn enter(&mut self, key: u64, recorder: &Recorder) -> Result<(), Need> {
        let Some(known) = self.known(key, recorder) else { return Err(Need::Find) };
        if self.frames()?.lent() != self.seen_lent {
            self.repair();
        }
        let frames = self.frames()?;
        let above = self.current(frames);
        if self.depth >= DEPTH && known.meta & (state::STORED | state::IGNORED) == 0 {
            return Err(Need::Store(known));
        }
        let mut meta = known.meta & !state::ON_STACK;
        let mut slice = 0;
        let mut at = Writer::NOWHERE;
        if meta & state::IGNORED == 0 {
            if meta & state::DEFINED == 0 && known.parent != above {
                if known.parent != 0 {
                    let at = self.writer.reserve(2)?;
                    self.writer.put(at, Head::new(Tag::Parent, 0, 0), [known.span, known.parent, 0], &[]);
                }
                meta |= state::DEFINED;
            }
            at = self.writer.reserve(1)?;
            slice = self.writer.id(at);
            if slice == 0 {
                recorder.losses.add(crate::buffer::Loss::SlicesOverLimit, 1);
            }
        }
        let Some(frames) = &self.frames else { return Err(Need::Nothing) };
        match frames.frame(self.depth) {
            Some(frame) => frame.set(key, known.span, meta, slice),
            None => self.deep.push(Open { key, span: known.span, meta, slice }),
        }
        if frames.pending.key() == key {
            frames.pending.set_meta(meta | state::ON_STACK | state::ENTERED);
        }
        self.depth += 1;
        frames.set_depth(self.depth.min(DEPTH));
        self.last_exit = 0;
        if at != Writer::NOWHERE {
            // FIRST and NESTED are 1 and 2; ENTERED is 2 and DEFINED 8.
            let first = u8::from(meta & state::ENTERED == 0) * flag::FIRST;
            let nested = u8::from(meta & state::DEFINED == 0) * flag::NESTED;
            let head = Head::new(Tag::Slice, first | nested, state::site(meta));
            // The clock is read last, so that what the hook costs lies outside the slice.
            self.writer.put(at, head, [clock::now().0, 0, known.span], &[]);
        }
        Ok(())
    }

    /// Closes the innermost slice, if it is one of that span.
    #[inline(always)]
    pub(crate) fn exit(&mut self, key: u64, end: Ticks, recorder: &Recorder) -> Result<(), Need> {
        let frames = self.frames()?;
        let top = self.depth.wrapping_sub(1);
        let Some(frame) = frames.frame(top) else { return self.exit_unusual(key, end, recorder) };
        if frame.key() != key || frame.meta() & state::ELSEWHERE != 0 {
            return self.exit_unusual(key, end, recorder);
        }
        let (span, meta, slice) = (frame.span(), frame.meta(), frame.slice());
        let mut left = meta | state::ENTERED | (meta & state::ENTERED) << 1;
        let pending = &frames.pending;
        let mut give_back = false;
        if pending.key() == key {
            // If it is open twice, the inner exit was the one to say so.
            left |= pending.meta() & state::AGAIN;
            give_back = true;
        } else if meta & (state::STORED | state::IGNORED) == 0 {
            if pending.key() != 0 && pending.meta() & (state::STORED | state::ON_STACK | state::IGNORED) == 0 {
                return Err(Need::Evict(pending.key(), pending.state()));
            }
            give_back = true;
        }
        if slice != 0 && !self.writer.end(slice, end)? {
            recorder.losses.add(crate::buffer::Loss::EndsOverLimit, 1);
        }
        let Some(frames) = &self.frames else { return Err(Need::Nothing) };
        self.depth = top;
        frames.set_depth(top);
        self.last_exit = key;
        if give_back {
            // A span that is not defined was entered right inside its parent, which is now the innermost again.
            let parent = if left & state::DEFINED == 0 { self.current(frames) } else { 0 };
            frames.pending.set(key, SpanState { span, meta: left, parent });
        }
        Ok(())
    }

    /// Closes a slice that is not the innermost, is too deep to be seen, or is not this thread's.
    #[cold]
    #[inline(never)]
    fn exit_unusual(&mut self, key: u64, end: Ticks, recorder: &Recorder) -> Result<(), Need> {
        recorder.note_disorder();
        self.repair();
        let frames = self.frames()?;
        let find = |frame: &Frame| frame.key() == key;
        let visible = (0..self.depth.min(DEPTH)).rev().find(|i| frames.frame(*i).is_some_and(find));
        let deep = self.deep.iter().rposition(|open| open.key == key);
        let slice = match (deep, visible.and_then(|i| frames.frame(i))) {
            (Some(i), _) => self.deep.get(i).map_or(0, |open| open.slice),
            (None, Some(frame)) => {
                if frame.meta() & (state::STORED | state::IGNORED) == 0 {
                    let meta = frame.meta() | state::ENTERED;
                    let parent = if meta & state::DEFINED == 0 { self.span_below(frames, visible) } else { 0 };
                    return Err(Need::Store(SpanState { span: frame.span(), meta, parent }));
                }
                frame.slice()
            }
            (None, None) => return Err(Need::ExitElsewhere),
        };
        if slice != 0 && !self.writer.end(slice, end)? {
            recorder.losses.add(crate::buffer::Loss::EndsOverLimit, 1);
        }
        match (deep, visible) {
            (Some(i), _) => {
                self.deep.remove(i);
                self.depth -= 1;
            }
            (None, Some(i)) => self.remove_frame(i),
            (None, None) => {}
        }
        self.last_exit = key;
        Ok(())
    }

    fn span_below(&self, frames: &Frames, at: Option<usize>) -> u64 {
        at.and_then(|at| at.checked_sub(1)).and_then(|below| frames.frame(below)).map_or(0, Frame::span)
    }

    /// Takes frame `at` out of the visible stack; the deep ones move up.
    fn remove_frame(&mut self, at: usize) {
        let Some(frames) = &self.frames else { return };
        let visible = self.depth.min(DEPTH);
        for i in at + 1..visible {
            if let (Some(to), Some(from)) = (frames.frame(i - 1), frames.frame(i)) {
                to.copy(from);
            }
        }
        if !self.deep.is_empty() {
            let open = self.deep.remove(0);
            if let Some(last) = frames.frame(visible - 1) {
                last.set(open.key, open.span, open.meta, open.slice);
            }
        }
        self.depth -= 1;
        frames.set_depth(self.depth.min(DEPTH));
    }

    /// Drops the frames that other threads have exited.
    fn repair(&mut self) {
        let Some(frames) = self.frames.clone() else { return };
        self.seen_lent = frames.lent();
        for i in (0..self.depth.min(DEPTH)).rev() {
            if frames.frame(i).is_some_and(|frame| frame.meta() & state::ELSEWHERE != 0) {
                self.remove_frame(i);
            }
        }
    }

    /// Marks the state that the hook is about to use as stored, wherever the thread keeps it.
    pub(crate) fn mark_stored(&mut self, key: u64) {
        let Some(frames) = self.frames.as_deref() else { return };
        if frames.pending.key() == key {
            frames.pending.set_meta(frames.pending.meta() | state::STORED | state::DEFINED);
        }
        let stack = (0..self.depth.min(DEPTH)).filter_map(|depth| frames.frame(depth));
        for frame in stack.filter(|frame| frame.key() == key) {
            frame.set(key, frame.span(), frame.meta() | state::STORED | state::DEFINED, frame.slice());
        }
    }

    /// The span is gone; `Need::CloseElsewhere` if others may know it.
    #[inline(always)]
    pub(crate) fn close(&mut self, key: u64) -> Result<(), Need> {
        let last_exit = self.last_exit;
        let frames = self.frames()?;
        let (meta, lent) = (frames.pending.meta(), frames.lent());
        if frames.pending.key() != key {
            return Err(Need::CloseElsewhere);
        }
        if meta & state::STORED != 0 || !state::is_private(meta, lent) {
            frames.pending.clear();
            return Err(Need::CloseElsewhere);
        }
        if meta & state::AGAIN != 0 && meta & state::IGNORED == 0 {
            let span = frames.pending.state().span;
            self.close_record(span, last_exit == key)?;
        }
        self.frames()?.pending.clear();
        Ok(())
    }

    /// Whether the thread's last hook was an exit of that span.
    pub(crate) fn has_just_exited(&self, key: u64) -> bool {
        self.last_exit == key
    }

    /// Records that a span is gone.
    pub(crate) fn close_record(&mut self, span: u64, after_exit: bool) -> Result<(), Need> {
        let flags = if after_exit { flag::AFTER_EXIT } else { 0 };
        self.put(Head::new(Tag::Close, flags, 0), [span, clock::now().0, 0], &[]).map(drop)
    }

    /// Records anything that is no slice; returns its id, 0 if it is lost.
    pub(crate) fn put(&mut self, head: Head, words: [u64; 3], payload: &[u8]) -> Result<u64, Need> {
        put_payload(&mut self.writer, head, words, payload)
    }
}

/// Records something with a payload of at most `PAYLOAD_MAX` bytes; returns its id, 0 if it is lost.
#[inline(always)]
fn put_payload(writer: &mut Writer, head: Head, words: [u64; 3], payload: &[u8]) -> Result<u64, Need> {
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let head = Head { payload: length, ..head };
    let at = writer.reserve(head.slots())?;
    Ok(writer.put(at, head, words, payload.get(..usize::from(length)).unwrap_or_default()))
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let (Some(recorder), Some(frames)) = (&self.recorder, &self.frames) {
            if self.epoch != 0 {
                recorder.lanes().leave(frames);
                if let Some(chunk) = self.writer.take() {
                    recorder.leave_chunk(chunk);
                }
            }
        }
    }
}

#[inline(always)]
fn slot_of(address: usize) -> usize {
    // Callsites are statics of some hundred bytes.
    (address >> 4 ^ address >> 10) % SITES
}
