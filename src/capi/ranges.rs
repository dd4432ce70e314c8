//! Ranges and operations that a thread opens and closes, their arguments, counters and marks.

use super::keys::Key;
use super::status::{Fault, Status};
use crate::callsite::{COUNTER_TARGET, INSTANT_TARGET};
use std::cell::{Cell, RefCell};
use tracing::{Level, Span};
use tracing_core::field::{Empty, Value};

/// The target of the spans, for filters.
pub(super) const TARGET: &str = "kineto::c";

/// What a range is in the trace; `tracing_kineto_kind` of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Kind {
    Annotation = 0,
    Op = 1,
}

/// How a thread has come into a span, and how it has to go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Range,
    CorrelationId,
}

/// What a thread has open, the innermost last.
///
/// A thread that ends leaves all of it.
struct Open(RefCell<Vec<(Way, Span)>>);

thread_local! {
    static OPEN: Open = const { Open(RefCell::new(Vec::new())) };
    /// How much that is. Until the thread has entered something, [`OPEN`] is left alone: of a thread that ends, what it had
    /// first goes last, and this has to go before what the layers have of it.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

impl Kind {
    pub(super) fn from_number(number: i32) -> Result<Kind, Fault> {
        let kind = [Kind::Annotation, Kind::Op].into_iter().find(|kind| *kind as i32 == number);
        kind.ok_or_else(|| Fault::new(Status::BadArgument, format!("there is no kind {number} of range")))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        while let Some((_, span)) = self.0.get_mut().pop() {
            leave(&span);
        }
    }
}

/// Does something with what the thread has open, of which nothing may call back here.
fn with<R>(action: impl FnOnce(&mut Vec<(Way, Span)>) -> R) -> Result<R, Fault> {
    let ending = || Fault::new(Status::Failed, "the thread is ending: it has no ranges any more");
    OPEN.try_with(|open| open.0.try_borrow_mut().ok().map(|mut open| action(&mut open)))
        .ok()
        .flatten()
        .ok_or_else(ending)
}

fn enter(way: Way, span: Span) -> Result<(), Fault> {
    span.with_subscriber(|(id, dispatch)| dispatch.enter(id));
    let mut entered = Some(span);
    with(|open| open.extend(entered.take().map(|span| (way, span)))).inspect_err(|_| entered.iter().for_each(leave))?;
    DEPTH.set(DEPTH.get() + 1);
    Ok(())
}

fn leave(span: &Span) {
    span.with_subscriber(|(id, dispatch)| dispatch.exit(id));
}

/// Enters a range.
pub(super) fn push(name: &str, kind: Kind) -> Result<(), Fault> {
    let span = match kind {
        Kind::Annotation => {
            tracing::span!(target: TARGET, Level::INFO, "range", kineto.annotation = Empty, kineto.name = name)
        }
        Kind::Op => tracing::span!(target: TARGET, Level::INFO, "operation", kineto.name = name),
    };
    enter(Way::Range, span)
}

/// Enters an operation that a framework knows by that id.
pub(super) fn push_correlation_id(id: u64) -> Result<(), Fault> {
    enter(Way::CorrelationId, tracing::span!(target: TARGET, Level::INFO, "operation", "framework id" = id))
}

/// Leaves what the thread has entered last, if it came that way.
pub(super) fn pop(way: Way) -> Result<(), Fault> {
    let nothing = || Fault::new(Status::NothingOpen, "the thread has nothing open: it goes out of what it came into");
    if DEPTH.get() == 0 {
        return Err(nothing());
    }
    let span = with(|open| open.pop_if(|(came, _)| *came == way))?.map(|(_, span)| span).ok_or_else(|| {
        let (open, asked) = match way {
            Way::Range => ("a correlation id", "a range"),
            Way::CorrelationId => ("a range", "a correlation id"),
        };
        Fault::new(Status::Misnested, format!("{open} is the innermost on this thread, and {asked} was to end"))
    })?;
    DEPTH.set(DEPTH.get() - 1);
    leave(&span);
    Ok(())
}

/// Gives an argument to what the thread has entered last.
pub(super) fn argument(key: &str, value: &dyn Value) -> Result<(), Fault> {
    let nothing = || Fault::new(Status::NothingOpen, "the thread has no range open that the argument could be of");
    if DEPTH.get() == 0 {
        return Err(nothing());
    }
    let key = Key::of(key)?;
    // Layers are told outside of the borrow.
    let (way, span) = with(Vec::pop)?.ok_or_else(nothing)?;
    key.with(value, |values| span.record_all(values));
    with(|open| open.push((way, span)))
}

/// Says where a counter stands.
pub(super) fn counter(name: &str, value: f64) {
    tracing::event!(target: COUNTER_TARGET, Level::INFO, kineto.name = name, value);
}

/// Marks a moment.
pub(super) fn instant(name: &str) {
    tracing::event!(target: INSTANT_TARGET, Level::INFO, kineto.name = name);
}

/// Returns whether the thread is in a range.
pub(super) fn is_inside() -> bool {
    DEPTH.get() > 0
}
