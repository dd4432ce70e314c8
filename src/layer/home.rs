//! What a thread keeps for the layer, and everything that the hooks do with it in the usual case.
//!
//! A span's state is found, in this order, in the frame above the innermost open slice (the span that was made or left
//! last at this depth), in the thread's cache, and in the span's extensions ([`find`](super::find)). What a state says
//! never changes, so copies need no care, with one rule: as long as a state is not stored in the extensions, it stands in
//! one frame of one thread; before that frame is needed for another, it is stored.
//!
//! The usual case of each hook ([`Lane::enter`] and the like) is a few dozen instructions that call nothing: no
//! allocator, no lock, no user code, so nothing can come in between. It says `false` where something is missing; then
//! the careful twin (`Lane::enter_carefully`) says what, as a [`Need`], which is done outside, and is tried again.

use crate::buffer::{Chunk, Full, Head, Loss, PAYLOAD_MAX, Tag, Writer, flag};
use crate::callsite::Site;
use crate::clock;
use crate::recorder::{CLOSINGS, DEPTH, Frame, Frames, Recorder, SpanState, bucket, ids, state};
use crate::time::Ticks;
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tracing_core::Metadata;

thread_local! {
    /// The first layer's lane, inline; it has no destructor, so reaching it costs nothing.
    static LANE: Lane = Lane::new();
    /// What belongs to the lanes and is let go of when the thread ends.
    static STORE: RefCell<Store> = const { RefCell::new(Store { first: None, others: Vec::new() }) };
    /// A hook is getting what it needs.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// What a thread keeps for one epoch of one layer; made of cells, so that no borrow can be in the way.
pub(crate) struct Lane {
    /// Epochs are unique in the process, so this also tells layers apart.
    epoch: Cell<u64>,
    frames: Cell<&'static Frames>,
    writer: Writer,
    next_span: Cell<u64>,
    last_span: Cell<u64>,
    /// The span exited last.
    last_exit: Cell<u64>,
    /// The frames' lending count when they were last looked through for slices that others have exited.
    seen_lent: Cell<u64>,
    /// Frames deeper than others can see; their spans are stored in their extensions. Emptied by `close_down`, so that a
    /// lane needs no destructor.
    deep: ManuallyDrop<RefCell<Vec<Open>>>,
    /// A span found for the hook that is being tried again.
    found: Cell<(u64, SpanState)>,
    sites: [Cell<(usize, Option<&'static Site>)>; SITES],
    spans: [Cell<Cached>; CLOSINGS],
}

/// A frame outside the visible stack.
#[derive(Clone, Copy)]
struct Open {
    key: u64,
    state: SpanState,
    slice: u64,
}

#[derive(Clone, Copy)]
struct Cached {
    key: u64,
    closings: u32,
    state: SpanState,
}

/// The epoch of a lane that has none; not 0, which stands for "nothing is recorded".
const NO_EPOCH: u64 = u64::MAX;
const SITES: usize = 64;
/// Marks the address of a callsite whose spans are not recorded, or not yet decided upon; addresses are even.
const NOT_RECORDED: usize = 1;
const _: () = assert!(!std::mem::needs_drop::<Lane>());

/// The owners of what the lanes refer to.
struct Store {
    first: Option<Owned>,
    /// Lanes of further layers, each with what belongs to it.
    others: Vec<(Rc<Lane>, Owned)>,
}

/// What one lane refers to.
struct Owned {
    epoch: u64,
    recorder: Arc<Recorder>,
    frames: &'static Frames,
    chunk: Option<Chunk>,
    /// The number of its row.
    row: u64,
    is_first: bool,
}

/// What a hook needs before it can be done; see [`super::find::settle`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// The thread has no lane for this epoch yet.
    Lane,
    /// The chunk is full.
    Chunk,
    /// The thread does not know the span.
    Find,
    /// The thread does not know that the span was entered.
    ExitElsewhere,
    /// The state of that span has to be stored in its extensions first.
    Store(u64, SpanState),
    /// The span may be known to others, who have to hear that it closes.
    CloseElsewhere,
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

/// Calls `hook` with the thread's lane if it is the first layer's; else, or if it says so, returns false.
///
/// There is no such lane where the counter cannot be trusted, so `hook` may read it without asking.
#[inline(always)]
pub(crate) fn usual(epoch: u64, hook: impl FnOnce(&Lane) -> bool) -> bool {
    LANE.with(|lane| lane.epoch.get() == epoch && hook(lane))
}

/// Calls `hook` with the thread's lane for `epoch`, whichever it is.
pub(crate) fn with<R>(epoch: u64, hook: impl FnOnce(&Lane) -> Result<R, Need>) -> Result<R, Need> {
    LANE.with(|lane| if lane.epoch.get() == epoch { hook(lane) } else { with_other(epoch, hook) })
}

#[cold]
fn with_other<R>(epoch: u64, hook: impl FnOnce(&Lane) -> Result<R, Need>) -> Result<R, Need> {
    let find = |store: &RefCell<Store>| {
        let store = store.try_borrow().ok()?;
        store.others.iter().find(|(lane, _)| lane.epoch.get() == epoch).map(|(lane, _)| lane.clone())
    };
    match STORE.try_with(find) {
        Ok(Some(lane)) => hook(&lane),
        _ => Err(Need::Lane),
    }
}

/// Gives the thread a lane for `epoch`; `false` if the thread is ending, or in the middle of getting one.
pub(crate) fn enroll(recorder: &Arc<Recorder>, epoch: u64) -> bool {
    let is_free =
        LANE.with(|lane| lane.epoch.get() == NO_EPOCH) || STORE.try_with(Store::first_is_over).unwrap_or(false);
    let is_first = is_free && clock::is_counter();
    if STORE.try_with(|store| store.try_borrow_mut().is_err()).unwrap_or(true) {
        return false;
    }
    let frames = Frames::take();
    let row = recorder.lanes().enter(frames);
    let chunk = recorder.chunk_for_new_thread(epoch);
    let other = (!is_first).then(|| Rc::new(Lane::new()));
    let owned = Owned { epoch, recorder: recorder.clone(), frames, chunk, row, is_first };
    match &other {
        Some(lane) => owned.open(lane),
        None => LANE.with(|lane| owned.open(lane)),
    }
    let over = STORE.try_with(|store| {
        let mut store = store.try_borrow_mut().ok()?;
        Some(match other {
            Some(lane) => {
                let over: Vec<_> = store.others.extract_if(.., |(_, owned)| owned.is_over()).map(|(_, o)| o).collect();
                store.others.push((lane, owned));
                over
            }
            None => store.first.replace(owned).into_iter().collect(),
        })
    });
    // What is over is dropped here, outside the borrow; a lane that could not be kept is closed by its owner's drop.
    matches!(over, Ok(Some(_)))
}

/// Gives the thread's lane another chunk, or the word that there is none.
pub(crate) fn install(recorder: &Recorder, epoch: u64) {
    let chunk = recorder.open_chunk(epoch);
    let before = STORE.try_with(|store| {
        let mut store = store.try_borrow_mut().ok()?;
        let (first, others) = {
            let Store { first, others } = &mut *store;
            (first, others)
        };
        if let Some(owned) = first.as_mut().filter(|owned| owned.epoch == epoch) {
            return Some(LANE.with(|lane| owned.install(lane, chunk)));
        }
        let (lane, owned) = others.iter_mut().find(|(_, owned)| owned.epoch == epoch)?;
        Some(owned.install(lane, chunk))
    });
    // The chunk of before is let go of outside the borrow.
    drop(before);
}

/// Forgets the forking thread's lanes, so that its next hook in the child finds out where it is.
pub(crate) fn forget_lane() {
    LANE.with(Lane::close_down);
    let _ = STORE.try_with(|store| {
        if let Ok(store) = store.try_borrow() {
            store.others.iter().for_each(|(lane, _)| lane.close_down());
        }
    });
}

/// The thread is getting what a hook needs. What the allocator or the registry do meanwhile is not recorded, if they
/// have spans of their own: it would need the same things.
pub(crate) struct Busy(());

impl Busy {
    /// `None` if the thread is busy already, or ending.
    pub(crate) fn begin() -> Option<Busy> {
        // Not `then_some`: a `Busy` that is made only to be dropped would end the other's.
        BUSY.with(|busy| !busy.replace(true)).then(|| Busy(()))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.with(|busy| busy.set(false));
    }
}

impl Store {
    fn first_is_over(store: &RefCell<Store>) -> bool {
        store.try_borrow().is_ok_and(|store| store.first.as_ref().is_none_or(Owned::is_over))
    }
}

impl Owned {
    /// Whether the epoch has ended or its layer is gone.
    fn is_over(&self) -> bool {
        self.recorder.epoch() != self.epoch
    }

    /// Makes `lane` the thread's lane for this epoch.
    fn open(&self, lane: &Lane) {
        lane.close_down();
        lane.frames.set(self.frames);
        lane.last_exit.set(0);
        lane.seen_lent.set(self.frames.lent());
        lane.spans.iter().for_each(|entry| entry.set(Cached::NONE));
        lane.sites.iter().for_each(|entry| entry.set((0, None)));
        self.go_on(lane);
        lane.epoch.set(self.epoch);
    }

    /// Has `lane` write into the chunk; the record says whose it is from here on.
    fn go_on(&self, lane: &Lane) {
        let Some(chunk) = &self.chunk else { return lane.writer.exhaust() };
        lane.writer.install(chunk);
        let at = lane.writer.reserve(1).unwrap_or(Writer::NOWHERE);
        lane.writer.put(at, Head::new(Tag::Lane, 0, 0), [self.row, 0, 0], &[]);
    }

    /// Goes on in another chunk; without one, what does not fit is lost, but slices still end in the one of before.
    fn install(&mut self, lane: &Lane, chunk: Option<Chunk>) -> Option<Chunk> {
        let Some(chunk) = chunk else {
            lane.writer.exhaust();
            return None;
        };
        let before = self.chunk.replace(chunk);
        self.go_on(lane);
        before
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let ours = |lane: &Lane| lane.epoch.get() == self.epoch;
        if self.is_first && LANE.with(ours) {
            LANE.with(Lane::close_down);
        }
        if self.recorder.is_forked() {
            // The locks that the rest needs may have been held by a thread that does not exist here.
            let _kept = ManuallyDrop::new(self.chunk.take());
            return;
        }
        self.recorder.lanes().leave(self.frames, !self.is_over());
        self.frames.give_back();
        if let Some(chunk) = self.chunk.take() {
            self.recorder.leave_chunk(chunk);
        }
    }
}

impl Cached {
    const NONE: Cached = Cached { key: 0, closings: 0, state: SpanState { span: 0, meta: 0, parent: 0 } };
}

impl Lane {
    fn new() -> Lane {
        Lane {
            epoch: Cell::new(NO_EPOCH),
            frames: Cell::new(Frames::none()),
            writer: Writer::empty(),
            next_span: Cell::new(0),
            last_span: Cell::new(0),
            last_exit: Cell::new(0),
            seen_lent: Cell::new(0),
            deep: ManuallyDrop::new(RefCell::new(Vec::new())),
            found: Cell::new((0, Cached::NONE.state)),
            sites: [const { Cell::new((0, None)) }; SITES],
            spans: [const { Cell::new(Cached::NONE) }; CLOSINGS],
        }
    }

    /// Leaves the lane without an epoch, frames and chunk.
    fn close_down(&self) {
        self.epoch.set(NO_EPOCH);
        self.writer.uninstall();
        self.frames.set(Frames::none());
        if let Ok(mut deep) = self.deep.try_borrow_mut() {
            *deep = Vec::new();
        }
    }

    /// Returns the judgement on a callsite from the thread's cache, if its spans are recorded.
    #[inline(always)]
    pub(crate) fn recorded_site(&self, metadata: &'static Metadata<'static>) -> Option<&'static Site> {
        let address = std::ptr::from_ref(metadata).addr();
        let (known, site) = self.site_entry(address).get();
        if known == address { site } else { None }
    }

    /// Returns the judgement on a callsite from the thread's cache.
    #[inline(always)]
    pub(crate) fn site(&self, metadata: &'static Metadata<'static>) -> Option<&'static Site> {
        let address = std::ptr::from_ref(metadata).addr();
        let (known, site) = self.site_entry(address).get();
        if known & !NOT_RECORDED == address { site } else { None }
    }

    /// Keeps a judgement.
    pub(crate) fn cache_site(&self, site: &'static Site) {
        let address = std::ptr::from_ref(site.metadata).addr();
        let mark = if site.is_recorded() && !site.is_undecided() { 0 } else { NOT_RECORDED };
        self.site_entry(address).set((address | mark, Some(site)));
    }

    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "a remainder of SITES is smaller than SITES")]
    fn site_entry(&self, address: usize) -> &Cell<(usize, Option<&'static Site>)> {
        // Callsites are statics of some hundred bytes.
        &self.sites[(address >> 5) % SITES]
    }

    /// Keeps the state of a span whose extensions know that threads may have cached it.
    pub(crate) fn cache_span(&self, key: u64, state: SpanState, closings: u32) {
        if let Some(entry) = self.spans.get(bucket(key)) {
            entry.set(Cached { key, closings, state });
        }
    }

    /// Has the hook that is tried again know that span.
    pub(crate) fn hand(&self, key: u64, state: SpanState) {
        self.found.set((key, state));
    }

    /// Forgets the span that was handed over, when the hook is done.
    pub(crate) fn take_back(&self) {
        self.found.set((0, Cached::NONE.state));
    }

    /// Makes a span without fields below the innermost one; `false` if that takes more than usual.
    #[inline(always)]
    pub(crate) fn new_span(&self, key: u64, site: &Site) -> bool {
        let frames = self.frames.get();
        let (span, depth) = (self.next_span.get(), frames.depth());
        let frame = frames.frame(depth + 1);
        if frame.key() != 0 || span == self.last_span.get() || depth > DEPTH {
            return false;
        }
        self.next_span.set(span + 1);
        let parent = frames.frame(depth).span();
        frame.fill(key, SpanState { span, meta: site.state | frames.lent(), parent });
        true
    }

    /// Makes a span with fields below the innermost one; `false` if that takes more than usual.
    #[inline(always)]
    pub(crate) fn new_span_with(&self, key: u64, site: &Site, payload: &[u8]) -> bool {
        let frames = self.frames.get();
        let depth = frames.depth();
        let frame = frames.frame(depth + 1);
        if frame.key() != 0 || depth > DEPTH || payload.len() > PAYLOAD_MAX {
            return false;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most PAYLOAD_MAX")]
        let head = Head { payload: payload.len() as u16, ..Head::new(Tag::Span, 0, site.index) };
        let Some(at) = self.writer.room(head.slots()) else { return false };
        let parent = frames.frame(depth).span();
        let span = self.writer.put(at, head, [parent, 0, 0], payload);
        let meta = (site.state & !state::UNDEFINED) | frames.lent();
        frame.fill(key, SpanState { span, meta, parent });
        true
    }

    /// Makes a span: gives it an id, records its fields if it has any, and puts it above the innermost frame.
    #[inline]
    pub(crate) fn new_span_carefully(
        &self,
        key: u64,
        site: &Site,
        parent: Parent,
        fields: Option<(&[u8], u8)>,
        recorder: &Recorder,
    ) -> Result<(), Need> {
        let frames = self.frames.get();
        let frame = frames.frame(frames.depth().min(DEPTH) + 1);
        if !frame.is_free() && frame.key() != key {
            return Err(Need::Store(frame.key(), frame.state()));
        }
        let parent = match parent {
            Parent::Current => self.current(),
            Parent::Span(parent) => parent,
        };
        if !site.is_recorded() {
            frame.set(key, SpanState { span: 0, meta: state::ignored(site.index), parent: state::NO_PARENT }, 0);
            return Ok(());
        }
        let (mut span, mut meta) = (0, site.state | frames.lent());
        if let Some((payload, head_flags)) = fields {
            span = self.put(Head::new(Tag::Span, head_flags, site.index), [parent, 0, 0], payload)?;
            meta &= !state::UNDEFINED;
            if span == 0 {
                recorder.losses.add(Loss::FieldsOverLimit, 1);
            }
        }
        if span == 0 {
            // Without fields, or no room for them.
            span = self.span_id();
            meta |= state::UNDEFINED;
        }
        frame.set(key, SpanState { span, meta, parent }, 0);
        Ok(())
    }

    fn span_id(&self) -> u64 {
        const BLOCK: u64 = 4096;
        if self.next_span.get() == self.last_span.get() {
            self.next_span.set(ids(BLOCK));
            self.last_span.set(self.next_span.get() + BLOCK);
        }
        let span = self.next_span.get();
        self.next_span.set(span + 1);
        span
    }

    /// The span id of the innermost frame, 0 if there is none; frames that others have exited are dropped first.
    fn current(&self) -> u64 {
        self.repair();
        match self.deep.try_borrow().ok().and_then(|deep| deep.last().copied()) {
            Some(open) => open.state.span,
            None => self.frames.get().frame(self.frames.get().depth()).span(),
        }
    }

    /// Returns the id of the innermost open slice and of its span.
    pub(crate) fn innermost(&self) -> (u64, u64) {
        self.repair();
        if let Some(open) = self.deep.try_borrow().ok().and_then(|deep| deep.last().copied()) {
            return (open.slice, open.state.span);
        }
        let frames = self.frames.get();
        let (depth, span) = (frames.depth(), frames.frame(frames.depth()).span());
        // A span that is not recorded has no slice, and the span of the one around it, whose slice counts then.
        let around = (1..=depth.min(DEPTH)).rev().map(|at| frames.frame(at));
        let slice = around.take_while(|frame| frame.span() == span).map(Frame::slice).find(|slice| *slice != 0);
        (slice.unwrap_or(0), span)
    }

    /// Returns the ids of the innermost open slice of that span, and of the span, if the thread is inside it.
    pub(crate) fn inside(&self, key: u64) -> Option<(u64, u64)> {
        let find_deep = |deep: std::cell::Ref<'_, Vec<Open>>| deep.iter().rev().find(|open| open.key == key).copied();
        if let Some(open) = self.deep.try_borrow().ok().and_then(find_deep) {
            return Some((open.slice, open.state.span));
        }
        let mut stack = (1..=self.frames.get().depth().min(DEPTH)).rev().map(|depth| self.frames.get().frame(depth));
        stack.find(|frame| frame.key() == key).map(|frame| (frame.slice(), frame.span()))
    }

    /// Returns what the thread itself knows of a span.
    pub(crate) fn known(&self, key: u64, recorder: &Recorder) -> Option<SpanState> {
        self.frames.get().known(key).or_else(|| self.cached(key, recorder))
    }

    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "bucket() is smaller than CLOSINGS")]
    fn cached(&self, key: u64, recorder: &Recorder) -> Option<SpanState> {
        let cached = self.spans[bucket(key)].get();
        // Relaxed: whoever hands this thread a span of a key that is used again did so after the closing.
        if cached.key == key && cached.closings == recorder.closings(key).load(Ordering::Relaxed) {
            return Some(cached.state);
        }
        let (found, state) = self.found.get();
        (found == key).then_some(state)
    }

    /// Opens a slice of the span that was made or left last; `false` if that takes more than usual.
    #[inline(always)]
    pub(crate) fn enter(&self, key: u64) -> bool {
        let frames = self.frames.get();
        let depth = frames.depth();
        let frame = frames.frame(depth + 1);
        let (Some((at, slice)), true) = (self.writer.free(), depth < DEPTH) else { return false };
        if frame.key() != key {
            return false;
        }
        let meta = frame.meta();
        if meta & state::UNDEFINED != 0 && frame.state().parent != frames.frame(depth).span() {
            return false;
        }
        frame.set_slice(slice);
        frame.set_meta(state::entered(meta));
        frames.set_depth(depth + 1);
        // The clock is read last, so that what the hook costs lies outside the slice.
        self.writer.put_slice(at, state::slice(meta), clock::counter(), frame.span());
        true
    }

    /// Opens another slice of a span that is made once and entered for ever, or by several threads; `false` if that takes
    /// more than usual.
    #[inline(always)]
    pub(crate) fn enter_again(&self, key: u64, recorder: &Recorder) -> bool {
        let frames = self.frames.get();
        let depth = frames.depth();
        let frame = frames.frame(depth + 1);
        let Some(known) = self.cached(key, recorder).filter(|_| frame.is_free()) else { return false };
        let (Some((at, slice)), true) = (self.writer.free(), depth < DEPTH) else { return false };
        if known.meta & (state::UNDEFINED | state::STORED) != state::STORED {
            return false;
        }
        frame.set(key, known, slice);
        frames.set_depth(depth + 1);
        self.writer.put_slice(at, state::slice(known.meta), clock::counter(), known.span);
        true
    }

    /// Opens a slice, whatever it takes.
    pub(crate) fn enter_carefully(&self, key: u64, recorder: &Recorder) -> Result<(), Need> {
        let Some(known) = self.known(key, recorder) else { return Err(Need::Find) };
        let above = self.current();
        let frames = self.frames.get();
        let depth = frames.depth();
        let frame = frames.frame(depth.min(DEPTH) + 1);
        let stands_here = frame.key() == key && depth < DEPTH;
        if !stands_here && known.meta & (state::STORED | state::IGNORED) == 0 {
            // It stands in another frame, or is to go where others cannot see it.
            self.hand(key, SpanState { meta: state::stored(known.meta), ..known });
            return Err(Need::Store(key, known));
        }
        if !frame.is_free() && frame.key() != key && depth < DEPTH {
            return Err(Need::Store(frame.key(), frame.state()));
        }
        let mut meta = known.meta;
        let mut at = Writer::NOWHERE;
        let mut is_linked = true;
        let recorded = meta & state::IGNORED == 0;
        if recorded {
            if meta & state::UNDEFINED != 0 && known.parent != above {
                if known.parent != 0 {
                    let at = self.writer.reserve(2)?;
                    let link = [known.span, known.parent, 0];
                    is_linked = self.writer.put(at, Head::new(Tag::Parent, 0, 0), link, &[]) != 0;
                }
                meta &= !state::UNDEFINED;
            }
            at = self.writer.reserve(1)?;
            if at == Writer::NOWHERE {
                recorder.losses.add(Loss::SlicesOverLimit, 1);
            } else if !is_linked {
                recorder.losses.add(Loss::EventsOverLimit, 1);
            }
        }
        let slice = self.writer.id(at);
        // A span that is not recorded passes on the one around it.
        let span = if recorded { known.span } else { above };
        let state = SpanState { span, meta: state::entered(meta), parent: known.parent };
        if depth < DEPTH {
            frame.set(key, state, slice);
        } else if let Ok(mut deep) = self.deep.try_borrow_mut() {
            deep.push(Open { key, state, slice });
        }
        frames.set_depth(depth + 1);
        if at != Writer::NOWHERE {
            self.writer.put_slice(at, state::slice(meta), clock::now(), known.span);
        }
        Ok(())
    }

    /// Closes the innermost slice, if it is that span's and its record is at hand; `false` if that takes more than usual.
    #[inline(always)]
    pub(crate) fn exit(&self, key: u64) -> bool {
        // The clock is read first, so that what the hook costs lies outside the slice.
        let end = clock::counter();
        let frames = self.frames.get();
        let depth = frames.depth();
        let frame = frames.frame(depth);
        if frame.key() != key || depth > DEPTH || !self.writer.end_here(frame.slice(), end) {
            return false;
        }
        frames.set_depth(depth - 1);
        self.last_exit.set(key);
        if frame.meta() & state::STORED != 0 {
            // Others may close it, and would not look here; it is found again by the cache.
            frame.clear();
        }
        true
    }

    /// Closes a slice: one that is not the innermost, is too deep to be seen, or is not this thread's.
    pub(crate) fn exit_carefully(&self, key: u64, end: Ticks, recorder: &Recorder) -> Result<(), Need> {
        self.repair();
        let frames = self.frames.get();
        let depth = frames.depth();
        let place = |deep: std::cell::Ref<'_, Vec<Open>>| {
            deep.iter().rposition(|open| open.key == key).and_then(|i| Some((i, deep.get(i)?.slice)))
        };
        let deep = self.deep.try_borrow().ok().and_then(place);
        let visible = (1..=depth.min(DEPTH)).rev().find(|i| frames.frame(*i).key() == key);
        let (at, slice) = match (deep, visible) {
            (Some((i, slice)), _) => (DEPTH + 1 + i, slice),
            (None, Some(i)) => (i, frames.frame(i).slice()),
            (None, None) => return Err(Need::ExitElsewhere),
        };
        let moves_down = if at < depth && depth > DEPTH && at <= DEPTH { Some(frames.frame(at)) } else { None };
        if let Some(frame) = moves_down.filter(|frame| !frame.is_free()) {
            // A deep frame will come down into the last visible one, so there is no place for what is left here.
            return Err(Need::Store(key, frame.state()));
        }
        if slice != 0 && !self.writer.end(slice, end)? {
            recorder.losses.add(Loss::EndsOverLimit, 1);
        }
        if at != depth {
            recorder.note_disorder();
        }
        self.remove(at);
        self.last_exit.set(key);
        Ok(())
    }

    /// Takes the frame `at` out of the stack; those above move down, and what it held stands above them.
    fn remove(&self, at: usize) {
        let frames = self.frames.get();
        let depth = frames.depth();
        let Ok(mut deep) = self.deep.try_borrow_mut() else { return };
        if at > DEPTH {
            if at - DEPTH - 1 < deep.len() {
                deep.remove(at - DEPTH - 1);
            }
        } else {
            let left = (frames.frame(at).key(), frames.frame(at).state());
            let visible = depth.min(DEPTH);
            for i in at..visible {
                let from = frames.frame(i + 1);
                frames.frame(i).set(from.key(), from.state(), from.slice());
            }
            if deep.is_empty() {
                let stays = left.0 != 0 && left.1.meta & state::STORED == 0;
                frames.frame(visible).set(if stays { left.0 } else { 0 }, left.1, 0);
            } else {
                let Open { key, state, slice } = deep.remove(0);
                frames.frame(visible).set(key, state, slice);
            }
        }
        frames.set_depth(depth - 1);
    }

    /// Drops the frames that other threads have exited.
    fn repair(&self) {
        let lent = self.frames.get().lent();
        if self.seen_lent.replace(lent) == lent {
            return;
        }
        for at in (1..=self.frames.get().depth().min(DEPTH)).rev() {
            if self.frames.get().frame(at).key() == 0 {
                self.remove(at);
            }
        }
    }

    /// The state of a span is stored now: open slices are marked, and where it waited for its next enter it is not
    /// needed any more.
    pub(crate) fn mark_stored(&self, key: u64) {
        let frames = self.frames.get();
        for (depth, frame) in frames.all().filter(|(_, frame)| frame.key() == key) {
            if depth <= frames.depth() {
                frame.set_meta(state::stored(frame.meta()));
            } else {
                frame.clear();
            }
        }
    }

    /// The span is gone, and nobody else knew it; `false` if that takes more than usual.
    #[inline(always)]
    pub(crate) fn close(&self, key: u64) -> bool {
        let frames = self.frames.get();
        let frame = frames.frame(frames.depth() + 1);
        let meta = frame.meta();
        const UNUSUAL: u64 = state::STORED | state::AGAIN | state::IGNORED;
        let usual = frame.key() == key && meta & UNUSUAL == 0 && state::is_private(meta, frames.lent());
        if usual {
            frame.clear();
        }
        usual
    }

    /// The span is gone; `Need::CloseElsewhere` if others may know it.
    pub(crate) fn close_carefully(&self, key: u64, recorder: &Recorder) -> Result<(), Need> {
        let frames = self.frames.get();
        let is_own =
            |state: &SpanState| state.meta & state::STORED == 0 && state::is_private(state.meta, frames.lent());
        let Some(own) = frames.known(key).filter(is_own) else { return Err(Need::CloseElsewhere) };
        if own.meta & (state::AGAIN | state::IGNORED) == state::AGAIN {
            self.close_record(key, own.span, recorder)?;
        }
        frames.forget(key);
        Ok(())
    }

    /// Lets go of a span that is gone; returns what the thread alone knew of it.
    pub(crate) fn forget(&self, key: u64) -> Option<SpanState> {
        let known = self.frames.get().known(key).filter(|state| state.meta & state::STORED == 0);
        self.frames.get().forget(key);
        known
    }

    /// Records that a span is gone.
    pub(crate) fn close_record(&self, key: u64, span: u64, recorder: &Recorder) -> Result<(), Need> {
        let flags = if self.last_exit.get() == key { flag::AFTER_EXIT } else { 0 };
        let id = self.put(Head::new(Tag::Close, flags, 0), [span, clock::now().0, 0], &[])?;
        recorder.losses.add(Loss::EventsOverLimit, u64::from(id == 0));
        Ok(())
    }

    /// Records anything that is no slice, with at most `PAYLOAD_MAX` bytes of payload; returns its id, 0 if it is lost.
    #[inline(always)]
    pub(crate) fn put(&self, head: Head, words: [u64; 3], payload: &[u8]) -> Result<u64, Need> {
        let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
        let head = Head { payload: length, ..head };
        let at = self.writer.reserve(head.slots())?;
        Ok(self.writer.put(at, head, words, payload.get(..usize::from(length)).unwrap_or_default()))
    }
}
