//! Ranges and operations of a thread, their arguments, counters and marks.

use super::keys::ArgumentKey;
use super::status::{CStatus, CallError};
use std::cell::{Cell, RefCell};
use tracing::{Level, Span};
use tracing_core::field::{Empty, Value};

/// The target of the spans, for filters.
pub(super) const TARGET: &str = "kineto::c";

/// How a range is shown in the trace; `tracing_kineto_kind` of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum RangeKind {
    Annotation = 0,
    Op = 1,
}

/// How a thread entered a span, which it must leave in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    Range,
    CorrelationId,
}

/// The open spans of a thread, the innermost last.
///
/// A thread that ends leaves all of them.
struct OpenSpans(RefCell<Vec<(EntryKind, Span)>>);

thread_local! {
    static OPEN: OpenSpans = const { OpenSpans(RefCell::new(Vec::new())) };
    /// The number of open spans. Until the thread has entered one, [`OPEN`] is not touched: thread-locals are dropped in
    /// reverse order of their creation, and it must be dropped before those of the layers.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

impl RangeKind {
    pub(super) fn from_number(number: i32) -> Result<RangeKind, CallError> {
        let kind = [RangeKind::Annotation, RangeKind::Op].into_iter().find(|kind| *kind as i32 == number);
        kind.ok_or_else(|| {
            CallError::new(
                CStatus::BadArgument,
                format!("there is no range kind {number}; use one of tracing_kineto_kind"),
            )
        })
    }
}

impl Drop for OpenSpans {
    fn drop(&mut self) {
        while let Some((_, span)) = self.0.get_mut().pop() {
            exit_span(&span);
        }
    }
}

/// Calls `action` with the open spans of the thread; `action` must not call this function.
fn with_open_spans<R>(action: impl FnOnce(&mut Vec<(EntryKind, Span)>) -> R) -> Result<R, CallError> {
    let ending = || CallError::new(CStatus::Failed, "the thread is ending and has no ranges; end ranges before it");
    OPEN.try_with(|open| open.0.try_borrow_mut().ok().map(|mut open| action(&mut open)))
        .ok()
        .flatten()
        .ok_or_else(ending)
}

fn enter_span(way: EntryKind, span: Span) -> Result<(), CallError> {
    span.with_subscriber(|(id, dispatch)| dispatch.enter(id));
    let mut entered = Some(span);
    with_open_spans(|open| open.extend(entered.take().map(|span| (way, span))))
        .inspect_err(|_| entered.iter().for_each(exit_span))?;
    DEPTH.set(DEPTH.get() + 1);
    Ok(())
}

fn exit_span(span: &Span) {
    span.with_subscriber(|(id, dispatch)| dispatch.exit(id));
}

/// Enters a range.
pub(super) fn push_range(name: &str, kind: RangeKind) -> Result<(), CallError> {
    let span = match kind {
        RangeKind::Annotation => {
            tracing::span!(target: TARGET, Level::INFO, "range", kineto.annotation = Empty, kineto.name = name)
        }
        RangeKind::Op => tracing::span!(target: TARGET, Level::INFO, "operation", kineto.name = name),
    };
    enter_span(EntryKind::Range, span)
}

/// Enters an operation that a framework knows by that id.
pub(super) fn push_correlation_id(id: u64) -> Result<(), CallError> {
    enter_span(EntryKind::CorrelationId, tracing::span!(target: TARGET, Level::INFO, "operation", "framework id" = id))
}

/// Leaves the innermost span of the thread, if it was entered in the same way.
pub(super) fn pop_entry(way: EntryKind) -> Result<(), CallError> {
    let nothing = || CallError::new(CStatus::NothingOpen, "cannot pop: the thread has nothing open; push first");
    if DEPTH.get() == 0 {
        return Err(nothing());
    }
    let span =
        with_open_spans(|open| open.pop_if(|(came, _)| *came == way))?.map(|(_, span)| span).ok_or_else(|| {
            let (open, asked) = match way {
                EntryKind::Range => ("a correlation id", "a range"),
                EntryKind::CorrelationId => ("a range", "a correlation id"),
            };
            CallError::new(
                CStatus::Misnested,
                format!("cannot pop {asked}: {open} is the innermost on this thread; pop that first"),
            )
        })?;
    DEPTH.set(DEPTH.get() - 1);
    exit_span(&span);
    Ok(())
}

/// Adds an argument to the innermost span of the thread.
pub(super) fn add_argument(key: &str, value: &dyn Value) -> Result<(), CallError> {
    let nothing = || {
        CallError::new(CStatus::NothingOpen, "cannot add the argument: the thread has no open range; open one first")
    };
    if DEPTH.get() == 0 {
        return Err(nothing());
    }
    let key = ArgumentKey::from_name(key)?;
    // Layers are called outside the borrow.
    let (way, span) = with_open_spans(Vec::pop)?.ok_or_else(nothing)?;
    key.with_value_set(value, |values| span.record_all(values));
    with_open_spans(|open| open.push((way, span)))
}

/// Records the value of a counter.
pub(super) fn record_counter(name: &str, value: f64) {
    tracing::event!(target: "kineto::counter", Level::INFO, kineto.name = name, value);
}

/// Records an instant.
pub(super) fn record_instant(name: &str) {
    tracing::event!(target: "kineto::instant", Level::INFO, kineto.name = name);
}

/// Returns whether the thread is inside a range.
pub(super) fn is_inside() -> bool {
    DEPTH.get() > 0
}
