//! The spans `ProfilerStep#n` around the steps of a program with a schedule.

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

/// The annotation of the current step.
#[derive(Debug, Default)]
pub(super) struct Annotation {
    open: Option<Arc<EnteredAnnotation>>,
    /// The step that began before a subscriber was installed.
    pending_step: Option<u64>,
    /// Whether a message has reported why there are no annotations.
    is_reported: bool,
}

/// A span that a thread has entered.
#[derive(Debug)]
struct EnteredAnnotation {
    span: Span,
    /// Whether layers have received the exit.
    has_exited_layers: AtomicBool,
}

/// The annotations that a thread has entered.
///
/// A registry has a list of each thread's spans, and only the thread itself can remove one. If another thread ends a step,
/// the thread that entered its span removes it at its own next step, or when it ends.
#[derive(Default)]
struct ThreadAnnotations(RefCell<Vec<Arc<EnteredAnnotation>>>);

thread_local! {
    static ENTERED: ThreadAnnotations = ThreadAnnotations::default();
    /// Whether the thread has entered an annotation. Until then [`ENTERED`] is not touched: thread-locals are dropped in
    /// reverse order of their creation, and it must be dropped before those of the layers.
    static HAS_ENTERED: Cell<bool> = const { Cell::new(false) };
}

impl Annotation {
    /// Opens the annotation of a step on the calling thread.
    pub(super) fn begin(&mut self, step: u64) {
        self.end();
        if dispatcher::get_default(Dispatch::is::<NoSubscriber>) {
            self.pending_step = Some(step);
            return;
        }
        let span = tracing::span!(
            target: TARGET, Level::INFO, "user_annotation",
            kineto.annotation = tracing::field::Empty, kineto.name = %format_args!("ProfilerStep#{step}")
        );
        if span.is_disabled() {
            return self.report_missing();
        }
        span.with_subscriber(|(id, dispatch)| dispatch.enter(id));
        let entered = Arc::new(EnteredAnnotation { span, has_exited_layers: AtomicBool::new(false) });
        HAS_ENTERED.set(true);
        let _ = ENTERED.try_with(|inside| inside.0.borrow_mut().push(entered.clone()));
        self.open = Some(entered);
    }

    /// Opens the annotation that found no subscriber, if there is one now.
    pub(super) fn begin_late(&mut self) {
        if let Some(step) = self.pending_step.take() {
            self.begin(step);
        }
    }

    /// Ends the annotation now, whichever thread has entered it.
    pub(super) fn end(&mut self) {
        self.pending_step = None;
        let open = self.open.take();
        if HAS_ENTERED.get() {
            let ends = |own: &Arc<EnteredAnnotation>| open.as_ref().is_some_and(|open| Arc::ptr_eq(open, own));
            let _ = ENTERED.try_with(|inside| inside.leave_ended(ends));
        }
        if let Some(open) = open {
            // Has an effect only if another thread has entered it.
            open.exit_layers();
        }
    }

    /// Reports once why there are no annotations.
    fn report_missing(&mut self) {
        if std::mem::replace(&mut self.is_reported, true) {
            return;
        }
        if LevelFilter::current() < LevelFilter::INFO {
            diag!(
                Warning,
                "schedule",
                "steps have no ProfilerStep annotations: every layer filters out level INFO, or a max_level_* feature of the \
                 crate `tracing` removes it; enable `{TARGET}=info`"
            )
        } else {
            diag!(
                Warning,
                "schedule",
                "steps have no ProfilerStep annotations: a filter in front of all layers hides them; add `{TARGET}=info` to it \
                 (RUST_LOG=…,{TARGET}=info), or give each layer its own filter"
            )
        }
    }

    /// Reports once that the layer's own filter hides the annotations.
    pub(super) fn report_own_filter(&mut self) {
        if !std::mem::replace(&mut self.is_reported, true) {
            diag!(
                Warning,
                "schedule",
                "the trace has no ProfilerStep annotations: the layer's own filter hides them; add `{TARGET}=info` to \
                 KINETO_FILTER, or with_target({TARGET:?}, Level::INFO) to the builder's filter"
            );
        }
    }
}

impl ThreadAnnotations {
    /// Exits the annotations that other threads have ended, and those that end now.
    fn leave_ended(&self, ends: impl Fn(&Arc<EnteredAnnotation>) -> bool) {
        let is_over =
            |entered: &Arc<EnteredAnnotation>| entered.has_exited_layers.load(Ordering::Relaxed) || ends(entered);
        // Layers are called outside the borrow.
        let over: Vec<_> = self.0.borrow_mut().extract_if(.., |entered| is_over(entered)).collect();
        over.iter().for_each(|entered| entered.exit_span());
    }
}

impl Drop for ThreadAnnotations {
    fn drop(&mut self) {
        self.leave_ended(|_| true);
    }
}

impl EnteredAnnotation {
    /// Exits the span on the thread that has entered it.
    fn exit_span(&self) {
        if !self.exit_layers() {
            self.span.with_subscriber(|(id, dispatch)| {
                if let Some(registry) = dispatch.downcast_ref::<Registry>() {
                    registry.exit(id);
                }
            });
        }
    }

    /// Exits the span for the layers, on any thread; returns `false` if that was done before. On the thread that has entered
    /// it, this also exits it for the registry.
    fn exit_layers(&self) -> bool {
        let is_first = !self.has_exited_layers.swap(true, Ordering::Relaxed);
        if is_first {
            self.span.with_subscriber(|(id, dispatch)| dispatch.exit(id));
        }
        is_first
    }
}
