//! Finds spans that a thread does not know: in the recorder's table, in another thread's frames, or from the registry alone.

use super::Hook;
use super::missing::Missing;
use super::thread_lanes;
use crate::buffer::{Head, Loss, Tag};
use crate::callsite::Site;
use crate::fields::{Datum, Word, decode_values, encode_fields};
use crate::recorder::{Busy, Origin, Recorder, SpanState, StoredState, lent_key, reserve_ids, state};
use kineto_model::fields::encode_values;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tracing_core::Metadata;
use tracing_core::span::{Attributes, Record};

/// The number of searches through other threads' frames for a span; the owner may move it during a search.
const MAX_SEARCHES: usize = 4;

/// Stores a span's state where every thread finds it, and returns it; a state that is already stored is kept.
fn store_state(hook: &Hook<'_>, key: u64, state: SpanState, origin: Origin, entered: bool) -> SpanState {
    if origin == Origin::Idle {
        hook.recorder.thread_selection.note_seen(key);
    }
    // The table may allocate: an allocator that creates spans would re-enter this function without end.
    let _busy = Busy::begin();
    hook.recorder.keep_span(key, |entry| {
        match &mut entry.stored {
            Some(stored) if stored.epoch == hook.epoch => {
                if entered {
                    stored.enter(false);
                }
                return stored.state;
            }
            // This thread has not yet noticed that its epoch has ended.
            Some(stored) if stored.epoch > hook.epoch => return state,
            _ => {}
        }
        let kept = SpanState { meta: state.meta | state::STORED, ..state };
        let entered = entered || state.meta & state::FIRST == 0;
        entry.stored = Some(StoredState { epoch: hook.epoch, state: kept, origin, entered, cached: false });
        kept
    })
}

/// Returns the stored state of a span in the hook's epoch.
fn stored_state(hook: &Hook<'_>, key: u64) -> Option<StoredState> {
    hook.recorder
        .span_table()
        .with_entry(key, |entry| entry.stored)
        .flatten()
        .filter(|stored| stored.epoch == hook.epoch)
}

/// Records a span that has no record yet, unless it is ignored.
fn define_span(hook: &Hook<'_>, made: SpanState) -> SpanState {
    if made.meta & state::UNDEFINED == 0 {
        return made;
    }
    let span = hook.with_lane(|lane| lane.define_span(made, hook.recorder)).unwrap_or_else(reserve_ids);
    SpanState { span, meta: made.meta & !state::UNDEFINED, ..made }
}

/// Stores the state of the hook's span, which only the calling thread knows; `entered` if the span is being entered.
pub(super) fn evict_span(hook: &Hook<'_>, key: u64, state: SpanState, entered: bool) {
    let left = if entered && state::is_new(state.meta) { state::DIRECT } else { 0 };
    let state = SpanState { meta: state.meta & !left, ..state };
    let stored = store_state(hook, key, define_span(hook, state), Origin::Own, entered);
    if entered {
        hand_to_lane(hook, key, SpanState { meta: with_first(stored.meta, state.meta & state::FIRST != 0), ..stored });
    }
    mark_stored(hook, key);
}

/// Stores the state of a span whose frame the hook's span needs; another thread may be closing it.
fn displace_span(hook: &Hook<'_>, key: u64, state: SpanState) {
    // A thread to which the span was lent may not have stored it yet, and others search for it.
    let keys = [(key, Origin::Own), (lent_key(key), Origin::Lent)];
    for (own, origin) in keys {
        let is_live = hook.spans.while_live(own, &mut || {
            store_state(hook, own, define_span(hook, state), origin, false);
            if !mark_stored(hook, key) {
                // The span closed before its state was stored: its frame is emptied before its entry is removed.
                drop(hook.recorder.span_table().remove(own));
            }
            if state::is_new(state.meta) {
                hook.if_enrolled(|lane| lane.mark_creation(own, state));
            }
        });
        if is_live {
            return;
        }
    }
    mark_stored(hook, key);
}

/// Marks the span as stored in the thread's frames; returns whether it is in one.
fn mark_stored(hook: &Hook<'_>, key: u64) -> bool {
    hook.if_enrolled(|lane| lane.mark_stored(key)).unwrap_or(false)
}

/// Finds the span that the calling thread is about to enter, and hands it to its lane.
pub(super) fn find_span(hook: &Hook<'_>, key: u64) {
    let Some(metadata) = hook.spans.metadata_of(key) else {
        // A filter shows and hides the span between two hooks of this layer.
        return hand_to_lane(hook, key, SpanState { span: 0, meta: state::new_ignored(0), parent: 0 });
    };
    let closings = hook.recorder.close_counter(key).load(Ordering::Acquire);
    let is_direct = thread_lanes::with_lane(hook.epoch, |lane| lane.has_just_created(key)).unwrap_or(false);
    if let Some((found, first)) = enter_stored(hook, key, is_direct) {
        if first {
            return hand_to_lane(hook, key, found);
        }
        hook.if_enrolled(|lane| lane.cache.keep_span(key, found, closings));
        return;
    }
    let (found, origin) = state_of(hook, key, metadata);
    let stored = store_state(hook, key, found, origin, false);
    let entered = enter_stored(hook, key, is_direct).map(|(found, _)| found);
    hand_to_lane(hook, key, entered.unwrap_or(SpanState { meta: with_first(stored.meta, false), ..stored }));
}

fn hand_to_lane(hook: &Hook<'_>, key: u64, found: SpanState) {
    hook.if_enrolled(|lane| lane.cache.hand_span(key, found));
}

/// Returns the stored state for an enter, and whether the enter is the span's first. If it is not, the thread may cache the
/// state. `is_direct` tells whether a first enter directly follows the span's creation.
fn enter_stored(hook: &Hook<'_>, key: u64, is_direct: bool) -> Option<(SpanState, bool)> {
    let enter = |stored: &mut StoredState| {
        let first = stored.enter(is_direct);
        stored.cached |= !first;
        (SpanState { meta: with_first(stored.state.meta, first), ..stored.state }, first)
    };
    let of_epoch = |stored: &&mut StoredState| stored.epoch == hook.epoch;
    hook.recorder.span_table().with_entry(key, |entry| entry.stored.as_mut().filter(of_epoch).map(enter)).flatten()
}

fn with_first(meta: u64, first: bool) -> u64 {
    if first { meta | state::FIRST } else { meta & !state::FIRST }
}

/// Returns a span's state from another thread's frames or the span table; otherwise derives it from the registry.
fn state_of(hook: &Hook<'_>, key: u64, metadata: &'static Metadata<'static>) -> (SpanState, Origin) {
    for _ in 0..MAX_SEARCHES {
        if let Some(state) = hook.recorder.lanes().lend_span(key) {
            return (define_span(hook, state), Origin::Lent);
        }
        // Its owner may have stored it during the search.
        if let Some(stored) = stored_state(hook, key) {
            return (stored.state, stored.origin);
        }
    }
    (made_while_idle(hook, key, hook.site_for(metadata)), Origin::Idle)
}

/// Returns the state of a span created while nothing was recorded: its callsite is known, its fields only if they were kept.
fn made_while_idle(hook: &Hook<'_>, key: u64, site: &'static Site) -> SpanState {
    let kept = hook.recorder.span_table().with_entry(key, |entry| entry.idle_fields.clone()).flatten();
    let site = site.of_encoded(kept.as_deref().unwrap_or_default());
    if !site.is_recorded() {
        return SpanState { span: 0, meta: state::new_ignored(site.index), parent: 0 };
    }
    let parent = hook.spans.parent_of(key).and_then(|parent| lookup_span_id(hook, parent)).unwrap_or(0);
    if kept.is_none() && site.fields != 0 {
        hook.recorder.losses.add(Loss::FieldsNotSeen, 1);
    }
    let payload = kept.as_deref().unwrap_or_default();
    let defined = hook.put_fields(Head::new(Tag::Span, 0, site.index), [parent, 0, 0], payload);
    let span = if defined == 0 { reserve_ids() } else { defined };
    SpanState { span, meta: site.state & !state::UNDEFINED, parent }
}

/// Returns whether the span is known to have been created while nothing was recorded.
pub(super) fn is_older(hook: &Hook<'_>, key: u64) -> bool {
    stored_state(hook, key).is_some_and(|stored| stored.origin == Origin::Idle)
}

/// Returns the id of a span that is not being entered (a parent, or a span that is followed); 0 if it is not recorded.
pub(super) fn lookup_span_id(hook: &Hook<'_>, key: u64) -> Option<u64> {
    let own = hook.with_lane(|lane| lane.span_id(key, hook.recorder)).flatten();
    if own.is_some() {
        return own;
    }
    let mut found = None;
    hook.spans.while_live(key, &mut || found = search_shared_id(hook, key));
    found
}

/// Returns the id of a live span that other threads know.
fn search_shared_id(hook: &Hook<'_>, key: u64) -> Option<u64> {
    for _ in 0..MAX_SEARCHES {
        if let Some(stored) = stored_state(hook, key) {
            return Some(stored.state.recorded_id());
        }
        if let Some(state) = hook.recorder.lanes().lend_span(key) {
            let found = store_state(hook, key, define_span(hook, state), Origin::Lent, false).recorded_id();
            if !hook.spans.is_live(key) {
                // An event may name a span by its id alone while another thread closes it.
                hook.recorder.span_table().forget_span(key);
            }
            return Some(found);
        }
    }
    None
}

/// Returns the id of a span, or of the nearest one around it that is recorded; 0 if there is none.
pub(super) fn nearest_span_id(hook: &Hook<'_>, key: u64) -> u64 {
    let mut around = std::iter::successors(Some(key), |inner| hook.spans.parent_of(*inner));
    around.find_map(|key| lookup_span_id(hook, key).filter(|span| *span != 0)).unwrap_or(0)
}

/// Returns the parent that a new span's attributes name, 0 for none; `None` if it is the current span.
pub(super) fn parent_from_attributes(hook: &Hook<'_>, attrs: &Attributes<'_>) -> Option<u64> {
    let named = attrs.parent().map(|id| nearest_span_id(hook, id.into_u64()));
    named.or_else(|| attrs.is_root().then_some(0))
}

/// Returns whether no frame holds a closing span. Frames that held it open when it was stored were emptied when it was
/// exited; the frame from which a lent span was taken may still hold it.
pub(super) fn is_in_no_frame(hook: &Hook<'_>, key: u64) -> bool {
    stored_state(hook, key).is_some_and(|stored| stored.origin != Origin::Lent)
}

/// Closes a span that other threads may know: makes them forget it, and returns its id if its end needs a record.
///
/// `own` is the state that only the closing thread knew.
pub(super) fn close_span(hook: &Hook<'_>, key: u64, own: Option<SpanState>) -> Option<u64> {
    let known = own.or_else(|| {
        // The thread that created it may still have it in a frame.
        let is_elsewhere = stored_state(hook, key).is_none_or(|stored| stored.origin == Origin::Lent);
        is_elsewhere.then(|| hook.recorder.lanes().take_out(key)).flatten()
    });
    // After the frame is emptied: a thread that stores the state checks its frame once more (`displace_span`).
    let entry = hook.recorder.span_table().remove(key);
    if let Some(cause) = entry.as_ref().and_then(|entry| entry.watched?.cause_at_close()) {
        hook.recorder.post_trigger(cause);
    }
    let Some(stored) = entry.and_then(|entry| entry.stored).filter(|stored| stored.epoch == hook.epoch) else {
        let again = |known: &SpanState| known.meta & (state::REENTERED | state::IGNORED) == state::REENTERED;
        return known.filter(again).map(|known| known.span);
    };
    if stored.cached {
        // Release: before the registry reuses the key.
        hook.recorder.close_counter(key).fetch_add(1, Ordering::Release);
    }
    let recorded = stored.state.meta & state::IGNORED == 0;
    (recorded && stored.entered).then_some(stored.state.span)
}

/// Keeps the fields of a span created while nothing is recorded.
pub(super) fn keep_fields(recorder: &Arc<Recorder>, attrs: &Attributes<'_>, key: u64) {
    let site = recorder.sites.site_for(attrs.metadata());
    let words = encode_fields(recorder, site, |encoder| attrs.record(encoder));
    if !words.as_slice().is_empty() {
        let fields = Some(words.as_slice().into());
        let before = recorder.keep_span(key, |entry| std::mem::replace(&mut entry.idle_fields, fields));
        drop(before);
    }
}

/// Replaces fields that were kept, by values recorded later.
pub(super) fn keep_values(recorder: &Arc<Recorder>, site: &Site, values: &Record<'_>, key: u64) {
    let words = encode_fields(recorder, site, |encoder| values.record(encoder));
    let kept = recorder.span_table().with_entry(key, |entry| entry.idle_fields.clone()).flatten();
    let all = [kept.as_deref().unwrap_or_default(), words.as_slice()].concat();
    let all: Vec<Word> = all.into_iter().map(u64::to_le_bytes).collect();
    let mut last: Vec<(u8, Datum<'_>)> = Vec::new();
    for value in decode_values(&all) {
        let field = u8::try_from(value.field).unwrap_or(u8::MAX);
        match last.iter_mut().find(|(known, _)| *known == field) {
            Some((_, datum)) => *datum = value.datum,
            None => last.push((field, value.datum)),
        }
    }
    let fields = encode_values(&last).into_iter().map(u64::from_le_bytes).collect();
    let before = recorder.keep_span(key, |entry| entry.idle_fields.replace(fields));
    drop(before);
}

/// Performs the step that a hook reported as missing; returns `false` if the hook must give up.
pub(super) fn supply_missing(missing: Missing, hook: &Hook<'_>, key: u64) -> bool {
    match missing {
        Missing::Lane => return hook.enroll_thread(),
        Missing::Chunk => hook.next_chunk(),
        Missing::Find => find_span(hook, key),
        Missing::Store(stored, state) if stored == key => evict_span(hook, key, state, true),
        Missing::Store(displaced, state) => displace_span(hook, displaced, state),
        // No frame holds it.
        Missing::StoreNew(state) => {
            store_state(hook, key, define_span(hook, state), Origin::Own, false);
            hook.if_enrolled(|lane| lane.mark_creation(key, state));
        }
        Missing::ExitElsewhere | Missing::CloseElsewhere => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use crate::layer::KinetoLayer;
    use crate::recorder::Recorder;
    use std::sync::Arc;
    use tracing::{Span, info_span};
    use tracing_subscriber::layer::SubscriberExt;

    /// Calls `work` with a layer that records nothing yet.
    fn with_layer(work: impl FnOnce(&Recorder)) {
        let recorder = Arc::new(Recorder::for_tests());
        let layer = KinetoLayer::new(recorder.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || work(&recorder));
    }

    fn spans() -> Vec<Span> {
        (0..10).map(|n| info_span!("span", n)).collect()
    }

    fn elsewhere(work: impl FnOnce() + Send) {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let work = || tracing::dispatcher::with_default(&dispatch, work);
        let thread = std::thread::Builder::new();
        std::thread::scope(|scope| thread.spawn_scoped(scope, work).unwrap().join().unwrap());
    }

    #[test]
    fn span_table_is_empty_when_displaced_spans_closed() {
        with_layer(|recorder| {
            recorder.open_epoch(None);
            let spans = spans();
            assert_eq!(recorder.span_table().len(), spans.len() - 1, "the last one is in its frame");
            spans.iter().for_each(|span| span.in_scope(|| ()));
            drop(spans);
            assert_eq!(recorder.span_table().len(), 0);
        });
    }

    #[test]
    fn span_table_is_empty_when_another_thread_closed_spans() {
        with_layer(|recorder| {
            recorder.open_epoch(None);
            let spans = spans();
            elsewhere(|| {
                spans.iter().for_each(|span| span.in_scope(|| ()));
                assert_eq!(recorder.span_table().len(), spans.len());
                drop(spans);
            });
            assert_eq!(recorder.span_table().len(), 0);
        });
    }

    #[test]
    fn span_table_is_empty_when_spans_outlived_recording() {
        with_layer(|recorder| {
            recorder.open_epoch(None);
            let spans = spans();
            recorder.close_epoch();
            drop(spans);
            assert_eq!(recorder.span_table().len(), 0);
        });
    }

    #[test]
    fn span_table_is_empty_when_idle_spans_closed() {
        with_layer(|recorder| {
            let (idle, recorded) = (spans(), spans());
            assert_eq!(recorder.span_table().len(), idle.len() + recorded.len());
            drop(idle);
            recorder.open_epoch(None);
            recorded.iter().take(5).for_each(|span| span.in_scope(|| ()));
            drop(recorded);
            assert_eq!(recorder.span_table().len(), 0);
        });
    }

    #[test]
    fn span_table_is_empty_when_deep_spans_closed() {
        with_layer(|recorder| {
            recorder.open_epoch(None);
            let spans: Vec<_> = (0..300).map(|n| info_span!("deep", n).entered()).collect();
            assert_ne!(recorder.span_table().len(), 0);
            spans.into_iter().rev().for_each(drop);
            assert_eq!(recorder.span_table().len(), 0);
        });
    }
}
