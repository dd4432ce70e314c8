//! Finds spans that a thread does not know: stored in their extensions, known to another thread, or to nobody.

use super::Hook;
use super::home;
use super::lane::Parent;
use super::need::Need;
use crate::buffer::{Head, Loss, Tag};
use crate::fields::{Encoder, Words};
use crate::recorder::{Recorder, SpanState, ids, state};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing_core::Subscriber;
use tracing_core::span::{Attributes, Id};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

/// What the span's extensions hold: its state for each layer and epoch that met it the slow way.
#[derive(Default)]
struct Stored(Vec<Entry>);

struct Entry {
    epoch: u64,
    /// The address of its recorder.
    recorder: usize,
    state: SpanState,
    entered: AtomicBool,
    origin: Origin,
    /// Threads may have it in their caches, and have to hear that it closes.
    cached: AtomicBool,
}

/// Where a stored state comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The thread that stored it was the only one to have it.
    Own,
    /// It also stands in a frame of another thread.
    Lent,
    /// The span was made while nothing was recorded.
    Idle,
}

/// The fields of a span made while nothing was recorded, for each layer that keeps them.
struct IdleFields(Vec<(usize, Box<[u64]>)>);

/// How often to look through the threads for a span that its owner keeps moving.
const LOOKS: usize = 4;

impl Stored {
    fn get(&self, epoch: u64) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.epoch == epoch)
    }
}

/// Stores the state of a span where every thread finds it; one that is there already stays.
fn store<S>(span: &SpanRef<'_, S>, hook: &Hook<'_>, state: SpanState, origin: Origin, entered: bool) -> SpanState
where
    S: for<'a> LookupSpan<'a>,
{
    if origin == Origin::Idle {
        hook.recorder.reach.meet(span.id().into_u64());
    }
    // If the allocator has spans of its own, storing one of them may wait for this span's extensions.
    let _busy = home::Busy::begin();
    let mut extensions = span.extensions_mut();
    if extensions.get_mut::<Stored>().is_none() {
        extensions.insert(Stored::default());
    }
    let Some(stored) = extensions.get_mut::<Stored>() else { return state };
    if let Some(entry) = stored.get(hook.epoch) {
        entry.entered.fetch_or(entered, Ordering::Relaxed);
        return entry.state;
    }
    // Epochs of this layer are over when a new one is met. Those of other layers may not be; how many of them a span can
    // meet is bounded all the same.
    const LAYERS_MAX: usize = 64;
    let recorder = Arc::as_ptr(hook.recorder).addr();
    stored.0.retain(|entry| entry.recorder != recorder);
    if stored.0.len() >= LAYERS_MAX {
        stored.0.remove(0);
    }
    let entered = AtomicBool::new(entered || state.meta & state::FIRST == 0);
    let kept = SpanState { meta: state.meta | state::STORED, ..state };
    stored.0.push(Entry { epoch: hook.epoch, recorder, state: kept, entered, origin, cached: AtomicBool::new(false) });
    kept
}

/// Records a span that is not recorded yet, unless it will never be.
fn define(hook: &Hook<'_>, made: SpanState) -> SpanState {
    if made.meta & state::UNDEFINED == 0 {
        return made;
    }
    let span = hook.with(|lane| lane.define(made, hook.recorder)).unwrap_or_else(ids);
    SpanState { span, meta: made.meta & !state::UNDEFINED, ..made }
}

/// Stores a state that only the calling thread has; `entered` if it is being entered.
pub(super) fn evict<S>(ctx: &Context<'_, S>, hook: &Hook<'_>, key: u64, state: SpanState, entered: bool)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    if let Some(span) = ctx.span(&Id::from_u64(key)) {
        let stored = store(&span, hook, define(hook, state), Origin::Own, entered);
        if entered {
            hand(hook, key, SpanState { meta: with_first(stored.meta, state.meta & state::FIRST != 0), ..stored });
        }
    }
    let _ = home::with(hook.epoch, |lane| {
        lane.mark_stored(key);
        Ok(())
    });
}

/// Finds the span that the calling thread is about to enter, and hands it to its lane.
pub(super) fn find<S>(ctx: &Context<'_, S>, hook: &Hook<'_>, key: u64)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let Some(span) = ctx.span(&Id::from_u64(key)) else {
        // Hidden from this layer by a filter that changed its mind between two hooks.
        return hand(hook, key, SpanState { span: 0, meta: state::ignored(0), parent: 0 });
    };
    let closings = hook.recorder.closings(key).load(Ordering::Acquire);
    if let Some((found, first)) = stored(&span, hook) {
        if first {
            return hand(hook, key, found);
        }
        let _ = home::with(hook.epoch, |lane| {
            lane.cache.keep_span(key, found, closings);
            Ok(())
        });
        return;
    }
    let (found, origin) = state_of(ctx, hook, &span);
    let stored = store(&span, hook, found, origin, false);
    let first = mark_entered(&span, hook);
    hand(hook, key, SpanState { meta: with_first(stored.meta, first), ..stored });
}

fn hand(hook: &Hook<'_>, key: u64, found: SpanState) {
    let _ = home::with(hook.epoch, |lane| {
        lane.cache.hand(key, found);
        Ok(())
    });
}

/// Reads the stored state for an enter; also whether it is the span's first one. If not, it may be cached.
fn stored<S: for<'a> LookupSpan<'a>>(span: &SpanRef<'_, S>, hook: &Hook<'_>) -> Option<(SpanState, bool)> {
    let extensions = span.extensions();
    let entry = extensions.get::<Stored>()?.get(hook.epoch)?;
    let first = !entry.entered.swap(true, Ordering::Relaxed);
    if !first {
        // Relaxed: the one who closes the span does so after this thread has let go of it.
        entry.cached.store(true, Ordering::Relaxed);
    }
    Some((SpanState { meta: with_first(entry.state.meta, first), ..entry.state }, first))
}

fn with_first(meta: u64, first: bool) -> u64 {
    if first { meta | state::FIRST } else { meta & !state::FIRST }
}

fn mark_entered<S: for<'a> LookupSpan<'a>>(span: &SpanRef<'_, S>, hook: &Hook<'_>) -> bool {
    let extensions = span.extensions();
    let entry = extensions.get::<Stored>().and_then(|stored| stored.get(hook.epoch));
    entry.is_some_and(|entry| !entry.entered.swap(true, Ordering::Relaxed))
}

/// What any thread knows of a span; else what can be known of it now.
fn state_of<S>(ctx: &Context<'_, S>, hook: &Hook<'_>, span: &SpanRef<'_, S>) -> (SpanState, Origin)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let key = span.id().into_u64();
    for _ in 0..LOOKS {
        if let Some(state) = hook.recorder.lanes().lend(key) {
            return (define(hook, state), Origin::Lent);
        }
        // Its owner may have stored it while we looked.
        if let Some(entry) = span.extensions().get::<Stored>().and_then(|stored| stored.get(hook.epoch)) {
            return (entry.state, entry.origin);
        }
    }
    (made_while_idle(ctx, hook, span), Origin::Idle)
}

/// A span made while nothing was recorded: its callsite is known, its fields only if they were kept.
fn made_while_idle<S>(ctx: &Context<'_, S>, hook: &Hook<'_>, span: &SpanRef<'_, S>) -> SpanState
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let kept = span.extensions().get::<IdleFields>().and_then(|kept| kept.of(hook.recorder).map(<[u64]>::to_vec));
    let site = hook.site(span.metadata()).of_encoded(kept.as_deref().unwrap_or_default());
    if !site.is_recorded() {
        return SpanState { span: 0, meta: state::ignored(site.index), parent: 0 };
    }
    let parent = span.parent().and_then(|parent| lookup(ctx, hook, parent.id().into_u64())).unwrap_or(0);
    if kept.is_none() && site.fields != 0 {
        hook.recorder.losses.add(Loss::FieldsNotSeen, 1);
    }
    let payload = kept.unwrap_or_default();
    let defined = hook.put_fields(Head::new(Tag::Span, 0, site.index), [parent, 0, 0], &payload);
    let span = if defined == 0 { ids() } else { defined };
    SpanState { span, meta: site.state & !state::UNDEFINED, parent }
}

/// Whether the span is known to have been made while nothing was recorded.
pub(super) fn is_older<S>(ctx: &Context<'_, S>, hook: &Hook<'_>, key: u64) -> bool
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let is_older = |span: SpanRef<'_, S>| {
        let extensions = span.extensions();
        let entry = extensions.get::<Stored>().and_then(|stored| stored.get(hook.epoch));
        entry.is_some_and(|entry| entry.origin == Origin::Idle)
    };
    ctx.span(&Id::from_u64(key)).is_some_and(is_older)
}

/// Returns the id of a span that is not being entered: a parent, or one that is followed; 0 if it is not recorded.
pub(super) fn lookup<S>(ctx: &Context<'_, S>, hook: &Hook<'_>, key: u64) -> Option<u64>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let own = hook.with(|lane| lane.span(key, hook.recorder)).flatten();
    if own.is_some() {
        return own;
    }
    let span = ctx.span(&Id::from_u64(key))?;
    for _ in 0..LOOKS {
        if let Some(entry) = span.extensions().get::<Stored>().and_then(|stored| stored.get(hook.epoch)) {
            return Some(entry.state.recorded());
        }
        if let Some(state) = hook.recorder.lanes().lend(key) {
            return Some(store(&span, hook, define(hook, state), Origin::Lent, false).recorded());
        }
    }
    None
}

/// Returns the id of a span, or of the nearest one around it that is not left out; 0 if there is none.
pub(super) fn nearest<S>(ctx: &Context<'_, S>, hook: &Hook<'_>, id: &Id) -> u64
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let recorded = |key| lookup(ctx, hook, key).filter(|span| *span != 0);
    let around = || ctx.span(id)?.scope().skip(1).find_map(|span| recorded(span.id().into_u64()));
    recorded(id.into_u64()).or_else(around).unwrap_or(0)
}

/// The parent that the attributes of a new span name.
pub(super) fn parent<S>(ctx: &Context<'_, S>, hook: &Hook<'_>, attrs: &Attributes<'_>) -> Parent
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    match attrs.parent() {
        Some(id) => Parent::Span(nearest(ctx, hook, id)),
        None if attrs.is_root() => Parent::Span(0),
        None => Parent::Current,
    }
}

/// A span closes that others may know: has them forget it, and returns its id if its end is worth a record.
///
/// `own` is what the closing thread alone knew of it.
pub(super) fn close<S>(span: &SpanRef<'_, S>, hook: &Hook<'_>, own: Option<SpanState>) -> Option<u64>
where
    S: for<'a> LookupSpan<'a>,
{
    let key = span.id().into_u64();
    let extensions = span.extensions();
    let entry = extensions.get::<Stored>().and_then(|stored| stored.get(hook.epoch));
    let known = own.or_else(|| {
        // It may stand in a frame of the thread that made it.
        let is_elsewhere = entry.is_none_or(|entry| entry.origin == Origin::Lent);
        is_elsewhere.then(|| hook.recorder.lanes().take_out(key)).flatten()
    });
    let Some(entry) = entry else {
        let again = |known: &SpanState| known.meta & (state::AGAIN | state::IGNORED) == state::AGAIN;
        return known.filter(again).map(|known| known.span);
    };
    if entry.cached.load(Ordering::Relaxed) {
        // Release: before the registry hands out the key again.
        hook.recorder.closings(key).fetch_add(1, Ordering::Release);
    }
    let recorded = entry.state.meta & state::IGNORED == 0;
    (recorded && entry.entered.load(Ordering::Relaxed)).then_some(entry.state.span)
}

impl IdleFields {
    fn of(&self, recorder: &Arc<Recorder>) -> Option<&[u64]> {
        let owner = Arc::as_ptr(recorder).addr();
        self.0.iter().find(|(of, _)| *of == owner).map(|(_, payload)| &**payload)
    }
}

/// Keeps the fields of a span made while nothing is recorded.
pub(super) fn keep_fields<S>(ctx: &Context<'_, S>, recorder: &Arc<Recorder>, attrs: &Attributes<'_>, key: u64)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let site = recorder.sites.site(attrs.metadata());
    let mut words = Words::new();
    let mut encoder = Encoder::new(site, &mut words, recorder.settings.field_bytes_max);
    attrs.record(&mut encoder);
    encoder.finish(recorder);
    let Some(span) = ctx.span(&Id::from_u64(key)).filter(|_| !words.as_slice().is_empty()) else { return };
    let mut extensions = span.extensions_mut();
    if extensions.get_mut::<IdleFields>().is_none() {
        extensions.insert(IdleFields(Vec::new()));
    }
    if let Some(kept) = extensions.get_mut::<IdleFields>() {
        kept.0.push((Arc::as_ptr(recorder).addr(), words.as_slice().into()));
    }
}

/// Does what a hook needs before it is tried again; `false` gives it up.
pub(super) fn settle<S>(need: Need, ctx: &Context<'_, S>, hook: &Hook<'_>, key: u64) -> bool
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    match need {
        Need::Lane => return hook.enroll(),
        Need::Chunk => hook.next_chunk(),
        Need::Find => find(ctx, hook, key),
        Need::Store(stored, state) => evict(ctx, hook, stored, state, stored == key),
        Need::StoreNew(state) => evict(ctx, hook, key, state, false),
        Need::ExitElsewhere | Need::CloseElsewhere => return false,
    }
    true
}
