//! Metrics of each annotation: the outermost one of a thread is one range of its context, from its first launch on.
//!
//! The program does not repeat its work, so the metrics must fit in one pass, and a nested annotation, which would need a
//! pass of its own, belongs to the range of the outer one. A range counts all work of its context. Therefore the thread
//! waits for the context at both ends, and a range in which another thread submits work is not reported.

use super::super::callbacks::{BegunCall, EndedCall};
use super::super::hub::HUB;
use super::super::metric_shapes::METRIC_VALUES;
use super::calls::{CallPlace, OpenCalls};
use super::context::{AnnotatedContext, CallEntry, RangeRefusal};
use super::counts::{RowlessCause, RowlessCounts};
use super::ffi::stream_of_call;
use super::functions::WatchedFunction;
use super::run::{EndedContexts, RangeRun};
use super::session::{DeviceMetrics, MissReason};
use crate::DeviceWork;
use kineto_model::activity::{ActivityType, CorrelationId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The metrics of a recording's annotations.
#[derive(Debug)]
pub(crate) struct AnnotationMetrics {
    pub(super) run: RangeRun,
    contexts: Mutex<BTreeMap<usize, Result<Arc<AnnotatedContext>, RangeRefusal>>>,
    rowless: RowlessCounts,
    has_noted_report: AtomicBool,
}

/// An annotation that a thread is in, the outermost.
#[derive(Debug)]
struct CurrentAnnotation {
    /// Weak, like the contexts: the recording may end first, and then releases the profiler.
    metrics: Weak<AnnotationMetrics>,
    slice: u64,
    /// The open annotations inside it, by their slices.
    inner: Vec<u64>,
    /// It was inside another one, which ended first: what it launched before belongs to that one.
    is_remainder: bool,
    /// The correlation id of a call without a context, until the driver call inside it, which has one.
    without_context: Option<u32>,
    /// By context; `None` where it is not measured.
    ranges: BTreeMap<usize, Option<OpenRange>>,
}

#[derive(Debug)]
struct OpenRange {
    context: Weak<AnnotatedContext>,
    number: u64,
    start: u64,
    launches: u64,
}

/// A watched call that a thread is in.
#[derive(Debug)]
pub(super) struct SubmittingCall {
    watched: WatchedFunction,
    context: Weak<AnnotatedContext>,
    /// Whether its work becomes part of a graph instead of running.
    is_captured: bool,
}

/// A thread that ends in an annotation leaves its ranges open.
impl Drop for CurrentAnnotation {
    fn drop(&mut self) {
        for range in std::mem::take(&mut self.ranges).into_values().flatten() {
            if let Some(context) = range.context.upgrade() {
                context.abandon_range(range.number);
            }
        }
    }
}

thread_local! {
    /// The slices that were left last, without entering another. If annotations end in another order than they began, the
    /// thread leaves those inside the ended one, and enters them again.
    static LEFT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static ANNOTATION: RefCell<Option<CurrentAnnotation>> = const { RefCell::new(None) };
    static PLACE: CallPlace<AnnotationMetrics, SubmittingCall> = const { RefCell::new(None) };
}

/// The watched calls that threads are in.
pub(super) static CALL: OpenCalls<AnnotationMetrics, SubmittingCall> = OpenCalls(&PLACE);

/// Ends the watched call of that function that the calling thread is in.
pub(super) fn end_call(ended: &EndedCall<'_>) {
    if let Some((_, call)) = CALL.leave(ended.function)
        && let Some(context) = call.context.upgrade()
    {
        context.leave_call();
        if call.watched == WatchedFunction::Launch && !call.is_captured && ended.error == 0 {
            with_range(context.context, |range| range.launches += 1);
        }
    }
}

/// Calls `act` with the open range of the calling thread's annotation in a context, if it has one.
fn with_range<R>(context: usize, act: impl FnOnce(&mut OpenRange) -> R) -> Option<R> {
    let act = |current: &RefCell<Option<CurrentAnnotation>>| {
        let mut current = current.borrow_mut();
        current.as_mut()?.ranges.get_mut(&context)?.as_mut().map(act)
    };
    ANNOTATION.try_with(act).ok().flatten()
}

/// Notes that the calling thread leaves the annotation that it entered last.
pub(crate) fn end_annotation() {
    let leave = |current: &RefCell<Option<CurrentAnnotation>>| {
        let mut current = current.borrow_mut();
        let left = current.as_mut().and_then(|annotation| annotation.inner.pop());
        let outermost = if left.is_none() { current.take() } else { None };
        let left = left.or(outermost.as_ref().map(|annotation| annotation.slice));
        let _ = LEFT.try_with(|slices| slices.borrow_mut().extend(left));
        outermost
    };
    // Outside the borrow: the calls below may call back.
    if let Some(annotation) = ANNOTATION.try_with(leave).ok().flatten()
        && let Some(metrics) = annotation.metrics.upgrade()
    {
        metrics.end_ranges(annotation);
    }
}

/// Returns whether a slice that the thread enters was left just before.
fn take_left(left: &mut Vec<u64>, slice: u64) -> bool {
    let at = left.iter().position(|known| *known == slice);
    match at {
        Some(at) => _ = left.remove(at),
        None => left.clear(),
    }
    at.is_some()
}

impl CurrentAnnotation {
    fn is_of(&self, metrics: &Arc<AnnotationMetrics>) -> bool {
        std::ptr::eq(self.metrics.as_ptr(), Arc::as_ptr(metrics))
    }
}

impl AnnotationMetrics {
    pub(super) fn new(run: RangeRun) -> AnnotationMetrics {
        let (contexts, rowless, has_noted_report) = Default::default();
        AnnotationMetrics { run, contexts, rowless, has_noted_report }
    }

    /// Notes that the calling thread enters an annotation. Its range begins with its first launch, which knows the context.
    pub(super) fn begin_annotation(self: &Arc<Self>, slice: u64) {
        let is_remainder = LEFT.try_with(|slices| take_left(&mut slices.borrow_mut(), slice)).unwrap_or(false);
        let enter = |current: &RefCell<Option<CurrentAnnotation>>| {
            let mut current = current.borrow_mut();
            // The annotation of another recording was not left: its layer ended first.
            match current.as_mut().filter(|annotation| annotation.is_of(self)) {
                Some(annotation) => {
                    annotation.inner.push(slice);
                    if !is_remainder {
                        self.rowless.add(RowlessCause::Nested);
                    }
                }
                None => {
                    let ranges = BTreeMap::new();
                    *current = Some(CurrentAnnotation {
                        metrics: Arc::downgrade(self),
                        slice,
                        inner: Vec::new(),
                        is_remainder,
                        without_context: None,
                        ranges,
                    });
                }
            }
        };
        let _ = ANNOTATION.try_with(enter);
    }

    /// Handles a call of the program that begins.
    pub(super) fn on_begun_call(self: &Arc<Self>, call: &BegunCall) {
        let Some((watched, place)) = self.run.functions.get(&call.function).copied() else { return };
        let stream = stream_of_call(call.params, place);
        match watched {
            WatchedFunction::ContextEnd(end) => self.end_contexts(&self.run.find_ended_contexts(call, end)),
            WatchedFunction::Capture(step) => {
                self.run.captures.enter_call(call.function, step, stream.unwrap_or_default());
            }
            WatchedFunction::Launch | WatchedFunction::Transfer => self.enter_submission(call, watched, stream),
        }
    }

    /// Notes a call that submits work.
    fn enter_submission(self: &Arc<Self>, call: &BegunCall, watched: WatchedFunction, stream: Option<usize>) {
        if call.context == 0 {
            // The runtime makes the context of a thread inside its first call: the driver's call counts.
            self.with_annotation(|annotation| *annotation.without_context.get_or_insert(call.correlation));
            return;
        }
        self.with_annotation(|annotation| annotation.without_context.take_if(|known| *known == call.correlation));
        let context = self.find_context(call.context);
        let is_captured =
            self.run.captures.is_any() && stream.is_none_or(|stream| self.run.driver.is_capturing(Some(stream)));
        if CALL.is_of(self) {
            return;
        }
        let place = context.as_ref().map(Arc::downgrade).unwrap_or_default();
        CALL.enter(self, call.function, SubmittingCall { watched, context: place, is_captured });
        match context {
            Ok(context) => self.enter_call(&context, call.correlation, stream),
            Err(refusal) => self.refuse_range(call.context, refusal),
        }
    }

    /// Returns a context, and keeps it, or why it is not measured.
    fn find_context(&self, context: usize) -> Result<Arc<AnnotatedContext>, RangeRefusal> {
        let lock = || self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&context) {
            return known.clone();
        }
        // Without the lock, which each call takes.
        let device = self.run.find_device(context).and_then(|device| device.ok_or(MissReason::FailedBefore));
        let added = |metrics: &Arc<DeviceMetrics>| {
            Arc::new(AnnotatedContext::new(context, metrics.clone(), self.run.captures.clone()))
        };
        let found = device.map(added).map_err(RangeRefusal::Missed);
        let mut contexts = lock();
        // Checked under the lock: the end of the recording closes the contexts that exist then.
        if self.run.is_over.load(Ordering::Acquire) {
            return Err(RangeRefusal::Cut);
        }
        // The reason is reported once.
        let kept = found.clone().map_err(|_| RangeRefusal::Missed(MissReason::FailedBefore));
        match contexts.entry(context) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => {
                place.insert(kept);
                found
            }
        }
    }

    /// Begins the range of the thread's annotation, if the call is its first in the context.
    fn enter_call(self: &Arc<Self>, context: &Arc<AnnotatedContext>, correlation: u32, stream: Option<usize>) {
        if context.end_abandoned_range() {
            self.count_refusal(RangeRefusal::Cut);
        }
        let own = with_range(context.context, |range| range.number);
        let wants_range = own.is_none() && self.wants_range(context.context);
        let begun = match context.enter_call(own, wants_range) {
            CallEntry::Passed => return,
            CallEntry::Refused(refusal) => Err(refusal),
            CallEntry::Begins(number) => {
                HUB.own_waits.note(correlation);
                context.begin_range(stream, self.run.driver).map(|()| number)
            }
        };
        match begun {
            Ok(number) => {
                let (held, start) = (Arc::downgrade(context), self.run.now());
                self.set_range(context.context, Some(OpenRange { context: held, number, start, launches: 0 }));
            }
            Err(refusal) => {
                self.run.give_back();
                self.refuse_range(context.context, refusal);
            }
        }
    }

    /// Returns whether the thread's annotation is to be measured in a context.
    fn wants_range(self: &Arc<Self>, context: usize) -> bool {
        let is_new = self.with_annotation(|annotation| !annotation.ranges.contains_key(&context));
        if is_new != Some(true) {
            return false;
        }
        // Its first part is in the range of the outer annotation: the rest would be a part of the work.
        let is_remainder = self.with_annotation(|annotation| annotation.is_remainder) == Some(true);
        if is_remainder || !self.run.is_recording() {
            let is_cut = is_remainder || self.run.is_over.load(Ordering::Acquire);
            self.refuse_range(context, if is_cut { RangeRefusal::Cut } else { RangeRefusal::Paused });
            return false;
        }
        let is_below = self.run.is_below_limit();
        if !is_below {
            self.set_range(context, None);
        }
        is_below
    }

    /// Calls `act` with the thread's annotation, if it is in one of this recording.
    fn with_annotation<R>(self: &Arc<Self>, act: impl FnOnce(&mut CurrentAnnotation) -> R) -> Option<R> {
        let act = |current: &RefCell<Option<CurrentAnnotation>>| {
            let mut current = current.borrow_mut();
            current.as_mut().filter(|annotation| annotation.is_of(self)).map(act)
        };
        ANNOTATION.try_with(act).ok().flatten()
    }

    fn set_range(self: &Arc<Self>, context: usize, range: Option<OpenRange>) {
        self.with_annotation(|annotation| annotation.ranges.insert(context, range));
    }

    /// Notes that the thread's annotation is not measured in a context, once.
    fn refuse_range(self: &Arc<Self>, context: usize, refusal: RangeRefusal) {
        let is_new = self.with_annotation(|annotation| annotation.ranges.insert(context, None).is_none());
        if is_new == Some(true) {
            self.count_refusal(refusal);
        }
    }

    fn count_refusal(&self, refusal: RangeRefusal) {
        let cause = match refusal {
            RangeRefusal::Overlapped => RowlessCause::Overlapped,
            RangeRefusal::Captured => RowlessCause::Captured,
            RangeRefusal::Cut => RowlessCause::Cut,
            RangeRefusal::NoContext => RowlessCause::NoContext,
            RangeRefusal::Closed => return,
            // As wanted: no loss.
            RangeRefusal::Paused => return self.rowless.add(RowlessCause::Paused),
            RangeRefusal::WaitFailed(code) => {
                self.run.sink.note(format!("annotations were not measured: cuCtxSynchronize returned {code}"));
                return self.run.count_missed();
            }
            RangeRefusal::Missed(reason) => {
                match reason {
                    MissReason::Failed(failed) => self.run.note_context_failure(failed),
                    // Once: the figures of each would fill the report.
                    MissReason::NotOneRange(report) if !self.has_noted_report.swap(true, Ordering::Relaxed) => {
                        self.run.sink.note(format!("an annotation was not measured: {report}"));
                    }
                    MissReason::NotOneRange(_) | MissReason::Ended | MissReason::FailedBefore | MissReason::NoTurn => {}
                }
                return self.run.count_missed();
            }
        };
        self.rowless.add(cause);
        self.run.sink.lost(kineto_model::Loss::VendorDropped, 1);
    }

    /// Ends the ranges of an annotation, and writes a row for each.
    fn end_ranges(&self, mut annotation: CurrentAnnotation) {
        let is_partial = annotation.without_context.is_some();
        match annotation.ranges.is_empty() {
            true if is_partial => self.count_refusal(RangeRefusal::NoContext),
            true => self.rowless.add(RowlessCause::Idle),
            false => {}
        }
        for range in std::mem::take(&mut annotation.ranges).into_values().flatten() {
            let OpenRange { context, number, start, launches } = range;
            let Some(context) = context.upgrade() else {
                self.run.give_back();
                continue;
            };
            let ended = context.end_range(number, self.run.driver, || self.run.now());
            let ended = ended.and_then(|ended| {
                if is_partial {
                    Err(RangeRefusal::NoContext)
                } else if self.run.sink.pauses().overlaps(start, ended.end) {
                    Err(RangeRefusal::Paused)
                } else {
                    Ok(ended)
                }
            });
            match ended {
                Ok(ended) => self.run.sink.record(|batch| {
                    let words = self.run.metric_words(batch, Some(launches), &ended.values);
                    let name = batch.name("");
                    let work = DeviceWork {
                        kind: ActivityType::GpuUserAnnotation,
                        name,
                        device: context.metrics.device,
                        stream: 0,
                        start,
                        end: ended.end,
                        correlation: 0,
                        shape: &METRIC_VALUES,
                        words: &words,
                    };
                    batch.work_of(CorrelationId(annotation.slice), &work);
                }),
                Err(refusal) => {
                    self.run.give_back();
                    self.count_refusal(refusal);
                }
            }
        }
    }

    /// Releases the counters of contexts that end. The next annotation of a context that remains begins anew.
    fn end_contexts(&self, ended: &EndedContexts) {
        let lock = || self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        let device = |context: &Result<Arc<AnnotatedContext>, _>| context.as_ref().ok().map(|it| it.metrics.device);
        let is_ended = |handle: &usize, context: &_| ended.has(*handle, device(context));
        if ended.is_certain {
            let mut closed = Vec::new();
            lock().retain(|handle, context| {
                let is_ended = is_ended(handle, context);
                closed.extend(context.clone().ok().filter(|_| is_ended));
                !is_ended
            });
            let cut = closed.iter().filter(|context| context.close(self.run.driver));
            cut.for_each(|_| self.count_refusal(RangeRefusal::Cut));
        } else {
            let known: Vec<_> =
                lock().iter().filter(|(handle, it)| is_ended(handle, it)).map(|it| it.1.clone()).collect();
            known.iter().flatten().for_each(|context| context.release_idle(self.run.driver));
        }
    }

    /// Ends the measuring; releases the counters of all contexts unless a stream `is_captured`.
    pub(super) fn finish(&self, is_captured: bool) {
        let cut = if is_captured {
            let contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
            contexts.values().flatten().filter(|context| context.close_without_release()).count()
        } else {
            self.release()
        };
        (0..cut).for_each(|_| self.count_refusal(RangeRefusal::Cut));
        self.run.note_unmeasured("annotation", "annotations");
        self.rowless.notes().for_each(|note| self.run.sink.note(note));
    }

    /// Returns the contexts that may have counters.
    pub(super) fn contexts(&self) -> Vec<usize> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    /// Releases the counters of all contexts; returns how many annotations that cut.
    pub(super) fn release(&self) -> usize {
        let contexts = std::mem::take(&mut *self.contexts.lock().unwrap_or_else(PoisonError::into_inner));
        contexts.into_values().flatten().filter(|context| context.close(self.run.driver)).count()
    }
}
