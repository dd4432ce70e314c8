//! The slow paths of the hooks: they handle every case, or return what they lack as a [`Missing`].

use super::{DeepFrame, DeepHook, Lane, LanePosition};
use crate::buffer::{Head, Loss, Tag};
use crate::callsite::Site;
use crate::clock;
use crate::layer::missing::Missing;
use crate::recorder::{Frame, Frames, Recorder, SpanState, TOO_DEEP, reserve_ids, state};
use crate::time::Ticks;

impl Lane {
    /// Creates a span: records it if it has fields, and puts it into the frame above the innermost.
    ///
    /// Its parent is a span, 0 for none; `None` is the innermost span that the thread is inside.
    pub(crate) fn new_span_slowly(
        &self,
        key: u64,
        site: &Site,
        parent: Option<u64>,
        fields: Option<(&[u64], u8)>,
        recorder: &Recorder,
    ) -> Result<(), Missing> {
        let parent = parent.map_or_else(|| self.current_span_id(), Ok)?;
        let frame = self.frame_above()?;
        if let Some((occupant, state)) = frame.and_then(Frame::occupant).filter(|(occupant, _)| *occupant != key) {
            return Err(Missing::Store(occupant, state));
        }
        let mut made = SpanState { span: 0, meta: site.new_state(), parent };
        if self.follows_creation(frame, parent) {
            made.meta &= !state::DIRECT;
        }
        let is_deep = frame.is_none();
        // A watched span has an entry in the span table, so that every close finds it.
        let frame = frame.filter(|_| site.slow_after.is_none());
        if !site.is_recorded() {
            made.meta = site.excluded_state();
        } else if let Some((payload, head_flags)) = fields {
            made.span = self.put_record(Head::new(Tag::Span, head_flags, site.index), [parent, 0, 0], payload)?;
            match made.span {
                0 => recorder.losses.add(Loss::FieldsOverLimit, 1),
                _ => made.meta &= !state::UNDEFINED,
            }
        }
        if is_deep {
            self.deep_last.set(DeepHook::Created { key, parent });
        }
        match frame {
            Some(frame) => frame.put_span(key, made, 0),
            None if !state::is_known_elsewhere(made.meta) => return Err(Missing::StoreNew(made)),
            None => {}
        }
        Ok(())
    }

    /// Returns whether the thread's previous hook created another span with that parent.
    ///
    /// `frame` is the one above the innermost open slice. It may still hold a span of an earlier slice, with another parent.
    fn follows_creation(&self, frame: Option<&Frame>, parent: u64) -> bool {
        match frame {
            Some(frame) => frame.is_new() && frame.parent() == parent,
            None => matches!(self.deep_last.get(), DeepHook::Created { parent: other, .. } if other == parent),
        }
    }

    /// Returns the frame above the innermost open slice; `None` if the stack is too deep.
    pub(super) fn frame_above(&self) -> Result<Option<&'static Frame>, Missing> {
        let frames = self.position()?.frames;
        Ok(Some(frames.top() + 1).filter(|at| *at < TOO_DEEP).map(|at| frames.frame(at)))
    }

    /// Opens a slice; `stack` holds its return addresses if stacks are recorded.
    pub(crate) fn enter_slowly(&self, key: u64, stack: &[u64], recorder: &Recorder) -> Result<(), Missing> {
        let around = self.current_span_id()?;
        let known = self.known_state(key, recorder).ok_or(Missing::Find)?;
        let LanePosition { frames, slots } = self.position()?;
        let frame = self.frame_above()?;
        let is_in_frame = frame.is_some_and(|frame| frame.key() == key);
        if !is_in_frame && known.meta & (state::STORED | state::IGNORED) == 0 {
            // It is in another frame, or would get one that other threads cannot see.
            return Err(Missing::Store(key, known));
        }
        if let Some((occupant, state)) = frame.filter(|_| !is_in_frame).and_then(Frame::occupant) {
            return Err(Missing::Store(occupant, state));
        }
        let mut entered = SpanState { meta: state::after_enter(known.meta), ..known };
        let (mut slice, mut word) = (0, known.span);
        if known.meta & state::IGNORED != 0 {
            // Its children belong to the span around it.
            entered.span = around;
        } else {
            slice = self.reserve_slice(stack, recorder)?;
            if known.meta & state::UNDEFINED != 0 {
                (entered.span, word) = (if slice == 0 { reserve_ids() } else { slice }, known.parent);
            }
            recorder.losses.add(Loss::SlicesOverLimit, u64::from(slice == 0));
        }
        // Of a span that is entered inside itself, the registry's stack counts only the first enter as current.
        let outermost = frames.index_of_open(key).or_else(|| self.is_open_in_deep(key).then_some(TOO_DEEP));
        let is_duplicate = outermost.is_some() && known.meta & state::IGNORED == 0;
        self.cache.set_frame_index_if_cached(key, outermost.unwrap_or(frames.top() + 1));
        match frame {
            // The key stays, so that it cannot be lent unnoticed.
            Some(frame) if is_in_frame => {
                frame.set_span(entered.span);
                frame.set_slice(slice);
                frame.set_meta(entered.meta);
            }
            Some(frame) if is_duplicate => frame.put_duplicate(key, entered, around, slice),
            Some(frame) => frame.put_span(key, entered, slice),
            None => {
                self.deep_last.set(DeepHook::Other);
                if let Ok(mut deep) = self.deep.try_borrow_mut() {
                    let current = if is_duplicate { around } else { entered.span };
                    deep.push(DeepFrame { key, state: entered, current, slice });
                }
            }
        }
        frames.set_top((frames.top() + 1).min(TOO_DEEP));
        if slice != 0 {
            let annotates = state::is_annotation(known.meta);
            self.tell_collectors(|pushed_slices| pushed_slices.push(slice, annotates));
            slots.put_slice(slice, state::slice_head(known.meta), clock::now(), word);
        }
        Ok(())
    }

    fn is_open_in_deep(&self, key: u64) -> bool {
        self.deep.try_borrow().is_ok_and(|deep| deep.iter().any(|open| open.key == key))
    }

    /// Closes a slice, also one that is not the innermost, is too deep for a visible frame, or belongs to another thread.
    pub(crate) fn exit_slowly(&self, key: u64, end: Ticks, recorder: &Recorder) -> Result<(), Missing> {
        self.drop_exited_frames()?;
        let frames = self.position()?.frames;
        let in_deep = self.deep.try_borrow().ok().and_then(|deep| {
            let at = deep.iter().rposition(|open| open.key == key)?;
            Some((at, deep.get(at)?.slice, at + 1 == deep.len()))
        });
        if let Some((at, slice, is_innermost)) = in_deep {
            self.end_slice(slice, end, is_innermost, recorder)?;
            if let Ok(mut deep) = self.deep.try_borrow_mut() {
                deep.remove(at);
                frames.set_top(if deep.is_empty() { TOO_DEEP - 1 } else { TOO_DEEP });
                self.deep_last.set(DeepHook::Exited);
            }
        } else {
            let open = frames.open_frames().find(|(_, frame)| frame.holds_span(key));
            let (at, frame) = open.ok_or(Missing::ExitElsewhere)?;
            if frames.top() == TOO_DEEP && !frame.is_free() {
                // A deep frame moves down into the last visible one, so this state has no place left.
                return Err(Missing::Store(key, frame.state()));
            }
            self.end_slice(frame.slice(), end, at == frames.top(), recorder)?;
            self.remove_frame(frames, at, key);
        }
        self.sync_pushed_slices(frames);
        Ok(())
    }

    /// Ends a slice: in place while the thread still writes its chunk, else by a record of its own.
    pub(in crate::layer) fn end_slice(
        &self,
        slice: u64,
        end: Ticks,
        is_innermost: bool,
        recorder: &Recorder,
    ) -> Result<(), Missing> {
        if slice != 0 && !self.position()?.slots.end_slice(slice, end) {
            let id = self.put_record(Head::new(Tag::End, 0, 0), [slice, end.0, 0], &[])?;
            recorder.losses.add(Loss::EndsOverLimit, u64::from(id == 0));
        }
        if !is_innermost {
            recorder.note_overlap();
        }
        Ok(())
    }

    /// Removes the open frame `at` from the stack and moves those above down.
    ///
    /// If its state is stored nowhere else, the span becomes the pending one, in the frame above the open slices.
    fn remove_frame(&self, frames: &Frames, at: usize, key: u64) {
        let last = frames.top().min(TOO_DEEP - 1);
        let (exited, slice) = (frames.frame(at).state(), frames.frame(at).slice());
        let stays = frames.frame(at).take_key() == key && key != 0 && exited.meta & state::STORED == 0;
        (at..last).for_each(|at| frames.frame(at + 1).move_to(frames.frame(at), frames.frame(at - 1)));
        let mut deep = self.deep.try_borrow_mut().ok();
        if let Some(deep) = deep.as_mut().filter(|deep| !deep.is_empty()) {
            let DeepFrame { key, state, current, slice } = deep.remove(0);
            match current == state.span {
                true => frames.frame(last).put_span(key, state, slice),
                false => frames.frame(last).put_duplicate(key, state, current, slice),
            }
            frames.set_top(if deep.is_empty() { TOO_DEEP - 1 } else { TOO_DEEP });
            return;
        }
        if stays {
            frames.frame(last).put_span(key, exited, slice);
        }
        frames.set_top(last - 1);
    }

    /// Drops the frames that other threads have exited.
    pub(super) fn drop_exited_frames(&self) -> Result<(), Missing> {
        let frames = self.position()?.frames;
        let exits = frames.foreign_exits();
        if self.seen_exits.replace(exits) != exits {
            while let Some((at, _)) = frames.open_frames().find(|(_, frame)| frame.key() == 0) {
                self.remove_frame(frames, at, 0);
            }
            self.sync_pushed_slices(frames);
        }
        Ok(())
    }

    /// Updates the collectors' view of the open slices after one was removed from the middle.
    fn sync_pushed_slices(&self, frames: &Frames) {
        let deep = self.deep.try_borrow().ok();
        self.tell_collectors(|pushed_slices| {
            pushed_slices.sync_with(&|each| {
                for (_, frame) in frames.open_frames().rev() {
                    each(frame.slice(), state::is_annotation(frame.meta()));
                }
                for open in deep.as_deref().map_or(&[][..], Vec::as_slice) {
                    each(open.slice, state::is_annotation(open.state.meta));
                }
            });
        });
    }

    /// Forgets a closed span; `Missing::CloseElsewhere` if other threads may know it.
    pub(crate) fn close_slowly(&self, key: u64, recorder: &Recorder) -> Result<(), Missing> {
        let frames = self.position()?.frames;
        let is_own = |state: &SpanState| state.meta & state::STORED == 0;
        let own = frames.known_state(key).filter(is_own).ok_or(Missing::CloseElsewhere)?;
        if own.meta & (state::REENTERED | state::IGNORED) == state::REENTERED {
            self.close_record(own.span, recorder)?;
        } else {
            self.note_unrecorded_close(own.recorded_id())?;
        }
        frames.forget_span(key);
        Ok(())
    }
}
