//! The `tracing` layer: turns spans and events into records on the thread where they happen.
//!
//! While nothing is recorded, each hook is one relaxed load. While recording, the thread's [`Lane`] handles the common case
//! alone. Otherwise [`find`] supplies what the lane lacks, and the hook is retried.

mod cache;
mod event;
mod find;
mod lane;
pub(crate) mod memory;
mod missing;
mod observe;
mod pushed_slices;
mod slice_extras;
mod span_lookup;
pub(crate) mod thread_lanes;
pub(crate) mod thread_selection;

use crate::buffer::{Head, Loss, PAYLOAD_MAX, Tag, flag};
use crate::callsite::{EachField, Site};
use crate::clock;
use crate::fields::{Encoder, PlainEncoder, encode_fields};
use crate::os::platform;
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::recorder::{Busy, OBSERVERS_ONLY, Recorder, WatchedSpan};
use crate::time::Ticks;
use lane::Lane;
use missing::Missing;
use span_lookup::SpanLookup;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Dispatch, Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Records the spans and events of a program for a Kineto trace.
///
/// [`KinetoLayer::builder`] and [`KinetoLayer::from_env`] create it, with the [`KinetoGuard`](crate::KinetoGuard) that writes
/// the trace. Add it to a registry: `registry().with(layer)`. It does not affect other layers: it enables every callsite
/// (restrict it with `with_filter`, or with the builder's `filter`, which applies to this layer alone), never panics, and
/// emits nothing through `tracing` itself.
///
/// Each enter..exit of a span is a slice on the thread where it happens. While nothing is recorded, a hook costs one atomic
/// load.
///
/// ```no_run
/// use tracing_subscriber::prelude::*;
///
/// // Inert unless the environment enables it, for example by KINETO_ENABLED=1.
/// let (layer, _guard) = tracing_kineto::KinetoLayer::from_env()?;
/// tracing_subscriber::registry().with(layer).with(tracing_subscriber::fmt::layer()).init();
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
pub struct KinetoLayer {
    recorder: Arc<Recorder>,
    /// The recorder's epoch, one load nearer.
    epoch: &'static AtomicU64,
}

impl KinetoLayer {
    pub(crate) fn new(recorder: Arc<Recorder>) -> KinetoLayer {
        KinetoLayer { epoch: recorder.epoch_word(), recorder }
    }

    /// Creates a layer that never records.
    pub(crate) fn inert() -> KinetoLayer {
        KinetoLayer::new(Arc::new(Recorder::inert()))
    }

    /// Returns the number of the running recording, 0 if nothing is recorded; no other recording of the process has it.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u64 {
        // Relaxed, as in `Recorder::epoch`.
        if platform::CAN_RECORD { self.epoch.load(Ordering::Relaxed) } else { 0 }
    }

    /// Returns whether observers receive this thread's spans; in a forked child, not those of its parent's recording.
    #[inline]
    fn has_observers(&self) -> bool {
        self.recorder.observers.are_active()
            && !self.recorder.is_forked()
            && !thread_selection::is_excluded(&self.recorder)
    }

    /// Returns the hook's context if a recording includes this thread.
    #[inline]
    fn hook_if_recorded<'l>(&'l self, epoch: u64, spans: &'l dyn SpanLookup) -> Option<Hook<'l>> {
        let records = epoch != 0 && epoch != OBSERVERS_ONLY;
        (records && !thread_selection::is_excluded(&self.recorder)).then_some(Hook {
            recorder: &self.recorder,
            epoch,
            spans,
        })
    }
}

impl fmt::Debug for KinetoLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KinetoLayer").field("recording", &(self.recorder.epoch() != 0)).finish_non_exhaustive()
    }
}

/// Returns the callsite of recorded values: the span's, or their own where keys are known only at run time.
fn callsite_of(values: &Record<'_>) -> Option<&'static Metadata<'static>> {
    let mut origin = None;
    values.record(&mut EachField(|field, _| _ = origin.get_or_insert_with(|| field.callsite().0.metadata())));
    origin
}

/// One call of a hook: the recorder, the epoch, and the registry's spans.
#[derive(Clone, Copy)]
pub(crate) struct Hook<'l> {
    recorder: &'l Arc<Recorder>,
    epoch: u64,
    spans: &'l dyn SpanLookup,
}

/// A bound on retries; no hook needs that many.
const TRIES: usize = 16;

impl Hook<'_> {
    /// Gives the thread a lane; in a forked child nothing is recorded until a new recording starts there.
    #[cold]
    fn enroll_thread(&self) -> bool {
        if self.recorder.is_forked() {
            self.recorder.close_epoch();
            return false;
        }
        // A field's `Debug` may have excluded the thread from the recording.
        !thread_selection::is_excluded(self.recorder) && thread_lanes::enroll_thread(self.recorder, self.epoch, false)
    }

    #[cold]
    fn next_chunk(&self) {
        let _own = InternalAllocGuard::begin();
        thread_lanes::install_chunk(self.recorder, self.epoch);
    }

    /// Uses the thread's lane for an operation that needs no span.
    fn with_lane<R>(&self, mut hook: impl FnMut(&Lane) -> Result<R, Missing>) -> Option<R> {
        for _ in 0..TRIES {
            match thread_lanes::with_lane(self.epoch, &mut hook) {
                Ok(done) => return Some(done),
                Err(Missing::Lane) if Busy::begin().is_some_and(|_busy| self.enroll_thread()) => {}
                Err(Missing::Chunk) => self.next_chunk(),
                Err(_) => return None,
            }
        }
        None
    }

    /// Calls `action` with the thread's lane, if there is one.
    fn if_enrolled<R>(&self, action: impl FnOnce(&Lane) -> R) -> Option<R> {
        thread_lanes::with_lane(self.epoch, |lane| Ok(action(lane))).ok()
    }

    /// Drops the span that was found for the hook.
    fn drop_handed_span(&self) {
        self.if_enrolled(|lane| lane.cache.drop_handed_span());
    }

    /// Returns the [`Site`] of a callsite.
    #[inline(always)]
    fn site_for(&self, metadata: &'static Metadata<'static>) -> &'static Site {
        match thread_lanes::with_lane(self.epoch, |lane| Ok(lane.cache.cached_site(metadata))) {
            Ok(Some(site)) => site,
            _ => self.new_site(metadata),
        }
    }

    #[cold]
    fn new_site(&self, metadata: &'static Metadata<'static>) -> &'static Site {
        let _own = InternalAllocGuard::begin();
        let site = self.recorder.sites.site_for(metadata);
        // Lanes do not know watched spans, so that their hooks take the slow path.
        if site.slow_after.is_none() {
            self.with_lane(|lane| {
                lane.cache.keep_site(site);
                Ok(())
            });
        }
        site
    }

    /// Writes a small record; returns its id, 0 if it is lost.
    fn put_record(&self, head: Head, words: [u64; 3], payload: &[u64]) -> u64 {
        let id = self.with_lane(|lane| lane.put_record(head, words, payload));
        if id.is_none_or(|id| id == 0) {
            // A thread without a lane is ending, or in the middle of another hook.
            let cause = if id.is_none() { Loss::Reentered } else { Loss::EventsOverLimit };
            self.recorder.losses.add(cause, 1);
        }
        id.unwrap_or(0)
    }

    /// Writes a record with fields.
    fn put_fields(&self, head: Head, words: [u64; 3], payload: &[u64]) -> u64 {
        match self.store_large_payload(payload) {
            Some(id) => self.put_record(Head { flags: head.flags | flag::LARGE, ..head }, words, &id),
            None => self.put_record(head, words, payload),
        }
    }

    /// Stores a payload that is too large for a chunk; returns its id, 0 if it is lost.
    #[inline]
    fn store_large_payload(&self, payload: &[u64]) -> Option<[u64; 1]> {
        (payload.len() > PAYLOAD_MAX).then(|| {
            let id = self.recorder.keep_large_payload(payload);
            self.recorder.losses.add(Loss::FieldsOverLimit, u64::from(id.is_none()));
            [id.unwrap_or(0)]
        })
    }
}

impl<S> Layer<S> for KinetoLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_register_dispatch(&self, _: &Dispatch) {
        self.recorder.set_installed();
    }

    #[inline]
    fn on_new_span(&self, attrs: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let epoch = self.epoch();
        let (key, metadata) = (id.into_u64(), attrs.metadata());
        if !attrs.is_contextual() || !thread_lanes::fast_path(epoch, |lane| lane.new_span(key, metadata)) {
            self.new_span(attrs, key, ctx, epoch);
        }
    }

    #[inline]
    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        let epoch = self.epoch();
        if !thread_lanes::fast_path_or_ignored(epoch, &self.recorder, |lane| lane.enter_pending::<false>(id.into_u64()))
        {
            self.enter_span(id.into_u64(), ctx, epoch);
        }
    }

    #[inline]
    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        let epoch = self.epoch();
        if !thread_lanes::fast_path_or_ignored(epoch, &self.recorder, |lane| {
            lane.exit_innermost::<false>(id.into_u64())
        }) {
            self.exit_span(id.into_u64(), ctx, epoch);
        }
    }

    #[inline]
    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        let epoch = self.epoch();
        if !thread_lanes::fast_path(epoch, |lane| lane.close_pending(id.into_u64()))
            && (epoch != 0 || self.recorder.keeps_spans())
        {
            self.close_span(id, ctx, epoch);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        let epoch = self.epoch();
        if epoch != 0 {
            if self.has_observers() {
                observe::record_values(&self.recorder, id.into_u64(), values, &ctx);
            }
            if let Some(hook) = self.hook_if_recorded(epoch, &ctx) {
                self.record_values(id, values, hook);
            }
        }
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, ctx: Context<'_, S>) {
        let epoch = self.epoch();
        if let Some(hook) = self.hook_if_recorded(epoch, &ctx) {
            match [id, follows].map(|id| find::lookup_span_id(&hook, id.into_u64())) {
                [Some(span), Some(followed)] if span != 0 && followed != 0 => {
                    hook.put_record(Head::new(Tag::Follows, 0, 0), [span, followed, 0], &[]);
                }
                _ => self.recorder.losses.add(Loss::FollowsUnlinked, 1),
            }
        }
    }

    #[inline]
    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        self.record_event(event, &[], &ctx);
    }
}

impl KinetoLayer {
    /// Records an event, with texts for the fields that the layer adds to every callsite.
    #[inline]
    pub(crate) fn record_event(&self, event: &Event<'_>, added: &[String], spans: &dyn SpanLookup) {
        let epoch = self.epoch();
        if epoch != 0 {
            if self.has_observers() {
                observe::report_event(&self.recorder, event);
            }
            if let Some(hook) = self.hook_if_recorded(epoch, spans) {
                thread_lanes::name_row_if_unnamed(&self.recorder, epoch);
                event::record_event(event, added, hook);
            }
        }
    }

    /// Creates a span with fields on the fast path.
    #[inline(never)]
    fn new_span<S>(&self, attrs: &Attributes<'_>, key: u64, ctx: Context<'_, S>, epoch: u64)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let text_bytes_max = self.recorder.settings.field_bytes_max;
        let create = |lane: &Lane| match lane.cache.cached_site(attrs.metadata()) {
            Some(site) if site.is_recorded() && site.fields != 0 => lane.new_span_with(key, site, |payload| {
                let mut encoder = PlainEncoder::new(site, payload, text_bytes_max);
                attrs.record(&mut encoder);
                encoder.finish()
            }),
            _ => false,
        };
        if !attrs.is_contextual() || !thread_lanes::with_unobserved_lane(epoch, create) {
            self.new_span_slowly(attrs, key, &ctx, epoch);
        }
    }

    /// Creates a span on the slow path.
    #[cold]
    #[inline(never)]
    fn new_span_slowly(&self, attrs: &Attributes<'_>, key: u64, spans: &dyn SpanLookup, epoch: u64) {
        let is_excluded = epoch != 0 && thread_selection::is_excluded(&self.recorder);
        if is_excluded {
            thread_selection::remember_span(key);
        }
        if epoch == 0 || is_excluded {
            if self.recorder.settings.fields_while_idle && !attrs.fields().is_empty() {
                find::keep_fields(&self.recorder, attrs, key);
            }
            return;
        }
        if self.has_observers() {
            observe::new_span(&self.recorder, attrs, key);
        }
        // A new span is not pushed to collectors, so their lanes may take this path too.
        if attrs.is_contextual() && thread_lanes::with_first_lane(epoch, |lane| lane.new_span(key, attrs.metadata())) {
            return;
        }
        let Some(hook) = self.hook_if_recorded(epoch, spans) else { return };
        let site = hook.site_for(attrs.metadata()).of_span(|fields| attrs.record(fields));
        let parent = find::parent_from_attributes(&hook, attrs);
        if site.slow_after.is_some() && site.is_recorded() {
            // Its close posts a trigger if it was slow.
            let _busy = Busy::begin();
            self.recorder.keep_span(key, |entry| entry.watched = Some(WatchedSpan::begin(site)));
        }
        if !site.is_recorded() || (site.fields == 0 && !site.needs_values) {
            self.retry_hook(key, hook, |lane| lane.new_span_slowly(key, site, parent, None, &self.recorder));
            return;
        }
        let words = encode_fields(&self.recorder, site, |encoder| attrs.record(encoder));
        let block = hook.store_large_payload(words.as_slice());
        let fields = block.as_ref().map_or((words.as_slice(), 0), |block| (block.as_slice(), flag::LARGE));
        self.retry_hook(key, hook, |lane| lane.new_span_slowly(key, site, parent, Some(fields), &self.recorder));
    }

    /// Enters a span off the fast path. The context is passed by value, so that the fast path need not store it.
    #[inline(never)]
    fn enter_span<S>(&self, key: u64, ctx: Context<'_, S>, epoch: u64)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        self.enter_any(key, &ctx, epoch);
    }

    fn enter_any(&self, key: u64, spans: &dyn SpanLookup, epoch: u64) {
        if self.has_observers() {
            observe::report_enter(&self.recorder, key, spans);
        }
        thread_lanes::name_row_if_unnamed(&self.recorder, epoch);
        let has_extras = self.recorder.slice_extras.are_enabled();
        let further = |lane: &Lane| {
            lane.enter_pending::<true>(key) || lane.enter_unrecorded(key) || lane.enter_again(key, &self.recorder)
        };
        if !has_extras && thread_lanes::with_first_lane(epoch, further) {
            return;
        }
        match self.hook_if_recorded(epoch, spans) {
            Some(hook) if has_extras => self.enter_with_extras(key, hook),
            Some(hook) => self.enter_slowly(key, &[], hook),
            None => {}
        }
    }

    #[inline(never)]
    fn exit_span<S>(&self, key: u64, ctx: Context<'_, S>, epoch: u64)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        self.record_exit(key, &ctx, epoch);
        if self.has_observers() {
            observe::report_exit(&self.recorder, key);
        }
    }

    /// Records the exit of a span.
    fn record_exit(&self, key: u64, spans: &dyn SpanLookup, epoch: u64) {
        let has_counters = self.recorder.slice_extras.has_counters();
        let further = |lane: &Lane| lane.exit_innermost::<true>(key) || lane.exit_unrecorded(key);
        if !has_counters && thread_lanes::with_first_lane(epoch, further) {
            return;
        }
        match self.hook_if_recorded(epoch, spans) {
            Some(hook) if has_counters => self.exit_counted_span(key, hook),
            Some(hook) => self.exit_span_slowly(key, clock::now(), hook),
            None => {}
        }
    }

    /// Records the enter of a span on the slow path; `stack` holds its return addresses if stacks are recorded.
    fn enter_slowly(&self, key: u64, stack: &[u64], hook: Hook<'_>) {
        self.retry_hook(key, hook, |lane| lane.enter_slowly(key, stack, &self.recorder));
        hook.drop_handed_span();
    }

    /// Records the exit of a span on the slow path.
    fn exit_span_slowly(&self, key: u64, end: Ticks, hook: Hook<'_>) {
        let unsettled = self.retry_hook(key, hook, |lane| lane.exit_slowly(key, end, &self.recorder));
        hook.drop_handed_span();
        if let Some(Missing::ExitElsewhere) = unsettled {
            self.exit_elsewhere(key, end, hook);
        }
    }

    #[inline(never)]
    fn close_span<S>(&self, id: Id, ctx: Context<'_, S>, epoch: u64)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        if epoch != 0 {
            self.close_recorded(id.into_u64(), &ctx, epoch);
        }
        self.recorder.span_table().forget_span(id.into_u64());
    }

    fn close_recorded(&self, key: u64, spans: &dyn SpanLookup, epoch: u64) {
        if epoch == OBSERVERS_ONLY
            || thread_lanes::with_first_lane(epoch, |lane| lane.close_pending(key) || lane.close_unrecorded(key))
        {
            return;
        }
        let Some(hook) = self.hook_if_recorded(epoch, spans) else {
            return thread_selection::close_excluded(&Hook { recorder: &self.recorder, epoch, spans }, key);
        };
        let own = if find::is_in_no_frame(&hook, key) {
            None
        } else {
            match self.retry_hook(key, hook, |lane| lane.close_slowly(key, &self.recorder)) {
                Some(Missing::CloseElsewhere) => hook.with_lane(|lane| Ok(lane.forget_span(key))).flatten(),
                _ => return,
            }
        };
        let closed = find::close_span(&hook, key, own);
        hook.with_lane(|lane| {
            lane.forget_creation(key)?;
            match closed {
                Some(closed) => lane.close_record(closed, &self.recorder),
                None => lane.note_unrecorded_close(own.map_or(0, |own| own.recorded_id())),
            }
        });
    }

    /// Tries a hook and supplies what it lacks, until it succeeds or returns what only its caller can supply.
    fn retry_hook(
        &self,
        key: u64,
        hook: Hook<'_>,
        mut attempt: impl FnMut(&Lane) -> Result<(), Missing>,
    ) -> Option<Missing> {
        let Some(_busy) = Busy::begin() else {
            self.recorder.losses.add(Loss::Reentered, 1);
            return None;
        };
        for _ in 0..TRIES {
            match thread_lanes::with_lane(hook.epoch, &mut attempt) {
                Ok(()) => return None,
                Err(missing @ Missing::StoreNew(_)) => {
                    find::supply_missing(missing, &hook, key);
                    return None;
                }
                Err(missing @ (Missing::ExitElsewhere | Missing::CloseElsewhere)) => return Some(missing),
                Err(missing) if find::supply_missing(missing, &hook, key) => {}
                Err(_) => break,
            }
        }
        self.recorder.losses.add(Loss::Reentered, 1);
        None
    }

    /// Handles the exit of a span that this thread did not enter: another thread did, or the recording began later.
    #[cold]
    fn exit_elsewhere(&self, key: u64, end: Ticks, hook: Hook<'_>) {
        self.recorder.note_overlap();
        // Each thread that was inside a span before the recording began records a slice of its own.
        let exit_on_owner = || self.recorder.lanes().search_frames(|frames| frames.exit_from_other_thread(key));
        if let Some((slice, state)) = (!find::is_older(&hook, key)).then(exit_on_owner).flatten() {
            if !crate::recorder::state::is_known_elsewhere(state.meta) {
                // Only its frame held the state.
                find::evict_span(&hook, key, state, false);
            }
            if slice != 0 {
                hook.put_record(Head::new(Tag::End, 0, 0), [slice, end.0, 0], &[]);
            }
            return;
        }
        if thread_selection::has_joined(&self.recorder, hook.epoch) {
            return;
        }
        find::find_span(&hook, key);
        let known = hook.with_lane(|lane| Ok(lane.known_state(key, &self.recorder))).flatten();
        hook.drop_handed_span();
        let Some(state) = known else { return };
        if state.meta & crate::recorder::state::IGNORED == 0 {
            let site = crate::recorder::state::site_index(state.meta);
            hook.put_record(Head::new(Tag::Slice, flag::CLIPPED, site), [0, end.0, state.span], &[]);
        }
    }

    /// Records values that were set after the span was created.
    fn record_values(&self, id: &Id, values: &Record<'_>, hook: Hook<'_>) {
        let Some(metadata) = hook.spans.metadata_of(id.into_u64()) else { return };
        let site = hook.site_for(metadata);
        if !site.is_recorded() {
            return;
        }
        let site = callsite_of(values).map_or(site, |metadata| hook.site_for(metadata));
        if site.fields == 0 && site.kind_field.is_none() {
            return;
        }
        put_values(id, site, hook, |encoder| values.record(encoder));
    }

    /// Returns the id by which the recording knows a span of that callsite, if it records that.
    pub(crate) fn recorded_span(
        &self,
        id: &Id,
        metadata: &'static Metadata<'static>,
        spans: &dyn SpanLookup,
    ) -> Option<u64> {
        let hook = self.hook_if_recorded(self.recorder.epoch(), spans)?;
        hook.site_for(metadata).is_recorded().then(|| find_span_id(id, hook)).flatten()
    }

    /// Keeps the fields of a new span until it closes, for a recording that begins meanwhile.
    pub(crate) fn keep_fields(&self, attrs: &Attributes<'_>, id: &Id) {
        let _busy = Busy::begin();
        find::keep_fields(&self.recorder, attrs, id.into_u64());
    }

    /// Replaces kept fields of a span by values that are recorded later.
    pub(crate) fn keep_values(&self, id: &Id, metadata: &'static Metadata<'static>, values: &Record<'_>) {
        let _busy = Busy::begin();
        find::keep_values(&self.recorder, self.recorder.sites.site_for(metadata), values, id.into_u64());
    }

    /// Drops the kept fields of a span that has closed.
    pub(crate) fn forget_fields(&self, id: &Id) {
        self.recorder.span_table().forget_span(id.into_u64());
    }

    /// Records texts for the fields that the layer adds to every callsite; each replaces an earlier one of the span.
    pub(crate) fn record_added(
        &self,
        id: &Id,
        metadata: &'static Metadata<'static>,
        added: &[String],
        spans: &dyn SpanLookup,
    ) {
        let Some(hook) = self.hook_if_recorded(self.recorder.epoch(), spans) else { return };
        let site = hook.site_for(metadata);
        if site.is_recorded() {
            put_values(id, site, hook, |encoder| encoder.put_added(added));
        }
    }
}

/// Writes values of a span, as `encode` gives them.
fn put_values(id: &Id, site: &'static Site, hook: Hook<'_>, encode: impl FnOnce(&mut Encoder<'_>)) {
    let words = encode_fields(hook.recorder, site, encode);
    let payload = words.as_slice();
    if !payload.is_empty()
        && let Some(span) = find_span_id(id, hook)
    {
        hook.put_fields(Head::new(Tag::Values, 0, site.index), [span, clock::now().0, 0], payload);
    }
}

/// Returns the id by which the recording knows a span.
fn find_span_id(id: &Id, hook: Hook<'_>) -> Option<u64> {
    let key = id.into_u64();
    let known = find::lookup_span_id(&hook, key).or_else(|| {
        // Created while nothing was recorded, and not entered since.
        find::find_span(&hook, key);
        find::lookup_span_id(&hook, key)
    });
    hook.drop_handed_span();
    known.filter(|span| *span != 0)
}
