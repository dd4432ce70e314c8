//! The spans that each thread has entered as observers see it.

use super::{ObservedSpan, Observers};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A span whose enter was reported, but not its exit.
#[derive(Clone)]
struct EnteredSpan {
    /// The address of its observers: layers do not see each other's spans.
    observers: usize,
    generation: u64,
    key: u64,
    span: Arc<ObservedSpan>,
    /// The observers that were notified of the enter, a bit each.
    notified: u64,
}

thread_local! {
    static ENTERED: RefCell<Vec<EnteredSpan>> = const { RefCell::new(Vec::new()) };
}

/// Calls `action` with the thread's reported spans; returns `None` if the thread is ending.
fn with_entered<R>(action: impl FnOnce(&mut Vec<EnteredSpan>) -> R) -> Option<R> {
    ENTERED.try_with(|entered| entered.try_borrow_mut().ok().map(|mut entered| action(&mut entered))).ok().flatten()
}

impl Observers {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Reports that the calling thread enters the span with that key.
    pub(crate) fn report_enter(&self, key: u64, span: &Arc<ObservedSpan>) {
        let (observers, generation) = (self.address(), self.generation.load(Ordering::Relaxed));
        let notified = self.running.load(Ordering::Relaxed);
        // The exits of spans that were open when an earlier recording ended were not seen.
        self.leave_matching(&mut |entered| entered.observers == observers && entered.generation != generation);
        let entered = EnteredSpan { observers, generation, key, span: span.clone(), notified };
        if with_entered(|all| all.push(entered)).is_some() {
            self.notify(notified, &|observer| observer.enter(span));
        }
    }

    /// Reports that the calling thread, which is no longer recorded, leaves all its spans.
    pub(crate) fn leave_all(&self) {
        let observers = self.address();
        self.leave_matching(&mut |entered| entered.observers == observers);
    }

    fn leave_matching(&self, which: &mut dyn FnMut(&mut EnteredSpan) -> bool) {
        let mut left = with_entered(|all| all.extract_if(.., which).collect::<Vec<_>>()).unwrap_or_default();
        while let Some(entered) = left.pop() {
            self.notify_exit(&entered);
        }
    }

    fn notify_exit(&self, left: &EnteredSpan) {
        self.notify(left.notified, &|observer| observer.exit(&left.span));
    }

    /// Reports that the calling thread leaves the span with that key, which another thread may have entered.
    pub(crate) fn report_exit(&self, key: u64) {
        let observers = self.address();
        let left = with_entered(|all| {
            let at = all.iter().rposition(|entered| entered.observers == observers && entered.key == key)?;
            let left = all.remove(at);
            let mut inside = Vec::new();
            for entered in all.get(at..).unwrap_or_default() {
                if entered.observers == observers {
                    inside.push(entered.clone());
                }
            }
            Some((left, inside))
        });
        let Some((left, inside)) = left.flatten() else { return };
        for entered in inside.iter().rev() {
            self.notify_exit(entered);
        }
        self.notify_exit(&left);
        for entered in &inside {
            self.notify(entered.notified, &|observer| observer.enter(&entered.span));
        }
    }
}
