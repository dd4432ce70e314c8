//! A thread's state for one layer, and the fast paths of the hooks.
//!
//! A span's state is found, in this order, in the frame above the innermost open slice (the span that was created or left
//! last at this depth), in the thread's cache, and in the recorder's span table ([`find`](super::find)). A state never
//! changes its meaning, so copies are safe under one rule. Until a state is stored in the table, it is in one frame of one
//! thread; before another span takes that frame, the state is stored.
//!
//! The fast path of each hook ([`Lane::enter_pending`] and the like) is a few dozen instructions without calls: no allocator, no
//! lock, no user code, so nothing can re-enter it. It returns `false` if it lacks something. The slow path ([`slow_path`])
//! then returns a [`Missing`]; the caller supplies it and retries.

mod slice_extras;
mod slow_path;

use super::cache::Cache;
use super::missing::Missing;
use super::pushed_slices::PushedSlices;
use crate::buffer::{Head, Loss, RecordPayload, Slots, Tag, flag};
use crate::callsite::Site;
use crate::clock;
use crate::correlation::CorrelationSink;
use crate::os::{counters, platform};
use crate::recorder::{Busy, Frame, Frames, Recorder, SpanState, TOO_DEEP, reserve_ids, state};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use tracing_core::Metadata;

/// A thread's state for one epoch of one layer; made of cells, so that no borrow can conflict.
pub(crate) struct Lane {
    /// Epochs are unique in the process, so this also tells layers apart.
    pub(super) epoch: Cell<u64>,
    /// The epoch, or [`NO_EPOCH`] if the slow path is needed: for collectors that take slices, observers of spans, or slices
    /// with extras. Recordings without these need no further check.
    pub(super) fast_epoch: Cell<u64>,
    /// Whether observers receive spans.
    pub(super) is_observed: Cell<bool>,
    pub(super) place: Cell<Option<LanePosition>>,
    /// At the buffer limit, how many records that do not fit are lost before the next attempt to get a chunk.
    pub(super) limited: Cell<u32>,
    /// The frames' count of exits when they were last searched for slices that other threads have exited.
    seen_exits: Cell<u64>,
    /// Frames too deep for other threads to see; their spans are stored in the recorder's table. `close_down` empties the
    /// list, so that a lane needs no destructor.
    pub(super) deep: ManuallyDrop<RefCell<Vec<DeepFrame>>>,
    /// The last hook above the visible frames; below, the frames themselves hold it.
    deep_last: Cell<DeepHook>,
    pub(super) cache: Cache,
    pub(super) pushed_slices: PushedSlices,
    /// The thread's counters, if it has any; open until `close_down`.
    counters: Cell<Option<counters::CounterReader>>,
}

/// A thread's frames, and its position in its chunk.
#[derive(Clone, Copy)]
pub(crate) struct LanePosition {
    pub(crate) frames: &'static Frames,
    pub(crate) slots: Slots,
}

/// A frame outside the visible stack.
#[derive(Clone, Copy)]
pub(super) struct DeepFrame {
    key: u64,
    state: SpanState,
    /// The parent of spans that are created in it.
    current: u64,
    pub(super) slice: u64,
}

/// The last hook of a thread outside the visible stack.
#[derive(Clone, Copy, Debug)]
enum DeepHook {
    Created { key: u64, parent: u64 },
    Exited,
    Other,
}

/// A lane that is hidden from hooks until this is dropped.
struct Hidden<'l> {
    epoch: &'l Cell<u64>,
    is: u64,
    _busy: Option<Busy>,
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        self.epoch.set(self.is);
    }
}

/// The epoch of a closed lane; not 0, which means that nothing is recorded.
pub(super) const NO_EPOCH: u64 = u64::MAX;

impl Lane {
    pub(crate) const fn new() -> Lane {
        Lane {
            epoch: Cell::new(NO_EPOCH),
            fast_epoch: Cell::new(NO_EPOCH),
            is_observed: Cell::new(false),
            place: Cell::new(None),
            limited: Cell::new(0),
            seen_exits: Cell::new(0),
            deep: ManuallyDrop::new(RefCell::new(Vec::new())),
            deep_last: Cell::new(DeepHook::Other),
            cache: Cache::new(),
            pushed_slices: PushedSlices::new(),
            counters: Cell::new(None),
        }
    }

    /// Begins an epoch; `correlation_sink` receives slices, and observers receive spans if `observed`.
    pub(crate) fn open_epoch(
        &self,
        epoch: u64,
        place: LanePosition,
        correlation_sink: Option<Arc<dyn CorrelationSink>>,
        observed: bool,
    ) {
        // The slices of the recording before are popped before its receiver is dropped.
        let receives = correlation_sink.is_some();
        self.pushed_slices.open(correlation_sink);
        self.reset();
        self.place.set(Some(place));
        self.seen_exits.set(place.frames.foreign_exits());
        self.cache.clear();
        self.fast_epoch.set(if receives || observed { NO_EPOCH } else { epoch });
        self.is_observed.set(observed);
        self.epoch.set(epoch);
    }

    /// Removes the lane's epoch, frames and chunk, and the receiver of its slices.
    pub(crate) fn close_down(&self) {
        self.pushed_slices.close();
        self.reset();
    }

    /// Closes the lane in a forked child and frees nothing: another thread may have held the lock of the program's allocator.
    pub(crate) fn abandon(&self) {
        self.pushed_slices.abandon();
        if let Ok(mut deep) = self.deep.try_borrow_mut() {
            let _ = ManuallyDrop::new(std::mem::take(&mut *deep));
        }
        self.reset();
    }

    fn reset(&self) {
        self.epoch.set(NO_EPOCH);
        self.fast_epoch.set(NO_EPOCH);
        self.place.set(None);
        self.counters.set(None);
        self.deep_last.set(DeepHook::Other);
        if let Ok(mut deep) = self.deep.try_borrow_mut() {
            *deep = Vec::new();
        }
    }

    /// Returns the epoch, [`NO_EPOCH`] if the lane is closed.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    /// Returns the epoch if the fast path may be used.
    #[inline(always)]
    pub(crate) fn fast_epoch(&self) -> u64 {
        if platform::CAN_RECORD { self.fast_epoch.get() } else { NO_EPOCH }
    }

    /// Calls `tell` if collectors receive slices. The lane is hidden meanwhile, so that spans that collectors open are not
    /// recorded inside this hook, and are not pushed to collectors again.
    #[inline]
    pub(super) fn tell_collectors(&self, tell: impl FnOnce(&PushedSlices)) {
        if self.pushed_slices.is_open() {
            let _hidden = Hidden { epoch: &self.epoch, is: self.epoch.replace(NO_EPOCH), _busy: Busy::begin() };
            tell(&self.pushed_slices);
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.epoch.get() != NO_EPOCH
    }

    pub(super) fn position(&self) -> Result<LanePosition, Missing> {
        self.place.get().ok_or(Missing::Lane)
    }

    /// Creates a span without fields below the innermost one; `false` if that needs the slow path.
    #[inline(always)]
    pub(crate) fn new_span(&self, key: u64, metadata: &'static Metadata<'static>) -> bool {
        let Some(LanePosition { frames, .. }) = self.place.get() else { return false };
        let Some(meta) = self.cache.plain_state(metadata) else { return false };
        let top = frames.top();
        let frame = frames.frame(top + 1);
        if frame.key() != 0 {
            return false;
        }
        frame.fill(key, SpanState { span: 0, meta, parent: frames.frame(top).span() });
        true
    }

    /// Creates a span with fields, which `encode` writes, below the innermost one; `false` if that needs the slow path.
    #[inline(always)]
    pub(crate) fn new_span_with(
        &self,
        key: u64,
        site: &Site,
        encode: impl FnOnce(RecordPayload) -> Option<RecordPayload>,
    ) -> bool {
        let Some(LanePosition { frames, slots }) = self.place.get() else { return false };
        let top = frames.top();
        let frame = frames.frame(top + 1);
        let Some(span) = slots.next_slot_id().filter(|_| frame.key() == 0) else { return false };
        let Some(payload) = encode(slots.begin_payload(span, Tag::Span)) else { return false };
        let (head, parent) = (Head::new(Tag::Span, 0, site.index), frames.frame(top).span());
        if !slots.put_with(span, payload, head, [parent, 0, 0]) {
            return false;
        }
        frame.fill(key, SpanState { span, meta: site.state & !state::UNDEFINED, parent });
        true
    }

    /// Returns the span id of the innermost frame, 0 if there is none; drops frames that other threads have exited first.
    fn current_span_id(&self) -> Result<u64, Missing> {
        self.drop_exited_frames()?;
        let frames = self.position()?.frames;
        Ok(self.deepest_frame().map_or_else(|| frames.frame(frames.top()).span(), |open| open.current))
    }

    fn deepest_frame(&self) -> Option<DeepFrame> {
        self.deep.try_borrow().ok().and_then(|deep| deep.last().copied())
    }

    /// Returns the id of the innermost open slice and of its span.
    pub(crate) fn innermost_slice(&self) -> Result<(u64, u64), Missing> {
        let current = self.current_span_id()?;
        let deep = self.deep.try_borrow().ok();
        let deep = deep.iter().flat_map(|deep| deep.iter().rev());
        let deep = deep.map(|open| (open.current, open.slice, open.state.span));
        let visible = self.position()?.frames.open_frames();
        let visible = visible.map(|(_, frame)| (frame.span(), frame.slice(), frame.own_span()));
        // A span that is not recorded has no slice; it carries the id of the span around it, whose slice counts.
        let mut around = deep.chain(visible).take_while(|(of, ..)| *of == current);
        Ok(around.find(|(_, slice, _)| *slice != 0).map_or((0, current), |(_, slice, span)| (slice, span)))
    }

    /// Returns the ids of the innermost open slice of that span and of the span, if the thread is inside it.
    pub(crate) fn open_slice_of(&self, key: u64) -> Option<(u64, u64)> {
        let find_deep =
            |deep: std::cell::Ref<'_, Vec<DeepFrame>>| deep.iter().rev().find(|open| open.key == key).copied();
        if let Some(open) = self.deep.try_borrow().ok().and_then(find_deep) {
            return Some((open.slice, open.state.span));
        }
        let mut open = self.place.get()?.frames.open_frames().map(|(_, frame)| frame);
        open.find(|frame| frame.holds_span(key)).map(|frame| (frame.slice(), frame.own_span()))
    }

    /// Returns the state of a span from this thread's cache or frames.
    pub(crate) fn known_state(&self, key: u64, recorder: &Recorder) -> Option<SpanState> {
        let cached = self.cache.span_state(key, recorder);
        let frames = self.place.get()?.frames;
        // With slices nested too deep for frames, a lookup in the span table is cheaper than a scan of all frames.
        cached.or_else(|| if frames.top() == TOO_DEEP { None } else { frames.known_state(key) })
    }

    /// Opens a slice of the span that was created or left last, and pushes it to the collectors if `PUSH`; `false` if that
    /// needs the slow path.
    #[inline(always)]
    pub(crate) fn enter_pending<const PUSH: bool>(&self, key: u64) -> bool {
        let Some(LanePosition { frames, slots }) = self.place.get() else { return false };
        let top = frames.top() + 1;
        let frame = frames.frame(top);
        let Some(slice) = slots.next_slot_id() else { return false };
        if frame.key() != key {
            return false;
        }
        let meta = frame.meta();
        let (head, span) = if meta & state::UNDEFINED != 0 {
            frame.set_span(slice);
            frame.set_meta(state::after_first_slice(meta));
            (meta, frame.parent())
        } else if meta & state::IGNORED == 0 {
            frame.set_meta(state::after_enter(meta));
            (state::slice_head(meta), frame.span())
        } else {
            return false;
        };
        frame.set_slice(slice);
        frames.set_top(top);
        if PUSH {
            let annotates = state::is_annotation(meta);
            self.tell_collectors(|pushed_slices| pushed_slices.push(slice, annotates));
        }
        // The clock is read last, so that the hook's cost lies outside the slice.
        slots.put_slice(slice, head, clock::read_counter(), span);
        true
    }

    /// Opens another slice of a span that is created once and entered repeatedly, or by several threads; `false` if that
    /// needs the slow path.
    #[inline(always)]
    pub(crate) fn enter_again(&self, key: u64, recorder: &Recorder) -> bool {
        let Some(LanePosition { frames, slots }) = self.place.get() else { return false };
        let top = frames.top() + 1;
        let frame = frames.frame(top);
        let Some(known) = self.cache.span_state(key, recorder).filter(|_| top < TOO_DEEP && frame.is_free()) else {
            return false;
        };
        let Some(slice) = slots.next_slot_id().filter(|_| state::is_shared(known.meta)) else { return false };
        let outermost = self.cache.frame_index(key);
        if outermost < top && frames.frame(outermost).holds_span(key) {
            return false;
        }
        self.cache.set_frame_index(key, top);
        frame.put_span(key, known, slice);
        frames.set_top(top);
        let annotates = state::is_annotation(known.meta);
        self.tell_collectors(|pushed_slices| pushed_slices.push(slice, annotates));
        slots.put_slice(slice, state::slice_head(known.meta), clock::read_counter(), known.span);
        true
    }

    /// Calls `action` if the frame that is 0 or 1 `above` the innermost one holds that span, which is not recorded; `false` if
    /// that needs the slow path.
    #[inline(always)]
    fn if_unrecorded(&self, key: u64, above: usize, action: impl FnOnce(&Frames, usize, &Frame)) -> bool {
        let Some(LanePosition { frames, .. }) = self.place.get() else { return false };
        let at = frames.top() + above;
        let frame = frames.frame(at);
        let is_fast = frame.is_unrecorded(key);
        if is_fast {
            action(frames, at, frame);
        }
        is_fast
    }

    /// Enters a span that is not recorded; `false` if that needs the slow path.
    #[inline(always)]
    pub(crate) fn enter_unrecorded(&self, key: u64) -> bool {
        self.if_unrecorded(key, 1, |frames, at, frame| {
            frame.set_meta(state::after_enter(frame.meta()));
            // Its children belong to the span around it.
            frame.set_span(frames.frame(at - 1).span());
            frames.set_top(at);
        })
    }

    /// Closes the innermost slice, if it is that span's and its record is in this chunk; `false` if that needs the slow path.
    #[inline(always)]
    pub(crate) fn exit_innermost<const PUSH: bool>(&self, key: u64) -> bool {
        // The clock is read first, so that the hook's cost lies outside the slice.
        let end = clock::read_counter();
        let Some(LanePosition { frames, slots }) = self.place.get() else { return false };
        let top = frames.top();
        let frame = frames.frame(top);
        if frame.key() != key || !slots.end_slice(frame.slice(), end) {
            return false;
        }
        frames.set_top(top - 1);
        if frame.meta() & state::STORED != 0 {
            // Other threads may close it without checking this frame; the cache finds it again.
            frame.clear();
        }
        if PUSH {
            self.tell_collectors(|pushed_slices| pushed_slices.pop(frame.slice()));
        }
        true
    }

    /// Exits a span that is not recorded; `false` if that needs the slow path.
    #[inline(always)]
    pub(crate) fn exit_unrecorded(&self, key: u64) -> bool {
        self.if_unrecorded(key, 0, |frames, at, _| frames.set_top(at - 1))
    }

    /// Notes that the thread has just created that span, whose state is stored.
    pub(crate) fn mark_creation(&self, key: u64, state: SpanState) -> Result<(), Missing> {
        if let Some(frame) = self.frame_above()?.filter(|frame| frame.is_free()) {
            frame.mark_creation(key, state);
        }
        Ok(())
    }

    /// Returns whether the thread did nothing with spans since it created that one, whose state is stored.
    pub(crate) fn has_just_created(&self, key: u64) -> Result<bool, Missing> {
        Ok(match self.frame_above()? {
            Some(frame) => frame.is_new_elsewhere(key),
            None => matches!(self.deep_last.get(), DeepHook::Created { key: created, .. } if created == key),
        })
    }

    /// Notes that a span's state is stored now: marks its open slices, and frees the frame in which it waited for its next
    /// enter. Returns whether it is in a frame.
    pub(crate) fn mark_stored(&self, key: u64) -> bool {
        let Some(LanePosition { frames, .. }) = self.place.get() else { return false };
        let mut is_found = false;
        for (at, frame) in frames.used_frames().filter(|(_, frame)| frame.holds_span(key)) {
            is_found = true;
            if at <= frames.top() {
                frame.set_meta(frame.meta() | state::STORED);
            } else {
                frame.clear();
            }
        }
        is_found
    }

    /// Forgets a closed span that no other thread knew; `false` if that needs the slow path.
    #[inline(always)]
    pub(crate) fn close_pending(&self, key: u64) -> bool {
        let Some(LanePosition { frames, .. }) = self.place.get() else { return false };
        let frame = frames.frame(frames.top() + 1);
        const NEEDS_SLOW_PATH: u64 = state::STORED | state::REENTERED | state::IGNORED;
        let is_fast = frame.key() == key && frame.meta() & NEEDS_SLOW_PATH == 0;
        if is_fast {
            frame.clear();
        }
        is_fast
    }

    /// Forgets a closed span that was not recorded; `false` if that needs the slow path.
    #[inline(always)]
    pub(crate) fn close_unrecorded(&self, key: u64) -> bool {
        self.if_unrecorded(key, 1, |_, _, frame| frame.clear())
    }

    /// Forgets a closed span; returns its state if only this thread knew it.
    pub(crate) fn forget_span(&self, key: u64) -> Option<SpanState> {
        let frames = self.place.get()?.frames;
        let known = frames.known_state(key).filter(|state| state.meta & state::STORED == 0);
        frames.forget_span(key);
        known
    }

    /// Returns the id of a span that the thread knows, 0 if it is ignored; records the span first if it has no record. `None`
    /// also if another thread borrowed the span meanwhile.
    pub(crate) fn span_id(&self, key: u64, recorder: &Recorder) -> Result<Option<u64>, Missing> {
        let Some(known) = self.known_state(key, recorder) else {
            return Ok(self.open_slice_of(key).map(|(_, span)| span));
        };
        if known.meta & state::IGNORED != 0 {
            return Ok(Some(0));
        }
        if known.meta & state::UNDEFINED == 0 {
            return Ok(Some(known.span));
        }
        let span = self.define_span(known, recorder)?;
        let frames = self.position()?.frames;
        for (_, frame) in frames.used_frames().filter(|(_, frame)| frame.key() == key) {
            frame.set_span(span);
            frame.set_meta(known.meta & !state::UNDEFINED);
        }
        // SeqCst: either this thread sees the borrower's mark, or the borrower sees the id.
        fence(Ordering::SeqCst);
        Ok(frames.known_state(key).map(|state| state.span))
    }

    /// Records a span that has no record yet; returns its id.
    pub(crate) fn define_span(&self, made: SpanState, recorder: &Recorder) -> Result<u64, Missing> {
        let span = self.put_record(Head::new(Tag::Span, 0, state::site_index(made.meta)), [made.parent, 0, 0], &[])?;
        recorder.losses.add(Loss::EventsOverLimit, u64::from(span == 0));
        Ok(if span == 0 { reserve_ids() } else { span })
    }

    /// Records that a span closed.
    pub(crate) fn close_record(&self, span: u64, recorder: &Recorder) -> Result<(), Missing> {
        let is_after_exit = match self.frame_above()? {
            Some(frame) => frame.is_exited(),
            None => matches!(self.deep_last.get(), DeepHook::Exited),
        };
        let flags = if is_after_exit { flag::AFTER_EXIT } else { 0 };
        let id = self.put_record(Head::new(Tag::Close, flags, 0), [span, clock::now().0, 0], &[])?;
        recorder.losses.add(Loss::EventsOverLimit, u64::from(id == 0));
        Ok(())
    }

    /// Notes that a span, 0 if it is not recorded, closed without a record.
    pub(crate) fn note_unrecorded_close(&self, span: u64) -> Result<(), Missing> {
        match self.frame_above()? {
            // A span that was entered once may be the one exited last; then its close changes nothing.
            Some(frame) if span != 0 && frame.span() == span => {}
            Some(frame) => frame.set_slice(0),
            None if matches!(self.deep_last.get(), DeepHook::Exited) => self.deep_last.set(DeepHook::Other),
            None => {}
        }
        Ok(())
    }

    /// Forgets that the thread created a span that it closes.
    pub(crate) fn forget_creation(&self, key: u64) -> Result<(), Missing> {
        if matches!(self.deep_last.get(), DeepHook::Created { key: created, .. } if created == key) {
            self.deep_last.set(DeepHook::Other);
        }
        self.position()?.frames.forget_creation(key);
        Ok(())
    }

    /// Writes a record other than a slice, with at most `PAYLOAD_MAX` words of payload; returns its id, 0 if it is lost.
    #[inline(always)]
    pub(crate) fn put_record(&self, head: Head, words: [u64; 3], payload: &[u64]) -> Result<u64, Missing> {
        let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
        let head = Head { payload: length, ..head };
        let id = self.reserve_slots(head.slot_count())?;
        if id != 0 {
            self.position()?.slots.put_record(id, head, words, payload.get(..usize::from(length)).unwrap_or_default());
        }
        Ok(id)
    }

    /// Returns the id of the next record of `slots` slots, 0 if it is lost.
    #[inline(always)]
    fn reserve_slots(&self, slots: usize) -> Result<u64, Missing> {
        match self.position()?.slots.id_for(slots) {
            Some(id) => Ok(id),
            None => match self.limited.get().checked_sub(1) {
                Some(left) => {
                    self.limited.set(left);
                    Ok(0)
                }
                None => Err(Missing::Chunk),
            },
        }
    }
}
