//! The spans `ProfilerStep#n` that a schedule puts around the steps of a program.

use crate::diag::diag;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Level, Span, dispatcher, subscriber::NoSubscriber};
use tracing_core::Subscriber;
use tracing_subscriber::Registry;

/// The target of the spans, for filters.
pub(crate) const TARGET: &str = "tracing_kineto";

/// The annotation of the step that goes on.
#[derive(Debug, Default)]
pub(super) struct Annotation {
    open: Option<Arc<Entered>>,
    /// The step that has begun before there was a subscriber to see it.
    late: Option<u64>,
    /// Why there are no annotations has been said.
    told: bool,
}

/// A span that a thread is in.
#[derive(Debug)]
struct Entered {
    span: Span,
    /// Layers have seen the exit.
    is_ended: AtomicBool,
}

/// The annotations that a thread is in.
///
/// A registry keeps a list of each thread's spans, from which only the thread itself can take one. Where another thread ends
/// a step, this one takes the span off that list the next time that it comes here, or when it ends.
#[derive(Default)]
struct Inside(RefCell<Vec<Arc<Entered>>>);

thread_local! {
    static INSIDE: Inside = Inside::default();
    /// The thread has entered one. Until then [`INSIDE`] is left alone: of a thread that ends, what it had first goes last,
    /// and this has to go before what the layers have of it.
    static HAS_ENTERED: Cell<bool> = const { Cell::new(false) };
}

impl Annotation {
    /// Opens the annotation of a step on the calling thread.
    pub(super) fn begin(&mut self, step: u64) {
        self.end();
        if dispatcher::get_default(Dispatch::is::<NoSubscriber>) {
            self.late = Some(step);
            return;
        }
        let span = tracing::span!(
            target: TARGET, Level::INFO, "user_annotation",
            kineto.annotation = tracing::field::Empty, kineto.name = %format_args!("ProfilerStep#{step}")
        );
        if span.is_disabled() {
            return self.tell();
        }
        span.with_subscriber(|(id, dispatch)| dispatch.enter(id));
        let entered = Arc::new(Entered { span, is_ended: AtomicBool::new(false) });
        HAS_ENTERED.set(true);
        let _ = INSIDE.try_with(|inside| inside.0.borrow_mut().push(entered.clone()));
        self.open = Some(entered);
    }

    /// Opens the annotation that found no subscriber, if there is one now.
    pub(super) fn begin_late(&mut self) {
        if let Some(step) = self.late.take() {
            self.begin(step);
        }
    }

    /// Ends it, whichever thread is in it; the end is now.
    pub(super) fn end(&mut self) {
        self.late = None;
        let open = self.open.take();
        if HAS_ENTERED.get() {
            let ends = |own: &Arc<Entered>| open.as_ref().is_some_and(|open| Arc::ptr_eq(open, own));
            let _ = INSIDE.try_with(|inside| inside.leave(ends));
        }
        if let Some(open) = open {
            // Where another thread is in it; else it is done.
            open.tell_layers();
        }
    }

    /// Says once why there are no annotations.
    fn tell(&mut self) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        match LevelFilter::current() < LevelFilter::INFO {
            true => diag!(
                Warning,
                "schedule",
                "steps have no ProfilerStep annotations: no layer lets spans of level INFO through, or a feature of the crate \
                 `tracing` (max_level_*) removes them; let `{TARGET}=info` through"
            ),
            false => diag!(
                Warning,
                "schedule",
                "steps have no ProfilerStep annotations: a filter in front of all layers hides them; add `{TARGET}=info` to it \
                 (RUST_LOG=…,{TARGET}=info), or give each layer a filter of its own"
            ),
        }
    }

    /// Says once that the layer's own filter leaves the annotations out.
    pub(super) fn tell_own_filter(&mut self) {
        if !std::mem::replace(&mut self.told, true) {
            diag!(
                Warning,
                "schedule",
                "the trace has no ProfilerStep annotations: the layer's own filter hides them; add `{TARGET}=info` to \
                 KINETO_FILTER, or with_target({TARGET:?}, Level::INFO) to the builder's filter"
            );
        }
    }
}

impl Inside {
    /// Leaves those that others have ended, and those that end now.
    fn leave(&self, ends: impl Fn(&Arc<Entered>) -> bool) {
        let is_over = |entered: &Arc<Entered>| entered.is_ended.load(Ordering::Relaxed) || ends(entered);
        // Layers are told outside of the borrow.
        let over: Vec<_> = self.0.borrow_mut().extract_if(.., |entered| is_over(entered)).collect();
        over.iter().for_each(|entered| entered.leave());
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.leave(|_| true);
    }
}

impl Entered {
    /// Ends it on the thread that is in it.
    fn leave(&self) {
        if !self.tell_layers() {
            self.span.with_subscriber(|(id, dispatch)| {
                if let Some(registry) = dispatch.downcast_ref::<Registry>() {
                    registry.exit(id);
                }
            });
        }
    }

    /// Ends it for the layers, on any thread, unless that was done; on the thread that is in it, for the registry too.
    fn tell_layers(&self) -> bool {
        let is_first = !self.is_ended.swap(true, Ordering::Relaxed);
        if is_first {
            self.span.with_subscriber(|(id, dispatch)| dispatch.exit(id));
        }
        is_first
    }
}
