//! Which spans each thread has told observers that it is inside.

use super::{ObservedSpan, Observers};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A span that was told and not left.
#[derive(Clone)]
struct OpenSpan {
    /// Whose observers, by address: layers do not see each other's.
    observers: usize,
    generation: u64,
    key: u64,
    span: Arc<ObservedSpan>,
    /// Who was told, a bit each.
    takers: u64,
}

thread_local! {
    static TOLD: RefCell<Vec<OpenSpan>> = const { RefCell::new(Vec::new()) };
}

/// Does something with what the thread has told; nothing once the thread is ending.
fn with<R>(action: impl FnOnce(&mut Vec<OpenSpan>) -> R) -> Option<R> {
    TOLD.try_with(|told| told.try_borrow_mut().ok().map(|mut told| action(&mut told))).ok().flatten()
}

impl Observers {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The calling thread enters the span with that key.
    pub(crate) fn enter(&self, key: u64, span: &Arc<ObservedSpan>) {
        let (observers, generation) = (self.address(), self.generation.load(Ordering::Relaxed));
        let takers = self.running.load(Ordering::Relaxed);
        // What it was inside when an earlier recording ended, it has not been seen to leave.
        let is_old = |told: &mut OpenSpan| told.observers == observers && told.generation != generation;
        self.leave(is_old);
        let told = OpenSpan { observers, generation, key, span: span.clone(), takers };
        if with(|all| all.push(told)).is_some() {
            self.tell(takers, |observer| observer.enter(span));
        }
    }

    /// The calling thread leaves all that it is inside: it is recorded no longer.
    pub(crate) fn leave_all(&self) {
        let observers = self.address();
        self.leave(|told| told.observers == observers);
    }

    fn leave(&self, which: impl FnMut(&mut OpenSpan) -> bool) {
        let left = with(|all| all.extract_if(.., which).collect::<Vec<_>>()).unwrap_or_default();
        left.iter().rev().for_each(|told| self.tell(told.takers, |observer| observer.exit(&told.span)));
    }

    /// The calling thread leaves the span with that key, which another thread may have entered.
    pub(crate) fn exit(&self, key: u64) {
        let observers = self.address();
        let left = with(|all| {
            let at = all.iter().rposition(|told| told.observers == observers && told.key == key)?;
            let left = all.remove(at);
            let inside = all.iter().skip(at).filter(|told| told.observers == observers);
            Some((left, inside.cloned().collect::<Vec<_>>()))
        });
        let Some((left, inside)) = left.flatten() else { return };
        inside.iter().rev().for_each(|told| self.tell(told.takers, |observer| observer.exit(&told.span)));
        self.tell(left.takers, |observer| observer.exit(&left.span));
        inside.iter().for_each(|told| self.tell(told.takers, |observer| observer.enter(&told.span)));
    }
}
